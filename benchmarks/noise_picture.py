"""Noise in a real scan: the cubic spline, DRIFT that takes noise for texture, and DRIFT as it is, for docs/gallery.md.

python -m benchmarks.noise_picture SCAN docs/gallery/noise.png [--place 0.3]

SCAN is any thick-slice scan in axial slices. The back of a head is shown, in a coronal plane at a share of its depth.
"""

import io
from pathlib import Path

import nibabel as nib
import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from benchmarks import parser_of, preprocessing
from drift_mri import rebuild
from scripts.stack.interpolation import interpolate
from scripts.stack.slices import Slices

EDGE = 3.2  # inches of a panel's width
PANEL = 0.9  # of the picture's height; names take the rest
BRIGHTEST = 99.7  # percentile of the window


def coronal(image, place):
    """A coronal plane of an image, the head on top, and its voxels' edges in mm."""
    turned = nib.as_closest_canonical(image)
    values = turned.get_fdata(dtype=np.float32)
    return values[::-1, round(place * values.shape[1])].T[::-1], np.array(turned.header.get_zooms()[:3])


def main():
    """Draws the picture."""
    parser = parser_of(__doc__)
    parser.add_argument("scan")
    parser.add_argument("picture", type=Path)
    parser.add_argument("--place", type=float, default=0.3)
    options = parser.parse_args()
    slices = Slices.of(preprocessing()({"image": options.scan})["image"])
    cubic = interpolate(slices.array, slices.acquisition, "cubic").numpy()
    results = {
        "cubic spline": nib.Nifti1Image(cubic, slices.fine_affine),
        "DRIFT, --noise 0": rebuild(options.scan, noise=0),
        "DRIFT": rebuild(options.scan),
    }
    planes = {name: coronal(image, options.place) for name, image in results.items()}
    brightest = np.percentile(planes["DRIFT"][0], BRIGHTEST)
    plane, edges = planes["DRIFT"]
    height = EDGE * plane.shape[0] * edges[2] / (plane.shape[1] * edges[0]) / PANEL
    figure = Figure(figsize=(EDGE * len(planes), height), facecolor="black")
    for place, (name, (plane, edges)) in enumerate(planes.items()):
        panel = figure.add_axes((place / len(planes), 0, 1 / len(planes), PANEL))
        panel.imshow(plane, cmap="gray", vmin=0, vmax=brightest, aspect=edges[2] / edges[0], interpolation="bilinear")
        panel.set_title(name, color="white", fontsize=10, pad=3)
        panel.axis("off")
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=140, facecolor="black")
    Image.open(drawn).convert("L").quantize(64).save(options.picture, optimize=True)


if __name__ == "__main__":
    main()
