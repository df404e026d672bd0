"""The authors' checkpoints in this bundle: a forward pass on their raw weights is the oracle; others are refused."""

import hashlib
import json
import math
import os
import shlex

import nibabel as nib
import numpy as np
import pytest
import torch

from scripts.errors import InputError
from scripts.method.schedule import euler_times
from scripts.method.weights import read_card
from scripts.paper import convert
from tests import paper_values as paper
from tests.authors import LISTING, WIDTHS, agree, forward, image, shapes, stage_one, stage_two, write
from tests.processes import run

pytestmark = pytest.mark.slow

pytest_plugins = ["tests.authors"]  # the fixtures


# The format


@pytest.mark.parametrize("stage", [1, 2])
def test_checkpoints_of_these_tests_have_the_authors_names_and_shapes(stage):
    listing = "\n".join(sorted(f"{name} {shape}" for name, shape in shapes(96, stage).items()))
    assert hashlib.sha256(listing.encode()).hexdigest() == LISTING[stage - 1]
    count = sum(math.prod(shape) for shape in shapes(96, stage).values())
    assert count == (paper.PARAMETERS_LARGE_APN, paper.PARAMETERS_LARGE_VELOCITY)[stage - 1]


@pytest.mark.parametrize("size", WIDTHS)
def test_each_size_expects_the_authors_names_and_shapes(size):
    ours = convert.empty_network(size)
    expected = {convert.authors_name(name): tuple(value.shape) for name, value in ours.state_dict().items()}
    assert len(expected) == len(ours.state_dict())
    assert expected == {
        **{f"model.{name}": shape for name, shape in shapes(WIDTHS[size], 1).items()},
        **{f"rf_model.{name}": shape for name, shape in shapes(WIDTHS[size], 2).items()},
    }
    assert not ours.apn.residual and set(convert.SIZES) == set(WIDTHS)


# Agreement

THICKNESS = torch.tensor([[5.0, 0.7], [1.4, 0.7], [3.0, 1.0], [0.05, 0.0]])


@torch.no_grad()
def test_stage_one_gives_the_authors_image(converted, network):
    agree(network.apn(image(4), THICKNESS), forward(converted[0], "model.", image(4), THICKNESS))


@torch.no_grad()
def test_stage_two_gives_the_authors_velocity(converted, network):
    t = torch.tensor([0.0, 0.3, 1.0, 0.8])
    agree(network.velocity(image(4), THICKNESS, t), forward(converted[1], "rf_model.", image(4), THICKNESS, t))


@torch.no_grad()
def test_both_stages_give_the_authors_result(converted, network):
    x, thickness = image(2), torch.tensor([[1.5, paper.TARGET_HCP]])
    steps, pair = paper.AIS_STEPS[1.5], thickness.expand(2, 2)
    state = forward(converted[0], "model.", x, pair)
    for n in range(steps):
        state = state + forward(converted[1], "rf_model.", state, pair, torch.full((2,), n / steps)) / steps
    agree(network(x, thickness, euler_times(steps)), state)


# What is written


def test_every_weight_is_written_as_it_is_with_a_card_and_nothing_else(narrow, converted, network, tmp_path):
    first, second, path = converted
    written = torch.load(path, weights_only=True)
    assert type(written) is dict and written.keys() == network.state_dict().keys()
    for name, value in written.items():
        assert value.dtype == torch.float32 and torch.equal(value, {**first, **second}[convert.authors_name(name)])
    assert {file.name for file in path.parent.iterdir()} == {path.name, "drift_hcp.json"}
    card = read_card(path)
    assert card.target_range == card.pixel_range == (paper.TARGET_HCP, paper.TARGET_HCP)
    assert (card.max_thickness, card.n_max, card.size) == (paper.MAX_THICKNESS, paper.N_MAX, "small")
    assert card.spacing_ratio == (1, 1), "no gaps"
    double = {name: value.double() for name, value in stage_two(frozen=first).items()}  # with its stage 1 in it
    paths = write(tmp_path / "1.ckpt", {n: v.double() for n, v in first.items()}), write(tmp_path / "2.ckpt", double)
    torch.testing.assert_close(narrow.convert(*paths)[1], written, rtol=0, atol=0)


# What is refused


