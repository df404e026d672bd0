"""The gallery of docs/: held-out scans as slices, cubic spline, DRIFT, truth, error and error map; one of them fails.
Four pictures have --sharp beside the default, one of them of the built-in sample.

python -m benchmarks.gallery DATALIST FOLDER [--only NAME ...]

DATALIST is made as docs/benchmarks.md says: its entries name subject and contrast, the FLAIR a mask of lesions. Whole
volumes are rebuilt; a picture shows one plane that contains the slice axis and no face. It prints a row for each.
"""

import io
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from matplotlib import colormaps
from matplotlib.figure import Figure
from monai.data import MetaTensor
from PIL import Image
from scipy import ndimage
from scipy.spatial.transform import Rotation

from benchmarks import parser_of_volumes, shipped_config
from scripts.evaluate.metrics import TOUCHING, lesion_contrast_kept, lesion_sizes, psnr
from scripts.evaluate.tables import markdown
from scripts.inputs.sample import built_in_sample
from scripts.pages.planes import cut, shades, window
from scripts.paper.guided import drawn_guide
from scripts.paper.several import add_noise
from scripts.stack.acquisition import Acquisition
from scripts.stack.grid import centre
from scripts.stack.intensity import data_range
from scripts.stack.interpolation import interpolate
from scripts.stack.slices import Slices
from scripts.stack.tissue import head_mask
from scripts.train.datasets import sharp_volumes
from scripts.train.simulation import slices_of
from scripts.train.truth import read_volume

MOTION, SHADING, GUIDE_NOISE = (5.0, 5.0), 0.2, 0.01  # of guides: degrees and mm, shares of the range
NODDED, SHIFTED = 4.0, 2.0  # degrees and mm by which the head moves between its two packages of slices
LESION = 40, 100  # voxels of a lesion that is shown: small, but plain to see in the truth
AROUND = 36  # voxels beside a lesion that are shown
CONFIDENCE = 0.9
SHARE_OF_RANGE = 0.25  # the end of the scale of errors, as a share of the truth's window
MARGIN = 4  # voxels around the head
SAMPLE = "icbm152"  # subject of the built-in sample
SAGITTAL, CORONAL, AXIAL = range(3)  # the axis across a plane


@dataclass(frozen=True)
class Case:
    """A picture: slices along `axis` of a scan, seen in a plane across `normal`, at a share of that axis."""

    name: str
    subject: str
    contrast: str
    axis: int
    thickness: float
    normal: int
    place: float = 0.5
    guide: str | None = None  # a contrast
    noise: float = 0.0  # of the slices, as a share of the range
    moved: bool = False  # every second slice is measured after the head has moved
    lesion: bool = False  # the neighbourhood of the small lesion that faded most
    sharp: bool = False  # the default and --sharp side by side, without errors


CASES = (
    Case("t1w", "ds002748-31", "T1w", CORONAL, 5.0, AXIAL, 0.62),
    Case("brain", "lifespan-7", "T1w", AXIAL, 5.0, CORONAL, 0.45),
    Case("head", "uih-a", "T1w", AXIAL, 3.0, CORONAL, 0.42),
    Case("t2w", "ljubljana-19", "T2w", CORONAL, 5.0, AXIAL, 0.5),
    Case("contrast-agent", "ljubljana-19", "T1wGd", CORONAL, 5.0, AXIAL, 0.5),
    Case("flair", "ljubljana-19", "FLAIR", AXIAL, 3.0, CORONAL, 0.45),
    Case("flair-guided", "ljubljana-19", "FLAIR", AXIAL, 5.0, CORONAL, 0.45, guide="T1w"),
    Case("fails-lesion", "ljubljana-19", "FLAIR", AXIAL, 5.0, CORONAL, lesion=True),
    Case("noisy", "ds002748-34", "T1w", CORONAL, 5.0, AXIAL, 0.62, noise=0.04),
    Case("moved", "ds002748-33", "T1w", CORONAL, 5.0, AXIAL, 0.62, moved=True),
    Case("sharp-sample", SAMPLE, "T1w", AXIAL, 5.0, CORONAL, 0.45, sharp=True),
    Case("sharp-t1w", "ds002748-31", "T1w", CORONAL, 5.0, AXIAL, 0.62, sharp=True),
    Case("sharp-t2w", "ljubljana-19", "T2w", CORONAL, 5.0, AXIAL, 0.5, sharp=True),
    Case("sharp-flair", "ljubljana-19", "FLAIR", AXIAL, 5.0, CORONAL, 0.45, sharp=True),
)


