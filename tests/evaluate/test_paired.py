"""The paired evaluation, from NIfTI files to rows: methods, acquisitions, refusals and the command."""

import json
import math
from dataclasses import replace
from functools import partial
from pathlib import Path

import nibabel as nib
import numpy as np
import pandas as pd
import pytest
import torch
from monai.bundle import ConfigParser
from monai.data import MetaTensor
from scipy.ndimage import gaussian_filter

from scripts.errors import InputError
from scripts.evaluate import metrics
from scripts.evaluate.paired import evaluate
from scripts.method.weights import write_card
from scripts.paper.image_quality import ImageQuality
from scripts.stack import tissue, trace
from scripts.stack.acquisition import SLR, Acquisition
from scripts.stack.interpolation import interpolate
from scripts.stack.profile import acquire
from scripts.stack.slices import Slices
from scripts.train.denoising import denoised
from scripts.train.simulation import central_slab
from scripts.train.truth import read_volume
from tests.config_files import on_planes
from tests.fixtures import CARD

ROOT = Path(__file__).parents[2]
SPACING = 0.875  # mm; a float32 number, as affines hold
CUBIC = {"cubic spline": partial(interpolate, method="cubic")}


def write_phantom(path, seed, shape=(30, 26, 24)):
    """A smooth blob in air, in a NIfTI file."""
    noise = gaussian_filter(np.random.default_rng(seed).standard_normal(shape), 1.0)
    place = np.stack(np.meshgrid(*(np.linspace(-1, 1, n) for n in shape), indexing="ij"))
    head = 800.0 * (np.square(place).sum(0) < 0.8) * (1 + noise / np.abs(noise).max())
    nib.save(nib.Nifti1Image(head.astype(np.float32), np.diag([SPACING, SPACING, SPACING, 1.0])), path)


@pytest.fixture
def volumes(tmp_path):
    items = []
    for seed, contrast in enumerate(("T1w", "T1w", "FLAIR")):
        path = tmp_path / f"sub-{seed}_{contrast}.nii.gz"
        write_phantom(path, seed)
        items.append({"label": str(path), "sharp_axes": (1, 2), "subject": f"sub-{seed}", "contrast": contrast})
    return items


@pytest.fixture
def measured(tmp_path):
    """`evaluate` at 5 mm, with other options where they are given; its rows."""
    return partial(evaluate, output_dir=tmp_path / "out", thicknesses=[5.0])


def by_hand(item, thickness, profile=SLR):
    """PSNR of the cubic spline along axis 1."""
    truth = torch.from_numpy(nib.load(item["label"]).get_fdata(dtype=np.float32))
    acquisition = Acquisition.of_truth(1, truth.shape[1], edge=SPACING, thickness=thickness, profile=profile)
    return metrics.psnr(interpolate(acquire(truth, acquisition), acquisition, "cubic"), truth)


@pytest.mark.parametrize("profile", [4.0, "rectangular"])
def test_a_case_by_hand(volumes, measured, tmp_path, profile):
    (row,) = measured(volumes[:1], CUBIC, profile=profile).to_dict("records")
    assert row["psnr"] == pytest.approx(by_hand(volumes[0], 5.0, profile), abs=1e-4)
    assert (profile == SLR) == (row["psnr"] == pytest.approx(by_hand(volumes[0], 5.0), abs=1e-3))
    assert (row["volume"], row["slice_axis"], row["target_thickness"]) == (
        "sub-0_T1w.nii.gz",
        1,
        pytest.approx(SPACING),
    )
    assert json.loads((tmp_path / "out" / "evaluation.json").read_text())["options"]["profile"] == profile


