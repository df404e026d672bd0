"""The page that rebuilds a scan: its modules in Node beside the Python door, and the page itself in Chromium."""

import json
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import torch
from filelock import FileLock
from jsonschema import Draft202012Validator
from scipy.ndimage import gaussian_filter

import drift_mri
from scripts.files import sha256
from scripts.options import as_arguments
from scripts.outputs.entries import schema
from scripts.stack.intensity import intensity_range
from scripts.stack.missing import said_of
from scripts.stack.noise import Noise, band_limited, with_noise
from tests.corpus.dicom import without
from tests.corpus.given import nifti, turned
from tests.corpus.nifti import CODES, SLOPE, one_voxel, other_qform, patched, sform, shear
from tests.dicom_files import ORIENTATIONS, mr_slices, save
from tests.stack.test_interleaving import lopsided, misplaced

ROOT = Path(__file__).parents[2]
WEB = ROOT / "bundle" / "web"
FLOAT32 = Path(__file__).with_name("float32.yaml")
NODE = shutil.which("node")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(NODE is None or not (WEB / "node_modules").is_dir(), reason="npm ci has not run in bundle/web"),
]


@pytest.fixture(scope="module", autouse=True)
def exported():
    """What export.py writes, no older than what it is made of."""
    made = WEB / "model" / "constants.js"
    parts = (
        "stack/*.py",
        "method/*.py",
        "rebuild/*.py",
        "inputs/*.py",
        "inputs/dicom/*.py",
        "outputs/*.py",
        "outputs/dicom/*.py",
    )
    sources = [path for part in parts for path in ROOT.glob(f"scripts/{part}")]
    sources += [*ROOT.glob("models/*"), ROOT / "configs" / "inference.yaml", *WEB.glob("*.py")]
    with FileLock(WEB / "model.lock"):  # tests of the page may run beside
        if not made.is_file() or made.stat().st_mtime < max(path.stat().st_mtime for path in sources):
            subprocess.run([sys.executable, WEB / "export.py"], check=True, capture_output=True)


def in_node(source, out, *options):
    """The command of the page; from another folder."""
    command = [NODE, WEB / "rebuild.mjs", source, out, *map(str, options)]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=Path(source).parent)