def nodded(truth):
    """The head `(1, X, Y, Z)` after it has nodded, about the middle of the volume, and gone down."""
    affine = np.asarray(truth.affine, dtype=float)
    middle, motion = centre(affine, truth.shape[1:]), np.eye(4)
    motion[:3, :3] = Rotation.from_euler("x", NODDED, degrees=True).as_matrix()
    motion[:3, 3] = middle - motion[:3, :3] @ middle - [0, 0, SHIFTED]
    index = np.linalg.inv(affine) @ np.linalg.inv(motion) @ affine
    moved = ndimage.affine_transform(truth.as_tensor()[0].numpy(), index[:3, :3], index[:3, 3], order=3, mode="nearest")
    return MetaTensor(torch.from_numpy(moved).clamp(min=float(truth.min()))[None], affine=truth.affine)


def slices(case, truth):
    """Thick slices of a truth `(1, X, Y, Z)` as a case has them."""
    rng, thick = np.random.default_rng(0), slices_of(truth, case.axis, case.thickness)
    if case.moved:
        second = slices_of(nodded(truth), case.axis, case.thickness).as_tensor()
        odd = [slice(None)] * 4
        odd[1 + case.axis] = slice(1, None, 2)
        thick[tuple(odd)] = second[tuple(odd)]
    add_noise(thick, case.noise * data_range(truth), rng)
    return thick


def faded(result, truth, mask):
    """The small lesion that has lost most contrast: its middle, in voxels, and the kept share of its contrast."""
    labels, _ = ndimage.label(mask > 0, TOUCHING)
    small = [label for label, size in enumerate(np.bincount(labels.ravel())) if LESION[0] <= size <= LESION[1]]
    change = (truth - result).numpy()

    def lost(label):
        ring = ndimage.binary_dilation(labels == label, iterations=2) & (labels == 0)
        return change[labels == label].mean() - change[ring].mean()

    there = labels == max(small, key=lost)
    kept = lesion_contrast_kept(result, truth, lesion_sizes(torch.from_numpy(there)))
    return [round(place) for place in ndimage.center_of_mass(there)], kept


def picture(planes, circle):
    """Name -> plane in [0, 1] with its colours, side by side; `circle` is a place in them, or None."""
    rows, columns = next(iter(planes.values()))[0].shape
    figure = Figure(figsize=(2.1 * len(planes), 2.1 * rows / columns + 0.3), facecolor="black")
    for panel, (name, (plane, colors)) in zip(figure.subplots(1, len(planes)), planes.items()):
        panel.imshow(plane, cmap=colormaps[colors], vmin=0, vmax=1, interpolation="nearest")
        if circle is not None:
            panel.plot(*circle, "o", markersize=34, markerfacecolor="none", markeredgecolor="#ffcc33")
        panel.set_title(name, color="white", fontsize=10, pad=3)
        panel.axis("off")
    figure.subplots_adjust(left=0.002, right=0.998, bottom=0.005, top=1 - 0.26 / figure.get_figheight(), wspace=0.02)
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=130, facecolor="black")
    palette = Image.new("P", (1, 1))
    shades_of = [colormaps[colors](np.arange(0, 256, 2), bytes=True)[:, :3] for colors in ("gray", "magma")]
    palette.putpalette(np.concatenate(shades_of).tobytes())
    return Image.open(drawn).convert("RGB").quantize(palette=palette, dither=Image.Dither.NONE)


