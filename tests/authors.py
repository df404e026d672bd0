"""Checkpoints as the paper's authors write them, and their networks from the format alone: the oracle of conversion.

They have the authors' names and shapes and random weights. Most are narrow: a copy of the bundle, in which `small` has
8 channels, converts them.
"""

import importlib.util
import math
import shutil
from functools import cache
from pathlib import Path

import pytest
import torch
import yaml
from monai.bundle import ConfigParser
from torch.nn.functional import conv2d, group_norm, interpolate, linear, silu

from scripts.method.weights import load_weights

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
    """As Lightning writes a checkpoint, or nearly so."""
    hyper_parameters = {"model_config": size, "lr": 1e-4}
    torch.save({"epoch": 99, "state_dict": weights, "hyper_parameters": hyper_parameters}, path)
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
    path = root / "configs" / "models" / "small.yaml"
    definition = yaml.safe_load(path.read_text())
    for stage in ("apn", "velocity"):
        definition["network_def"][stage]["channels"] = [NARROW, 2 * NARROW, 4 * NARROW, 8 * NARROW]
    path.write_text(yaml.safe_dump(definition))
    path = root / "scripts" / "paper" / "convert.py"
    spec = importlib.util.spec_from_file_location("scripts.paper.narrow_convert", path)
    module = importlib.util.module_from_spec(spec)
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
