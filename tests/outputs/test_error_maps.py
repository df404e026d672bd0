"""Error maps beside results: files, record, second runs, regions, DICOM, and the door of Python."""

import csv
import json
from dataclasses import replace

import nibabel as nib
import numpy as np
import pydicom
import pytest
import torch
import yaml
from monai.data import MetaTensor
from torch.nn.modules.module import register_module_forward_hook

from drift_mri import rebuild
from scripts.errors import InputError
from scripts.method.weights import save_weights, write_card
from scripts.outputs.error_maps import Regions, write_regions
from tests.cohort_files import AXIAL, add, outcomes, record, summary
from tests.config_files import ERROR, on_planes
from tests.fixtures import CARD
from tests.method.test_error_pattern import CALIBRATION, with_error
from tests.volumes import smooth_head


@pytest.fixture
def able(bundle):
    """`bundle` with weights that can make error maps."""
    save_weights(with_error(), bundle.weights, replace(CARD, error_map=CALIBRATION), torch.float32)
    return bundle


@pytest.fixture
def head(write_nifti):
    """A head in slices of 4 mm."""
    return write_nifti(smooth_head((20, 22, 9)).numpy(), AXIAL)


def voxels(path):
    return np.asarray(nib.load(path).dataobj)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"error_map": True, "confidence": 95}, "confidence is 95: expected a number from 0.5 to 0.99"),
        ({"regions": "labels.nii.gz"}, "regions need error maps"),
        ({"error_map": True, "regions": "gone.nii.gz"}, "gone.nii.gz is not there"),
        ({"error_map": True, "weights": CARD}, "Leave out --error_map, or train one"),
    ],
)
def test_options_that_cannot_be_are_refused(given, said, head, able, refusal):
    if "weights" in given:  # those without a calibration
        write_card(able.weights, given["weights"])
    assert said in refusal(able, head, **{name: value for name, value in given.items() if name != "weights"})
    assert not able.out.exists()


def test_the_map_lies_beside_the_result_which_it_leaves_bit_for_bit_and_all_say_how_sure(head, able):
    able(head)
    plain = (able.out / "scan_sr.nii.gz").read_bytes()
    able(head, error_map=True, confidence=0.8)
    assert outcomes(able.out) == ["rebuilt"]
    assert (able.out / "scan_sr.nii.gz").read_bytes() == plain
    result, width = (nib.load(able.out / f"scan_sr{name}.nii.gz") for name in ("", "_error"))
    assert width.shape == result.shape and np.allclose(width.affine, result.affine)
    assert (voxels(able.out / "scan_sr_error.nii.gz") > 0).all()
    said = record(able.out)
    assert said["ErrorMap"]["Confidence"] == 0.8 and "80%" in said["ErrorMap"]["Description"]
    assert "that no network has seen, 1 in all; it holds for people like them" in said["Facts"]["error map"][1]
    assert 0 <= said["ErrorMap"]["Noise"] < 0.1
    width = voxels(able.out / "scan_sr_error.nii.gz")
    assert width.min() <= said["ErrorMap"]["Median"] <= width.max()
    assert list(said["Results"]) == ["scan_sr.nii.gz", "scan_sr_error.nii.gz"]
    assert float(summary(able.out)[0]["error_bar"]) == said["ErrorMap"]["MedianOfRange"] > 0
    assert "error bar (%)" in (able.out / "index.html").read_text()
    write_card(able.weights, replace(CARD, error_map=replace(CALIBRATION, exponents=(0.5, 0.1))))
    for given, outcome in (({}, "complete already"), ({"error_map": True, "confidence": 0.8}, "rebuilt")):
        able(head, **given)
        assert outcomes(able.out) == [outcome], "another calibration redoes an error map and nothing else"
    able(head, profile="gaussian")
    assert not (able.out / "scan_sr_error.nii.gz").exists(), "it was another result's"


@pytest.mark.slow
def test_a_second_run_does_what_is_missing_or_otherwise_asked_and_no_more(head, able):
    able(head, error_map=True)
    able(head, error_map=True)
    assert outcomes(able.out) == ["complete already"]
    able(head)
    assert outcomes(able.out) == ["complete already"]
    able(head, error_map=True, confidence=0.95)
    assert outcomes(able.out) == ["rebuilt"]
    (able.out / "scan_sr_error.nii.gz").write_bytes(b"harmed")
    able(head)
    assert outcomes(able.out) == ["complete already"]  # it is not asked for
    able(head, error_map=True, confidence=0.95)
    assert outcomes(able.out) == ["rebuilt"]
    able(head, profile="gaussian")
    assert not (able.out / "scan_sr_error.nii.gz").exists()  # it was another result's
    assert "ErrorMap" not in record(able.out)


def labels(path, affine, shape=(20, 22, 9)):
    """Region 3 is a small box, region 7 a large one."""
    array = np.zeros(shape, np.int16)
    array[8:10, 8:10, 4] = 3
    array[4:16, 11:18, 2:7] = 7
    nib.save(nib.Nifti1Image(array, affine), path)
    return str(path)


