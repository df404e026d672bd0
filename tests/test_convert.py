"""The authors' checkpoints in this bundle: a forward pass on their raw weights, from the format alone, is the oracle.

The checkpoints here have the authors' names and shapes and random weights. Most are narrow: a copy of the bundle, in
which `small` has 8 channels, converts them.
"""

import argparse
import hashlib
import importlib.util
import json
import math
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import torch
import yaml
from monai.bundle import ConfigParser
from torch.nn.functional import conv2d, group_norm, interpolate, linear, silu

from bundle import convert
from scripts.errors import InputError
from scripts.schedule import ais_steps, euler_times
from scripts.weights import load_weights, read_card
from tests import paper_values as paper

ROOT = Path(__file__).parents[1]
WIDTHS = {"small": 48, "base": 64, "large": 96}  # the authors' C
NARROW = 8  # C of the copy; 8, 16, 24 and 32 groups, of one channel and of more
LISTING = (  # SHA-256 of the authors' sorted names and shapes at C = 96, one in a line, of stage 1 and stage 2
    "94bad3fd657e7a95955ca8b9463366774da333c02b6f33be5fd2c4582b1ba6f6",
    "c4f496dfd9c4060ca2ac215dcd543a742d1a25363115d5e9901f347d035afc9f",
)


# Checkpoints of the authors' format


def shapes(base, stage):
    """Names and shapes of a stage, without the prefix of its checkpoint."""
    result = {}
    condition = {1: 512, 2: 768}[stage]

    def add(name, *weight):
        result[f"{name}.weight"], result[f"{name}.bias"] = weight, weight[:1]

    def block(name, inputs, outputs):
        add(f"{name}.norm1.cond_proj.1", 2 * inputs, condition)
        add(f"{name}.conv1", outputs, inputs, 3, 3)
        add(f"{name}.norm2.cond_proj.1", 2 * outputs, condition)
        add(f"{name}.conv2", outputs, outputs, 3, 3)
        if inputs != outputs:
            add(f"{name}.shortcut", outputs, inputs, 1, 1)

    protocol = "protocol_embed"
    if stage == 2:
        protocol = "cond_embed.protocol_embed"
        add("cond_embed.time_mlp.1", 512, 256)
        add("cond_embed.time_mlp.3", 256, 512)
        add("cond_embed.combine.0", 768, 768)
        add("cond_embed.combine.2", 768, 768)
    for thickness in ("lr", "hr"):
        add(f"{protocol}.tau_{thickness}_embed.0", 128, 1)
        add(f"{protocol}.tau_{thickness}_embed.2", 256, 128)
    add(f"{protocol}.combine.0", 512, 512)
    add(f"{protocol}.combine.2", 512, 512)
    add("conv_in", base, 1, 3, 3)
    for k, (inputs, outputs) in enumerate(((1, 1), (1, 2), (2, 4), (4, 8))):
        block(f"down_blocks.{k}.res_blocks.0", inputs * base, outputs * base)
        block(f"down_blocks.{k}.res_blocks.1", outputs * base, outputs * base)
        if k < 3:
            add(f"down_blocks.{k}.downsample", outputs * base, outputs * base, 3, 3)
    block("mid_block1", 8 * base, 8 * base)
    block("mid_block2", 8 * base, 8 * base)
    for k, (below, outputs) in enumerate(((8, 8), (8, 4), (4, 2), (2, 1))):
        if k > 0:
            add(f"up_blocks.{k}.upsample.1", below * base, below * base, 3, 3)
        block(f"up_blocks.{k}.res_blocks.0", (below + outputs) * base, outputs * base)
        block(f"up_blocks.{k}.res_blocks.1", outputs * base, outputs * base)
        block(f"up_blocks.{k}.res_blocks.2", outputs * base, outputs * base)
    add("norm_out", base)
    add("conv_out", 1, base, 3, 3)
    return result


@cache
def random_weights(base, stage, prefix):
    """Every weight off zero and one, activations near one. Not to be changed in place."""
    generator = torch.Generator().manual_seed(stage)
    weights = {}
    for name, shape in shapes(base, stage).items():
        spread = 0.2 if len(shape) == 1 else 1 / math.sqrt(math.prod(shape[1:]))
        weights[prefix + name] = spread * torch.randn(shape, generator=generator)
    weights[f"{prefix}norm_out.weight"] += 1
    return weights


def stage_one(base=NARROW):
    return dict(random_weights(base, 1, "model."))


def stage_two(base=NARROW, frozen=None):
    """With the frozen stage 1 in it, if that is given."""
    copy = {f"stage1.{name}": value.clone() for name, value in (frozen or {}).items()}
    return {**copy, **random_weights(base, 2, "rf_model.")}


