"""The built-in sample is what it says, the numbers are those of the files, and the picture is the right way up."""

import json
import logging
import re

import nibabel as nib
import numpy as np
import pytest
import torch
from matplotlib.image import imread
from scipy.interpolate import CubicSpline

from scripts.errors import InputError
from scripts.evaluate import metrics
from scripts.evaluate.sample import compare_with_truth, draw_comparison
from scripts.inputs.sample import built_in_sample
from scripts.inputs.scans import scans
from scripts.stack.acquisition import Acquisition
from scripts.stack.grid import fine_affine
from scripts.stack.profile import acquire

# --- the built-in sample ---


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sample") / "new" / "out"
    (item,) = scans(None, folder, 1.3)
    return folder, item, nib.load(item["truth"]), nib.load(item["image"])


def test_the_sample_is_one_scan_with_its_truth(sample):
    folder, item, _, _ = sample
    image = str(folder / "icbm152.nii.gz")
    assert item == {
        "truth": str(folder / "icbm152_truth.nii.gz"),
        "image": image,
        "name": image,
        "sources": [image, str(folder / "icbm152.json")],
        "result": str(folder / "icbm152_sr"),
    }
    assert sorted(p.name for p in folder.iterdir()) == ["icbm152.json", "icbm152.nii.gz", "icbm152_truth.nii.gz"]
    assert json.loads((folder / "icbm152.json").read_text()) == {"SliceThickness": 5.0}


def test_the_sample_is_five_millimetres_thick_and_axial(sample):
    _, _, truth, thick = sample
    np.testing.assert_allclose(truth.header.get_zooms(), (1, 1, 1), atol=1e-6)
    np.testing.assert_allclose(thick.header.get_zooms(), (1, 1, 5), atol=1e-6)
    assert nib.aff2axcodes(thick.affine) == ("R", "A", "S")
    assert truth.shape == (*thick.shape[:2], 5 * thick.shape[2])  # one grid with the result


def test_sample_and_truth_share_their_centre(sample):
    _, _, truth, thick = sample
    centres = [nib.affines.apply_affine(v.affine, (np.array(v.shape) - 1) / 2) for v in (truth, thick)]
    np.testing.assert_allclose(*centres, atol=1e-4)


def test_the_sample_is_the_truth_acquired_in_thick_slices(sample):
    _, _, truth, thick = sample
    sharp = torch.from_numpy(truth.get_fdata(dtype=np.float32))
    expected = acquire(sharp, Acquisition.of_truth(2, sharp.shape[2], 1.0, 5.0)).numpy()
    np.testing.assert_allclose(thick.get_fdata(dtype=np.float32), expected, atol=1e-5 * float(sharp.max()))


def test_the_sample_holds_the_whole_head(sample):
    _, _, truth, thick = sample
    data = truth.get_fdata(dtype=np.float32)
    assert data.dtype == thick.get_fdata(dtype=np.float32).dtype and np.isfinite(data).all()
    occupied = np.argwhere(data > 0)
    assert (occupied.min(0)[:2] == 2).all()  # a margin of two voxels, so that nothing is cut
    assert (np.array(data.shape)[:2] - occupied.max(0)[:2] == 3).all()
    assert 1.2e6 < (data > 0.2 * data.max()).sum() < 2.5e6  # mm^3 of brain: an adult's


def test_the_sample_takes_another_thickness(tmp_path):
    item = built_in_sample(tmp_path, slice_thickness=3.0)
    truth, thick = nib.load(item["truth"]), nib.load(item["image"])
    assert thick.header.get_zooms()[2] == pytest.approx(3)
    assert truth.shape[2] == 3 * thick.shape[2]


# --- beside the truth ---