def test_regions_have_a_mean_and_the_mean_of_their_half_widths(head, able, tmp_path):
    able(head, error_map=True, confidence=0.95, regions=labels(tmp_path / "labels.nii.gz", AXIAL))
    with open(able.out / "scan_sr_error_regions.csv") as file:
        small, large = csv.DictReader(file)
    assert (small["label"], large["label"]) == ("3", "7")
    assert float(small["volume_mm3"]) == int(small["voxels"]) == 16 and int(large["voxels"]) == 12 * 7 * 20
    result, width = (voxels(able.out / f"scan_sr{name}.nii.gz") for name in ("", "_error"))
    boxes = (slice(8, 10), slice(8, 10), slice(16, 20)), (slice(4, 16), slice(11, 18), slice(8, 28))
    for row, box in zip((small, large), boxes):
        assert float(row["mean"]) == pytest.approx(result[box].mean(), rel=1e-4)
        assert float(row["half_width"]) == pytest.approx(width[box].mean(), rel=1e-3)
    assert "scan_sr_error_regions.csv" in record(able.out)["Results"]


@pytest.mark.parametrize(("first", "said"), [(0, []), (2, []), (10, ["the label map covers 50% of the head"])])
def test_a_label_map_that_ends_within_the_head_says_so(first, said, head, able, tmp_path):
    affine = AXIAL.copy()
    affine[:3, 3] += first * AXIAL[:3, 0]
    regions = labels(tmp_path / "labels.nii.gz", affine, (20 - first, 22, 9))
    able(head, error_map=True, regions=regions)
    told = [one for one in record(able.out)["Warnings"] if "label map" in one]
    assert [one.split(":")[0] for one in told] == said
    assert all(one in summary(able.out)[0]["warnings"] for one in told)


def table_of(folder, array, affine, shape=(20, 22, 36)):
    """The rows of a result of ones on a grid of 1 mm, by their labels, and the warnings."""
    nib.save(nib.Nifti1Image(array, affine), folder / "labels.nii.gz")
    regions = Regions.on(str(folder / "labels.nii.gz"), shape, torch.eye(4))
    result, width = (MetaTensor(torch.ones(shape), affine=torch.eye(4)) for _ in range(2))
    write_regions(folder / "regions.csv", result, width, regions)
    with open(folder / "regions.csv") as file:
        return {row["label"]: row for row in csv.DictReader(file)}, regions.cut()


def test_a_region_that_lies_mostly_beyond_the_field_of_view_has_no_mean(tmp_path):
    array = np.zeros((40, 22, 36), dtype=np.int16)
    array[16:30, :11], array[10:26, 11:] = 3, 7  # 4 of 14 voxels, and 10 of 16, are within
    array[35] = 9
    rows, (beyond, cut, gone) = table_of(tmp_path, array, np.eye(4))
    assert beyond == "29% of the region 3 lies in the field of view: it has no mean."
    assert cut == "62% of the region 7 lies in the field of view: its volume and mean are of that part."
    assert gone == "0% of the region 9 lies in the field of view: it has no mean."
    assert [(rows[label]["mean"], rows[label]["half_width"]) for label in "379"] == [("", ""), ("1", "1"), ("", "")]
    assert [float(rows[label]["volume_mm3"]) for label in "379"] == [4 * 11 * 36, 10 * 11 * 36, 0]


@pytest.mark.parametrize("turn", [(0, 1, 2), (2, 0, 1)])
def test_the_share_and_the_volume_of_a_region_are_those_of_its_own_voxels(turn, tmp_path):
    """On a finer grid than the result's, a sheet and a spot that no voxel of the result, or too many, would meet."""
    array = np.zeros((50, 50, 50), dtype=np.int16)
    array[20:40, 20:40, 26], array[20:40, 20:40, 25] = 8, 5  # the centres of voxels of the result lie in the latter
    array[11, 10:13, 10:13] = 7
    array[45:, 20:40, 30:40] = 6  # 2 of 5 voxels along it are within
    affine = np.diag([0.4, 0.4, 0.4, 1.0])[:, [*turn, 3]]
    rows, warnings = table_of(tmp_path, array.transpose(turn), affine, (19, 20, 20))
    small = "the region {} is smaller than a voxel of the result: it has no mean."
    cut = "40% of the region 6 lies in the field of view: it has no mean."
    assert warnings == [cut, small.format(7), small.format(8)]
    assert [float(rows[label]["volume_mm3"]) for label in "5678"] == pytest.approx(
        [400 * 0.064, 400 * 0.064, 9 * 0.064, 400 * 0.064]
    )
    assert [rows[label]["mean"] for label in "5678"] == ["1", "", "", ""]


@pytest.mark.parametrize("value", [0.4, 2.0**24])
def test_what_is_no_label_is_refused(value, tmp_path):
    nib.save(nib.Nifti1Image(np.full((4, 4, 4), value), np.eye(4)), tmp_path / "labels.nii.gz")
    with pytest.raises(InputError, match="which is no label: expected whole numbers"):
        Regions.on(str(tmp_path / "labels.nii.gz"), (4, 4, 4), torch.eye(4))