def write(path, weights, size="small"):
    """As Lightning writes a checkpoint."""
    checkpoint = {
        "epoch": 99,
        "global_step": 1234,
        "pytorch-lightning_version": "2.5.0",
        "state_dict": weights,
        "loops": {"fit_loop": {"state_dict": {}}},
        "callbacks": {"ModelCheckpoint": {"best_model_score": torch.tensor(0.1), "dirpath": "checkpoints"}},
        "optimizer_states": [{"state": {0: {"step": torch.tensor(1.0)}}, "param_groups": [{"lr": 1e-4}]}],
        "lr_schedulers": [],
        "hparams_name": "kwargs",
        "hyper_parameters": {"model_config": size, "lr": 1e-4},
    }
    torch.save(checkpoint, path)
    return path


# The authors' networks, from their raw weights


def groups(channels):
    return next(count for count in range(32, 0, -1) if channels % count == 0)


def forward(weights, prefix, x, thickness, t=None):
    """One stage; `t` for stage 2 alone.

    Args:
        weights: `state_dict` of the checkpoint.
        prefix: of the stage's names in it.
        x: `(B, 1, H, W)` in [-1, 1].
        thickness: `(B, 2)`, `[T_i, T_hr]` in mm.
        t: `(B,)` in [0, 1].
    """

    def of(name):
        return weights[f"{prefix}{name}.weight"], weights[f"{prefix}{name}.bias"]

    def two_layers(name, h, first, second):
        return linear(silu(linear(h, *of(f"{name}.{first}"))), *of(f"{name}.{second}"))

    def norm(name, h):
        count, channels = h.shape[:2]
        condition = linear(silu(c), *of(f"{name}.cond_proj.1"))
        scale = condition[:, :channels].reshape(count, channels, 1, 1)
        shift = condition[:, channels:].reshape(count, channels, 1, 1)
        grouped = h.reshape(count, groups(channels), -1)
        mean, variance = grouped.mean(2, keepdim=True), grouped.var(2, unbiased=False, keepdim=True)
        return ((grouped - mean) / (variance + 1e-5).sqrt()).reshape(h.shape) * (1 + scale) + shift

    def block(name, h):
        result = conv2d(silu(norm(f"{name}.norm1", h)), *of(f"{name}.conv1"), padding=1)
        result = conv2d(silu(norm(f"{name}.norm2", result)), *of(f"{name}.conv2"), padding=1)
        if f"{prefix}{name}.shortcut.weight" in weights:
            h = conv2d(h, *of(f"{name}.shortcut"))
        return h + result

    protocol = "protocol_embed" if t is None else "cond_embed.protocol_embed"
    tau = 1 / thickness.maximum(torch.tensor(0.1))
    measured = two_layers(f"{protocol}.tau_lr_embed", tau[:, 0].reshape(-1, 1), 0, 2)
    target = two_layers(f"{protocol}.tau_hr_embed", tau[:, 1].reshape(-1, 1), 0, 2)
    c = two_layers(f"{protocol}.combine", torch.cat((measured, target), 1), 0, 2)
    if t is not None:
        angles = [t * math.exp(-k * math.log(10000) / 127) for k in range(128)]
        time = torch.stack([a.sin() for a in angles] + [a.cos() for a in angles], 1)
        time = two_layers("cond_embed.time_mlp", time, 1, 3)
        c = two_layers("cond_embed.combine", torch.cat((time, c), 1), 0, 2)

    skips = []
    h = conv2d(x, *of("conv_in"), padding=1)
    for k in range(4):
        for b in range(2):
            h = block(f"down_blocks.{k}.res_blocks.{b}", h)
        skips.append(h)
        if k < 3:
            h = conv2d(h, *of(f"down_blocks.{k}.downsample"), stride=2, padding=1)
    h = block("mid_block2", block("mid_block1", h))
    for k in range(4):
        if k > 0:
            h = interpolate(h, size=(2 * h.shape[2], 2 * h.shape[3]), mode="bilinear", align_corners=False)
            h = conv2d(h, *of(f"up_blocks.{k}.upsample.1"), padding=1)
        h = torch.cat((h, skips[3 - k]), 1)
        for b in range(3):
            h = block(f"up_blocks.{k}.res_blocks.{b}", h)
    h = group_norm(h, groups(h.shape[1]), *of("norm_out"), eps=1e-5)
    return conv2d(silu(h), *of("conv_out"), padding=1)


