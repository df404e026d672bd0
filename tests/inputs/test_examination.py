"""Laws of what joins, what guides and what is left alone: headers and names decide, and a reason is given."""

import itertools
import json
from dataclasses import replace
from datetime import date

import numpy as np
import pytest
from pydicom.datadict import dictionary_VR, tag_for_keyword
from pydicom.dataelem import DataElement, RawDataElement

from scripts.inputs import bids, dicom
from scripts.inputs.examination import grouped, roles, say_what_could_guide
from scripts.inputs.identity import TIMES as TIMES_READ
from scripts.inputs.identity import Identity
from scripts.inputs.roles import role
from scripts.inputs.scan import Scan
from scripts.inputs.scans import scans as find_scans
from scripts.inputs.selection import Selection
from scripts.inputs.weighting import agent, by_times, weighting
from scripts.stack.grid import voxel_spacing
from tests.cohort_files import add
from tests.dicom_files import ORIENTATIONS, VOXELS, mr_slices, save
from tests.inputs import names

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
        volume("anna_T1_post", ISOTROPIC),
        volume("anna_T1_cube", ISOTROPIC),
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


def test_no_two_people_are_one_head_and_a_folders_files_of_one_are(tmp_path):
    """The rules' safe answer: fifty layouts of several people, whose prefixes are words of contrasts and protocols."""
    for k, layout in enumerate(names.layouts(50)):
        for name in layout:
            path = tmp_path / str(k) / f"{name}.nii.gz"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        found = {name: Identity.of(tmp_path / str(k) / f"{name}.nii.gz") for name in layout}
        for one, other in itertools.combinations(layout, 2):
            same = found[one].head == found[other].head
            assert not same or layout[one] == layout[other], (one, other, found[one].head)
            beside = one.split("/")[0] == other.split("/")[0] or "/" not in one
            assert same or layout[one] != layout[other] or not beside, (one, other, found[one].head)


def test_a_name_says_its_contrast_whoever_is_scanned():
    for name, expected in names.names(200):
        assert weighting(name) == expected, name


@pytest.mark.parametrize(
    ("names", "heads", "open"),
    [
        ("PD01_FLAIR PD02_T1", 2, False),
        ("P1_FLAIR P2_T1", 2, False),
        ("TE1_FLAIR TE2_T1", 2, False),
        ("T1D01_FLAIR T1D02_T2", 2, False),
        ("anna_T2_p2 anna_T1_iso", 1, True),
        ("7_t2_tse_tra 9_t1_mprage_sag", 2, True),
        ("anna_t2_3 anna_t1_9", 2, True),
        ("7_t2_tse_20190102 9_FLAIR_longTR_20190102", 2, True),
        ("PD01_3_T2_1 PD01_12_T1_1", 2, True),
        ("PD01_103_T2 PD01_112_T1", 2, True),
        ("PD01_3_T2_e1 PD02_12_T1_e1", 2, False),
        ("PD_03_T2 PD_12_T1", 2, False),
        ("TCGA-06-0125_T2 TCGA-06-0126_T1", 2, False),
        ("case_001_0000 case_001_0001", 1, True),
        ("case_001_0000 case_002_0001", 2, False),
        ("01_T1 01_FLAIR 02_T2", 2, False),  # a number of two contrasts is a person's
        ("T1_01 T1_02 FLAIR_03", 3, False),  # and a contrast of two numbers
        ("T2/anna T1/anna", 1, True),
        ("T1/anna_FLAIR T2/anna_MPRAGE", 2, False),  # of two time points
        ("T1/T1 T1/T2", 1, True),  # of one
        ("sub-T1_FLAIR sub-T2_T1w", 2, False),
        ("sub-1_ses-T1_FLAIR sub-1_ses-T1_T2w", 1, True),
    ],
)
def test_a_number_may_be_a_series_where_it_tells_no_people_apart(names, heads, open, tmp_path):
    for name in names.split():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / f"{name}.nii.gz").touch()
    found = [Identity.of(tmp_path / f"{name}.nii.gz") for name in names.split()]
    assert len({one.head for one in found}) == heads and (found[0].perhaps == found[-1].perhaps) == open
    assert (found[0].other_contrast(found[-1]) is not None) or not open


def test_people_of_one_number_come_before_those_whose_number_may_be_a_series(volume):
    scan, others = volume("3_FLAIR"), [volume("5_T1", ISOTROPIC), volume("7_T2", SAGITTAL)]
    found = roles(scan, others)
    assert [(one.name, role.what) for one, role in found] == [("5_T1", "guides"), ("7_T2", "guides")]
    assert all(role.why.endswith("its number may be of a series") for _, role in found)
    turned = [volume("carl_FLAIR_ax_3"), volume("carl_FLAIR_sag_5", SAGITTAL)]
    assert len(grouped(turned, [])) == 2 and roles(turned[0], turned[1:])[0][1].what == "is left alone"
    found = roles(volume("anna_FLAIR"), [volume("anna_T1_9", ISOTROPIC), volume("anna_T2_sag", SAGITTAL)])
    assert [(one.name, role.what) for one, role in found] == [("anna_T2_sag", "guides"), ("anna_T1_9", "guides")]


