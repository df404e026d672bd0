"""The benchmarks run on what the project offers today."""

import importlib
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import torch
from monai.data import MetaTensor
from scipy import ndimage

from benchmarks import CKPT_PATH, deployed, gallery
from benchmarks import contents as thresholds
from benchmarks import gains as gains_picture
from benchmarks import noise as noise_table
from benchmarks.spots import by_size
from scripts.evaluate.metrics import lesion_sizes
from scripts.method.weights import read_card
from scripts.stack import contents
from tests.evaluate.test_metrics import lesions
from tests.fixtures import CARD
from tests.nano import random_weights
from tests.stack.test_contents import PLAIN

ROOT = Path(__file__).parents[1]
SHARED = ROOT.parent / "shared" / "data"
NAMES = sorted(path.stem for path in (ROOT / "benchmarks").glob("[!_]*.py"))


@pytest.mark.parametrize("name", NAMES)
def test_each_says_how_it_is_called(name, capsys, monkeypatch):
    if name == "export":
        pytest.importorskip("onnxruntime")
    module = importlib.import_module(f"benchmarks.{name}")
    monkeypatch.setattr("sys.argv", [name, "--help"])
    with pytest.raises(SystemExit, match="0"):
        module.main()
    told = capsys.readouterr().out
    assert f"python -m benchmarks.{name} " in told and "usage:" in told


def test_weights_are_measured_with_the_steps_of_their_own_card(tmp_path):
    path = random_weights(tmp_path / "other.pt")
    assert deployed(path).n_max == CARD.n_max != deployed().n_max == read_card(CKPT_PATH).n_max


def test_lesions_stand_beside_the_spots_of_their_size():
    """By the ball of as many voxels: 27 of 1 mm are one of 3.7 mm, 64 one of 5 mm; in longer voxels they are larger."""
    sizes = lesion_sizes(lesions(1.0, 1.0, 0.0))
    kept = by_size(lesions(120.0, 130.0), lesions(150.0, 140.0), sizes, np.ones(3))
    assert (kept[3.0], kept[5.0]) == pytest.approx((20 / 50, 30 / 40)) and np.isnan([kept[2.0], kept[8.0]]).all()
    longer = by_size(lesions(120.0, 130.0), lesions(150.0, 140.0), sizes, np.array([1.0, 1.0, 2.0]))
    assert longer[5.0] == pytest.approx((20 + 30) / (50 + 40)) and np.isnan(longer[3.0])


def test_a_result_that_reaches_beyond_the_truth_is_compared_voxel_by_voxel(tmp_path):
    """Slices end beyond a truth, so a result is longer at either end."""
    turned = np.array([[-0.9, 0, 0, 40], [0, 0.5, 0.3, -20], [0, -0.4, 0.8, 7], [0, 0, 0, 1]])
    truth, before = torch.rand(3, 4, 8), np.eye(4)
    before[2, 3] = -2
    result = torch.nn.functional.pad(truth, (2, 1), value=9.0)
    (tmp_path / "other").mkdir()
    nib.save(nib.Nifti1Image(result.numpy(), turned @ before), tmp_path / "other" / "T1w_sr.nii.gz")
    sharp = MetaTensor(truth[None], affine=turned)
    (found,) = noise_table.saved_results(tmp_path, "T1w", sharp, sharp).values()
    assert torch.equal(found, truth)


def test_the_picture_of_gains_has_the_figures_of_the_tables():
    gains, guided = (gains_picture.table(*one) for one in (gains_picture.GAINS, gains_picture.GUIDED))
    assert (gains_picture.gain(gains, "3", "T2w"), gains_picture.least(gains, "3", "T2w")) == (3.10, 3.04)
    assert gains_picture.brought(guided, "5", "T1w by T2w") == pytest.approx(35.35 - 33.43)


@pytest.mark.parametrize("rule", [rule for rule in contents.SHOWS if rule != "holes"])  # which is no statistic
def test_the_table_of_thresholds_has_the_rules_of_the_verdict(rule):
    """Past all numbers of a rule it decides; short of any of them it does not."""
    numbers = thresholds.RULES[rule]
    past, short = (
        {key: getattr(contents, name) * (1 + sign * side / 100) for key, (name, side) in numbers.items()}
        for sign in (1, -1)
    )
    found = PLAIN._replace(**past)
    assert thresholds.passed(found, numbers) and contents.verdict_of(found).why[:20] == contents.SHOWS[rule][:20]
    for key, value in short.items():
        one = found._replace(**{key: value})
        assert not thresholds.passed(one, numbers) and contents.verdict_of(one) == contents.SCAN


def test_a_head_of_the_gallery_nods_about_its_middle_and_goes_down():
    """A point 20 mm before the middle rises by 20 mm x sin(4 degrees), less the 2 mm that the head goes down."""
    head, affine = torch.zeros(1, 21, 61, 41), np.diag([1.0, 0.9, 1.1, 1])
    head[0, 10, 30 + 22, 20] = 1  # 19.8 mm
    moved = gallery.nodded(MetaTensor(head, affine=torch.from_numpy(affine)))[0].numpy()
    x, y, z = np.array(ndimage.center_of_mass(np.maximum(moved, 0))) * np.diag(affine)[:3]
    turn = np.radians(gallery.NODDED)
    assert (x, y, z) == pytest.approx(
        (10, 27 + 19.8 * np.cos(turn), 22 + 19.8 * np.sin(turn) - gallery.SHIFTED), abs=0.15
    )


def test_the_lesion_of_the_gallery_is_the_small_one_that_faded_most():
    truth, mask = torch.full((40, 40, 40), 50.0), np.zeros((40, 40, 40))
    for corner, edge in ((5, 4), (15, 4), (25, 8)):  # 64, 64 and 512 voxels
        mask[(slice(corner, corner + edge),) * 3] = 1
    truth[mask > 0] = 100.0
    result = truth.clone()
    result[5:9, 5:9, 5:9], result[15:19, 15:19, 15:19], result[25:, 25:, 25:] = 90.0, 70.0, 50.0
    middle, kept = gallery.faded(result, truth, mask)
    assert middle == [16, 16, 16] and kept == pytest.approx(0.4)


@pytest.mark.slow
@pytest.mark.skipif(not (SHARED / "segmenter").exists(), reason="the shared data are not here")
def test_the_mesh_network_tells_tissues_of_a_t1w_scan_apart(tmp_path, monkeypatch):
    scan = nib.load(SHARED / "isotropic" / "uih-a_T1w.nii.gz").slicer[30:90, 60:120, 100:160]
    nib.save(scan, tmp_path / "image.nii.gz")
    paths = [str(tmp_path / name) for name in ("image.nii.gz", "labels.nii.gz")]
    monkeypatch.setattr("sys.argv", ["meshnet", str(SHARED / "segmenter"), *paths])
    importlib.import_module("benchmarks.meshnet").main()
    found = nib.as_closest_canonical(nib.load(paths[1]))
    assert nib.aff2axcodes(nib.load(paths[1]).affine) == ("L", "I", "A") and found.shape == scan.shape
    values, labels = nib.as_closest_canonical(scan).get_fdata(), np.asarray(found.dataobj)
    white, gray, ventricle = (values[labels == label].mean() for label in (1, 2, 3))
    assert white > 1.2 * gray > 1.2 * 1.2 * ventricle
