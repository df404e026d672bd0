"""Segmenters by their command line: what they get, what is compared, and what can go wrong."""

import re
import shlex
import stat
import sys
from functools import partial

import nibabel as nib
import numpy as np
import pandas as pd
import pytest
import torch
from monai.data import MetaTensor

from scripts.evaluate.paired import evaluate
from scripts.evaluate.segmentation import agreement, segmenter
from scripts.stack.interpolation import interpolate
from tests.volumes import head, random_affine

BEGIN = """
import sys
image, labels = sys.argv[sys.argv.index("--i") + 1], sys.argv[sys.argv.index("--o") + 1]
"""
THRESHOLD = """
import nibabel as nib
import numpy as np

scan = nib.load(image)
found = np.digitize(scan.get_fdata(), [200, 650]).astype(np.uint8)
"""
SAVE = f"{THRESHOLD}nib.save(nib.Nifti1Image(found, scan.affine), labels)\n"
MAIMED = {  # how the segmenter ends -> what is said
    "sys.exit(3)\n": r"ended with exit code 3 on it\.$",
    "sys.exit('no licence')\n": r"ended with exit code 1 on it\. It said: no licence",
    "print('done')\n": r"wrote no \{labels\} of it\. It said: done",
    "open(labels, 'w').write('no volume')\n": "of it cannot be read as NIfTI",
    f"{THRESHOLD}nib.save(nib.Nifti1Image(found + 0.5, scan.affine), labels)\n": "is float64 .* expected a 3-D map",
    f"{THRESHOLD}nib.save(nib.Nifti1Image(found[..., 0], scan.affine), labels)\n": r"is uint8 of shape \(24, 26\)",
}


@pytest.fixture
def command(tmp_path):
    """A segmenter by thresholds in a folder whose name has blanks and what a shell would act on; its command."""

    def write(last=SAVE):
        script = tmp_path / "my $(touch spoilt); tools" / "seg ment.py"
        script.parent.mkdir(exist_ok=True)
        script.write_text(BEGIN + last)
        return f"{shlex.quote(sys.executable)} {shlex.quote(str(script))} --i {{image}} --o {{labels}}"

    return write


@pytest.fixture
def volume():
    return MetaTensor(head(), affine=torch.from_numpy(random_affine((1.0, 1.1, 1.2), 0)))


def test_the_command_gets_the_volume_and_its_labels_come_back(command, volume, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = segmenter(command()).labels(volume, "it")
    assert np.array_equal(found, np.digitize(volume.numpy(), [200, 650]))
    assert np.allclose(found.affine, volume.affine, atol=1e-4)
    assert not list(tmp_path.rglob("spoilt"))


@pytest.mark.parametrize("last", MAIMED)
def test_what_a_segmenter_does_wrong_is_one_line(command, volume, refusal, last):
    assert re.search(MAIMED[last], refusal(segmenter(command(last)).labels, volume, "it"))


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("mri_synthseg --i {image}", "expected a command with {image} and {labels} once each"),
        ("cp {image} {image} {labels}", "expected a command with {image} and {labels} once each"),
        ("", "expected a command"),
        (True, "segmenter is True: expected a command"),
        ("'seg {image} {labels}", "No closing quotation. Close the quotes."),
        ("no_such_program {image} {labels}", "no program 'no_such_program' is found. Install it"),
    ],
)
def test_commands_that_cannot_be(refusal, command, message):
    assert message in refusal(segmenter, command)


def test_a_program_that_cannot_be_run_is_told(tmp_path, volume, refusal):
    program = tmp_path / "seg"
    program.write_text("#!/no/such/interpreter\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    assert "cannot be run: No such file" in refusal(segmenter(f"{program} {{image}} {{labels}}").labels, volume, "it")


def labels(array, edge=1.0):
    return MetaTensor(torch.from_numpy(array), affine=edge * torch.eye(4))


def test_agreement_is_the_mean_dice_of_the_labels():
    """`2 |A and B| / (|A| + |B|)` of each label but 0, counted."""
    truth, other = np.random.default_rng(0).integers(0, 5, (2, 6, 7, 8))
    pairs = [(other == k, truth == k) for k in range(1, 5)]
    expected = np.mean([2 * (a & b).sum() / (a.sum() + b.sum()) for a, b in pairs])
    assert agreement(labels(other), labels(truth), "it") == pytest.approx(expected)


def test_labels_of_the_truth_count_whatever_their_numbers():
    """Half of one label found, another missed, a third that is not the truth's is no label of its own."""
    truth, other = np.zeros((2, 1, 1, 8), int)
    truth[..., :4], truth[..., 4:6] = 1000, 7
    other[..., :2], other[..., 6:] = 1000, 9
    assert agreement(labels(other), labels(truth), "it") == pytest.approx((2 / 3 + 0) / 2)
    assert np.isnan(agreement(labels(other), labels(0 * truth), "it"))


@pytest.mark.parametrize("other", [labels(np.ones((2, 2, 3), int)), labels(np.ones((2, 2, 2), int), 2.0)])
def test_label_maps_on_two_grids_are_refused(refusal, other):
    truth = labels(np.ones((2, 2, 2), int))
    assert "expected one grid" in refusal(agreement, other, truth, "cubic spline of a.nii.gz")


@pytest.mark.slow
def test_the_evaluation_compares_what_is_segmented(command, write_nifti, tmp_path):
    """Of each method against the truth's, and a method that is the truth agrees."""
    sharp = head((30, 32, 40))
    path = write_nifti(sharp.numpy(), name="my head.nii.gz")
    item = {"label": str(path), "sharp_axes": (2,), "subject": "a", "contrast": "T1w"}
    methods = {
        "cubic spline": partial(interpolate, method="cubic"),
        "oracle": lambda thick, acquisition: MetaTensor(sharp[None]),
    }
    rows = evaluate([item], methods, tmp_path / "out", [4.0], segmenter=segmenter(command()))
    dice = rows.set_index("method")["dice"]
    assert dice["oracle"] == 1.0 and 0.3 < dice["cubic spline"] < 1.0
    assert "| Dice |" in (tmp_path / "out" / "evaluation.md").read_text()
    assert "dice" in pd.read_csv(tmp_path / "out" / "evaluation.csv") and nib.load(path).shape == (30, 32, 40)