def test_guides_of_other_sessions_come_last_and_the_nearest_in_time_first(volume):
    days = {
        "ses-4_T1w": None,
        "ses-3_T1w": date(2020, 3, 1),
        "ses-2_T1w": date(2019, 12, 30),
        "ses-5_T1w": date(2020, 1, 1),
        "ses-1_acq-sag_T2w": None,
    }
    own = replace(volume("sub-1_ses-1_FLAIR").identity, date=date(2020, 1, 1))
    found = {
        name: role(own, replace(volume(f"sub-1_{name}", SAGITTAL if "sag" in name else ISOTROPIC).identity, date=day))
        for name, day in days.items()
    }
    assert all(one.what == "guides" for one in found.values())
    assert sorted(found, key=lambda name: found[name].rank) == list(days)[::-1]


def test_a_sidecars_patient_and_study_say_whose_head_it_is_and_neither_does_alone(volume):
    study = {"StudyInstanceUID": "1.2"}
    for said, same in ((study | {"PatientName": "Doe"}, True), (study, False), ({"PatientID": "17"}, False)):
        one, other = volume("anna_FLAIR", **said).identity, volume("ben_T1", ISOTROPIC, **said).identity
        assert (one.head == other.head) == same, said


def test_names_without_a_contrast_are_channels_where_they_are_numbered_from_0000_on(tmp_path):
    for numbers, kinds in (("0000 0001", ["channel 0", "channel 1"]), ("0001 0002", ["", ""])):
        paths = [tmp_path / numbers / f"case_001_{one}.nii.gz" for one in numbers.split()]
        for path in paths:
            path.parent.mkdir(exist_ok=True)
            path.touch()
        assert [Identity.of(path).weighting for path in paths] == kinds


@pytest.mark.parametrize(
    ("name", "kind", "given"),
    [
        ("sub-km01_ses-post_T1w", "T1w", None),
        ("sub-1_acq-T1_ce-gd_FLAIR", "FLAIR", True),
        ("T2 post stroke", "T2w", None),
        ("T1 post RT", "T1w", None),
        ("T2 AX POST FOSSA", "T2w", None),
        ("T1 AX POST", "T1w", True),
        ("T1_post_te15", "T1w", True),
        ("T2_in_T1", "T2w", None),
        ("mprage" * 60 + "x", "", None),  # which a pattern would take forever to look at
        ("t1_mprage_post_9", "T1w", True),
        ("T1 w/o contrast", "T1w", False),
        ("T1_tse_sag_vor_KM", "T1w", False),
        ("T1_tse_tra_nach_KM", "T1w", True),
        ("T1_sans_gado", "T1w", False),
        ("t2_space_da-fl_sag_p2_iso", "FLAIR", None),
        ("t2_fl2d_tra_hemo", "T2*w", None),
        ("t2_swi3d_tra_p2", "T2*w", None),
        ("T2W_FFE", "T2*w", None),
        ("t2_tirm_cor_fs", "STIR", None),
        ("t2_tirm_tra_dark-fluid_fs", "FLAIR", None),
        ("space-T1w_FLAIR", "FLAIR", None),
        ("T2 brain map", "T2w", None),
        ("GD3 KM01 CE2", "", None),
    ],
)
def test_words_count_as_a_whole(name, kind, given):
    assert (weighting(name), agent("", name)) == (kind, given)


TIMES = [  # echo, inversion and repetition time in ms
    ((100, 1501, 9000), "FLAIR"),
    ((100, 1499, 9000), ""),
    ((61, 2000, 9000), "FLAIR"),
    ((59, 2000, 9000), ""),
    ((14, 900, 2000), "T1w"),
    ((16, 900, 2000), ""),
    ((3, 301, 2000), "T1w"),
    ((3, 299, 2000), ""),
    ((3, 1499, 2000), "T1w"),
    ((3, 1501, 2000), ""),
    ((29, np.nan, 999), "T1w"),
    ((31, np.nan, 999), ""),
    ((29, np.nan, 1001), ""),
    ((71, np.nan, 2001), "T2w"),
    ((69, np.nan, 2001), ""),
    ((71, np.nan, 1999), ""),
]


def test_times_say_a_contrast_where_they_leave_no_doubt():
    assert [by_times(np.array(times), "SE") for times, _ in TIMES] == [kind for _, kind in TIMES]
    assert by_times(np.array([3, np.nan, 20]), "GR") == ""