def test_methods_are_given_slices_their_place_and_what_a_header_says(volumes, measured):
    """All but the profile, which no header states; and a copy, so that none spoils the next one's slices."""
    seen = []

    def method(thick, acquisition):
        seen.append((thick.clone(), acquisition))
        thick *= 0
        return interpolate(thick, acquisition, "nearest")

    measured(volumes[:1], {"a": method, "b": method}, spacing_ratio=1.2, profile="rectangular")
    (thick, a), (again, _) = seen
    assert a == Acquisition.of_truth(1, 26, edge=SPACING, thickness=5.0, spacing=6.0) == Acquisition.of(thick)
    truth = torch.from_numpy(nib.load(volumes[0]["label"]).get_fdata(dtype=np.float32))
    expected = acquire(truth, replace(a, profile="rectangular"))
    assert torch.allclose(thick.as_tensor()[0], expected) and torch.equal(thick, again)
    assert np.linalg.norm(np.asarray(thick.affine)[:3, 1]) == pytest.approx(6.0)
    measured(volumes[:1], {"a": method}, spacing_ratio=1.2, profile="rectangular", simulated_noise=0.05)
    noise, measured = (seen[-1][0] - thick).as_tensor()[0], Slices.of(thick)
    bright = measured.head & (thick.as_tensor()[0] > measured.tissue_range.high / 2)
    share = noise[bright].std() / measured.tissue_range.extent
    assert share.item() == pytest.approx(0.05, rel=0.05), "a share of the range of tissue"


@pytest.mark.parametrize("volume", [torch.zeros(1, 30, 4, 24), torch.full((1, 30, 26, 24), math.nan)])
def test_what_is_no_finite_volume_on_the_grid_of_the_truth_is_refused(volumes, measured, tmp_path, volume):
    with pytest.raises(InputError, match=r"mine made a volume of \(1, 30, .* of sub-0_T1w.nii.gz at 5 mm"):
        measured(volumes, {"mine": lambda thick, acquisition: volume})
    assert not (tmp_path / "out").exists()


def test_all_sharp_axes_gaps_and_noise(volumes, measured):
    def run(**options):
        table = measured(volumes[:1], CUBIC, thicknesses=[4.0], axes="all", slab=12, **options)
        assert (table.pop("seconds") > 0).all()
        return table

    plain, gaps, noisy = run(), run(spacing_ratio=1.25), run(simulated_noise=0.05, seed=1)
    assert list(plain["slice_axis"]) == [1, 2] and set(plain["slice_spacing"]) == {4.0}
    assert set(gaps["slice_spacing"]) == {5.0} and set(gaps["slice_thickness"]) == {4.0}
    assert (noisy["psnr"] < plain["psnr"]).all() and (gaps["psnr"] < plain["psnr"]).all()
    assert noisy.equals(run(simulated_noise=0.05, seed=1)) and not noisy.equals(run(simulated_noise=0.05, seed=2))


@pytest.mark.parametrize("axes", [(0,), (1, 2)])
def test_results_are_compared_with_the_truth_without_its_own_noise_where_that_is_asked_for(volumes, measured, axes):
    item = volumes[0] | {"sharp_axes": axes}
    image = nib.load(item["label"])
    array = image.get_fdata(dtype=np.float32)
    noise = 40 * np.random.default_rng(0).standard_normal(array.shape) * (array > 0)
    nib.save(nib.Nifti1Image((array + noise).astype(np.float32), image.affine), item["label"])
    clean = denoised(read_volume(item["label"]), axes).as_tensor()
    (row,) = measured([item], {"clean": lambda *_: clean}, denoised=True).to_dict("records")
    assert row["psnr_denoised"] == math.inf and row["psnr_head"] < 40
    assert measured([item], CUBIC)["psnr_denoised"].isna().all()


def test_a_slab_is_central_and_across_the_slice_axis():
    volume = MetaTensor(torch.arange(7 * 8 * 9.0).reshape(1, 7, 8, 9), affine=torch.eye(4))
    slab = central_slab(volume, 0, 3)
    assert torch.equal(slab.as_tensor(), volume.as_tensor()[..., 3:6]) and slab.affine[2, 3] == 3
    assert torch.equal(central_slab(volume, 2, 4).as_tensor(), volume.as_tensor()[:, :, 2:6])
    assert all(central_slab(volume, 1, count).shape == volume.shape for count in (99, None))


