"""A guide in the page's modules: registered as by the command, told from strangers and copies, used as Python does."""

import io
import json
import os
import re
import shutil
import subprocess
import zipfile

import nibabel as nib
import numpy as np
import pytest
import torch
from monai.bundle import ConfigParser
from monai.data import MetaTensor
from pydicom import dcmread
from scipy.ndimage import affine_transform, gaussian_filter

import drift_mri
from drift_mri.command import main
from scripts.files import sha256
from scripts.rebuild.coverage import Coverage
from scripts.rebuild.gain import relation
from scripts.rebuild.guide import GuideScan, on_grid
from scripts.rebuild.registration import angle_and_shift
from scripts.stack.slices import Slices
from tests.browser import needs_chromium
from tests.bundle.test_web import FLOAT32, NODE, ROOT, WEB, assert_same, exported, javascript, pytestmark
from tests.bundle.test_web_dicom import assert_alike
from tests.bundle.test_web_page import Page, Server
from tests.dicom_files import mr_slices, save
from tests.rebuild.test_guide import two_contrasts

__all__ = ["exported", "pytestmark"]
SHAPE = (40, 44, 40)
TURNED = np.array([[0.0, 0.8, 0.0, -22.3], [-0.1563, 0.0, 0.8863, -35.9], [0.8863, 0.0, 0.1563, -30.1], [0, 0, 0, 1]])


def copied(folder):
    """The page's modules and networks, in another folder; the command in there."""
    shutil.copytree(WEB, folder, ignore=lambda _, names: {"node_modules", "dist"} & set(names))
    os.symlink(WEB / "node_modules", folder / "node_modules")
    return folder / "rebuild.mjs"


@pytest.fixture(scope="module")
def program(exported, tmp_path_factory):
    return copied(tmp_path_factory.mktemp("program") / "web")


@pytest.fixture(scope="module")
def scans(tmp_path_factory):
    """A folder of a thick scan and guides: on one grid with its result, turned and of a part, of another head."""
    folder, random = tmp_path_factory.mktemp("scans"), np.random.default_rng(1)
    place = np.stack(np.meshgrid(*(np.linspace(-1, 1, n) for n in SHAPE), indexing="ij"))
    inside = ((place / 0.8) ** 2).sum(0) < 1
    mine, strange = (gaussian_filter(random.random(SHAPE), 2.0) for _ in range(2))

    def save(name, voxels, affine):
        voxels = voxels + np.hypot(*random.normal(0, 6, (2, *voxels.shape)))
        nib.save(nib.Nifti1Image(voxels.astype(np.float32), affine), folder / f"{name}.nii.gz")

    thick = np.where(inside, 9000 * mine - 3900, 0).reshape(*SHAPE[:2], -1, 5).mean(-1)
    save("scan", thick, np.array([[1.0, 0, 0, -30], [0, 1, 0, -32], [0, 0, 5, -25], [0, 0, 0, 1]]))
    fine = np.array([[1.0, 0, 0, -30], [0, 1, 0, -32], [0, 0, 1, -27], [0, 0, 0, 1]])
    other = np.where(inside, 5500 - 9000 * mine, 0)
    save("same", other, fine)
    save("standardised", (other - other.mean()) / 5, fine)
    index, shape = np.linalg.inv(fine) @ TURNED, (66, 56, 70)
    save("turned", affine_transform(other, index[:3, :3], index[:3, 3], shape, order=1), TURNED)
    save("copy", np.where(inside, 9000 * mine - 3900, 0), fine)
    save("strange", np.where(inside, 5500 - 9000 * strange, 0), fine)
    return folder


@pytest.fixture(scope="module")
def python():
    """Network, inferer and preprocessing, as the bundle's config makes them."""
    config = ConfigParser(ConfigParser.load_config_file(str(ROOT / "configs" / "inference.yaml")))
    config.update({"bundle_root": str(ROOT), "bfloat16": False})
    return [config.get_parsed_content(name) for name in ("weights", "inferer", "preprocessing")]


