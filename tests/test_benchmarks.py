"""The benchmarks run on what the project offers today."""

import importlib
import json
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

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


@pytest.mark.slow
def test_a_block_of_a_head_is_rebuilt_alone_and_in_air(tmp_path, write_nifti, phantom, capsys, monkeypatch):
    paths = [write_nifti(np.ascontiguousarray(phantom[:24, :24, :24]), name=f"{k}.nii.gz") for k in range(2)]
    kinds = zip(paths, ("train", "val"))
    listed = [{"image": p.name, "kind": k, "subject": k, "contrast": "T1w"} for p, k in kinds]
    (tmp_path / "list.json").write_text(json.dumps(listed))
    monkeypatch.setattr("sys.argv", ["air", str(tmp_path / "list.json")])
    monkeypatch.chdir(ROOT)
    importlib.import_module("benchmarks.air").main()
    told = capsys.readouterr().out
    assert all(f"| val T1w | {share} |" in told for share in ("100%", "30%", "10%", "2%"))


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
