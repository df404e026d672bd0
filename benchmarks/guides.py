"""Detail that a guide may bring in, and the effect of odd guides: two tables of docs/benchmarks.md.

python -m benchmarks.guides DATALIST [--thickness 5] [--slab 32] [--ckpt_path WEIGHTS]

Blobs of 2 to 5 mm are drawn into the guide alone, into the scan alone, and into both. Their share is what the result
shows of their contrast, each in units of its scan's range. Odd guides are registered and looked at by the deployed
code: one that does not fit takes no part.
"""

import numpy as np
import torch
from monai.data import MetaTensor
from scipy import ndimage

from benchmarks import deployed, parser_of_volumes, shipped_network
from scripts.evaluate.metrics import psnr
from scripts.evaluate.tables import markdown
from scripts.paper.guided import drawn_guide
from scripts.rebuild.device import default_device
from scripts.rebuild.rebuilder import Rebuilder
from scripts.stack.grid import voxel_spacing
from scripts.stack.intensity import intensity_range
from scripts.stack.slices import Slices
from scripts.stack.tissue import head_mask
from scripts.train.datasets import sharp_volumes
from scripts.train.simulation import central_slab, slices_of
from scripts.train.truth import read_volume

BLOBS, RADII, CONTRAST = 24, (2.0, 5.0), 0.3  # of the range of tissue
STILL = (0.0, 0.0)
HEADINGS = (
    ("scan", "guide", "in the guide alone", "in the scan alone", "in both"),
    ("scan", "guide", "how", "likeness", "over none (dB)"),
)


def with_blobs(volume, seed):
    """A volume `(1, X, Y, Z)` with soft blobs deep in its head, and where they are, `(X, Y, Z)` in [0, 1]."""
    rng, edges = np.random.default_rng(seed), voxel_spacing(volume.affine)
    deep = ndimage.distance_transform_edt(head_mask(volume[0].as_tensor()).numpy(), sampling=edges) > 12
    places, shape = np.argwhere(deep), np.array(volume.shape[1:])
    grid = np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij"), -1)
    mask = np.zeros(shape)
    for place in places[rng.choice(len(places), BLOBS, replace=False)]:
        away = np.linalg.norm((grid - place) * edges, axis=-1)
        mask = np.maximum(mask, 1 / (1 + np.exp(2 * (away - rng.uniform(*RADII)))))
    tissue_range = intensity_range(volume)
    drawn = volume.as_tensor() + torch.from_numpy(CONTRAST * tissue_range.extent * mask).float()
    return MetaTensor(drawn, affine=volume.affine), mask


def share(after, before, mask, tissue_range):
    """The share of the blobs' contrast that came in, in the units of a scan of that range."""
    change = (after - before).numpy()[mask > 0.5].mean()
    return change / (CONTRAST * tissue_range.extent * mask[mask > 0.5].mean())


def odd(guide, stranger):
    """Name -> a guide `(1, X, Y, Z)` that is not as it should be."""
    array, affine = guide.as_tensor(), np.asarray(guide.affine, dtype=float)
    third = array.clone()
    third[:, :, : 2 * array.shape[2] // 3] = 0
    low = affine.copy()
    low[:3, 3] += low[:3, 2] * array.shape[3] / 2
    ghost = array + 0.5 * torch.roll(array, array.shape[2] // 3, 2)
    coarse = torch.from_numpy(ndimage.gaussian_filter(array[0].numpy(), 1 / voxel_spacing(affine)))[None]
    return {
        "in place": guide,
        "raised by 500": MetaTensor(array + 500, affine=guide.affine),
        "a third of the field": MetaTensor(third, affine=guide.affine),
        "blurred as 2 mm voxels are": MetaTensor(coarse, affine=guide.affine),
        "with a ghost of half its brightness": MetaTensor(ghost, affine=guide.affine),
        "half a head further up": MetaTensor(array, affine=torch.from_numpy(low)),
        "of another head": stranger,
    }


class Head:
    """A volume in thick slices, and the gain by a guide."""

    def __init__(self, item, rebuilder, thickness, slab):
        self.volume, self.axis, self.slab = read_volume(item["label"]), item["sharp_axes"][0], slab
        self.rebuilder, self.thickness = rebuilder, thickness
        self.measured = self.slices(self.volume)
        self.truth = self.cut(self.volume)[0].as_tensor()

    def cut(self, volume):
        """The slab that is rebuilt."""
        return central_slab(volume, self.axis, self.slab)

    def slices(self, volume):
        """The thick slices of a volume's slab."""
        return Slices.of(slices_of(self.cut(volume), self.axis, self.thickness))

    def beside(self, guide):
        """A guide that is registered."""
        drawn = drawn_guide(guide, np.random.default_rng(0), STILL, 0.0, 0.0)
        return self.rebuilder.place(self.rebuilder.guide_scan(Slices.of(drawn)), self.measured)

    def rebuilt(self, guide=None, measured=None):
        """`(X, Y, Z)`."""
        return self.rebuilder(self.measured if measured is None else measured, guide).volume.as_tensor()

    def blobs(self, guide):
        """Shares of the contrast of blobs in the guide alone, in the scan alone, and in both."""
        drawn, mask = with_blobs(self.volume, 0)
        other, own = (intensity_range(one) for one in (guide, self.volume))
        added = (drawn.as_tensor() - self.volume.as_tensor()) * (other.high - other.low) / (own.high - own.low)
        marked = self.beside(MetaTensor(guide.as_tensor() + added, affine=guide.affine))
        placed, slices = self.beside(guide), self.slices(drawn)
        plain = self.rebuilt(placed)
        inside = self.cut(MetaTensor(torch.from_numpy(mask)[None].float(), affine=guide.affine))[0].numpy()
        results = self.rebuilt(marked), self.rebuilt(placed, slices), self.rebuilt(marked, slices)
        return [f"{100 * share(one, plain, inside, own):.1f} %" for one in results]

    def odd(self, guide, stranger):
        """Rows: how a guide is, its likeness, and the gain over none."""
        head = head_mask(self.truth)
        none = psnr(self.rebuilt(), self.truth, head)
        for how, one in odd(guide, stranger).items():
            found = self.beside(one)
            gain = f"{psnr(self.rebuilt(found), self.truth, head) - none:+.2f}" if found.fits else "left out"
            yield how, f"{found.likeness:.2f}", gain


def main():
    """Prints both tables."""
    parser = parser_of_volumes(__doc__)
    parser.add_argument("--thickness", type=float, default=5.0)
    parser.add_argument("--slab", type=int, default=32)
    options = parser.parse_args()
    rebuilder = Rebuilder(
        shipped_network(options.ckpt_path), deployed(options.ckpt_path), default_device(), guide_share=1.0
    )
    volumes = sharp_volumes(options.datalist, "validation")
    contrasts = {item["label"]: item["contrast"] for item in volumes}
    rows = {"blobs": [], "odd": []}
    for item in volumes:
        stranger = next(other["label"] for other in volumes if other["subject"] != item["subject"])
        for path in item.get("guides", ())[:1]:
            head, guide = Head(item, rebuilder, options.thickness, options.slab), read_volume(path)
            names = item["contrast"], contrasts.get(path, path)
            rows["blobs"].append((*names, *head.blobs(guide)))
            rows["odd"] += [(*names, *row) for row in head.odd(guide, read_volume(stranger))]
    for headings, table in zip(HEADINGS, rows.values()):
        print(markdown({name: list(column) for name, column in zip(headings, zip(*table))}), end="\n\n")


if __name__ == "__main__":
    main()