class Shell:
    """Unpickled, it would run a command."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


LACKS, WIDE = "model.up_blocks.2.upsample.1.bias", "model.conv_in.weight"
REFUSED = {  # what becomes of the stages' weights, of which sizes they are, and what is said
    "one is missing": (lambda a, b: a.pop(LACKS), "small small", f"{LACKS} missing"),
    "one too many": (lambda a, b: b.update({"rf_model.x": torch.zeros(1)}), "small small", "rf_model.x missing"),
    "another shape": (lambda a, b: a.update({WIDE: torch.zeros(8, 1, 5, 5)}), "small small", f"{WIDE} missing"),
    "all are narrower": (lambda a, b: a.update(stage_one(4)), "small small", " more missing, unexpected"),
    "two sizes": (lambda a, b: None, "small large", "1.ckpt is of size small.*2.ckpt of size large"),
    "no size": (lambda a, b: None, "../small ../small", "1.ckpt is of size '../small': expected one of small"),
    "another stage 1": (lambda a, b: a["model.conv_in.bias"].add_(1e-3), "small small", "trained on another stage 1"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_checkpoints_that_do_not_belong_together_are_refused_in_one_line(case, narrow, tmp_path):
    change, sizes, said = REFUSED[case]
    first = {name: value.clone() for name, value in stage_one().items()}
    second = stage_two(frozen=first if "stage 1" in case else None)
    change(first, second)
    paths = [write(tmp_path / f"{k}.ckpt", w, size) for k, w, size in zip((1, 2), (first, second), sizes.split())]
    with pytest.raises(InputError, match=said) as caught:
        narrow.main([*map(str, paths), "--output", str(tmp_path / "out" / "model.pt")])
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 800 and not (tmp_path / "out").exists()


def test_what_is_no_checkpoint_of_the_authors_is_refused_and_runs_no_code(narrow, tmp_path):
    good, mark = write(tmp_path / "2.ckpt", stage_two()), tmp_path / "mark"
    torch.save({"state_dict": 3, "hyper_parameters": {}}, tmp_path / "other.ckpt")
    (tmp_path / "cut.ckpt").write_bytes(good.read_bytes()[:-1000])
    write(tmp_path / "code.ckpt", {**stage_one(), "model.extra": Shell(mark)})
    for name in ("other", "cut", "absent", "code"):
        with pytest.raises(InputError, match=f"{name}.ckpt is no checkpoint of the authors"):
            narrow.main([str(tmp_path / f"{name}.ckpt"), str(good), "--output", str(tmp_path / "out.pt")])
    assert not mark.exists() and not (tmp_path / "out.pt").exists()
    torch.load(tmp_path / "code.ckpt", weights_only=False)
    assert mark.exists(), "the file does hold code"


def test_an_output_that_cannot_be_written_leaves_all_as_it_was(narrow, converted, tmp_path):
    """Neither a name that the card or a checkpoint has, nor a folder; a limit on the size of files is a full disk."""
    resource = pytest.importorskip("resource")
    paths = write(tmp_path / "1.ckpt", converted[0]), write(tmp_path / "2.ckpt", converted[1])
    (tmp_path / "folder.pt").mkdir()
    (tmp_path / "model.pt").write_text("earlier weights")
    before = {path: path.is_file() and path.read_bytes() for path in tmp_path.iterdir()}
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    told = {"drift.json": r"expected a name in \.pt", "2.ckpt": r"expected a name in \.pt"}
    told |= dict.fromkeys(("folder.pt", "1.ckpt/model.pt", "model.pt"), r"cannot be written \(\w+Error\)")
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, limits[1]))
    try:
        for name, said in told.items():
            with pytest.raises(InputError, match=said):
                narrow.main([*map(str, paths), "--output", str(tmp_path / name)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert {path: path.is_file() and path.read_bytes() for path in tmp_path.iterdir()} == before


# The command


def test_the_command_that_is_printed_rebuilds_a_scan(narrow, phantom):
    """By the paper's schedule: 13 steps for 5 mm slices."""
    root = narrow.ROOT
    write(root / "drift_hcp_stage1.ckpt", stage_one())
    second = stage_two()
    second["rf_model.conv_out.weight"] = 0.1 * second["rf_model.conv_out.weight"]
    write(root / "drift_hcp_stage2.ckpt", second)
    words = ("drift_hcp_stage1.ckpt", "drift_hcp_stage2.ckpt", "--output", "models/drift_hcp.pt")
    ended = run("-m", "scripts.paper.convert", *words, cwd=root)
    assert (ended.returncode, ended.stderr) == (0, "") and "academic research only" in ended.stdout
    command = ended.stdout[ended.stdout.index("python -m monai.bundle") :]
    thick = np.ascontiguousarray(phantom[:3, :20, ::8])
    nib.save(nib.Nifti1Image(thick, np.diag([0.7, 0.7, 5.0, 1.0])), root / "scan.nii.gz")
    _, *words = shlex.split(command.replace("\\\n", " "))
    ended = run(*words, cwd=root)
    assert ended.returncode == 0, ended.stderr
    record = json.loads((root / "out" / "scan_sr.json").read_text())
    assert record["Settings"]["n_max"] == paper.N_MAX and record["Summary"]["steps"] == paper.AIS_STEPS[5.0]
    assert record["Summary"]["target_thickness"] == paper.TARGET_HCP
    assert "trained" not in record["Summary"]["warnings"]  # the scan is what the card names
    result = nib.load(root / "out" / "scan_sr.nii.gz")
    assert np.isfinite(result.get_fdata()).all()
    np.testing.assert_allclose(result.header.get_zooms(), 0.7, rtol=0.02)
