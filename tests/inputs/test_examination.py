"""Laws of what joins, what guides and what is left alone: headers and names decide, and a reason is given."""

import json

import numpy as np
import pytest

from scripts.inputs import dicom
from scripts.inputs.examination import grouped, roles, say_what_could_guide
from scripts.inputs.scan import Scan
from scripts.inputs.scans import scans as find_scans
from scripts.inputs.selection import Selection
from scripts.stack.grid import voxel_spacing
from tests.dicom_files import ORIENTATIONS, VOXELS, mr_slices, save

ISOTROPIC, AXIAL, SAGITTAL = (1, 1, 1), (1, 1, 5), (5, 1, 1)


@pytest.fixture
def volume(write_nifti, tmp_path):
    """Writes a volume of given voxels, with a sidecar, and gives its scan."""

    def write(name, edges=AXIAL, **sidecar):
        voxels = np.arange(512, dtype=np.float32).reshape(8, 8, 8)
        path = write_nifti(voxels, np.diag([*map(float, edges), 1.0]), f"{name}.nii.gz")
        (path.parent / f"{path.name.removesuffix('.nii.gz')}.json").write_text(json.dumps(sidecar))
        return Scan(name, path, (path,), tmp_path / f"{name}_sr")

    return write


def series(tmp_path, number, description, orientation="axial", spacing=5.0, **header):
    further = {"SeriesInstanceUID": f"1.2.3.{number}", "SeriesNumber": number, "SeriesDescription": description}
    directions = ORIENTATIONS[orientation] if isinstance(orientation, str) else orientation
    images = mr_slices(VOXELS, directions, spacing=spacing, **further | header)
    save(tmp_path / "study" / str(number), images)
    (found,) = dicom.find_series(tmp_path / "study" / str(number), 1.3)
    return Scan(description, found, (), tmp_path / description)


@pytest.mark.parametrize(
    ("one", "other", "why"),
    [
        ("acq-pre_T1w", "acq-post_T1w", "contrast agent"),
        ("T1w", "ce-gd_T1w", "contrast agent"),
        ("FLAIR", "T1w", "one is FLAIR, the other T1w"),
        ("t1 flair", "t1 se", None),
        ("acq-ax_T2w", "acq-sag_T2w", None),
        ("ce-none_T1w", "T1w", None),
        ("brain-a", "brain-b", None),
    ],
)
def test_names_tell_contrasts_apart(one, other, why, volume):
    told = volume(one).identity.other_contrast(volume(other).identity)
    assert told is None if why is None else why in told
    back = volume(other).identity.other_contrast(volume(one).identity)
    assert (back is None) == (told is None)


@pytest.mark.parametrize(
    ("one", "other", "why"),
    [
        ({"EchoTime": 0.09}, {"EchoTime": 0.02}, "their echo times are 20 and 90 ms"),
        ({"InversionTime": 2.5}, {"InversionTime": 0.9}, "inversion times"),
        ({"EchoTime": 0.1, "InversionTime": 2.5}, {"EchoTime": 0.1}, "an inversion time"),
        ({"RepetitionTime": 5.0}, {"RepetitionTime": 6.0}, None),
        ({"RepetitionTime": 5.0}, {"RepetitionTime": 0.5}, "repetition times"),
        ({"ContrastBolusIngredient": "GADOLINIUM"}, {}, "contrast agent"),
        ({"ContrastBolusIngredient": "NONE"}, {}, None),
    ],
)
def test_sidecars_tell_contrasts_apart(one, other, why, volume):
    told = volume("a", **one).identity.other_contrast(volume("b", **other).identity)
    assert told is None if why is None else why in told


@pytest.mark.parametrize("other", ["acq-post_T1w", "FLAIR"])
def test_named_scans_of_two_contrasts_are_refused_with_the_true_cause(other, volume, refusal):
    scans = [volume("acq-pre_T1w"), volume(other)]
    told = refusal(grouped, scans, scans)
    assert "not of one contrast" in told and ("agent" in told if "post" in other else "FLAIR" in told)


def test_only_a_direction_is_dropped_from_a_name(volume):
    names = "acq-ax_T2w", "acq-sag_T2w", "acq-tse_T2w", "acq-axfast_T2w"
    found = grouped([volume(f"sub-01_{name}") for name in names], [])
    assert sorted(len(scan.each) for scan in found) == [1, 1, 2]


