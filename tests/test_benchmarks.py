"""The benchmarks run on what the project offers today."""

import importlib
import json
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
SHARED = ROOT.parent / "shared" / "data"
NAMES = sorted(path.stem for path in (ROOT / "tests" / "benchmarks").glob("[!_]*.py"))


@pytest.mark.parametrize("name", NAMES)
def test_each_says_how_it_is_called(name, capsys, monkeypatch):
    if name == "export":
        pytest.importorskip("onnxruntime")
    module = importlib.import_module(f"tests.benchmarks.{name}")
    monkeypatch.setattr("sys.argv", [name, "--help"])
    with pytest.raises(SystemExit, match="0"):
        module.main()
    told = capsys.readouterr().out
    assert f"python -m tests.benchmarks.{name} " in told and "usage:" in told


def test_a_sweep_compares_its_methods_with_the_cubic_spline(tmp_path, write_nifti, phantom, capsys, monkeypatch):
    paths = [write_nifti(np.ascontiguousarray(phantom[:24, :24, :24]), name=f"{k}.nii.gz") for k in range(2)]
    kinds = zip(paths, ("train", "val"))
    (tmp_path / "list.json").write_text(json.dumps([{"image": p.name, "kind": k, "subject": k} for p, k in kinds]))
    sizes = ["--slab", "2", "--thicknesses", "4", "--steps", "2"]
    monkeypatch.setattr("sys.argv", ["steps", str(tmp_path / "list.json"), str(tmp_path / "out"), *sizes])
    monkeypatch.chdir(ROOT)
    importlib.import_module("tests.benchmarks.steps").main()
    told = capsys.readouterr().out
    assert "| unknown | 4 | cubic spline | 1 | +0.00 |" in told
    assert all(f"| {name} | 1 |" in told for name in ("both, N = 0", "one family, N = 2", "Heun, N = 2", "AIS"))
    assert (tmp_path / "out" / "steps.png").exists()


@pytest.mark.skipif(not (SHARED / "segmenter").exists(), reason="the shared data are not here")
def test_the_mesh_network_tells_tissues_of_a_t1w_scan_apart(tmp_path, monkeypatch):
    scan = nib.load(SHARED / "isotropic" / "uih-a_T1w.nii.gz").slicer[30:90, 60:120, 100:160]
    nib.save(scan, tmp_path / "image.nii.gz")
    paths = [str(tmp_path / name) for name in ("image.nii.gz", "labels.nii.gz")]
    monkeypatch.setattr("sys.argv", ["meshnet", str(SHARED / "segmenter"), *paths])
    importlib.import_module("tests.benchmarks.meshnet").main()
    found = nib.as_closest_canonical(nib.load(paths[1]))
    assert nib.aff2axcodes(nib.load(paths[1]).affine) == ("L", "I", "A") and found.shape == scan.shape
    values, labels = nib.as_closest_canonical(scan).get_fdata(), np.asarray(found.dataobj)
    white, gray, ventricle = (values[labels == label].mean() for label in (1, 2, 3))
    assert white > 1.2 * gray > 1.2 * 1.2 * ventricle
