"""The evaluation of several stacks: what is drawn, what is measured, and what is refused."""

import json
import re
from functools import partial

import nibabel as nib
import numpy as np
import pytest
import torch

from scripts.errors import InputError
from scripts.paper.several import evaluate_several, random_gain, random_motion, several_stacks
from scripts.rebuild.registration import angle_and_shift
from scripts.stack.acquisition import Acquisition
from scripts.stack.interpolation import interpolate
from tests import nano
from tests.stacks import AFFINE, CENTRE, SHAPE, person


def test_motions_and_gains_stay_in_their_range():
    rng = np.random.default_rng(0)
    drawn = np.array([angle_and_shift(random_motion(rng, 5, 3, CENTRE), CENTRE) for _ in range(100)])
    assert (drawn <= [5 + 1e-9, 3 + 1e-9]).all() and (drawn.max(0) > [4, 2.4]).all()
    gain = random_gain(rng, AFFINE, SHAPE, 0.2)
    middle = (gain.max() + gain.min()) / 2
    assert (gain / middle - 1).abs().max() == pytest.approx(0.2, abs=1e-4)


def test_the_first_stack_is_still_and_a_seed_gives_the_same_stacks():
    given = (AFFINE, person(), (0, 1), 6.0)
    one, two = (several_stacks(*given, np.random.default_rng(3), (5, 5), 0.2, 0.01) for _ in range(2))
    assert np.array_equal(one[0][1], np.eye(4)) and not np.allclose(one[1][1], np.eye(4), atol=0.01)
    assert all(torch.equal(a, b) for (a, _), (b, _) in zip(one, two))
    assert [Acquisition.of(thick).slice_axis for thick, _ in one] == [0, 1]


@pytest.mark.slow
def test_each_way_has_a_row_and_together_is_the_best(tmp_path, refusal):
    nib.save(nib.Nifti1Image(person().numpy(), AFFINE), tmp_path / "head.nii.gz")
    volume = {"label": str(tmp_path / "head.nii.gz"), "sharp_axes": (0, 1), "subject": "one", "contrast": "T1w"}
    methods = {"cubic spline": partial(interpolate, method="cubic")}
    assert "Leave this volume out" in refusal(
        evaluate_several, [volume | {"sharp_axes": (0,)}], methods, tmp_path, [6.0]
    )
    assert "stacks is 1" in refusal(evaluate_several, [volume], methods, tmp_path, [6.0], stacks=1)
    table = evaluate_several(
        [volume], methods, tmp_path / "out", [6.0], largest_motion=(3, 3), simulated_noise=0.0
    ).set_index("method")
    assert list(table.index) == [f"cubic spline, {way}" for way in ("stack 1", "stack 2", "mean", "together")]
    assert table["psnr_head"].idxmax() == "cubic spline, together"
    assert table["weave"]["cubic spline, together"] > 1.2 and table["weave"].notna().all()
    assert (table["turn_error"] < 0.3).all() and (table["shift_error"] < 0.3).all()
    assert json.loads((tmp_path / "out" / "evaluation.json").read_text())["options"]["stacks"] == 2


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"largest_motion": 5}, "largest_motion is 5: expected degrees and mm"),
        ({"largest_motion": [5.0, -1.0]}, "largest_motion is"),
        ({"stacks": 2.5}, "stacks is 2.5: expected a whole number, 2 or more"),
        ({"simulated_noise": "a lot"}, "simulated_noise is 'a lot': expected a share, 0 or more"),
        ({"thicknesses": [0.5]}, "slices of 0.5 mm cannot be simulated"),
    ],
)
def test_what_cannot_be_simulated_is_refused(given, said, tmp_path):
    nib.save(nib.Nifti1Image(person().numpy(), np.eye(4)), tmp_path / "a.nii.gz")
    volumes = [{"label": str(tmp_path / "a.nii.gz"), "subject": "a", "contrast": "T2w", "sharp_axes": (0, 1, 2)}]
    with pytest.raises(InputError, match=re.escape(said)):
        evaluate_several(volumes, {}, tmp_path / "out", **{"thicknesses": [4.0], **given})


@pytest.mark.slow
@pytest.mark.parametrize("run_id", ["guided", "several"])
def test_the_command_of_the_pages_runs(run_id, tmp_path):
    """Its options mean the same as in the files below it."""
    volume, affine = person(), torch.from_numpy(AFFINE)
    for name, one in {"T2w": volume, "T1w": volume.sqrt()}.items():
        nib.save(nib.Nifti1Image(one.numpy(), affine.numpy()), tmp_path / f"{name}.nii.gz")
    item = {"image": "T2w.nii.gz", "sharp_axes": [0, 1], "contrast": "T2w", "guides": ["T1w.nii.gz"]}
    (tmp_path / "list.json").write_text(json.dumps({"training": [], "validation": [item]}))
    given = {"dataset_dir": str(tmp_path / "list.json"), "output_dir": str(tmp_path / "out"), "thicknesses": [6.0]}
    nano.initialised(["inference.yaml", "evaluate.yaml", f"paper/{run_id}.yaml"], run_id, **given).run()
    options = json.loads((tmp_path / "out" / "evaluation.json").read_text())["options"]
    assert options["largest_motion"] == [5.0, 5.0] and options["simulated_noise"] == 0.0
