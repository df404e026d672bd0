"""The pictures of docs/web.md: the page with a rebuilt scan, wide and narrow, light and dark.

python -m benchmarks.web_pictures docs

The page must have been built (docs/web.md). The scan is the built-in sample with pixels of 2 mm and 0.8 % noise, its
thickness corrected. It needs chromium.
"""

import tempfile
import time
from pathlib import Path

import nibabel as nib
import numpy as np
from PIL import Image

from benchmarks import parser_of
from scripts.inputs.sample import built_in_sample
from tests.bundle.test_web import WEB
from tests.bundle.test_web_page import Page, Server

NOISE, THICKNESS = 0.008, 4.5  # of the brightest voxel; mm
WIDE, NARROW = 1400, 400  # pixels of the window
SETTLED = 2  # seconds until a window of another width is drawn


def coarse(folder):
    """The sample with two by two pixels in one, and noise; the largest spacing is taken for its thickness."""
    sample = nib.load(built_in_sample(folder / "sample").path)
    voxels = np.asarray(sample.dataobj, dtype=np.float32)
    pairs = voxels[: voxels.shape[0] // 2 * 2, : voxels.shape[1] // 2 * 2]
    pixels = pairs.reshape(pairs.shape[0] // 2, 2, pairs.shape[1] // 2, 2, -1).mean(axis=(1, 3))
    noise = NOISE * pixels.max() * np.random.default_rng(0).normal(size=pixels.shape)
    affine = sample.affine @ np.diag([2, 2, 1, 1])
    affine[:3, 3] += sample.affine[:3, :2].sum(axis=1) / 2
    path = folder / "icbm152.nii.gz"
    nib.save(nib.Nifti1Image((pixels + noise).clip(0).astype(np.float32), affine), path)
    return path


def main():
    """Rebuilds the scan in the page, and takes the pictures."""
    parser = parser_of(__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder.absolute()
    with tempfile.TemporaryDirectory() as name, Server(WEB / "dist") as server, Page(name, server.address) as page:
        page.drop(coarse(Path(name)))
        page.fill("slice_thickness", THICKNESS)
        page.rebuild()
        for file, width, theme in (
            ("web", WIDE, "light"),
            ("web_dark", WIDE, "dark"),
            ("web_narrow", NARROW, "light"),
            ("web_narrow_dark", NARROW, "dark"),
        ):
            page("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
            page("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
            time.sleep(SETTLED)
            height = page.evaluate("document.documentElement.scrollHeight")
            picture = folder / f"{file}.png"
            page.picture(picture, x=0, y=0, width=width, height=height)
            colours = Image.open(picture).convert("RGB").quantize(256, kmeans=3, dither=Image.Dither.NONE)
            colours.save(picture, optimize=True)


if __name__ == "__main__":
    main()