@pytest.fixture
def case(tmp_path, phantom):
    """A sharp volume, its 4 mm slices and a stand-in for the result, as the bundle leaves them; an item of `scans`."""

    def write(axis=2):
        affine = np.diag([1.0, 1.0, 1.0, 1.0])
        affine[:3, 3] = -20, 30, 10
        acquisition = Acquisition.of_truth(axis, phantom.shape[axis], 1.0, 4.0)
        thick = acquire(torch.from_numpy(phantom), acquisition).numpy()
        result = phantom + 20 * np.random.default_rng(1).standard_normal(phantom.shape).astype(np.float32)
        thick_affine = fine_affine(affine, axis, phantom.shape[axis], thick.shape[axis], 4.0)
        for name, data, place in (
            ("case", thick, thick_affine),
            ("case_truth", phantom, affine),
            ("case_sr", result, affine),
        ):
            nib.save(nib.Nifti1Image(data, place), tmp_path / f"{name}.nii.gz")
        return {
            "image": str(tmp_path / "case.nii.gz"),
            "truth": str(tmp_path / "case_truth.nii.gz"),
            "result": str(tmp_path / "case_sr"),
        }

    return write


def read(path) -> torch.Tensor:
    return torch.from_numpy(nib.load(path).get_fdata(dtype=np.float32))


def cubic_by_scipy(thick, axis):
    """Not-a-knot spline through the slice centres, constant beyond the outermost ones; ratio 4."""
    count = thick.shape[axis]
    centres = 1.5 + 4.0 * np.arange(count)
    spline = CubicSpline(centres, thick.double().numpy(), axis=axis)
    return torch.from_numpy(spline(np.clip(np.arange(4 * count), centres[0], centres[-1]))).float()


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_the_logged_numbers_are_those_of_the_files(axis, case, tmp_path, caplog):
    caplog.set_level(logging.INFO, logger="drift")
    item = case(axis)
    compare_with_truth([item], str(tmp_path))
    truth = read(item["truth"])
    expected = {"cubic": cubic_by_scipy(read(item["image"]), axis), "DRIFT": read(tmp_path / "case_sr.nii.gz")}
    lines = [m for m in caplog.messages if "PSNR" in m]
    assert len(lines) == 2
    for line, (label, volume) in zip(lines, expected.items()):
        assert line.startswith("case") and label in line
        psnr, ssim = map(float, re.search(r"PSNR (\S+) dB\s+SSIM (\S+)$", line).groups())
        assert psnr == pytest.approx(metrics.psnr(volume, truth), abs=0.0051)
        assert ssim == pytest.approx(metrics.ssim(volume, truth), abs=0.000051)


def test_the_picture_is_written_and_named(case, tmp_path, caplog):
    caplog.set_level(logging.INFO, logger="drift")
    compare_with_truth([case()], str(tmp_path))
    path = tmp_path / "case_comparison.png"
    assert f"wrote {path}" in caplog.messages
    height, width, _ = imread(path).shape
    assert width > 1000 and height > 500  # four columns that a person can look at


def test_a_folder_that_is_a_file_is_told(tmp_path):
    (tmp_path / "taken").touch()
    with pytest.raises(InputError, match=r"output_dir .*taken.* cannot be written"):
        built_in_sample(tmp_path / "taken")


def test_a_result_on_another_grid_is_told_of_and_not_compared(case, tmp_path, caplog):
    """As with --target_thickness 0.8."""
    item = case()
    nib.save(nib.Nifti1Image(np.ones((9, 9, 9), np.float32), np.eye(4)), item["result"] + ".nii.gz")
    with caplog.at_level(logging.INFO, logger="drift"):
        compare_with_truth([item], str(tmp_path))
    assert "on another grid than the truth" in caplog.text and not list(tmp_path.glob("*.png"))


def test_scans_without_truth_are_left_out(case, tmp_path, caplog):
    caplog.set_level(logging.INFO, logger="drift")
    item = case()
    del item["truth"]
    compare_with_truth([item, {"image": "elsewhere.nii.gz", "result": "elsewhere_sr"}], str(tmp_path))
    compare_with_truth([], str(tmp_path))
    assert not caplog.messages and not list(tmp_path.glob("*.png"))


