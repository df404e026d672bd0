"""The authors' checkpoints in this bundle: a forward pass on their raw weights is the oracle."""

import hashlib
import json
import math
import shlex

import nibabel as nib
import numpy as np
import pytest
import torch

from scripts.errors import InputError
from scripts.method.schedule import ais_steps, euler_times
from scripts.method.weights import read_card
from scripts.paper import convert
from tests import paper_values as paper
from tests.authors import LISTING, ROOT, WIDTHS, agree, forward, image, shapes, stage_one, stage_two, write
from tests.bundle.test_convert_refusals import Shell
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
    assert not ours.apn.residual
    assert set(convert.SIZES) == set(WIDTHS)


# Agreement


@torch.no_grad()
def test_stage_one_gives_the_authors_image(converted, network):
    x, thickness = image(4), torch.tensor([[5.0, 0.7], [1.4, 0.7], [3.0, 1.0], [0.05, 0.0]])
    expected = forward(converted[0], "model.", x, thickness)
    agree(network.apn(x, thickness), expected)
    agree(network.apn(x, thickness[:1]), forward(converted[0], "model.", x, thickness[:1].expand(4, 2)))


@torch.no_grad()
def test_stage_two_gives_the_authors_velocity(converted, network):
    x, thickness = image(4), torch.tensor([[5.0, 0.7], [1.4, 0.7], [3.0, 1.0], [0.05, 0.0]])
    t = torch.tensor([0.0, 0.3, 1.0, 0.8])
    agree(network.velocity(x, thickness, t), forward(converted[1], "rf_model.", x, thickness, t))
    one = thickness[:1].expand(4, 2), t[1:2].expand(4)
    agree(network.velocity(x, thickness[:1], t[1:2]), forward(converted[1], "rf_model.", x, *one))


@torch.no_grad()
@pytest.mark.parametrize("slice_thickness", [1.5, 5.0])
def test_both_stages_give_the_authors_result(converted, network, slice_thickness):
    x, thickness = image(2), torch.tensor([[slice_thickness, paper.TARGET_HCP]])
    steps = paper.AIS_STEPS[slice_thickness]
    assert steps == ais_steps(slice_thickness, paper.TARGET_HCP, paper.N_MAX)
    pair = thickness.expand(2, 2)
    state = forward(converted[0], "model.", x, pair)
    for n in range(steps):
        state = state + forward(converted[1], "rf_model.", state, pair, torch.full((2,), n / steps)) / steps
    agree(network(x, thickness, euler_times(steps)), state)


# What is written


def test_every_weight_is_written_as_it_is_and_nothing_else(converted, network):
    first, second, path = converted
    written = torch.load(path, weights_only=True)
    assert type(written) is dict and written.keys() == network.state_dict().keys()
    for name, value in written.items():
        assert value.dtype == torch.float32
        assert torch.equal(value, {**first, **second}[convert.authors_name(name)])
    assert {file.name for file in path.parent.iterdir()} == {path.name, "drift_hcp.json"}


def test_the_card_says_what_the_authors_trained_for(converted):
    card = read_card(converted[2])
    assert card.target_range == card.pixel_range == (paper.TARGET_HCP, paper.TARGET_HCP)
    assert (card.max_thickness, card.n_max, card.size) == (paper.MAX_THICKNESS, paper.N_MAX, "small")
    assert card.spacing_ratio == (1, 1), "no gaps"


@pytest.mark.parametrize("name", ["drift_hcp.json", "drift_hcp", "2.ckpt"])
def test_weights_that_their_card_would_overwrite_and_a_checkpoint_are_not_written_to(narrow, converted, tmp_path, name):
    paths = write(tmp_path / "1.ckpt", converted[0]), write(tmp_path / "2.ckpt", converted[1])
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(InputError, match=rf"--output is .*{name}: expected a name in \.pt"):
        narrow.main([*map(str, paths), "--output", str(tmp_path / name)])
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float64])
def test_other_precisions_become_single(narrow, tmp_path, kind):
    first, second = ({n: v.to(kind) for n, v in weights.items()} for weights in (stage_one(), stage_two()))
    _, weights = narrow.convert(write(tmp_path / "1.ckpt", first), write(tmp_path / "2.ckpt", second))
    assert all(torch.equal(v, {**first, **second}[narrow.authors_name(n)].float()) for n, v in weights.items())
    assert {value.dtype for value in weights.values()} == {torch.float32}


