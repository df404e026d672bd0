"""A run with guides: the one that is named must fit, one that is found beside a scan is left out if it does not."""

import json
import shutil
from dataclasses import replace

import nibabel as nib
import numpy as np
import pytest
import torch
from monai.data import MetaTensor

from scripts.method.error_pattern import ErrorPatternNetwork
from scripts.method.networks import Drift, VelocityNetwork
from scripts.method.slice_projection import SliceProjectionNetwork
from scripts.method.weights import save_weights, write_card
from tests.bids_files import write
from tests.cohort_files import record, summary
from tests.config_files import ERROR, on_slices
from tests.dicom_files import images_of, mr_slices, save
from tests.fixtures import CARD
from tests.method.test_error_pattern import CALIBRATION
from tests.method.test_networks import perturb
from tests.rebuild.test_guide import centred, other_contrast, scan, smoothed, volume, written

CUBE = (44, 44, 44)


def thick():
    """The slices of a head, as a volume `(1, X, Y, Z)`."""
    slices, _ = scan()
    return MetaTensor(slices.array[None], affine=slices.affine)


@pytest.fixture
def guided_bundle(bundle):
    """`bundle` with a tiny network that knows guides and can make error maps."""
    stages = SliceProjectionNetwork((6, 8), (1, 1), 4, 4), VelocityNetwork((4, 8), width=8)
    network = perturb(Drift(*stages, ErrorPatternNetwork()), scale=0.03)
    save_weights(network, bundle.weights, replace(CARD, guide_share=0.7, error_map=CALIBRATION), torch.float32)

    def run(source, **given):
        bundle(source, **run.network, **given)

    run.out, run.weights = bundle.out, bundle.weights
    run.network = {"network_def": on_slices([6, 8], 4, [4, 8]) | {"error": ERROR}}
    return run


@pytest.fixture
def examination(tmp_path):
    """A folder with a thick FLAIR and a sharp T1w of one head."""
    folder = tmp_path / "head"
    folder.mkdir()
    written(folder / "FLAIR.nii.gz", thick())
    (folder / "FLAIR.json").write_text('{"SliceThickness": 5}')
    written(folder / "T1w.nii.gz", other_contrast(volume(centred(np.eye(3), CUBE), CUBE)))
    return folder


def spoil(folder):
    """Something else in place of the T1w."""
    noise = torch.rand(1, *CUBE, generator=torch.Generator().manual_seed(0)) * 200
    written(folder / "T1w.nii.gz", MetaTensor(smoothed(noise), affine=torch.from_numpy(centred(np.eye(3), CUBE))))


def as_dicom(folder, number, name, volume):
    """A series of a volume `(1, X, Y, Z)` whose affine is diagonal."""
    edges, origin = np.diag(volume.affine)[:3], np.asarray(volume.affine)[:3, 3]
    voxels = np.round(volume.as_tensor()[0].numpy()).astype(np.uint16)
    images = mr_slices(
        voxels,
        [-1, 0, 0, 0, -1, 0],
        ImagePositionPatient=lambda k: [-origin[0], -origin[1], origin[2] + k * edges[2]],
        PixelSpacing=[float(edges[1]), float(edges[0])],
        SliceThickness=float(edges[2]),
        **{"SeriesInstanceUID": f"1.2.3.{number}", "SeriesNumber": number, "SeriesDescription": name},
    )
    return save(folder / name, images)


def as_nifti(folder, name, volume):
    folder.mkdir(parents=True, exist_ok=True)
    rounded = MetaTensor(volume.as_tensor().round(), affine=volume.affine)
    (folder / f"{name}.json").write_text(f'{{"SliceThickness": {float(volume.affine[2, 2])}}}')
    return written(folder / f"{name}.nii.gz", rounded)


def source_of(kind, folder):
    """A thick FLAIR and a sharp T1w of one head; the input, the FLAIR and the T1w."""
    flair, sharp = thick(), other_contrast(volume(centred(np.eye(3), CUBE), CUBE))
    if kind == "DICOM":
        flair, t1 = as_dicom(folder, 1, "t2_flair", flair), as_dicom(folder, 2, "t1_mprage", sharp)
    elif kind == "BIDS":
        folder.mkdir()
        (folder / "dataset_description.json").write_text('{"Name": "x", "BIDSVersion": "1.9.0"}')
        anat = folder / "sub-1" / "anat"
        flair, t1 = as_nifti(anat, "sub-1_FLAIR", flair), as_nifti(anat, "sub-1_T1w", sharp)
    else:
        flair, t1 = as_nifti(folder, "FLAIR", flair), as_nifti(folder, "T1w", sharp)
    return folder, flair, t1


