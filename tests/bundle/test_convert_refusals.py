"""Checkpoints that are not the authors', or do not belong together: refused in one line, never run."""

import argparse
import os
from pathlib import Path

import pytest
import torch

from scripts.errors import InputError
from tests.authors import NARROW, shapes, stage_one, stage_two, write

pytest_plugins = ["tests.authors"]  # the fixtures


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
    assert f" and {len(names) - 5} more." in message
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