def blob(shape, centre, width=3.0):
    """A Gaussian; `width` in voxels, one or one for each axis. Wide across a plane, it shows in every such plane."""
    place = np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij"), -1)
    return torch.from_numpy(np.exp(-0.5 * (((place - centre) / width) ** 2).sum(-1)).astype(np.float32))


def gray(path) -> np.ndarray:
    return imread(path)[..., 0]


SHAPE = (40, 40, 40)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_the_slice_axis_is_drawn_upwards(axis, tmp_path):
    """The picture of a layer high on the slice axis minus that of a low one: titles cancel, bright is above dark."""
    pictures = []
    for name, position in (("high", 32), ("low", 7)):
        centre, width = np.full(3, 20.0), np.full(3, 12.0)
        centre[axis], width[axis] = position, 2
        layer = blob(SHAPE, centre, width)
        draw_comparison({"a": layer, "b": layer}, axis, tmp_path / f"{name}.png")
        pictures.append(gray(tmp_path / f"{name}.png"))
    difference = pictures[0] - pictures[1]
    height, width = difference.shape
    for half in (difference[: height // 2], difference[height // 2 :]):
        for panel in (half[:, : width // 2], half[:, width // 2 :]):
            bright, dark = (np.argwhere(sign * panel > 0.5).mean(0) for sign in (1, -1))
            assert bright[0] < dark[0] - 50  # rows count downwards
            assert abs(bright[1] - dark[1]) < 5


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("row", [0, 1])
def test_the_two_rows_are_the_two_planes_that_contain_the_slice_axis(row, axis, tmp_path):
    """A blob far along one in-plane axis is missed by the plane that cuts that axis, and right in the other one."""
    cut, along = [a for a in range(3) if a != axis][:: -1 if row == 0 else 1]
    centre, width = np.full(3, 20.0), np.full(3, 3.0)
    centre[cut], width[along] = 35, 12
    volume = blob(SHAPE, centre, width)
    draw_comparison({"a": volume, "b": volume}, axis, tmp_path / "blob.png")
    image = gray(tmp_path / "blob.png")
    height, columns = image.shape
    halves = (image[: height // 2], image[height // 2 :])
    panels = [half[half.shape[0] // 6 :, : columns // 2] for half in halves]  # without the titles
    assert panels[row].max() < 0.2
    place = np.argwhere(panels[1 - row] > 0.5)[:, 1] / panels[0].shape[1]
    assert len(place) and place.mean() > 0.7


def test_columns_stand_in_the_order_given_under_one_windowing(tmp_path):
    reference = blob(SHAPE, np.full(3, 20.0), 8.0)
    draw_comparison({"empty": 0 * reference, "half": reference / 2, "truth": reference}, 2, tmp_path / "a.png")
    image = gray(tmp_path / "a.png")
    lower = image[image.shape[0] // 2 :]  # the upper half carries the titles
    empty, half, truth = (part.max() for part in np.array_split(lower, 3, axis=1))
    assert empty == 0 and truth > 0.8
    assert half == pytest.approx(truth / 2, abs=0.1)


def test_a_volume_brighter_than_the_reference_is_cut_not_rescaled(tmp_path):
    reference = blob(SHAPE, np.full(3, 20.0), 8.0)
    draw_comparison({"a": reference, "b": reference}, 2, tmp_path / "a.png")
    draw_comparison({"a": 10 * reference, "b": reference}, 2, tmp_path / "b.png")
    first, second = gray(tmp_path / "a.png"), gray(tmp_path / "b.png")
    half = first.shape[1] // 2
    np.testing.assert_array_equal(first[:, half:], second[:, half:])  # the reference's column is the same
    assert (second[:, :half] >= first[:, :half] - 0.01).all()