def result_of(out):
    (path,) = (path for path in out.rglob("*.nii.gz") if "error" not in path.name)
    (error,) = list(out.rglob("*_error.nii.gz")) or [None]
    return [np.asarray(nib.load(one).dataobj) for one in (path, error) if one is not None]


OPTIONS = {
    "alone": {},
    "together": {"together": True},
    "missing_slices": {"missing_slices": "longest"},
    "isotropic": {"isotropic": True, "target_thickness": 1.2},
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "options"), [("NIfTI", "alone"), ("BIDS", "alone"), *(("DICOM", name) for name in OPTIONS)]
)
def test_a_guide_that_is_found_does_what_it_does_by_its_name(kind, options, guided_bundle, tmp_path):
    folder, flair, t1 = source_of(kind, tmp_path / "head")
    guided_bundle(folder, guide="auto", **OPTIONS[options])
    found = result_of(guided_bundle.out)
    shutil.rmtree(guided_bundle.out)
    guided_bundle(flair, guide=str(t1), **OPTIONS[options])
    for one, other in zip(found, result_of(guided_bundle.out), strict=True):
        np.testing.assert_array_equal(one, other)
    shutil.rmtree(guided_bundle.out)
    guided_bundle(flair, **OPTIONS[options])
    assert np.abs(result_of(guided_bundle.out)[0] - found[0]).max() > 1


def test_if_the_best_guide_does_not_fit_the_next_is_tried(examination, guided_bundle):
    (examination / "T1w.nii.gz").rename(examination / "T2w.nii.gz")
    spoil(examination)
    guided_bundle(examination, guide="auto")
    told = record(guided_bundle.out, "FLAIR")
    assert told["Guide"]["Name"].endswith("T2w.nii.gz") and told["Sources"][-1] == "../head/T2w.nii.gz"
    (warning,) = told["Warnings"]
    assert "rebuilt without the guide" in warning and "T1w.nii.gz does not fit" in warning


@pytest.mark.slow
def test_a_guide_that_is_found_is_in_list_record_and_summary(examination, guided_bundle, capsys):
    with pytest.raises(SystemExit):
        guided_bundle(examination, guide="auto", dry_run=True)
    listed = " ".join(capsys.readouterr().out.split())
    assert "guide:" in listed and "T1w.nii.gz, if it fits, for one is FLAIR, the other T1w" in listed
    guided_bundle(examination, guide="auto")
    told = record(guided_bundle.out, "FLAIR")
    assert told["Guide"]["Name"] == "../head/T1w.nii.gz" and "one is FLAIR" in told["Guide"]["Reason"]
    assert str(examination) not in (guided_bundle.out / "FLAIR_sr.json").read_text()
    assert told["Sources"] == ["../head/FLAIR.nii.gz", "../head/FLAIR.json", "../head/T1w.nii.gz"]
    assert summary(guided_bundle.out)[0]["guide"] == "../head/T1w.nii.gz" and not told["Warnings"]
    guided_bundle(examination, guide="auto")
    assert summary(guided_bundle.out)[0]["outcome"] == "complete already"


@pytest.mark.slow
def test_in_a_dataset_the_guide_is_named_by_its_uri(examination, guided_bundle, tmp_path):
    root = write(tmp_path / "ds")
    anat = root / "sub-01" / "anat"
    anat.mkdir(parents=True)
    for path in examination.iterdir():
        path.rename(anat / f"sub-01_{path.name}")
    guided_bundle(root, guide="auto")
    (path,) = guided_bundle.out.rglob("*_desc-sr_FLAIR.json")
    told = json.loads(path.read_text())
    assert told["Guide"]["Name"] == told["Summary"]["guide"] == "bids:raw:sub-01/anat/sub-01_T1w.nii.gz"
    (row,) = (row for row in summary(guided_bundle.out) if row["result"])
    assert row["guide"] == "../../ds/sub-01/anat/sub-01_T1w.nii.gz"
    assert str(tmp_path) not in path.read_text() + (guided_bundle.out / "logs" / "summary.csv").read_text()