@pytest.mark.parametrize(
    ("field", "value", "alike"),
    [
        ("EchoTime", 0.119, True),
        ("EchoTime", 0.121, False),
        ("EchoTime", 0, True),  # none
        ("InversionTime", 0.119, True),
        ("InversionTime", 0.121, False),
        ("RepetitionTime", 0.19, True),
        ("RepetitionTime", 0.21, False),
    ],
)
def test_times_of_one_contrast_differ_a_little(field, value, alike, volume):
    told = volume("a", **{field: 0.1}).identity.other_contrast(volume("b", **{field: value}).identity)
    assert (told is None) == alike


@pytest.mark.parametrize(("edge", "isotropic"), [(1.29, True), (1.31, False)])
def test_a_scan_is_isotropic_where_its_edges_are_nearly_alike(volume, edge, isotropic):
    ((_, role),) = roles(volume("FLAIR"), [volume("T1", (1, 1, edge))])
    assert role.what == "guides" and ("isotropic" in role.why) == isotropic


def test_a_name_comes_before_an_id(tmp_path):
    """IDs are spelt in two ways, where names are alike; without names they tell people apart."""
    first = series(tmp_path, 1, "flair", PatientName="Doe^Jane", PatientID="17")
    other = series(tmp_path, 2, "t1", spacing=1.0, PatientName="DOE^JANE^", PatientID="0017")
    assert roles(first, [other])[0][1].what == "guides"
    first, other = (series(tmp_path, k, "flair", PatientName="", PatientID=str(k)) for k in (3, 4))
    assert roles(first, [other])[0][1].why == "it is of another person, session or study"
    assert (first.identity.person, other.identity.person) == (("3",), ("4",))


WRONG = ["15/06/2019", "0000-00-00", "2019", -1, 0, 1e300, 10**400, True, [1, "x"], {"a": None}, "\ud800", "ʒ² 9" * 99]
READ = [*TIMES_READ, *"SeriesDescription ProtocolName SeriesNumber PatientID PatientName StudyInstanceUID".split()]
READ += ["ScanningSequence", "ContrastBolusIngredient", "AcquisitionDateTime"]


@pytest.mark.parametrize("field", READ)
def test_nothing_that_a_sidecar_says_ends_a_cohort(field, volume, tmp_path):
    """Each scan of a dataset is there, with an identity, whatever one of its fields holds."""
    for k, wrong in enumerate(WRONG):
        scan = volume(f"t2_{k}", **{field: wrong})
        other = volume(f"t1_{k}", ISOTROPIC, **{field: wrong})
        assert roles(scan, [other]) and scan.identity.weighting == "T2w" and not scan.identity.broken


def test_a_date_of_another_form_is_none(volume):
    dates = [bids.day(said) for said in [*WRONG, None, "2019-06-15T12:00:00", "20190615"]]
    assert dates == [None] * (len(WRONG) + 1) + [date(2019, 6, 15)] * 2
    scan, other = volume("sub-1_ses-1_T2w").identity, volume("sub-1_ses-2_T1w", ISOTROPIC).identity
    for one in dates:
        assert role(replace(scan, date=date(2020, 1, 1)), replace(other, date=one)).what == "guides"


HEADER = (
    "PatientName PatientID StudyInstanceUID StudyDate SeriesNumber SeriesDescription ProtocolName SequenceName".split()
)
HEADER += [*TIMES_READ, "ScanningSequence", "ContrastBolusAgent", "FrameOfReferenceUID"]


@pytest.mark.parametrize("keyword", HEADER)
def test_nothing_that_a_header_says_ends_a_cohort(keyword, tmp_path):
    for k, wrong in enumerate(["", "15/06/2019", "0000-00-00", "abc", "nan", "1e99", "-1", "1\\2", "\\", "9" * 64]):
        images = mr_slices(VOXELS, SeriesInstanceUID=f"1.2.3.{k}", SeriesDescription="t2")
        for image in images:
            kind = dictionary_VR(tag_for_keyword(keyword))
            image[keyword] = DataElement(keyword, kind, None)
            image[keyword] = RawDataElement(image[keyword].tag, kind, len(wrong), wrong.encode(), 0, False, True)
        save(tmp_path / str(k), images)
    selection = Selection(1.3)
    found = find_scans(tmp_path, tmp_path / "out", selection, guide="auto")
    assert len(found) == 10 and not selection.skipped, (len(found), selection.skipped)
    assert [scan.identity.times.shape for scan in found] == [(3,)] * 10


def test_the_log_says_why_stacks_of_one_contrast_do_not_join_and_counts_the_others_in_a_line(tmp_path, log):
    for name in ("ana_T2w_tra", "ana_T2w_second_tra", "ana_FLAIR", "ana_T1w", "ben_T2w"):
        add(tmp_path / f"study/{name}.nii.gz")
    find_scans(tmp_path / "study", tmp_path / "out", Selection(1.3), together=True)
    told = [message for message in log.messages if "stack of their head" in message or "is left alone" in message]
    (line,) = (message for message in told if "no other stack of their head and contrast is there" in message)
    assert all(name in line for name in ("ana_FLAIR", "ana_T1w", "ben_T2w"))
    assert all("for one is" not in message for message in told), "of contrasts nobody expects to join"