def image(count, height=24, width=32):
    return torch.rand(count, 1, height, width, generator=torch.Generator().manual_seed(5)) * 2 - 1


def agree(result, expected):
    assert 0.1 < expected.std() < 10, "activations that show a difference"
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)


# The narrow bundle


@pytest.fixture(scope="module")
def narrow(tmp_path_factory):
    """A copy of the bundle whose size `small` is narrow, and its conversion."""
    root = tmp_path_factory.mktemp("narrow")
    for folder in ("scripts", "configs"):
        shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__"))
    (root / "bundle").mkdir()
    shutil.copy(ROOT / "bundle" / "convert.py", root / "bundle")
    path = root / "configs" / "models" / "small.yaml"
    definition = yaml.safe_load(path.read_text())
    for stage in ("apn", "velocity"):
        definition["network_def"][stage]["channels"] = [NARROW, 2 * NARROW, 4 * NARROW, 8 * NARROW]
    path.write_text(yaml.safe_dump(definition))
    spec = importlib.util.spec_from_file_location("narrow_convert", root / "bundle" / "convert.py")
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", list(sys.path))
        spec.loader.exec_module(module)
    return module


def network_of(root, size, path):
    """The network that a stacked size YAML gives, with the weights of a file."""
    parser = ConfigParser()
    parser.read_config([str(root / "configs" / "inference.yaml"), str(root / "configs" / "models" / f"{size}.yaml")])
    return load_weights(parser.get_parsed_content("network_def"), path).eval()


@pytest.fixture(scope="module")
def converted(narrow, tmp_path_factory):
    """Both stages' raw weights, and the file that the command makes of them."""
    folder = tmp_path_factory.mktemp("converted")
    first, second = stage_one(), stage_two()
    paths = write(folder / "stage1.ckpt", first), write(folder / "stage2.ckpt", second)
    narrow.main([*map(str, paths), "--output", str(folder / "models" / "drift_hcp.pt")])
    return first, second, folder / "models" / "drift_hcp.pt"


@pytest.fixture(scope="module")
def network(narrow, converted):
    return network_of(narrow.ROOT, "small", converted[2])


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


@pytest.mark.parametrize("name", ["drift_hcp.json", "drift_hcp"])
def test_weights_that_their_card_would_overwrite_are_refused(narrow, converted, tmp_path, name):
    paths = write(tmp_path / "1.ckpt", converted[0]), write(tmp_path / "2.ckpt", converted[1])
    with pytest.raises(InputError, match=rf"--output is .*{name}: expected a name in \.pt"):
        narrow.main([*map(str, paths), "--output", str(tmp_path / name)])
    assert not (tmp_path / name).exists()


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float64])
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


# Refusals


@pytest.fixture
def refused(narrow, tmp_path):
    """Converts two checkpoints, each weights or a path, and returns the one line that refuses them."""

    def run(first, second, sizes=("small", "small")):
        paths = [
            given if isinstance(given, Path) else write(tmp_path / f"stage{k}.ckpt", given, size)
            for k, (given, size) in enumerate(zip((first, second), sizes, strict=True), 1)
        ]
        output = tmp_path / "out" / "model.pt"
        with pytest.raises(InputError) as caught:
            narrow.main([*map(str, paths), "--output", str(output)])
        assert not output.parent.exists()
        assert "\n" not in str(caught.value)
        return str(caught.value)

    yield run
    for path in tmp_path.glob("*.ckpt"):  # tens of megabytes, which pytest would keep
        path.unlink()


def without(weights, *names):
    return {name: value for name, value in weights.items() if name not in names}


def test_what_is_missing_is_named(refused):
    name = "model.up_blocks.2.upsample.1.bias"
    assert f"stage1.ckpt is not stage 1 of size small: missing: {name}." in refused(
        without(stage_one(), name), stage_two()
    )
    name = "rf_model.cond_embed.time_mlp.3.weight"
    assert f"stage2.ckpt is not stage 2 of size small: missing: {name}." in refused(
        stage_one(), without(stage_two(), name)
    )


@pytest.mark.parametrize(
    "name", ["model.ema.weight", "conv_in.weight", "ssim.window", "model.unet.conv_in.weight", "rf_model.conv_in.bias"]
)
def test_what_is_unexpected_in_stage_one_is_named(refused, name):
    message = refused({**stage_one(), name: torch.zeros(1)}, stage_two())
    assert f"stage1.ckpt is not stage 1 of size small: unexpected: {name}." in message