@pytest.mark.slow
def test_a_guide_that_does_not_fit_is_left_out_if_found_and_refused_if_named(examination, guided_bundle):
    spoil(examination)
    guided_bundle(examination, guide="auto")
    told = record(guided_bundle.out, "FLAIR")
    assert "Guide" not in told and told["Sources"] == ["../head/FLAIR.nii.gz", "../head/FLAIR.json"]
    assert "rebuilt without the guide" in told["Warnings"][0] and "does not fit" in told["Warnings"][0]
    assert summary(guided_bundle.out)[0]["guide"] == ""
    old = {path.name: path.read_bytes() for path in guided_bundle.out.glob("FLAIR*")}
    with pytest.raises(SystemExit, match="failed"):
        guided_bundle(examination / "FLAIR.nii.gz", guide=str(examination / "T1w.nii.gz"), isotropic=True)
    assert {path.name: path.read_bytes() for path in guided_bundle.out.glob("FLAIR*")} == old


def test_weights_that_know_no_guides_refuse_one(examination, guided_bundle, capsys):
    write_card(guided_bundle.weights, CARD)
    with pytest.raises(SystemExit):
        guided_bundle(examination, guide="auto", dry_run=True)
    assert "trained without guides" in " ".join(capsys.readouterr().out.split())
    with pytest.raises(SystemExit, match="failed"):
        guided_bundle(examination, guide="auto")


def test_a_guide_that_saw_half_of_the_head_is_warned_of_recorded_and_marked(examination, guided_bundle, caplog):
    """Its slices end at x = 2 mm, so beyond them, toward R, the result is that without a guide."""
    whole = nib.load(examination / "T1w.nii.gz")
    voxels = whole.get_fdata()
    nib.save(nib.Nifti1Image(voxels[:24], whole.affine), examination / "T1w.nii.gz")
    guided_bundle(examination, guide="auto", report=True)
    told, page, index = record(guided_bundle.out, "FLAIR"), *pages(guided_bundle.out)
    guide = told["Guide"]
    assert 0.5 < guide["Share"] < 0.65 and set(guide["Borders"]) == {"R"}
    assert guide["Borders"]["R"][0] == pytest.approx(2, abs=0.6)
    (warning,) = told["Warnings"]
    place = guide["Borders"]["R"][0]
    assert f"T1w.nii.gz saw {guide['Share']:.0%} of the head: it ends at R {place:.1f} mm." in warning
    assert warning.replace("../head/", "") in caplog.text and warning in summary(guided_bundle.out)[0]["warnings"]
    assert f"saw {guide['Share']:.0%} of the head" in told["Facts"]["guide"][1]
    assert "A dashed line" in " ".join(page.split()) and '"borders": [[0, ' in page
    assert f"the guide saw {guide['Share']:.0%} of the head" in index and "1 marked" in index
    nib.save(nib.Nifti1Image(voxels, whole.affine), examination / "T1w.nii.gz")
    guided_bundle(examination, guide="auto", report=True)
    told, page, index = record(guided_bundle.out, "FLAIR"), *pages(guided_bundle.out)
    assert told["Guide"]["Share"] > 0.99 and told["Guide"]["Borders"] == {} and not told["Warnings"]
    assert "A dashed line" not in " ".join(page.split()) and "the guide saw" not in index


def test_the_archive_gets_guide_and_warnings_with_the_result_and_with_its_error_map(guided_bundle, tmp_path):
    """The guide ends within the head, as the label map does."""
    sharp = other_contrast(volume(centred(np.eye(3), CUBE), CUBE))
    t1 = as_dicom(tmp_path, 2, "t1_mprage", sharp[:, :24])
    flair, voxels = as_dicom(tmp_path, 1, "t2_flair", thick()), np.ones(thick().shape[1:], np.int16)
    nib.save(nib.Nifti1Image(voxels[:24], thick().affine), tmp_path / "labels.nii.gz")
    asked = {"error_map": True, "regions": str(tmp_path / "labels.nii.gz"), "output_format": "dicom"}
    guided_bundle(flair, guide=str(t1), **asked)
    (path,) = guided_bundle.out.glob("*_sr.json")
    said = json.loads(path.read_text())["Warnings"]
    about_the_labels, about_the_guide = said
    assert " saw " in about_the_guide and "the label map covers" in about_the_labels
    for folder in (path.with_suffix(""), path.with_name(f"{path.stem}_error")):
        image = images_of(folder)[0]
        assert image.ImageComments == " ".join(f"Warning: {text.rstrip('.')}." for text in said)
        assert "Guided by t1_mprage, another contrast" in image.DerivationDescription
        assert "DRIFT SR guided by t1_mprage" in image.SeriesDescription


def pages(out):
    return [(out / name).read_text(encoding="utf-8") for name in ("FLAIR_sr.html", "index.html")]