def shown(case, items, rebuilder, folder):
    """Draws a case. Returns its row."""
    item = items[case.subject, case.contrast]
    truth = read_volume(item["label"])
    thick, sharp = slices(case, truth), truth.as_tensor()[0]
    placed = None
    if case.guide is not None:
        guide = read_volume(items[case.subject, case.guide]["label"])
        drawn = drawn_guide(guide, np.random.default_rng(0), MOTION, SHADING, GUIDE_NOISE)
        placed = rebuilder.place(rebuilder.guide_scan(Slices.of(drawn)), Slices.of(thick))
    rebuilt = rebuilder(Slices.of(thick), placed)
    result, acquisition = rebuilt.volume.as_tensor(), Acquisition.of(thick)
    nearest, cubic = (interpolate(thick.as_tensor()[0], acquisition, how) for how in ("nearest", "cubic"))
    head, (low, high) = head_mask(sharp), window(sharp)
    scale = SHARE_OF_RANGE * (high - low)
    middle, kept = [round(case.place * length) for length in sharp.shape], None
    if case.lesion:
        middle, kept = faded(result, sharp, read_volume(item["lesions"]).as_tensor()[0].numpy())
    box, margin, circle = cut(head, case.normal, middle[case.normal]).nonzero(), MARGIN, None
    if case.lesion:
        mark = np.zeros(sharp.shape)
        mark[tuple(middle)] = 1
        box, margin = cut(mark, case.normal, middle[case.normal]).nonzero(), AROUND
    (top, bottom), (left, right) = ((max(0, a.min() - margin), a.max() + margin + 1) for a in box)
    if case.lesion:
        circle = box[1][0] - left, box[0][0] - top

    def seen(volume, begin, end, colors):
        plane = cut(volume, case.normal, middle[case.normal])[top:bottom, left:right]
        return shades(plane, begin, end), colors

    width = rebuilt.error_map.half_width(CONFIDENCE).as_tensor()
    planes = {
        f"{case.thickness:g} mm slices": seen(nearest, low, high, "gray"),
        "cubic spline": seen(cubic, low, high, "gray"),
        "DRIFT, guided" if placed else "DRIFT": seen(result, low, high, "gray"),
        "truth": seen(sharp, low, high, "gray"),
        "error": seen((result - sharp).abs() * head, 0.0, scale, "magma"),
        "error map": seen(width * head, 0.0, scale, "magma"),
    }
    if case.sharp:
        sharper = replace(rebuilder, inferer=replace(rebuilder.inferer, sharp=True))
        drawn = sharper(Slices.of(thick)).volume.as_tensor()
        planes = {name: planes[name] for name in ("cubic spline", "DRIFT", "truth")}
        planes["DRIFT --sharp"] = seen(drawn, low, high, "gray")
    picture(planes, circle).save(folder / f"{case.name}.png", optimize=True)
    inside = ((result - sharp).abs() <= width)[head].float().mean().item()
    return {
        "picture": case.name,
        "scan": f"{case.subject} {case.contrast}",
        "T (mm)": f"{case.thickness:g}",
        "cubic spline (dB)": f"{psnr(cubic, sharp, head):.2f}",
        "DRIFT (dB)": f"{psnr(result, sharp, head):.2f}",
        "--sharp (dB)": f"{psnr(drawn, sharp, head):.2f}" if case.sharp else "",
        "within the error map (%)": f"{100 * inside:.0f}",
        "lesion's contrast (%)": "" if kept is None else f"{100 * kept:.0f}",
    }


def main():
    """Draws all pictures, or those that are named, and prints the table."""
    parser = parser_of_volumes(__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="+", choices=[case.name for case in CASES])
    options = parser.parse_args()
    overrides = {"ckpt_path": options.ckpt_path, "inferer::progress": False, "error_map": True}
    rebuilder = shipped_config(**overrides).get_parsed_content("rebuilder")
    items = {(i["subject"], i["contrast"]): i for i in sharp_volumes(options.datalist, "validation")}
    options.folder.mkdir(parents=True, exist_ok=True)
    chosen = [case for case in CASES if options.only is None or case.name in options.only]
    with tempfile.TemporaryDirectory() as folder:
        if any(case.subject == SAMPLE for case in chosen):  # which needs nilearn
            items[SAMPLE, "T1w"] = {"label": built_in_sample(folder).truth}
        rows = [shown(case, items, rebuilder, options.folder) for case in chosen]
    print(markdown({name: [row[name] for row in rows] for name in rows[0]}))


if __name__ == "__main__":
    main()