def javascript(code, *given):
    """What a program prints in Node, a value in JSON in each line; `get` imports modules of the page."""
    program = f"""
        const [web, ...given] = process.argv.slice(1);
        const {{ readFile, readdir }} = require("node:fs/promises");
        const get = (...names) => Promise.all(names.map((name) => import(`${{web}}/${{name}}`)));
        const say = (value) => console.log(JSON.stringify(value ?? null));
        (async () => {{ {code} }})();"""
    done = subprocess.run([NODE, "-e", program, WEB, *map(str, given)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def head(shape=(28, 32, 7), seed=0):
    """A textured ellipsoid in noisy air, 0 to 1000."""
    random = np.random.default_rng(seed)
    texture = gaussian_filter(random.random(shape), 1.2)
    texture = 300 + 600 * (texture - texture.min()) / np.ptp(texture)
    place = np.stack(np.meshgrid(*(np.linspace(-1, 1, n) for n in shape), indexing="ij"))
    inside = (place**2 * np.array([1.5, 1.3, 0.5])[:, None, None, None]).sum(0) < 1
    return (np.where(inside, texture, 0) + np.hypot(*random.normal(0, 8, (2, *shape)))).astype(np.float32)


def zero_filled(voxels):
    """Noisy slices whose pixels are finer than those that were acquired: 1.8 along the first axis."""
    noise, drawn = Noise(30.0, (1.8, 1.0)), np.random.default_rng(0).normal(size=(2, *voxels.shape))
    slices = band_limited(torch.from_numpy(voxels), (0, 1), noise)
    return with_noise(slices, (0, 1), noise, torch.from_numpy(drawn).float()).numpy()


def axial(spacing=4.0, pixel=1.0):
    return np.diag([pixel, pixel, spacing, 1.0])


HEAD = head()
SPOT = HEAD.copy()
SPOT[14, 16, 3] = 2e5
METAL = np.zeros(HEAD.shape, dtype=bool)
METAL[10:15, 12:17, 2:4] = True
POCKET = HEAD.copy()
POCKET[14, 16, 3] = 0  # in the head
CASES = {  # voxels, affine, options
    "an oblique stack with a raised floor": (HEAD + 300, turned(), {}),
    "coronal slices, flipped, one missing": (
        np.moveaxis(np.where(np.arange(7) == 3, 0, HEAD), 2, 1)[::-1],
        np.diag([-1.0, 4.0, 1.0, 1.0]),
        {},
    ),
    "sagittal slices, oblique, two axes swapped": (HEAD.T, turned(spacing=(-5.0, 0.9, 0.9)), {}),
    "a hot spot, a gap, and a spacing that is no multiple": (SPOT, axial(4.4, 0.9), {"slice_thickness": 3.3}),
    "overlapping slices, padded far below": (
        np.where(np.arange(28)[:, None, None] < 3, -2000, HEAD),
        axial(4.0),
        {"slice_thickness": 5.0},
    ),
    "no air, and a target of its own": (HEAD[7:21, 8:24], axial(5.0), {"target_thickness": 1.2}),
    "standardised, then masked": (np.where(HEAD > 150, (HEAD - 500) / 100, 0), axial(), {}),
    "masked, a slice three times as bright": (
        np.where(HEAD > 150, HEAD, 0) * np.where(np.arange(7) == 2, 3, 1),
        axial(),
        {},
    ),
    "a background of NaN": (np.where(POCKET > 150, HEAD, np.nan), axial(), {}),
    "larger than a window": (head((536, 16, 5)), axial(5.0), {}),
    "noise that is given": (HEAD, axial(), {"noise": 6}),
    "texture that is kept, coronal": (np.moveaxis(HEAD, 2, 1), np.diag([1.0, 4.0, 1.0, 1.0]), {"noise": 0}),
    "a block of metal": (np.where(METAL, 80 * 600, HEAD), axial(5.0), {}),
    "k-space that was filled with zeros": (zero_filled(head((72, 80, 5))), axial(5.0), {}),
    "nothing but noise": (np.random.default_rng(0).random((12, 13, 5)).astype(np.float32), axial(), {}),
    "constant": (np.full_like(HEAD, 300), axial(), {}),
}


def assert_same(result, expected, measured):
    """Within 1e-4 of the range of the measured tissue, and in one place."""
    np.testing.assert_allclose(result.affine, expected.affine, rtol=1e-6, atol=1e-6)
    scale = intensity_range(torch.tensor(np.nan_to_num(measured).copy(), dtype=torch.float32))
    difference = np.abs(result.get_fdata() - expected.get_fdata()).max()
    assert difference <= 1e-4 * (scale.high - scale.low)


@pytest.mark.parametrize("case", CASES)
def test_node_makes_the_volume_and_the_record_that_python_makes(tmp_path, case):
    voxels, affine, options = CASES[case]
    path, out = tmp_path / "scan.nii.gz", tmp_path / "there" / "scan_sr.nii.gz"
    nib.save(nib.Nifti1Image(np.ascontiguousarray(voxels, dtype=np.float32), affine), path)
    expected = drift_mri.rebuild(path, config=FLOAT32, **options)
    done = in_node(path, out, *(f"--{name}={value}" for name, value in options.items()))
    assert done.returncode == 0, done.stderr
    result, record = nib.load(out), json.loads((tmp_path / "there" / "scan_sr.json").read_text())
    assert_same(result, expected, voxels)
    for name in ("sform_code", "qform_code", "xyzt_units", "dim_info"):
        assert result.header[name] == expected.header[name], name
    np.testing.assert_allclose(result.get_qform(), expected.affine, atol=1e-4)
    theirs = json.loads(json.dumps(expected.record))
    for one in (record, theirs):
        Draft202012Validator({**schema(), "additionalProperties": False}).validate(one)
    for name in ("Description", "SliceThickness", "SpacingBetweenSlices", "Facts"):
        assert record[name] == theirs[name], name
    assert list(map(as_arguments, record["Warnings"])) == theirs["Warnings"]
    assert record["Settings"]["noise"] == options.get("noise", "auto")
    own, noise = record.get("Noise", {}), theirs.get("Noise", {})  # of a constant scan there is none
    assert own == {
        name: one if one is None or name in ("Widths", "Source") else pytest.approx(one, rel=2e-3)
        for name, one in noise.items()
    }
    for name, one in theirs["Streak"].items():
        assert record["Streak"][name] == (one if one is None else pytest.approx(one, rel=2e-3, abs=1e-4)), name
    agreement = theirs["Agreement"]  # None of a constant scan
    assert record["Agreement"] == (agreement if agreement is None else pytest.approx(agreement, rel=1e-3, abs=2e-5))
    assert record["WeightsSHA256"] == json.loads((ROOT / "models" / "model.json").read_text())["sha256"]


def commented(array, affine):
    image = nib.Nifti1Image(array, affine)
    image.header.extensions.extend(nib.nifti1.Nifti1Extension("comment", bytes([65 + k]) * 1500) for k in range(3))
    return image


THIN = {"array": np.round(HEAD).astype(np.int16), "affine": np.eye(4)}  # comes back as it is read
KINDS = {
    "integers with a slope": patched((SLOPE, "2f", (0.37, -20)), **THIN),
    "a negative slope": patched((SLOPE, "2f", (-0.5, 7)), **THIN),
    "a slope of 0": patched((SLOPE, "2f", (0, 7)), **THIN),
    "an sform of zeros": patched(sform(np.zeros((4, 4))), **THIN),
    "an sform of a smaller code than the qform's": patched((CODES, "2h", (2, 1)), *other_qform(4)[1:], **THIN),
    "a header with long comments": nifti(**THIN, kind=commented),
}


@pytest.mark.parametrize("kind", KINDS)
def test_voxels_are_read_as_nibabel_reads_them(tmp_path, kind):
    path, out = KINDS[kind](tmp_path).source, tmp_path / "scan_sr.nii.gz"
    done = in_node(path, out)
    assert done.returncode == 0, done.stderr
    assert_same(nib.load(out), drift_mri.rebuild(path, config=FLOAT32), nib.load(path).get_fdata())


def test_the_thickness_is_the_sidecars_and_two_threads_make_one_result(tmp_path):
    path, out = tmp_path / "scan.nii", tmp_path / "scan_sr.nii.gz"
    nib.save(nib.Nifti1Image(HEAD, axial()), path)
    path.with_suffix(".json").write_text('{"SliceThickness": 3.5}')
    assert in_node(path, out, "--threads", 2).returncode == 0
    expected = drift_mri.rebuild(path, config=FLOAT32)
    record = json.loads((tmp_path / "scan_sr.json").read_text())
    assert record["Facts"] == json.loads(json.dumps(expected.record["Facts"]))
    assert_same(nib.load(out), expected, HEAD)


def test_a_dicom_folder_is_read_as_python_reads_it(tmp_path):
    """With a range of padding, a slope, a folder within, and what a Mac leaves beside its files."""
    out = tmp_path / "scan_sr.nii.gz"
    voxels = head().astype(np.uint16)
    voxels[0], voxels[1] = 4090, 4095
    attributes = {"PixelPaddingValue": 4095, "PixelPaddingRangeLimit": 4090}
    attributes |= {"RescaleSlope": 1.2, "RescaleIntercept": -3}
    folder = save(tmp_path / "dicom" / "within", mr_slices(voxels, ORIENTATIONS["oblique"], **attributes))
    shutil.copy(folder / "000", folder / "._000")
    done = in_node(tmp_path / "dicom", out)
    assert done.returncode == 0, done.stderr
    expected = drift_mri.rebuild(tmp_path / "dicom", config=FLOAT32)
    both = [nib.as_closest_canonical(image) for image in (nib.load(out), expected)]
    np.testing.assert_allclose(both[0].affine, both[1].affine, atol=1e-4)
    assert np.abs(both[0].get_fdata() - both[1].get_fdata()).max() < 1e-4 * 1000
    sources = json.loads((tmp_path / "scan_sr.json").read_text())["Sources"]
    assert sorted(sources) == [f"dicom/within/{k:03d}" for k in range(7)]


def series(folder, number, change=list, **attributes):
    """A thick series of a study."""
    attributes |= {"SeriesNumber": number, "SeriesInstanceUID": f"1.2.3.{number}"}
    return save(folder / str(number), change(mr_slices(head(seed=number).astype(np.int16), **attributes)))


def test_what_cannot_be_rebuilt_is_left_out_of_a_study_and_named(tmp_path):
    series(tmp_path / "study", 1, ImageType=["ORIGINAL", "PRIMARY", "LOCALIZER"])
    series(tmp_path / "study", 2, without(3))
    folder = series(tmp_path / "study", 3)
    results = []
    for source, out in ((tmp_path / "study", tmp_path / "of_study.nii.gz"), (folder, tmp_path / "alone.nii.gz")):
        done = in_node(source, out)
        assert done.returncode == 0, done.stderr
        results.append((nib.load(out).get_fdata(), json.loads(out.with_name(f"{out.name[:-7]}.json").read_text())))
    np.testing.assert_array_equal(results[0][0], results[1][0])
    assert results[0][1]["InputSHA256"] == results[1][1]["InputSHA256"]
    left_out = [line.split(",")[0] for line in results[0][1]["Warnings"]]
    assert left_out == ["1_t2_tse is skipped: a localizer.", "2_t2_tse: slices lie unevenly"]
    shutil.rmtree(folder)
    done = in_node(tmp_path / "study", tmp_path / "nothing.nii.gz")
    assert done.returncode == 1 and all(why in done.stderr for why in left_out), "each reason, and not the first alone"
    (tmp_path / "maps").mkdir()
    for name in ("a_T1map.nii", "b_T1map.nii"):
        nib.save(nib.Nifti1Image(np.float32(HEAD > 300), axial()), tmp_path / "maps" / name)
    done = in_node(tmp_path / "maps", tmp_path / "nothing.nii.gz")
    assert done.returncode == 1 and all(f"{name}_T1map.nii is skipped: " in done.stderr for name in "ab")


def test_a_result_is_written_whole_or_not_at_all(tmp_path):
    """On a disk that is full, and in a place that is none."""
    nib.save(nib.Nifti1Image(HEAD, axial()), tmp_path / "scan.nii")
    full = ["bash", "-c", 'ulimit -f 8; exec "$@"', "full", NODE, WEB / "rebuild.mjs", tmp_path / "scan.nii"]
    (tmp_path / "file").touch()
    for out, why in (("out/scan_sr.nii.gz", "EFBIG"), ("file/scan_sr.nii.gz", "ENOTDIR|EEXIST")):
        done = subprocess.run([*full, tmp_path / out], capture_output=True, text=True)
        said = done.stderr.splitlines()[-1]
        assert done.returncode == 1 and re.match(rf"error: {tmp_path / out} cannot be written \(({why})", said), said
    assert not [*(tmp_path / "out").iterdir()]


def test_sources_are_told_apart_by_their_paths(tmp_path):
    """Below the folder of the result, and within a zip file."""
    nib.save(nib.Nifti1Image(HEAD, axial()), tmp_path / "scan.nii")
    with zipfile.ZipFile(tmp_path / "packed.zip", "w") as packed:
        packed.write(tmp_path / "scan.nii", "a/scan.nii")
    for given, source in (("scan.nii", "../scan.nii"), ("packed.zip", "../packed.zip/a/scan.nii")):
        assert in_node(tmp_path / given, tmp_path / "out" / "scan_sr.nii.gz").returncode == 0
        assert json.loads((tmp_path / "out" / "scan_sr.json").read_text())["Sources"] == [source]
    (tmp_path / "scan.json").write_text('{"SliceThickness": 4}')
    (tmp_path / "other.json").write_text("{}")
    assert in_node(tmp_path / "scan.nii", tmp_path / "out" / "scan_sr.nii.gz").returncode == 0
    record = json.loads((tmp_path / "out" / "scan_sr.json").read_text())
    assert record["Sources"] == ["../scan.nii", "../scan.json"], "with its sidecar"
    assert record["InputSHA256"] == sha256([tmp_path / "scan.nii", tmp_path / "scan.json"])


REFUSED = {
    "a sheared affine": (patched(affine=shear(1.3)), {}),
    "lengths in micrometres": (patched((123, "B", (3,))), {}),
    "four dimensions": (patched(array=np.stack([HEAD] * 3, -1), truth=(HEAD, axial())), {}),
    "complex voxels": (patched(array=HEAD.astype(np.complex64)), {}),
    "a voxel that is not a number": (patched(array=one_voxel(np.nan)), {}),
    "slices that are thinner than the target": (patched(affine=axial(4.0)), {"slice_thickness": 0.5}),
    "more noise than scans have": (patched(affine=axial(4.0)), {"noise": 31}),
    "another axis than the slices'": (patched(affine=axial(4.0)), {"slice_axis": 0}),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_refusals_are_those_of_python_and_leave_nothing(tmp_path, kind):
    make, options = REFUSED[kind]
    path = make(tmp_path).source
    with pytest.raises(drift_mri.InputError) as caught:
        drift_mri.rebuild(path, **options)
    done = in_node(path, tmp_path / "out" / "scan_sr.nii.gz", *(f"--{name}={value}" for name, value in options.items()))
    assert done.returncode == 1
    expected = f"error: {caught.value}".replace(str(path), path.name)
    assert as_arguments(done.stderr.splitlines()[-1]) == expected
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["scan_sr.nii", "scan.nii.gz"])
def test_a_result_is_compressed_and_replaces_no_scan(tmp_path, name):
    nib.save(nib.Nifti1Image(HEAD, axial()), tmp_path / "scan.nii.gz")
    before = (tmp_path / "scan.nii.gz").read_bytes()
    done = in_node(tmp_path / "scan.nii.gz", tmp_path / name)
    assert done.stderr.startswith(f"error: the result is {tmp_path / name}: expected a name that ends in .nii.gz")
    assert (tmp_path / "scan.nii.gz").read_bytes() == before and len(list(tmp_path.iterdir())) == 1


def test_numbers_are_written_as_python_writes_them():
    numbers = [0.0, 1.0, 0.3125, 0.5625, 0.8125, 1.125, 2.5, -4.4, 5 / 3, 1e-5, 0.000123456789, 99999.5, 123456.5, 1e16]
    code = """
        const [{ f, g }] = await get("errors.js");
        for (const x of JSON.parse(given[0])) say([g(x), g(x, 3), f(x, 2)]);"""
    assert javascript(code, json.dumps(numbers)) == [[f"{x:g}", f"{x:.3g}", f"{x:.2f}"] for x in numbers]


def test_types_hold():
    done = subprocess.run([NODE, WEB / "node_modules" / "typescript" / "bin" / "tsc", "-p", WEB], capture_output=True)
    assert done.returncode == 0, done.stdout.decode()


def test_networks_are_apart_by_the_largest_difference_and_by_what_is_no_number():
    """The page refuses a graphics card by this."""
    code = """
        const stage1 = async ([{ data }]) => data;
        const one = (f) => ({ stage1, modulations: async () => [[]], refine: async (x) => x.map(f) });
        const others = [(x) => x, (x, k) => x + (k === 7) * 0.25, (x, k) => (k === 7 ? NaN : x)];
        const [{ apart }] = await get("rebuild/networks.js");
        for (const f of others) say(await apart([one((x) => x), one(f)]));"""
    assert javascript(code) == pytest.approx([0, 0.25, 1])


def test_missing_slices_are_those_of_the_axis_that_is_asked_for(tmp_path):
    """What was found along one axis is kept, and is not taken for another's."""
    np.where(np.arange(7) == 3, 0, HEAD).astype(np.float32).tofile(tmp_path / "head.f32")
    code = f"""
        const data = new Float32Array((await readFile(given[0])).buffer.slice(0));
        const [{{ missingSlices, oddSlices, saidOf }}] = await get("stack/missing.js");
        const volume = {{ data, shape: {list(HEAD.shape)} }};
        for (const axis of [2, 0, 2]) say([...missingSlices(oddSlices(volume, axis), volume.shape[axis]).keys()]);"""
    code += """
        say(saidOf(new Map([[2, "blank"], [4, "a copy of slice 4"], [8, "blank"], [9, "1.5 times as bright"]]), 12));"""
    missing = {2: "blank", 4: "a copy of slice 4", 8: "blank", 9: "1.5 times as bright"}
    assert javascript(code, tmp_path / "head.f32") == [[3], [], [3], said_of(missing, 12)]


@pytest.mark.parametrize("said", misplaced(lopsided()))
def test_slices_that_lie_elsewhere_are_told_as_by_python(said, tmp_path):
    volume = misplaced(lopsided())[said].float().contiguous()
    volume.numpy().tofile(tmp_path / "slices.f32")
    code = f"""
        const data = new Float32Array((await readFile(given[0])).buffer.slice(0));
        const [{{ disorder }}] = await get("stack/interleaving.js");
        say(disorder({{ data, shape: {list(volume.shape)} }}, 2));"""
    assert javascript(code, tmp_path / "slices.f32") == [said]