@pytest.mark.parametrize("name", ["same", "turned", "standardised"])
def test_a_guide_makes_the_volume_that_python_makes_by_its_motion(tmp_path, program, scans, python, name):
    network, inferer, preprocessing = python
    out = tmp_path / "scan_sr.nii.gz"
    command = [NODE, program, scans / "scan.nii.gz", out, "--guide", scans / f"{name}.nii.gz"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    whole = json.loads(out.with_name("scan_sr.json").read_text())
    assert whole["InputSHA256"] == sha256([scans / "scan.nii.gz", scans / f"{name}.nii.gz"])
    record = whole["Guide"]
    scan, guide = (Slices.of(preprocessing({"image": str(scans / f"{one}.nii.gz")})["image"]) for one in ("scan", name))
    volume = on_grid(guide, scan, np.array(record["Motion"]))
    expected, alone = (inferer.rebuilt(scan, network.cpu().eval(), *given).volume for given in ((volume,), ()))
    image = nib.Nifti1Image(expected.numpy(), scan.fine_affine.numpy())
    assert_same(nib.load(out), image, scan.array[None].numpy())
    assert np.abs(expected - alone).max() > 50  # the guide matters
    assert record["Likeness"] == pytest.approx(GuideScan(guide).place(scan).likeness, abs=0.03)
    assert record["Name"] == f"{name}.nii.gz"


MOTIONS = {"still": (0, 0), "near": (2, 3), "far": (9, 8)}  # degrees, mm


@pytest.mark.parametrize("name", MOTIONS)
def test_the_motion_is_that_of_the_command(tmp_path, exported, python, name):
    """To 0.15 degrees and mm, as near as two searches by chance are; a guide that lies in its place stays there."""
    *volumes, motion = two_contrasts(*MOTIONS[name])
    for title, (voxels, affine) in zip(("scan", "guide"), volumes):
        nib.save(nib.Nifti1Image(voxels, affine), tmp_path / f"{title}.nii.gz")
    code = """
        const [{ findScans, taken }, { place }, { settle }] =
          await get("inputs/readers.js", "rebuild/guide.js", "stack/acquisition.js");
        const bytes = async (name) => new Uint8Array(await readFile(name));
        const read = async (name) => taken((await findScans([{ name, bytes: await bytes(name) }]))[0]);
        const [scan, guide] = [await read(given[0]), await read(given[1])];
        say(await place(guide, scan, settle(scan, {}), []));"""
    paths = [tmp_path / f"{one}.nii.gz" for one in ("scan", "guide")]
    (found,) = javascript(code, *paths)
    scan, guide = (Slices.of(python[2]({"image": str(path)})["image"]) for path in paths)
    theirs = GuideScan(guide).place(scan)
    own = np.vstack([found["motion"], [0, 0, 0, 1]])
    for other in (motion, theirs.motion):
        assert max(angle_and_shift(np.linalg.inv(other) @ own, np.zeros(3))) < 0.15
    assert found["likeness"] == pytest.approx(theirs.likeness, abs=0.01)
    if name == "still":
        np.testing.assert_array_equal(own, np.eye(4))
        np.testing.assert_array_equal(theirs.motion, np.eye(4))


@pytest.mark.parametrize("name", ["copy", "strange"])
def test_a_copy_and_a_guide_of_another_head_are_refused_in_the_commands_words(name, tmp_path, program, scans):
    command = [NODE, program, scans / "scan.nii.gz", tmp_path / "out.nii.gz", "--guide", scans / f"{name}.nii.gz"]
    done = subprocess.run(command, capture_output=True, text=True)
    with pytest.raises(drift_mri.InputError) as caught:
        drift_mri.rebuild(scans / "scan.nii.gz", guide=scans / f"{name}.nii.gz", config=FLOAT32)
    expected = re.sub(r"/\S+/", "", str(caught.value))
    said, theirs = (re.sub(r"-?[\d.]+%?", "", text) for text in (done.stderr.splitlines()[-1], f"error: {expected}"))
    assert done.returncode == 1 and said == theirs and not (tmp_path / "out.nii.gz").exists()


@pytest.fixture(scope="module")
def study(scans, tmp_path_factory):
    """The thick scan and two others of its examination, as DICOM."""
    folder = tmp_path_factory.mktemp("study")
    kinds = {  # name -> series number, spacing of its slices, description, timing
        "scan": (1, 5, "t2_flair_tra", {"EchoTime": 90, "RepetitionTime": 9000, "InversionTime": 2500}),
        "same": (2, 1, "t1_mprage", {"EchoTime": 3, "RepetitionTime": 2000, "InversionTime": 900}),
        "copy": (3, 1, "t2_flair_3d", {"EchoTime": 90, "RepetitionTime": 9000, "InversionTime": 2500}),
    }
    for name, (number, spacing, description, timing) in kinds.items():
        image = nib.load(scans / f"{name}.nii.gz")
        voxels = image.get_fdata()[::-1, ::-1].clip(0).astype(np.int16)  # LPS
        about = {"SeriesNumber": number, "SeriesInstanceUID": f"1.2.3.{number}", "SeriesDescription": description}
        images = mr_slices(voxels, spacing=spacing, SliceThickness=spacing, PixelSpacing=[1, 1], **about, **timing)
        for one in images:
            one.ImagePositionPatient[2] += image.affine[2, 3]
        save(folder / name, images)
    return folder


def test_a_guided_series_is_that_of_the_command(tmp_path, program, study):
    """Its text, its number, and its sources with their purposes."""
    command = [NODE, program, study / "scan", tmp_path / "out.zip", "--guide", study / "same"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    options = ["--guide", str(study / "same"), "--output_format", "dicom", "--config", str(FLOAT32)]
    main([str(study / "scan"), "-o", str(tmp_path / "py"), *options])
    with zipfile.ZipFile(tmp_path / "out.zip") as packed:
        own = [dcmread(io.BytesIO(packed.read(name))) for name in sorted(packed.namelist())]
    theirs = [dcmread(path) for path in sorted((tmp_path / "py").rglob("*.dcm"))]
    assert len(own) == len(theirs) == 40
    for one, other in zip(own, theirs):
        assert_alike(one, other)
    assert own[0].SeriesDescription == "t2_flair_tra DRIFT SR guided by t1_mprage"
    purposes = [item.PurposeOfReferenceCodeSequence[0].CodeValue for item in own[0].SourceImageSequence]
    assert purposes == ["121322"] * 8 + ["128250"] * 40


@pytest.mark.parametrize("turn", [np.eye(3), np.diag([-1.0, 1, 1])[[2, 0, 1]]], ids=["RAS", "turned"])
def test_the_part_of_the_head_that_a_guide_saw_is_that_of_the_command(tmp_path, exported, turn):
    """And so are the places of its borders, and the words."""
    places = np.indices(SHAPE) - (np.array(SHAPE).reshape(3, 1, 1, 1) - 1) / 2
    head = np.linalg.norm(places, axis=0) < 15
    affine = np.eye(4)
    affine[:3, :3], affine[:3, 3] = 1.3 * turn, (4.02, -7.02, 11.02)
    code = """
        const [{ coverageOf, warning }] = await get("rebuild/coverage.js");
        const [shape, affine, ...volumes] = JSON.parse((await readFile(given[0])).toString());
        const [head, ...parts] = volumes.map((data) => ({ data, shape }));
        for (const seen of parts) {
          const found = coverageOf(head, seen, affine);
          say([found.share, found.borders, warning(found, "a.nii")]);
        }"""
    parts = [head, places[0] > 3, (places[0] + 0.4 * places[1] < 2) & (places[2] < 8), head & False]
    given = [list(SHAPE), affine[:3].tolist(), *(one.astype(int).ravel().tolist() for one in (head, *parts))]
    (tmp_path / "given.json").write_text(json.dumps(given))
    for part, (share, borders, words) in zip(parts, javascript(code, tmp_path / "given.json"), strict=True):
        expected = Coverage.of(*map(torch.from_numpy, (head, part, affine)))
        assert share == expected.share and borders == {end: list(at) for end, at in expected.borders.items()}
        assert words == [one for one in [expected.warning("a.nii")] if one]


@pytest.mark.parametrize("whole", [False, True], ids=["a head in air", "a head that the field of view cuts"])
def test_how_far_one_scan_explains_another_is_that_of_the_command(tmp_path, exported, whole):
    """The head's border does not count, and where the field of view ends is a border."""
    random = np.random.default_rng(0)
    first, noise = (gaussian_filter(random.normal(size=SHAPE), 3.0) for _ in range(2))
    places = np.indices(SHAPE) - (np.array(SHAPE).reshape(3, 1, 1, 1) - 1) / 2
    head = np.full(SHAPE, True) if whole else np.linalg.norm(places, axis=0) < 18
    near = np.minimum.reduce([np.minimum(k, n - 1 - k) for k, n in zip(np.indices(SHAPE), SHAPE)]) < 4
    other = np.where(near, noise, first + 0.5 * noise)  # the ends of the field of view have nothing in common
    given = [one.astype(float).ravel().tolist() for one in (first, head, other)]
    (tmp_path / "given.json").write_text(json.dumps(given))
    code = f"""
        const [{{ relation }}] = await get("rebuild/gain.js");
        const volumes = JSON.parse((await readFile(given[0])).toString());
        const [first, head, other] = volumes.map((data) => ({{ data: Float32Array.from(data), shape: {list(SHAPE)} }}));
        const affine = {np.eye(4)[:3].tolist()};
        const seen = {{ ...head, data: head.data.map(() => 1) }};
        say(relation({{ volume: first, affine }}, head, other, seen, 5));"""
    (found,) = javascript(code, tmp_path / "given.json")
    volume, there = MetaTensor(torch.from_numpy(first).float(), affine=np.eye(4)), torch.from_numpy(head)
    expected = relation(volume, there, torch.from_numpy(other).float(), torch.ones(SHAPE), 5.0)
    assert found == pytest.approx(expected, abs=0.01) and 0.4 < expected < 0.95


@needs_chromium
def test_a_study_offers_its_guide_and_its_result_is_saved_as_dicom(tmp_path, program, study):
    subprocess.run([NODE, program.with_name("build.mjs")], check=True)
    with Server(program.with_name("dist")) as server, Page(tmp_path, server.address) as page:
        assert page.drop(study) is None
        assert page.evaluate("document.querySelector('h2').textContent").startswith("1_t2_flair_tra")
        options = "[...document.querySelector('[name=guided_by]').options].map((one) => one.text)"
        assert page.evaluate(options) == ["none", "2_t1_mprage"]
        assert page.evaluate("document.querySelector('#beside').innerText").splitlines() == [
            "2_t1_mprage can guide: one is FLAIR, the other T1w; its voxels of 1 mm are isotropic.",
            "3_t2_flair_3d is no guide: it has the same contrast and the same direction.",
        ]
        choice = "document.querySelector('[name=guided_by]')"
        page.evaluate(f"{choice}.selectedIndex = 1; {choice}.dispatchEvent(new Event('change', {{bubbles: true}}))")
        page.fill("slice_thickness", 4.5)
        page.rebuild()
        assert page.mistake() is None
        assert "guide 2_t1_mprage" in page.evaluate("document.querySelector('#made_with').textContent")
        page.click("#save_dicom")
        path = tmp_path / "1_t2_flair_tra_sr.zip"
        page.wait_for(path)
        with zipfile.ZipFile(path) as packed:
            made = [dcmread(io.BytesIO(packed.read(name))) for name in sorted(packed.namelist())]
        source = dcmread(study / "scan" / "000")
        assert len(made) == 40 and made[0].SeriesDescription == "t2_flair_tra DRIFT SR guided by t1_mprage"
        for keyword in ("StudyInstanceUID", "FrameOfReferenceUID", "PatientName"):
            assert made[0][keyword] == source[keyword]
        record = json.loads((tmp_path / "1_t2_flair_tra_sr.json").read_text())
        sources = [f"study0/{name}/{k:03d}" for name, count in (("scan", 8), ("same", 40)) for k in range(count)]
        assert sorted(record["Sources"]) == sorted(sources), "of two series, whose files have the same names"
        assert record["Guide"]["Share"] == 1 and record["Guide"]["Borders"] == {}
        given = "slice thickness 4.5 mm is given and used; the DICOM header says 5 mm."
        assert record["Warnings"] == [given], "none of the guide"
        assert record["Guide"]["Name"] == "2_t1_mprage" and record["Facts"]["slice thickness"] == ["4.5 mm", "given"]


@needs_chromium
def test_the_page_draws_where_the_guides_field_of_view_ends(tmp_path, program, scans):
    """A line on the planes that the border crosses, in its place: the guide saw the half on the patient's right."""
    image = nib.load(scans / "same.nii.gz")
    (tmp_path / "anna").mkdir()
    shutil.copy(scans / "scan.nii.gz", tmp_path / "anna" / "anna_FLAIR.nii.gz")
    nib.save(image.slicer[:22], tmp_path / "anna" / "anna_T1w.nii.gz")
    subprocess.run([NODE, program.with_name("build.mjs")], check=True)
    with Server(program.with_name("dist")) as server, Page(tmp_path, server.address) as page:
        assert page.drop(tmp_path / "anna") is None
        choice = "document.querySelector('[name=guided_by]')"
        page.evaluate(f"{choice}.selectedIndex = 1; {choice}.dispatchEvent(new Event('change', {{bubbles: true}}))")
        page.rebuild()
        assert page.mistake() is None
        said = page.evaluate("document.querySelector('#noted').innerText")
        assert "saw" in said and "A dashed line marks where the guide's field of view ends." in said
        drawn = page.evaluate(
            """[...document.querySelectorAll('figure')].map((figure) => {
              const whole = figure.getBoundingClientRect();
              const across = [...figure.querySelectorAll('.border')].map((one) => one.getBoundingClientRect());
              return [whole.width, across.map((box) => [box.x - whole.x, box.width])];
            })"""
        )
        page.click("#save")
        page.wait_for(tmp_path / "anna_FLAIR_sr.json")
    borders = json.loads((tmp_path / "anna_FLAIR_sr.json").read_text())["Guide"]["Borders"]
    assert list(borders) == ["R"] and borders["R"][0] == pytest.approx(-8.5, abs=1)
    for width, lines in drawn:  # 44 mm fill it; the patient's right is on the left
        place = width / 2 - (borders["R"][0] + 10.5) * width / 44
        assert lines == [[pytest.approx(place, abs=1), 0]] * 2, "on the axial and the coronal plane"
