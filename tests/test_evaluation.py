"""Laws of the interpolation methods, and the paired evaluation from NIfTI files to tables."""

import csv
import json
import math
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import torch
from monai.bundle import ConfigWorkflow
from scipy import ndimage

from scripts import consistency, evaluation, grid, metrics, slice_profile
from scripts.errors import InputError
from scripts.inference import DriftInferer
from scripts.networks import AnatomicalProjectionNetwork, Drift, VelocityNetwork

ROOT = Path(__file__).parents[1]
SPACING = 0.9  # mm


def write_phantom(path, seed, spacing=SPACING, shape=(30, 26, 24)):
    """A smooth blob in air, in a NIfTI file."""
    noise = ndimage.gaussian_filter(np.random.default_rng(seed).standard_normal(shape), 1.0)
    place = np.stack(np.meshgrid(*(np.linspace(-1, 1, n) for n in shape), indexing="ij"))
    head = 800.0 * (np.square(place).sum(0) < 0.8) * (1 + noise / np.abs(noise).max())
    nib.save(nib.Nifti1Image(head.astype(np.float32), np.diag([spacing, spacing, spacing, 1.0])), path)


def tiny_drift():
    """Random weights, last layers included, so that both stages change the image."""
    torch.manual_seed(0)
    drift = Drift(AnatomicalProjectionNetwork((4, 8)), VelocityNetwork((4, 8)))
    torch.nn.init.normal_(drift.velocity.unet.conv_out.weight, std=0.1)
    return drift


@pytest.fixture
def volumes(tmp_path):
    items = []
    for seed, contrast in enumerate(("T1w", "T1w", "FLAIR")):
        path = tmp_path / f"sub-{seed}_{contrast}.nii.gz"
        write_phantom(path, seed)
        item = {"label": str(path), "sharp_axes": (1, 2), "subject": f"sub-{seed}", "contrast": contrast}
        items.append(item)
    return items


@pytest.fixture
def inferers():
    return {"stage 1": DriftInferer(roi_size=32, steps=0), "DRIFT": DriftInferer(roi_size=32, n_max=3)}


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("method", ["linear", "cubic"])
def test_ramps_are_exact_between_centres(axis, method):
    """Thick slices that hold their own position give every fine slice its own, up to the outermost centres."""
    centres = grid.centred_positions(7, 4.0, 33, 0.9)
    thick = torch.from_numpy(centres).expand(3, 5, 7).movedim(2, axis)
    fine = evaluation.interpolate_slices(thick, axis, 4.0, 33, 0.9, method)
    expected = torch.arange(33, dtype=torch.float64).clamp(centres[0], centres[-1]).expand(3, 5, 33)
    assert torch.allclose(fine, expected.movedim(2, axis), atol=1e-9)


def test_cubic_is_exact_for_cubics_and_linear_is_not():
    centres = torch.from_numpy(grid.centred_positions(8, 4.0, 29, 1.0))
    truth = (torch.arange(29, dtype=torch.float64) / 10) ** 3
    inside = slice(math.ceil(centres[0]), math.floor(centres[-1]) + 1)
    thick = ((centres / 10) ** 3).expand(2, 2, 8)
    error = {
        method: (evaluation.interpolate_slices(thick, 2, 4.0, 29, 1.0, method) - truth)[..., inside].abs().max()
        for method in ("linear", "cubic")
    }
    assert error["cubic"] < 1e-9 < 1e-2 < error["linear"]


