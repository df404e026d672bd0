"""What a session on a GPU takes along: voxels within 16-bit rounding, at their places, of the planes that serve."""

import json
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import torch

from benchmarks import gpu_session
from scripts.method.weights import check_card, write_card
from scripts.stack.intensity import intensity_range
from scripts.train.datasets import sharp_volumes
from tests.fixtures import CARD

COS, SIN = np.cos(0.1), np.sin(0.1)
AFFINE = np.array([[0, -0.9 * COS, 1.01 * SIN, 12], [0.8, 0, 0, -7], [0, 0.9 * SIN, 1.01 * COS, 3], [0, 0, 0, 1]])


@pytest.fixture
def datalist(tmp_path, write_nifti):
    """Heads in air of two contrasts, one of them not sharp along the last axis, and one for validation with lesions."""
    head = np.zeros((50, 54, 60), np.float32)
    head[20:40, 20:44, 8:52] = 100 + 900 * np.random.default_rng(0).random((20, 24, 44))
    entries = []
    for kind, contrast, axes in (("train", "T1w", [0, 1, 2]), ("train", "T2w", [0, 1]), ("val", "T1w", [0, 1, 2])):
        path = write_nifti(head, AFFINE, f"{kind}-{contrast}.nii.gz")
        subject = f"{kind} {contrast}"
        entries.append({"image": path.name, "kind": kind, "contrast": contrast, "sharp_axes": axes, "subject": subject})
    entries[2]["lesions"] = write_nifti((head > 900).astype(np.uint8), AFFINE, "lesions.nii.gz").name
    (tmp_path / "list.json").write_text(json.dumps(entries))
    return tmp_path / "list.json"


def test_packed_volumes_are_the_volumes_within_rounding(datalist, tmp_path):
    gpu_session.pack(datalist, tmp_path / "packed", None, 64)
    for section in ("training", "validation"):
        before = {item["subject"]: item for item in sharp_volumes(datalist, section)}
        after = {item["subject"]: item for item in sharp_volumes(tmp_path / "packed" / "datalist.json", section)}
        assert before.keys() == after.keys()
        for subject, item in after.items():
            assert {**item, "label": 0, "lesions": 0} == {**before[subject], "label": 0, "lesions": 0}
            image, packed = nib.load(before[subject]["label"]), nib.load(item["label"])
            assert packed.get_data_dtype() == np.uint16
            place = np.linalg.solve(image.affine, packed.affine)  # packed voxel -> voxel
            start, step = np.round(place[:3, 3]).astype(int), np.round(np.diag(place)[:3]).astype(int)
            np.testing.assert_allclose(place[:3], np.column_stack([np.diag(step), start]), atol=1e-5)
            there = tuple(slice(a, a + n * k, k) for a, n, k in zip(start, packed.shape, step))
            scale = intensity_range(torch.from_numpy(image.get_fdata()))
            restored = scale.low + packed.get_fdata() * (scale.high - scale.low) / gpu_session.LEVELS
            assert np.abs(restored - image.get_fdata()[there]).max() <= 0.51 * (scale.high - scale.low) / 2047
            if section == "training":
                assert packed.get_fdata().astype(bool).sum() > 0.3 * 20 * 24 * 44  # a head within less air
                assert packed.shape[0] < 50 and step.tolist() == ([1, 1, 1] if subject == "train T1w" else [1, 1, 2])


def test_contrasts_that_guide_each_other_stay_whole_and_name_each_other(datalist, tmp_path):
    """One that is left out for want of room is no longer named."""
    entries = json.loads(datalist.read_text())
    entries[0]["guides"], entries[1]["guides"] = [entries[1]["image"]], [entries[0]["image"], entries[2]["image"]]
    datalist.write_text(json.dumps(entries))
    gpu_session.pack(datalist, tmp_path / "packed", None, 64)
    items = {item["contrast"]: item for item in sharp_volumes(tmp_path / "packed" / "datalist.json", "training")}
    places = {name: nib.load(item["label"]) for name, item in items.items()}
    for image in places.values():
        assert image.shape == (50, 54, 60)
        np.testing.assert_allclose(image.affine, AFFINE, atol=1e-5)
    assert items["T1w"]["guides"] == [items["T2w"]["label"]]
    assert [Path(one).name for one in items["T2w"]["guides"]] == ["train-train-T1w.nii.gz", "val-val-T1w.nii.gz"]
    limit = sum(path.stat().st_size for path in (tmp_path / "packed").glob("*.nii.gz")) / 2**20 - 0.001
    gpu_session.pack(datalist, tmp_path / "part", None, limit)
    kept = json.loads((tmp_path / "part" / "datalist.json").read_text())
    there = {entry["image"] for entry in kept}
    assert len(kept) == 2 and all(set(entry.get("guides", [])) <= there for entry in kept)


def test_lesions_go_along_with_their_slab(datalist, tmp_path):
    gpu_session.pack(datalist, tmp_path / "packed", None, 64)
    (item,) = sharp_volumes(tmp_path / "packed" / "datalist.json", "validation")
    volume, lesions = (nib.load(item[key]) for key in ("label", "lesions"))
    assert volume.shape == lesions.shape == (50, 54, 24) and lesions.get_fdata().any()
    np.testing.assert_array_equal(volume.affine, lesions.affine)


def test_what_is_common_is_left_out_first(datalist, tmp_path, capsys):
    entries = json.loads(datalist.read_text())
    datalist.write_text(json.dumps([*entries, {**entries[0], "subject": "another"}]))
    whole, part = tmp_path / "whole", tmp_path / "part"
    gpu_session.pack(datalist, whole, None, 64)
    limit = sum((whole / name).stat().st_size for name in ("val-val-T1w.nii.gz", "lesions-val-val-T1w.nii.gz"))
    gpu_session.pack(datalist, part, None, (limit + (whole / "train-train-T2w.nii.gz").stat().st_size) / 2**20)
    assert "left out: train-train-T1w" in capsys.readouterr().out
    assert {item["contrast"] for item in sharp_volumes(part / "datalist.json", "training")} == {"T2w"}


@pytest.mark.parametrize("size", [10, 100, 101])
def test_weights_come_back_whole(size, tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_session, "PART", 1000)
    torch.save({"weight": torch.randn(size, 7)}, tmp_path / "model.pt")
    write_card(tmp_path / "model.pt", CARD)
    for part in range(0, 12, 4):
        gpu_session.export(tmp_path, tmp_path / "out", "model.pt", part)
    gpu_session.join(tmp_path / "out", tmp_path / "joined.pt")
    found, sent = (torch.load(tmp_path / name)["weight"] for name in ("joined.pt", "model.pt"))
    assert torch.equal(found, sent.half()) and check_card(tmp_path / "joined.pt").size == CARD.size