def test_a_scan_that_is_copied_has_no_error_map_and_says_so(write_nifti, able):
    thin = write_nifti(smooth_head((20, 22, 24)).numpy(), np.eye(4))
    for _ in range(2):
        able(thin, error_map=True)
        assert record(able.out)["ErrorMap"]["Description"] == "None: nothing was rebuilt."
        assert not (able.out / "scan_sr_error.nii.gz").exists()
    assert outcomes(able.out) == ["complete already"]


def test_slices_beyond_the_calibrated_ones_are_warned_of(write_nifti, able):
    thick = write_nifti(smooth_head((20, 22, 9)).numpy(), np.diag([1.0, 1.0, 6.5, 1.0]))
    able(thick, error_map=True)
    assert any("beyond the 3 to 5 mm" in one for one in record(able.out)["Warnings"])
    assert "beyond the 3 to 5 mm" in summary(able.out)[0]["warnings"]


def test_regions_in_another_place_are_foreseen_and_refused(head, able, tmp_path, capsys):
    far = AXIAL.copy()
    far[0, 3] = 500
    given = {"error_map": True, "regions": labels(tmp_path / "labels.nii.gz", far)}
    with pytest.raises(SystemExit):
        able(head, dry_run="json", **given)
    (told,) = json.loads(capsys.readouterr().out)
    assert told["what"] == "will fail" and "no label where the scan is" in told["why"]
    able(head, error_map=True)
    before, ran = (able.out / "scan_sr.json").read_bytes(), []
    with register_module_forward_hook(lambda layer, *call: ran.append(type(layer))):
        with pytest.raises(SystemExit, match="1 of 1 scans failed"):
            able(head, **given)
    assert "no label where the scan is" in summary(able.out)[0]["warnings"]
    assert torch.nn.Conv2d not in ran, "no hour of work is done"
    assert (able.out / "scan_sr.json").read_bytes() == before, "nothing is lost"


def test_dicom_gets_a_second_derived_series(series, able):
    able(series, error_map=True, output_format="dicom")
    (first,) = (path for path in able.out.rglob("*_sr") if path.is_dir())
    folders = (first, first.with_name(f"{first.name}_error"))
    images, widths = ([pydicom.dcmread(path) for path in sorted(folder.glob("*.dcm"))] for folder in folders)
    rebuilt, width = images[3], widths[3]
    assert rebuilt.SeriesInstanceUID != width.SeriesInstanceUID and rebuilt.StudyInstanceUID == width.StudyInstanceUID
    assert rebuilt.ImagePositionPatient == width.ImagePositionPatient
    assert rebuilt.FrameOfReferenceUID == width.FrameOfReferenceUID
    assert width.SeriesDescription.endswith("error bar") and width.SeriesNumber == rebuilt.SeriesNumber + 500
    held = pydicom.pixels.apply_rescale(width.pixel_array, width)
    assert max(one.pixel_array.max() for one in widths) > 50_000, "a slope of its own: the scan's leaves few values"
    assert 0 < np.median(held) < np.median(rebuilt.pixel_array)
    assert "90%" in width.DerivationDescription and "WindowCenter" not in width
    assert len(images) == len(widths)


@pytest.mark.slow
def test_python_has_the_map_of_the_command(head, able, tmp_path):
    able(head, error_map=True)
    small = {"network_def": on_planes(4, 8, error=ERROR), "inferer::roi_size": 16, "inferer::n_max": 2}
    config = tmp_path / "small.yaml"
    config.write_text(yaml.safe_dump({**small, "bfloat16": False, "device": "$torch.device('cpu')"}))
    found = rebuild(head, error_map=True, ckpt_path=able.weights, config=config)
    np.testing.assert_allclose(found.error_map.get_fdata(), voxels(able.out / "scan_sr_error.nii.gz"), rtol=1e-5)
    assert found.record["ErrorMap"] == json.loads((able.out / "scan_sr.json").read_text())["ErrorMap"]
    assert rebuild(head, ckpt_path=able.weights, config=config).error_map is None


def test_an_error_map_of_several_stacks_is_foreseen_and_refused_before_any_scan_is_rebuilt(
    able, tmp_path, refusal, capsys
):
    scans = [str(add(tmp_path / f"scans/{name}.nii.gz")) for name in ("t2_ax", "t2_sag")]
    for option in ("error_map", "check"):
        given = {"together": True, option: True}
        with pytest.raises(SystemExit, match="1 of 1 scans will fail"):
            able(scans, dry_run="json", **given)
        (told,) = json.loads(capsys.readouterr().out)
        for said in (told["why"], refusal(able, scans, **given)):
            assert f"--{option} is of one stack, and" in said and "t2_sag.nii.gz become one volume" in said
    assert not list(able.out.rglob("*_sr*"))