def write_lesions(path, shape=(30, 26, 24), spacing=SPACING):
    """One of 64 voxels, of which 32 lie in the 12 central slices along the last axis, and one of 48."""
    mask = np.zeros(shape, np.uint8)
    mask[10:14, 10:14, 4:8] = mask[17:21, 12:16, 12:15] = 1
    nib.save(nib.Nifti1Image(mask, np.diag([spacing, spacing, spacing, 1.0])), path)
    return str(path)


def test_lesions_and_steps_are_measured(volumes, measured, tmp_path):
    """Where a mask is known; a lesion that the slab cuts is as large as it was."""
    volumes[1]["lesions"] = write_lesions(tmp_path / "lesions.nii.gz")
    methods = CUBIC | {"nearest": partial(interpolate, method="nearest")}
    rows = measured(volumes[:2], methods, slab=12).set_index(["subject", "method"])
    assert rows.loc["sub-0", ["lesions", "small_lesions"]].isna().all(None)
    truth = torch.from_numpy(nib.load(volumes[1]["label"]).get_fdata(dtype=np.float32)[:, :, 6:18])
    sizes = torch.zeros(truth.shape)
    sizes[10:14, 10:14, :2], sizes[17:21, 12:16, 6:9] = 64, 48
    acquisition = Acquisition.of_truth(1, 26, edge=SPACING, thickness=5.0)
    cubic = interpolate(acquire(truth, acquisition), acquisition, "cubic")
    for name, below in (("lesions", math.inf), ("small_lesions", 60)):
        expected = metrics.lesion_contrast_kept(cubic, truth, sizes, below)
        assert rows.loc[("sub-1", "cubic spline"), name] == pytest.approx(expected, abs=1e-4)
    assert (rows.xs("nearest", level="method")["step_ratio"] == math.inf).all()
    expected = trace.step_ratio(cubic, acquisition, tissue.flat_tissue(truth))
    assert rows.loc[("sub-1", "cubic spline"), "step_ratio"] == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("other", [{"shape": (30, 26, 25)}, {"spacing": 1.0}])
def test_lesions_on_another_grid_are_refused(volumes, measured, tmp_path, other):
    item = volumes[0] | {"lesions": write_lesions(tmp_path / "lesions.nii.gz", **other)}
    with pytest.raises(InputError, match=r"lesions.nii.gz is not on the grid of .*sub-0_T1w.nii.gz"):
        measured([item], CUBIC)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"thicknesses": []}, "thicknesses are none"),
        ({"thicknesses": [0.5]}, r"sub-0_T1w.nii.gz has voxels of 0.875 mm along axis 1: slices of 0.5 mm"),
        ({"methods": {}}, "methods are none"),
        ({"methods": {"mine": "my_module"}}, "methods::mine is 'my_module': expected a callable"),
        ({"axes": "second"}, "axes is 'second': expected first or all"),
        ({"spacing_ratio": 0}, "spacing_ratio is 0"),
        ({"simulated_noise": -0.1}, "simulated_noise is -0.1"),
        ({"simulated_width": 0.5}, "simulated_width is 0.5"),
        ({"seed": None}, "seed is None"),
        ({"profile": 1.0}, r"slice profile is 1.0:.*2 to 32"),
        ({"slab": 8.5}, "slab is 8.5"),
    ],
)
def test_refusals(volumes, measured, tmp_path, options, message):
    with pytest.raises(InputError, match=message):
        measured(volumes, **{"methods": CUBIC, **options})
    assert not (tmp_path / "out").exists()