@pytest.mark.parametrize("name", ["rf_model.extra", "model.conv_in.bias", 7])
def test_what_is_unexpected_in_stage_two_is_named(refused, name):
    message = refused(stage_one(), {**stage_two(), name: torch.zeros(1)})
    assert f"stage2.ckpt is not stage 2 of size small: unexpected: {name}." in message


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (torch.zeros(NARROW, 1, 5, 5), f"({NARROW}, 1, 5, 5)"),
        (torch.zeros(NARROW, 1, 3, 3, dtype=torch.int8), "torch.int8"),
        ([0.0], "list"),
    ],
)
def test_what_has_another_shape_or_kind_is_named(refused, value, told):
    expected = f"instead of ({NARROW}, 1, 3, 3)."
    for stage, prefix in ((1, "model."), (2, "rf_model.")):
        given = [stage_one(), stage_two()]
        given[stage - 1][f"{prefix}conv_in.weight"] = value
        message = refused(*given)
        assert f"stage{stage}.ckpt is not stage {stage} of size small: " in message
        assert f"of another shape: {prefix}conv_in.weight {told} {expected}" in message


def test_many_faults_are_counted(refused):
    message = refused(stage_one(4), stage_two())
    names = [name for name, shape in shapes(4, 1).items() if shape != shapes(NARROW, 1)[name]]
    assert "conv_in.weight (4, 1, 3, 3) instead of (8, 1, 3, 3)" in message
    assert f" and {len(names) - 3} more." in message
    assert len(message) < 600


def test_stages_in_the_wrong_order_are_told(refused):
    message = refused(stage_two(), stage_one())
    assert "stage1.ckpt is not stage 1" in message and "unexpected: rf_model." in message
    assert "stage 1 first" in message


def test_two_sizes_are_told(refused):
    message = refused(stage_one(), stage_two(), ("small", "large"))
    assert "stage1.ckpt is of size small" in message and "stage2.ckpt of size large" in message


@pytest.mark.parametrize("size", ["tiny", "Large", "", None, 96, ["small"], "../models/small"])
def test_another_size_is_told(refused, size):
    message = refused(stage_one(), stage_two(), (size, size))
    assert f"stage1.ckpt is of size {size!r}: expected one of small, base, large" in message


def test_another_stage_one_within_stage_two_is_told(refused):
    second = stage_two(frozen=stage_one())
    second["stage1.model.norm_out.bias"][3] += 1e-6
    message = refused(stage_one(), second)
    assert "stage2.ckpt was trained on another stage 1 than" in message
    assert "stage1.model.norm_out.bias differ." in message


def test_an_incomplete_stage_one_within_stage_two_is_told(refused):
    name = "stage1.model.conv_out.weight"
    second = stage_two(frozen=stage_one())
    assert f"stage2.ckpt is not stage 2 of size small: missing: {name}." in refused(stage_one(), without(second, name))
    second["stage1.model.extra"] = torch.zeros(1)
    assert "unexpected: stage1.model.extra." in refused(stage_one(), second)


@pytest.mark.parametrize(
    "content",
    [
        {},
        [1, 2],
        torch.zeros(3),
        "text",
        None,
        {"state_dict": {}},
        {"hyper_parameters": {"model_config": "small"}},
        {"state_dict": {}, "hyper_parameters": {}},
        {"state_dict": {}, "hyper_parameters": "small"},
        {"state_dict": 3, "hyper_parameters": {"model_config": "small"}},
        {"state_dict": "weights", "hyper_parameters": {"model_config": "small"}},
    ],
)
def test_a_file_of_another_kind_is_told(refused, tmp_path, content):
    path = tmp_path / "other.ckpt"
    torch.save(content, path)
    assert "other.ckpt is no checkpoint of the authors: expected state_dict and" in refused(path, stage_two())


@pytest.mark.parametrize("content", [b"", b"not a checkpoint", b"PK\x03\x04" + bytes(100)])
def test_a_broken_file_is_told(refused, tmp_path, content):
    path = tmp_path / "broken.ckpt"
    path.write_bytes(content)
    assert "broken.ckpt is refused: it cannot be read (" in refused(path, stage_two())


def test_a_file_cut_short_is_told(refused, tmp_path):
    path = write(tmp_path / "cut.ckpt", stage_two())
    os.truncate(path, path.stat().st_size - 1000)
    assert "cut.ckpt is refused: it cannot be read (" in refused(stage_one(), path)


@pytest.mark.parametrize("name", ["absent.ckpt", "."])
def test_an_absent_file_is_told(refused, tmp_path, name):
    assert f"checkpoint not found: {tmp_path / name}" in refused(stage_one(), tmp_path / name)