def test_linear_agrees_with_numpy():
    thick = torch.randn(4, 6, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    fine = evaluation.interpolate_slices(thick, 1, 5.0, 31, 1.0, "linear")
    centres = grid.centred_positions(6, 5.0, 31, 1.0)
    for i, k in np.ndindex(4, 5):
        assert np.allclose(fine[i, :, k], np.interp(np.arange(31), centres, thick[i, :, k]))


def test_nearest_is_the_networks_input():
    thick = torch.randn(4, 6, 5, generator=torch.Generator().manual_seed(0))
    expected = slice_profile.regrid_nearest(thick, 1, 5.0, 31, 1.0)
    assert torch.equal(evaluation.interpolate_slices(thick, 1, 5.0, 31, 1.0, "nearest"), expected)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_few_slices_lower_the_degree(count):
    thick = torch.full((3, 3, count), 7.0)
    assert torch.allclose(evaluation.interpolate_slices(thick, 2, 5.0, 12, 1.0, "cubic"), torch.tensor(7.0))


def test_unknown_method():
    with pytest.raises(ValueError, match=r"'sinc'.*expected 'nearest', 'linear' or 'cubic'"):
        evaluation.interpolate_slices(torch.zeros(3, 3, 3), 2, 5.0, 12, 1.0, "sinc")


def test_slab_is_central_and_across_the_slice_axis():
    volume = torch.arange(7 * 8 * 9.0).reshape(7, 8, 9)
    assert torch.equal(evaluation.central_slab(volume, 0, 3), volume[:, :, 3:6])
    assert torch.equal(evaluation.central_slab(volume, 2, 4), volume[:, 2:6])
    assert torch.equal(evaluation.central_slab(volume, 1, 99), volume)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_rebuild_with_the_identity_is_nearest_neighbour(axis):
    """The intensity map is undone, axis and grid are kept."""
    ramps = 10.0 * torch.arange(6)[:, None] + 20.0 * torch.arange(6)[:, None, None]  # no noise within a slice
    thick = (torch.tensor([100.0, 900.0, 300.0, 800.0, 100.0, 600.0]) + ramps).movedim(2, axis)
    acquisition = evaluation.Acquisition(axis, 4.0, 4.0, 21, 1.1)

    class Identity(torch.nn.Module):
        def modulations(self, thickness, times):
            assert thickness.tolist() == [[4.0, pytest.approx(1.1)]] and len(times) == 12  # round(15 (1 - 1.1/4)) = 11
            return thickness, times

        def integrate(self, image, apn_modulation, velocity_modulations, times):
            return image

    nearest = slice_profile.regrid_nearest(thick, axis, 4.0, 21, 1.1)
    result = evaluation.rebuild(thick, acquisition, Identity(), DriftInferer(roi_size=16), "cpu", "measure")
    assert torch.allclose(result, nearest, atol=1e-2)
    deployed = evaluation.rebuild(thick, acquisition, Identity(), DriftInferer(roi_size=16), "cpu")
    expected = consistency.reconcile(nearest, thick, axis, 1.1, 4.0, 4.0)
    assert torch.allclose(deployed, expected, atol=1e-2) and (expected - nearest).abs().max() > 1


def test_summary_is_numpys_and_counts_what_exists():
    numbers = {"A": [1.0, 2.0, 4.0], "B": [5.0]}
    rows = [
        {"slice_thickness": 3.0, "slice_spacing": 3.0, "contrast": contrast, "method": "linear"}
        | dict.fromkeys(evaluation.METRICS, value)
        | {"power_middle": math.nan if value < 3 else value}
        for contrast, values in numbers.items()
        for value in values
    ]
    first, second = evaluation.summarise(rows)
    assert first["n"] == 3 and first["psnr"] == {"mean": np.mean(numbers["A"]), "sd": np.std([1, 2, 4], ddof=1), "n": 3}
    assert first["power_middle"]["n"] == 1 and first["power_middle"]["mean"] == 4.0
    assert second["psnr"]["mean"] == 5.0 and math.isnan(second["psnr"]["sd"])
    table = evaluation.summary_table([first, second])
    assert "| 2.33 ± 1.53 |" in table and "| 4.0 ± \N{EN DASH} (N = 1) |" in table and "nan" not in table


def test_files_to_tables(volumes, inferers, tmp_path):
    thicknesses = [3.0, 5.0]  # at 0.9 mm, 1/3 lies above half Nyquist, 1/5 below
    result = evaluation.evaluate(volumes, tiny_drift(), inferers, tmp_path / "out", thicknesses)
    methods = ["nearest neighbour", "linear", "cubic spline", "stage 1", "DRIFT"]
    rows, summary = result["rows"], result["summary"]
    assert [row["method"] for row in rows] == 6 * methods
    assert {row["slice_axis"] for row in rows} == {1}
    assert [row["steps"] for row in rows[:10]] == [None, None, None, 0, 2, None, None, None, 0, 2]
    assert len({row["psnr"] for row in rows}) == len(rows)  # every method of every case is another volume
    assert all(math.isnan(row["power_middle"]) == (row["slice_thickness"] == 3.0) for row in rows)

    # one case by hand
    truth = torch.from_numpy(nib.load(volumes[0]["label"]).get_fdata(dtype=np.float32))
    thick = slice_profile.acquire(truth, 1, SPACING, 5.0, 5.0)
    cubic = evaluation.interpolate_slices(thick, 1, 5.0, truth.shape[1], SPACING, "cubic")
    assert rows[7]["psnr"] == pytest.approx(metrics.psnr(cubic, truth), abs=1e-4)

    # the three files say the same, and only they are there
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [f"evaluation.{e}" for e in ("csv", "json", "md")]
    stored = json.loads((tmp_path / "out" / "evaluation.json").read_text())
    assert stored["rows"][7]["psnr"] == rows[7]["psnr"] and stored["rows"][0]["power_middle"] is None
    assert stored["settings"]["thicknesses"] == thicknesses and len(stored["summary"]) == len(summary) == 20
    with open(tmp_path / "out" / "evaluation.csv", newline="") as file:
        table = list(csv.DictReader(file))
    assert [line["statistic"] for line in table] == ["value"] * 30 + ["mean", "sd"] * 20
    t1w = [row for row in rows if (row["contrast"], row["method"], row["slice_thickness"]) == ("T1w", "DRIFT", 5.0)]
    chosen = [line for line in table if (line["contrast"], line["method"]) == ("T1w", "DRIFT")]
    mean, sd = (
        next(c for c in chosen if c["statistic"] == s and c["slice_thickness"] == "5.0") for s in ("mean", "sd")
    )
    for key in evaluation.METRICS:
        values = [row[key] for row in t1w]
        assert mean["n"] == "2" and float(mean[key]) == pytest.approx(np.mean(values))
        assert float(sd[key]) == pytest.approx(np.std(values, ddof=1))
    markdown = (tmp_path / "out" / "evaluation.md").read_text(encoding="utf-8")
    assert f"{float(mean['psnr']):.2f} ± {float(sd['psnr']):.2f}" in markdown
    assert "\N{EN DASH}" in markdown and "nan" not in markdown


def test_other_profiles_are_other_slices(volumes, tmp_path):
    """The case by hand again, for one profile after the other."""
    truth = torch.from_numpy(nib.load(volumes[0]["label"]).get_fdata(dtype=np.float32))
    found = set()
    for profile in (4.0, 2.5, "gaussian", "rectangular"):
        result = evaluation.evaluate(volumes[:1], tiny_drift(), {}, tmp_path / "out", [5.0], profile=profile)
        stored = json.loads((tmp_path / "out" / "evaluation.json").read_text())
        assert stored["settings"]["profile"] == profile
        thick = slice_profile.acquire(truth, 1, SPACING, 5.0, 5.0, profile)
        cubic = evaluation.interpolate_slices(thick, 1, 5.0, truth.shape[1], SPACING, "cubic")
        assert result["rows"][2]["psnr"] == pytest.approx(metrics.psnr(cubic, truth), abs=1e-4)
        found.add(result["rows"][2]["psnr"])
    assert len(found) == 4


def test_all_sharp_axes_gaps_and_noise(volumes, tmp_path):
    def run(**options):
        network, out = tiny_drift(), tmp_path / "out"
        result = evaluation.evaluate(volumes[:1], network, {}, out, [4.0], axes="all", slab=12, **options)
        return [(row["slice_axis"], row["slice_spacing"], row["psnr"]) for row in result["rows"]]

    plain, gaps, noisy = run(), run(spacing_ratio=1.25), run(noise=0.05, seed=1)
    assert [axis for axis, _, _ in plain] == [1, 1, 1, 2, 2, 2]
    assert {spacing for _, spacing, _ in plain} == {4.0} and {spacing for _, spacing, _ in gaps} == {5.0}
    assert all(worse[2] < better[2] for better, worse in zip(plain, noisy))
    assert noisy == run(noise=0.05, seed=1) != run(noise=0.05, seed=2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"thicknesses": []}, "thicknesses are"),
        ({"thicknesses": [0.5]}, r"sub-0_T1w.nii.gz has voxels of 0.9 mm along axis 1: slices of 0.5 mm"),
        ({"axes": "second"}, "axes is 'second': expected first or all"),
        ({"spacing_ratio": 0}, "spacing_ratio is 0"),
        ({"noise": -0.1}, "noise is -0.1"),
        ({"seed": None}, "seed is None"),
        ({"profile": 1.0}, r"slice profile is 1.0:.*2 to 32"),
        ({"profile": "hamming"}, r"slice profile is 'hamming'.*'gaussian' or 'rectangular'"),
        ({"profile": math.nan}, r"slice profile is nan:.*2 to 32"),
        ({"profile": math.inf}, r"slice profile is inf:.*2 to 32"),
        ({"profile": None}, r"profile is None.*2 to 32"),
        ({"slab": 0}, "slab is 0"),
        ({"consistency": "off"}, "consistency is 'off': expected measure or project"),
    ],
)
def test_refusals(volumes, tmp_path, options, message):
    options = {"thicknesses": [5.0]} | options
    with pytest.raises(InputError, match=message):
        evaluation.evaluate(volumes, tiny_drift(), {}, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_nan_is_not_averaged_away(volumes, inferers, tmp_path):
    drift = tiny_drift()
    torch.nn.init.constant_(drift.apn.unet.conv_out.bias, math.nan)
    with pytest.raises(ValueError, match=r"stage 1 made NaN .* at 5 mm"):
        evaluation.evaluate(volumes, drift, inferers, tmp_path / "out", [5.0])


def test_the_command(volumes, tmp_path):
    """`configs/evaluate.yaml` as people run it, with tiny weights."""
    torch.save(tiny_drift().state_dict(), tmp_path / "model.pt")
    listed = [{"image": Path(v["label"]).name, "kind": "val", **v} for v in volumes[:1]]
    (tmp_path / "list.json").write_text(json.dumps(listed))
    workflow = ConfigWorkflow(
        config_file=str(ROOT / "configs" / "evaluate.yaml"),
        logging_file=False,
        workflow_type="train",
        bundle_root=str(ROOT),
        dataset_dir=str(tmp_path / "list.json"),
        output_dir=str(tmp_path / "out"),
        ckpt_path=str(tmp_path / "model.pt"),
        device="cpu",
        thicknesses=[4.0],
        **{
            "network_def#apn#channels": [4, 8],
            "network_def#apn#residual": False,
            "network_def#velocity#channels": [4, 8],
            "inferer#roi_size": 32,
            "stage1_inferer#roi_size": 32,
        },
    )
    workflow.initialize()
    (result,) = workflow.run()
    assert [row["steps"] for row in result["rows"]] == [None, None, None, 0, 3]  # round(4 (1 - 0.9 / 4)) = 3
    assert (tmp_path / "out" / "evaluation.md").exists()