def test_the_sharpest_scan_of_another_contrast_guides(volume):
    scan = volume("anna_FLAIR", AXIAL)
    others = [
        volume("anna_T2_thin", (1, 1, 3)),
        volume("anna_T2_sag", SAGITTAL),
        volume("anna_T2_cube", ISOTROPIC),
        volume("anna_T1_cube", ISOTROPIC),
        volume("anna_T1_post", ISOTROPIC),
        volume("anna_T1_ax", (1, 1, 4)),
        volume("anna_FLAIR_sag", SAGITTAL),
        volume("ben_T1", ISOTROPIC),
        volume("anna_acq-cube_brain", ISOTROPIC),
        scan,
    ]
    found = roles(scan, others)
    guides = [other.name for other, role in found if role.what == "guides"]
    assert guides == ["anna_T1_cube", "anna_T1_post", "anna_T2_cube", "anna_T2_sag", "anna_T2_thin"]
    left = {other.name: (role.what, role.why) for other, role in found if role.what != "guides"}
    assert left["anna_FLAIR_sag"] == ("joins", "it has the same contrast and another direction")
    assert "not sharp" in left["anna_T1_ax"][1] and "another person" in left["ben_T1"][1]
    assert "neither its name" in left["anna_acq-cube_brain"][1] and len(left) == 4


@pytest.mark.parametrize(("degrees", "joins"), [(20, False), (30, True), (90, True)])
def test_stacks_of_one_contrast_join_where_their_directions_differ(tmp_path, degrees, joins):
    """Slices that are turned about the left-right axis."""
    cosine, sine = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    first = series(tmp_path, 1, "t2 tse tra")
    second = series(tmp_path, 2, "t2 tse cor", orientation=[1, 0, 0, 0, cosine, sine])
    assert len(grouped([first, second], [])) == 2 - joins
    assert roles(first, [second])[0][1].what == ("joins" if joins else "is left alone")


def test_stacks_of_two_frames_of_reference_are_left_alone(tmp_path):
    first = series(tmp_path, 1, "t2 tse tra")
    assert len(grouped([first, series(tmp_path, 2, "t2 tse sag", "sagittal")], [])) == 1
    other = series(tmp_path, 3, "t2 tse sag", "sagittal", FrameOfReferenceUID="1.2.9")
    assert len(grouped([first, other], [])) == 2


@pytest.mark.parametrize("orientation", ["axial", "sagittal", "oblique"])
def test_a_series_lies_as_its_volume_does(tmp_path, orientation):
    scan = series(tmp_path, 1, "t2", orientation)
    affine = dicom.read_series(scan.source).affine
    edges = voxel_spacing(affine)
    np.testing.assert_allclose(scan.identity.edges, edges, atol=1e-6)
    np.testing.assert_allclose(scan.identity.axes, affine[:3, :3] / edges, atol=1e-6)


@pytest.mark.parametrize(("edge", "guides"), [(2.9, True), (3.1, False), (5.0, False)])
def test_an_isotropic_scan_guides_where_it_is_thinner(volume, edge, guides):
    ((_, role),) = roles(volume("FLAIR"), [volume("T1", (edge, edge, edge))])
    assert (role.what == "guides") == guides and (guides or "not sharp across the slices" in role.why)


def test_a_line_says_what_could_guide_where_nobody_asked(volume, tmp_path, caplog):
    """Of the first scan alone; nothing where no other contrast, no sharper scan, or no other scan lies beside it."""
    caplog.set_level("INFO")
    thick, sharp = volume("anna_FLAIR"), volume("anna_T1", ISOTROPIC)
    dull, same = volume("anna_T2"), volume("anna_FLAIR_cube", ISOTROPIC)
    for scans, others in (([thick], []), ([thick], [dull]), ([thick], [same])):
        say_what_could_guide(scans, others)
        assert not caplog.messages
    say_what_could_guide([thick, dull], [same, sharp])
    (line,) = caplog.messages
    assert line.startswith("anna_T1 could guide anna_FLAIR: one is FLAIR, the other T1w") and "--guide" in line


def test_a_run_without_a_guide_says_what_could_guide_and_one_with_a_guide_does_not(tmp_path, write_nifti, caplog):
    caplog.set_level("INFO")
    random = np.random.default_rng(0).random((24, 24, 24)).astype(np.float32) * 900
    folder = write_nifti(random, np.eye(4), "T1w.nii.gz").parent
    write_nifti(random[..., ::4], np.diag([1.0, 1, 4, 1]), "FLAIR.nii.gz")
    for guide, count in ((None, 1), ("auto", 0)):
        caplog.clear()
        found = find_scans(folder, tmp_path / "out", Selection(1.3), guide=guide)
        assert [one.path.name for one in found] == ["FLAIR.nii.gz"]
        assert sum("could guide" in line for line in caplog.messages) == count
