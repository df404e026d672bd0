"""Real thick-slice scans, for which no truth exists: sharpness, steps and streaks through the slices, and a picture.

python -m benchmarks.thick SCANS PICTURE [--slab 24] [--stepped] [--sharp] [--noise 0]

SCANS is a folder of axial scans. The coronal slab behind the middle of each is rebuilt by configs/inference.yaml: it
shows the brain without the face, and what the whole scan would show there.
"""

import tempfile
from pathlib import Path

import matplotlib
import nibabel as nib
import numpy as np
from PIL import Image

from benchmarks import deployed, parser_of, preprocessing, shipped_network
from scripts.evaluate.tables import markdown
from scripts.pages.planes import cut
from scripts.rebuild.device import default_device
from scripts.rebuild.rebuilder import Rebuilder
from scripts.stack.grid import voxel_spacing
from scripts.stack.interpolation import interpolate
from scripts.stack.slices import Slices
from scripts.stack.spectra import power_density
from scripts.stack.tissue import flat_tissue
from scripts.stack.trace import step_ratio, streak

FIGURES = ("power (dB)", "step ratio", "streak", "steps within slices (%)")
HEADINGS = ("scan", "slices (mm)", *(f"{figure}: cubic spline, DRIFT" for figure in FIGURES))
LEFT_RIGHT, FRONT_BACK, SLICE = range(3)  # axes of an axial scan in RAS+ order


def directional_power_ratio(volume, axis, reference, spacings, band):
    """Power in a band of frequencies (cycles/mm) along one axis over that along another, in dB; 0: equally sharp."""
    densities = []
    for a in (axis, reference):
        frequencies, density = power_density(volume, a, spacings[a])
        inside = (frequencies >= band[0]) & (frequencies < band[1])
        densities.append(density[inside].mean())
    return 10 * (densities[0] / densities[1]).log10().item()


def coronal_slab(path, count, folder, **options):
    """The slab behind the middle, as preprocessing gives it."""
    scan = nib.as_closest_canonical(nib.load(path))
    start = int(0.42 * scan.shape[FRONT_BACK]) - count // 2
    nib.save(scan.slicer[:, start : start + count], Path(folder) / path.name)
    return Slices.of(preprocessing(**options)({"image": str(Path(folder) / path.name)})["image"])


def main():
    """Prints a table and draws the picture."""
    parser = parser_of(__doc__)
    parser.add_argument("scans", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--slab", type=int, default=24)
    parser.add_argument("--stepped", action="store_true", help="leave the steps between slices: no deblocking")
    parser.add_argument("--sharp", action="store_true", help="results of this option")
    parser.add_argument("--noise", type=float, help="of the slices, in %% of the range (default: as they show it)")
    options = parser.parse_args()
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    network, inferer, rows = shipped_network(), deployed(deblocked=not options.stepped, sharp=options.sharp), []
    table = []
    for path in sorted(options.scans.glob("*.nii*")):
        with tempfile.TemporaryDirectory() as folder:
            measured = coronal_slab(
                path, options.slab, folder, noise="auto" if options.noise is None else options.noise
            )
        a, name = measured.acquisition, path.name.removesuffix(".gz").removesuffix(".nii")
        rebuilt = Rebuilder(network, inferer, default_device())(measured).volume
        spacing, result = voxel_spacing(rebuilt.affine), rebuilt.as_tensor()
        nearest, cubic = (interpolate(measured.array, a, method) for method in ("nearest", "cubic"))
        band = (1 / (2 * a.slice_spacing), 1 / (2 * max(spacing)))  # thick slices cannot hold it, the grid can
        ratios = [directional_power_ratio(v, SLICE, LEFT_RIGHT, spacing, band) for v in (cubic, result)]
        flat = flat_tissue(cubic.clamp(min=measured.array.min()))
        steps = [step_ratio(v, a, flat) for v in (cubic, result)]
        streaks, within = zip(*(streak(v, SLICE, flat) for v in (cubic, result)))
        shares = [100 * one / measured.tissue_range.extent for one in within]
        columns = zip((ratios, steps, streaks, shares), (1, 2, 2, 2))
        numbers = [", ".join(f"{one:.{digits}f}" for one in pair) for pair, digits in columns]
        table.append((name, f"{a.slice_spacing:.2g}", *numbers))
        rows.append((name, spacing, (nearest, cubic, result)))
    print(markdown(dict(zip(HEADINGS, zip(*table)))))

    figure, panels = plt.subplots(len(rows), 3, figsize=(12, 3.4 * len(rows)), facecolor="black", squeeze=False)
    for line, (name, spacing, volumes) in zip(panels, rows):
        low, high = np.percentile(volumes[0], (0.5, 99.7))
        for panel, volume, title in zip(line, volumes, (f"{name}: measured", "cubic spline", "DRIFT")):
            plane = cut(volume, 1, options.slab // 2)
            aspect = spacing[SLICE] / spacing[LEFT_RIGHT]
            panel.imshow(plane, cmap="gray", vmin=low, vmax=high, aspect=aspect)
            panel.set_title(title, color="white", fontsize=9)
            panel.axis("off")
    figure.tight_layout()
    figure.savefig(options.picture, dpi=90, facecolor="black")
    Image.open(options.picture).convert("L").save(options.picture, optimize=True)  # nothing has a colour: half the size


if __name__ == "__main__":
    main()
