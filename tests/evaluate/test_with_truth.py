"""Rebuilt scans beside their truth: the numbers are those of the files, and the picture hangs the right way."""

import logging
import re

import nibabel as nib
import numpy as np
import pytest
import torch
from matplotlib.image import imread
from scipy.interpolate import CubicSpline

from scripts.evaluate import metrics
from scripts.evaluate.with_truth import compare_with_truth, draw_comparison
from scripts.inputs.scan import Scan
from scripts.stack.acquisition import Acquisition
from scripts.stack.grid import respaced_affine
from scripts.stack.profile import acquire


@pytest.fixture
def case(tmp_path, phantom):
    """A sharp volume, its 4 mm slices and a stand-in for the result, as the bundle leaves them."""

    def write(axis=2):
        affine = np.diag([1.0, 1.0, 1.0, 1.0])
        affine[:3, 3] = -20, 30, 10
        acquisition = Acquisition.of_truth(axis, phantom.shape[axis], edge=1.0, thickness=4.0)
        thick = acquire(torch.from_numpy(phantom), acquisition).numpy()
        result = phantom + 20 * np.random.default_rng(1).standard_normal(phantom.shape).astype(np.float32)
        thick_affine = respaced_affine(affine, axis, phantom.shape[axis], thick.shape[axis], 4.0)
        for name, data, place in (
            ("case", thick, thick_affine),
            ("case_truth", phantom, affine),
            ("case_sr", result, affine),
        ):
            nib.save(nib.Nifti1Image(data, place), tmp_path / f"{name}.nii.gz")
        path, truth = tmp_path / "case.nii.gz", tmp_path / "case_truth.nii.gz"
        return Scan(str(path), path, (path,), tmp_path / "case_sr", truth=truth)

    return write


def read(path) -> torch.Tensor:
    return torch.from_numpy(nib.load(path).get_fdata(dtype=np.float32))


def cubic_by_scipy(thick, axis):
    """Not-a-knot spline through the slice centres, constant beyond the outermost ones; ratio 4."""
    count = thick.shape[axis]
    centres = 1.5 + 4.0 * np.arange(count)
    spline = CubicSpline(centres, thick.double().numpy(), axis=axis)
    return torch.from_numpy(spline(np.clip(np.arange(4 * count), centres[0], centres[-1]))).float()


def test_the_logged_numbers_are_those_of_the_files(case, tmp_path, caplog):
    caplog.set_level(logging.INFO, logger="drift")
    item = case(0)
    compare_with_truth([item], str(tmp_path))
    truth = read(item.truth)
    expected = {"cubic": cubic_by_scipy(read(item.source), 0), "DRIFT": read(tmp_path / "case_sr.nii.gz")}
    lines = [m for m in caplog.messages if "PSNR" in m]
    assert len(lines) == 2
    for line, (label, volume) in zip(lines, expected.items()):
        assert line.startswith("case") and label in line
        psnr, ssim = map(float, re.search(r"PSNR (\S+) dB\s+SSIM (\S+)$", line).groups())
        assert psnr == pytest.approx(metrics.psnr(volume, truth), abs=0.0051)
        assert ssim == pytest.approx(metrics.ssim(volume, truth), abs=0.000051)
    path = tmp_path / "case_comparison.png"
    assert f"wrote {path}" in caplog.messages
    height, width, _ = imread(path).shape
    assert width > 1000 and height > 500  # four columns that a person can look at


def test_a_result_on_another_grid_is_told_of_and_not_compared(case, tmp_path, caplog):
    """As with --target_thickness 0.8."""
    item = case()
    nib.save(nib.Nifti1Image(np.ones((9, 9, 9), np.float32), np.eye(4)), f"{item.result}.nii.gz")
    with caplog.at_level(logging.INFO, logger="drift"):
        compare_with_truth([item], str(tmp_path))
    assert "on another grid than the truth" in caplog.text and not list(tmp_path.glob("*.png"))


def blob(shape, centre, width=3.0):
    """A Gaussian; `width` in voxels, one or one for each axis. Wide across a plane, it shows in every such plane."""
    place = np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij"), -1)
    return torch.from_numpy(np.exp(-0.5 * (((place - centre) / width) ** 2).sum(-1)).astype(np.float32))


SHAPE = (40, 40, 40)


def shown(volume, axis, path):
    """The panels of the first of two equal columns, upper and lower, without titles; rows and columns as shares."""
    draw_comparison({"a": volume, "b": volume}, axis, path)
    image = imread(path)[..., 0]
    height, width = image.shape
    return [half[half.shape[0] // 6 :, : width // 2] for half in (image[: height // 2], image[height // 2 :])]


def test_planes_hang_as_radiologists_hang_them(tmp_path):
    """A blob at the right, the front and the top: on the left of planes it lies in, and high where they are upright."""
    for row, normal in enumerate((2, 1)):  # of slices along the first axis
        width, centre = np.full(3, 3.0), np.array([33, 33, 33])
        width[normal] = 30  # so that the plane beside the midline has it
        panel = shown(blob(SHAPE, centre, width), 0, tmp_path / f"{normal}.png")[row]
        bright = np.argwhere(panel > 0.5).mean(0) / panel.shape
        assert (bright < 0.45).all(), f"{normal}: {bright}"


def test_columns_stand_in_the_order_given_under_the_window_of_the_last(tmp_path):
    """A brighter volume is cut, and rescales none."""
    reference = blob(SHAPE, np.full(3, 20.0), 8.0)
    volumes = {"empty": 0 * reference, "half": reference / 2, "bright": 10 * reference, "truth": reference}
    draw_comparison(volumes, 2, tmp_path / "a.png")
    image = imread(tmp_path / "a.png")[..., 0]
    columns = np.array_split(image[image.shape[0] // 2 :], 4, axis=1)  # the upper half carries the titles
    empty, half, bright, truth = (part.max() for part in columns)
    assert empty == 0 and bright >= truth > 0.8 and half == pytest.approx(truth / 2, abs=0.1)