def test_a_stage_two_that_holds_its_stage_one_gives_the_same(narrow, converted, tmp_path):
    first, _, path = converted
    paths = write(tmp_path / "1.ckpt", first), write(tmp_path / "2.ckpt", stage_two(frozen=first))
    size, weights = narrow.convert(*paths)
    assert size == "small"
    torch.testing.assert_close(weights, torch.load(path, weights_only=True), rtol=0, atol=0)


# The command


@pytest.mark.parametrize("name", ["folder.pt", "file/model.pt"])
def test_an_output_that_cannot_be_written_is_told_and_leaves_nothing(narrow, converted, tmp_path, name):
    (tmp_path / "folder.pt").mkdir()
    (tmp_path / "file").write_text("kept")
    before = sorted(tmp_path.rglob("*"))
    paths = write(tmp_path / "1.ckpt", converted[0]), write(tmp_path / "2.ckpt", converted[1])
    with pytest.raises(InputError, match=r"cannot be written \(\w+Error\). Set another --output"):
        narrow.main([*map(str, paths), "--output", str(tmp_path / name)])
    assert sorted(tmp_path.rglob("*")) == sorted([*before, *paths])


def test_weights_stay_whole_when_a_disk_is_full(narrow, converted, tmp_path):
    """A limit on the size of files stands for the disk."""
    resource = pytest.importorskip("resource")
    paths = write(tmp_path / "1.ckpt", converted[0]), write(tmp_path / "2.ckpt", converted[1])
    output = tmp_path / "out" / "model.pt"
    output.parent.mkdir()
    output.write_text("earlier weights")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, limits[1]))
    try:
        with pytest.raises(InputError, match=r"model\.pt cannot be written"):
            narrow.main([*map(str, paths), "--output", str(output)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [file.name for file in output.parent.iterdir()] == ["model.pt"] and output.read_text() == "earlier weights"


@pytest.mark.parametrize(
    "arguments", [[], ["a.ckpt"], ["a.ckpt", "b.ckpt"], ["a.ckpt", "b.ckpt", "c", "--output", "d"]]
)
def test_wrong_arguments_end_with_exit_code_2(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        convert.main(arguments)
    assert ended.value.code == 2
    assert "usage:" in capsys.readouterr().err


def test_a_refusal_is_one_line_and_exit_code_1(tmp_path):
    write(tmp_path / "1.ckpt", {"model.extra": Shell(tmp_path / "mark")})
    ended = run(ROOT / "bundle" / "convert.py", "1.ckpt", "2.ckpt", "--output", "out.pt", cwd=tmp_path)
    assert ended.returncode == 1
    assert len(ended.stderr.splitlines()) == 1 and ended.stderr.startswith(
        "error: 1.ckpt is no checkpoint of the authors"
    )
    assert ended.stdout == "" and [path.name for path in tmp_path.iterdir()] == ["1.ckpt"]


def test_the_command_that_is_printed_rebuilds_a_scan(narrow, phantom):
    """By the paper's schedule: 13 steps for 5 mm slices."""
    root = narrow.ROOT
    write(root / "drift_hcp_stage1.ckpt", stage_one())
    second = stage_two()
    second["rf_model.conv_out.weight"] = 0.1 * second["rf_model.conv_out.weight"]
    write(root / "drift_hcp_stage2.ckpt", second)
    words = ("drift_hcp_stage1.ckpt", "drift_hcp_stage2.ckpt", "--output", "models/drift_hcp.pt")
    ended = run("-m", "scripts.paper.convert", *words, cwd=root)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "academic research only" in ended.stdout
    command = ended.stdout[ended.stdout.index("python -m monai.bundle") :]
    nib.save(
        nib.Nifti1Image(np.ascontiguousarray(phantom[:3, :20, ::8]), np.diag([0.7, 0.7, 5.0, 1.0])),
        root / "scan.nii.gz",
    )
    python, *words = shlex.split(command.replace("\\\n", " "))
    ended = run(*words, cwd=root)
    assert python == "python"
    assert ended.returncode == 0, ended.stderr
    record = json.loads((root / "out" / "scan_sr.json").read_text())
    assert record["Settings"]["n_max"] == paper.N_MAX and record["Summary"]["steps"] == paper.AIS_STEPS[5.0]
    assert record["Summary"]["target_thickness"] == paper.TARGET_HCP
    assert "trained" not in record["Summary"]["warnings"]  # the scan is what the card names
    result = nib.load(root / "out" / "scan_sr.nii.gz")
    assert np.isfinite(result.get_fdata()).all()
    np.testing.assert_allclose(result.header.get_zooms(), 0.7, rtol=0.02)
