"""Checkpoints that are not the authors', or do not belong together: refused in one line, never run."""

import os
from pathlib import Path

import pytest
import torch

from scripts.errors import InputError
from tests.authors import NARROW, stage_one, stage_two, write

pytestmark = pytest.mark.slow

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


def test_what_is_missing_unexpected_or_of_another_shape_is_named(refused):
    lacks, more, wide = "model.up_blocks.2.upsample.1.bias", "rf_model.extra", "model.conv_in.weight"
    assert f"of size small: {lacks} missing, unexpected" in refused(without(stage_one(), lacks), stage_two())
    assert f"of size small: {more} missing, unexpected" in refused(stage_one(), {**stage_two(), more: torch.zeros(1)})
    given = {**stage_one(), wide: torch.zeros(NARROW, 1, 5, 5)}
    assert f"of size small: {wide} missing, unexpected" in refused(given, stage_two())
    message = refused(stage_one(4), stage_two())
    assert " more missing, unexpected" in message and len(message) < 800


def test_two_sizes_are_told(refused):
    message = refused(stage_one(), stage_two(), ("small", "large"))
    assert "stage1.ckpt is of size small" in message and "stage2.ckpt of size large" in message


@pytest.mark.parametrize("size", ["tiny", None, "../models/small"])
def test_another_size_is_told(refused, size):
    message = refused(stage_one(), stage_two(), (size, size))
    assert f"stage1.ckpt is of size {size!r}: expected one of small, base, large" in message


def test_another_stage_one_within_stage_two_is_told(refused):
    second = stage_two(frozen=stage_one())
    second["stage1.model.norm_out.bias"][3] += 1e-6
    assert "stage2.ckpt was trained on another stage 1 than" in refused(stage_one(), second)
    second = {**stage_two(frozen=stage_one()), "stage1.model.extra": torch.zeros(1)}
    assert "stage2.ckpt was trained on another stage 1 than" in refused(stage_one(), second)


@pytest.mark.parametrize("content", [[1, 2], {"state_dict": {}}, {"state_dict": 3, "hyper_parameters": {}}])
def test_a_file_of_another_kind_is_told(refused, tmp_path, content):
    path = tmp_path / "other.ckpt"
    torch.save(content, path)
    assert "other.ckpt is no checkpoint of the authors" in refused(path, stage_two())


def test_broken_and_absent_files_are_told(refused, tmp_path):
    path = write(tmp_path / "cut.ckpt", stage_two())
    os.truncate(path, path.stat().st_size - 1000)
    for name in ("cut.ckpt", "absent.ckpt"):
        assert f"{name} is no checkpoint of the authors" in refused(stage_one(), tmp_path / name)


class Shell:
    """Unpickled, it would run a command."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


def test_a_file_with_code_is_refused_and_does_not_run(refused, tmp_path):
    mark = tmp_path / "mark"
    path = write(tmp_path / "code.ckpt", {**stage_one(), "model.extra": Shell(mark)})
    assert "code.ckpt is no checkpoint of the authors" in refused(path, stage_two())
    assert not mark.exists()
    torch.load(path, weights_only=False)
    assert mark.exists(), "the file does hold code"