class Shell:
    """Unpickled, it would run a command."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


def test_a_file_with_code_is_refused_and_does_not_run(refused, tmp_path):
    mark = tmp_path / "mark"
    path = write(tmp_path / "code.ckpt", {**stage_one(), "model.extra": Shell(mark)})
    message = refused(path, stage_two())
    assert f"code.ckpt is refused: loading it would execute {os.system.__module__}.system." in message
    assert not mark.exists()
    torch.load(path, weights_only=False)
    assert mark.exists(), "the file does hold code"


def test_a_harmless_object_is_refused_too(refused, tmp_path):
    path = write(tmp_path / "namespace.ckpt", {**stage_one(), "model.extra": argparse.Namespace(lr=1e-4)})
    assert "namespace.ckpt is refused: loading it would execute argparse.Namespace." in refused(path, stage_two())


# The command


def test_a_checkpoint_is_not_overwritten(narrow, tmp_path):
    paths = [str(write(tmp_path / "1.ckpt", stage_one())), str(write(tmp_path / "2.ckpt", stage_two()))]
    for path in paths:
        before = Path(path).read_bytes()
        with pytest.raises(InputError, match=r"--output is .*\.ckpt, one of the checkpoints"):
            narrow.main([*paths, "--output", path])
        assert Path(path).read_bytes() == before


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


def run(command, cwd, timeout=240):
    """A line as people type it, with this interpreter as their python."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environment |= {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment["PATH"]])
    return subprocess.run(
        command, shell=True, cwd=cwd, env=environment, capture_output=True, text=True, timeout=timeout
    )


def test_a_refusal_is_one_line_and_exit_code_1(tmp_path):
    write(tmp_path / "1.ckpt", {"model.extra": Shell(tmp_path / "mark")})
    ended = run(f"python {ROOT}/bundle/convert.py 1.ckpt 2.ckpt --output out.pt", tmp_path)
    assert ended.returncode == 1
    assert len(ended.stderr.splitlines()) == 1 and ended.stderr.startswith("error: 1.ckpt is refused: loading it would")
    assert ended.stdout == "" and [path.name for path in tmp_path.iterdir()] == ["1.ckpt"]


def test_the_command_that_is_printed_rebuilds_a_scan(narrow, phantom):
    """By the paper's schedule: 13 steps for 5 mm slices."""
    root = narrow.ROOT
    write(root / "drift_hcp_stage1.ckpt", stage_one())
    second = stage_two()
    second["rf_model.conv_out.weight"] = 0.1 * second["rf_model.conv_out.weight"]
    write(root / "drift_hcp_stage2.ckpt", second)
    ended = run(
        "python bundle/convert.py drift_hcp_stage1.ckpt drift_hcp_stage2.ckpt --output models/drift_hcp.pt", root
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "academic research only" in ended.stdout
    command = ended.stdout[ended.stdout.index("python -m monai.bundle") :]
    nib.save(
        nib.Nifti1Image(np.ascontiguousarray(phantom[:3, :20, ::8]), np.diag([0.7, 0.7, 5.0, 1.0])),
        root / "scan.nii.gz",
    )
    ended = run(command, root)
    assert ended.returncode == 0, ended.stderr
    record = json.loads((root / "out" / "scan_sr.json").read_text())
    assert record["Settings"]["n_max"] == paper.N_MAX and record["Summary"]["steps"] == paper.AIS_STEPS[5.0]
    assert record["Summary"]["target_thickness"] == paper.TARGET_HCP and record["Summary"]["warnings"] == ""
    result = nib.load(root / "out" / "scan_sr.nii.gz")
    assert np.isfinite(result.get_fdata()).all()
    np.testing.assert_allclose(result.header.get_zooms(), 0.7, rtol=0.02)


@pytest.mark.slow
def test_the_authors_small_size_is_converted_by_the_command(tmp_path):
    """80.8 million weights, in the bundle as it is."""
    first, second = stage_one(48), stage_two(48, frozen=stage_one(48))
    write(tmp_path / "1.ckpt", first), write(tmp_path / "2.ckpt", second)
    ended = run(f"python {ROOT}/bundle/convert.py 1.ckpt 2.ckpt --output drift_hcp.pt", tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "configs/models/small.yaml" in ended.stdout
    network = network_of(ROOT, "small", tmp_path / "drift_hcp.pt")
    x, thickness, t = image(1), torch.tensor([[4.0, 0.7]]), torch.tensor([0.4])
    with torch.no_grad():
        agree(network.apn(x, thickness), forward(first, "model.", x, thickness))
        agree(network.velocity(x, thickness, t), forward(second, "rf_model.", x, thickness, t))