def test_a_constant_volume_is_refused(volumes, measured, write_nifti):
    flat = {**volumes[0], "label": str(write_nifti(np.zeros((16, 16, 16)), np.eye(4), "flat.nii.gz"))}
    with pytest.raises(InputError, match=r"flat.nii.gz is constant.*Leave this volume out"):
        measured([flat], CUBIC)


# The command


@pytest.fixture
def config(volumes, drift, tmp_path):
    """`configs/evaluate.yaml` with tiny weights, and the files that are stacked on it."""

    def parser(*stacked, **given):
        torch.save(drift.state_dict(), tmp_path / "model.pt")
        write_card(tmp_path / "model.pt", CARD)
        write_lesions(tmp_path / "lesions.nii.gz")
        names = {"kind": "val", "lesions": "lesions.nii.gz"}
        listed = [{"image": Path(v["label"]).name, **names, **v} for v in volumes[:1]]
        (tmp_path / "list.json").write_text(json.dumps(listed))
        config = ConfigParser()
        own = [ROOT / "configs" / "inference.yaml", ROOT / "configs" / "evaluate.yaml"]
        config.read_config([*map(str, own), *map(str, stacked)])
        options = {
            "bundle_root": str(ROOT),
            "dataset_dir": str(tmp_path / "list.json"),
            "output_dir": str(tmp_path / "out"),
            "ckpt_path": str(tmp_path / "model.pt"),
            "device": "cpu",
            "thicknesses": [4.0],
            "network_def": on_planes(4, 8),
        }
        config.update(options | given)
        return config

    return parser


@pytest.mark.slow
def test_the_command(config, volumes, tmp_path):
    (rows,) = config().get_parsed_content("run")
    assert list(rows["method"]) == ["nearest neighbour", "linear", "cubic spline", "stage 1", "DRIFT"]
    assert list(rows["steps"].fillna(-1)) == [-1, -1, -1, 0, 3]  # round(4 (1 - 0.875 / 4)) = 3
    assert rows["psnr"].nunique() == 5 and rows["psnr"][2] == pytest.approx(by_hand(volumes[0], 4.0), abs=1e-4)
    assert rows["lesions"].notna().all()
    options = json.loads((tmp_path / "out" / "evaluation.json").read_text())["options"]
    assert options["consistency"] == "project" and options["weights"] == str(tmp_path / "model.pt")


def test_what_more_is_measured_is_asked_for(config, measured, refusal):
    assert [config().get_parsed_content(name) for name in ("metrics", "segmentation")] == [None, None]
    more = config(ROOT / "configs" / "paper" / "image_quality.yaml", segmenter="python 'my seg.py' {image} {labels}")
    assert isinstance(more.get_parsed_content("metrics"), ImageQuality)
    assert more.get_parsed_content("segmentation").words == ("python", "my seg.py", "{image}", "{labels}")
    found = refusal(measured, [], CUBIC, metrics="all")
    assert "metrics is 'all': expected none" in found and "configs/paper/image_quality.yaml" in found


@pytest.mark.slow
def test_a_method_of_ones_own_is_one_entry(config, tmp_path, monkeypatch):
    """A function in a module of one's own, and the entry as docs/own.md shows it."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "my_module.py").write_text(
        "from scripts.stack.interpolation import interpolate\n\n\n"
        "def my_function(thick, acquisition, strength):\n"
        "    return strength * interpolate(thick, acquisition, 'linear')\n"
    )
    page = (ROOT / "docs" / "own.md").read_text()
    (tmp_path / "mine.yaml").write_text(next(line for line in page.splitlines() if line.startswith("methods::mine")))
    (rows,) = config(tmp_path / "mine.yaml", **{"methods::stage 1::_disabled_": True}).get_parsed_content("run")
    psnr = rows.set_index("method")["psnr"]
    assert list(psnr.index) == ["nearest neighbour", "linear", "cubic spline", "DRIFT", "mine"]
    assert psnr["mine"] < psnr["linear"] and pd.isna(rows["steps"][4])
