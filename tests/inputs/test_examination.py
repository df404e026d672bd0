"""Laws of what joins, what guides and what is left alone: standards decide, names order, and a reason is given."""

from collections import Counter
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import pytest
from pydicom.datadict import dictionary_VR, tag_for_keyword
from pydicom.dataelem import DataElement, RawDataElement

from benchmarks.names import layouts
from scripts.inputs import bids, dicom
from scripts.inputs.examination import MOST_GUIDES, grouped, role, roles
from scripts.inputs.identity import AMOUNTS, by_times
from scripts.inputs.identity import TIMES as TIMES_READ
from scripts.inputs.names import alike, contrast_of, of_files
from scripts.inputs.scan import Scan, by_head
from scripts.inputs.scans import scans as find_scans
from scripts.inputs.selection import Selection
from scripts.stack.grid import voxel_spacing
from tests.cohort_files import add
from tests.corpus import situations
from tests.corpus.situations import CUBE, SAGITTAL, THICK, nifti
from tests.dicom_files import PIXEL, VOXELS, mr_slices, save


@pytest.fixture
def volume(tmp_path):
    """Writes a volume of given voxels, with a sidecar, and gives its scan."""

    def write(name, edges=THICK, **sidecar):
        path = nifti(tmp_path, name, edges, np.arange(512.0).reshape(8, 8, 8), **sidecar)
        return Scan(name, path, (path,), tmp_path / f"{name}_sr")

    return write


def series(tmp_path, number, description, **given):
    (found,) = dicom.find_series(situations.series(tmp_path / "study", number, description, VOXELS, **given))
    return Scan(description, found, (), tmp_path / description)


@pytest.mark.parametrize(
    ("one", "other", "why"),
    [  # names, or what sidecars say
        ("sub-1_T1w", "sub-1_ce-gd_T1w", "ce-gd"),
        ("sub-1_FLAIR", "sub-1_T1w", "one is FLAIR, the other T1w"),
        ("sub-1_acq-ax_T2w", "sub-1_acq-sag_run-2_T2w", None),
        ("acq-pre_T1w", "acq-post_T1w", None),  # names of loose files settle nothing
        ("FLAIR", "T1w", None),
        ({"EchoTime": 0.1, "InversionTime": 2.5}, {"EchoTime": 0.1}, "an inversion time"),
        ({"EchoTime": 0.1}, {"EchoTime": 0.119}, None),
        ({"EchoTime": 0.1}, {"EchoTime": 0.121}, "their echo times are 100 and 121 ms"),
        ({"EchoTime": 0.1}, {"EchoTime": 0}, None),  # none
        ({"InversionTime": 0.1}, {"InversionTime": 0.119}, None),
        ({"InversionTime": 0.1}, {"InversionTime": 0.121}, "inversion times"),
        ({"RepetitionTime": 0.1}, {"RepetitionTime": 0.19}, None),
        ({"RepetitionTime": 0.1}, {"RepetitionTime": 0.21}, "repetition times"),
        ({"ContrastBolusIngredient": "GADOLINIUM"}, {}, "contrast agent"),
        ({"ScanOptions": "FS"}, {}, "fat-saturated"),
        ({"ScanOptions": ["SAT_GEMS", "FS"]}, {"ScanOptions": "FAST_GEMS\\FS"}, None),
    ],
)
def test_suffix_entities_and_sidecars_tell_contrasts_apart_and_other_names_do_not(one, other, why, volume):
    pair = (volume(said) if isinstance(said, str) else volume(name, **said) for name, said in zip("ab", (one, other)))
    one, other = (scan.identity for scan in pair)
    told = one.other_contrast(other)
    assert told is None if why is None else why in told
    assert one.one_contrast(other) == (why is None and bool(one.stated))
    assert (other.other_contrast(one) is None) == (told is None)


DENIED = ["", "NONE", "No", "NO CONTRAST", "N/A", "-", "0", "0 ml", "w/o", "W/O GAD", "none given", "false", "UNKNOWN"]
GIVEN = ["GADOLINIUM", "Gadovist", "7.5 ml Dotarem", "0.1 mmol/kg Gd", "YES", "W CONTRAST", "钆布醇"]


@pytest.mark.parametrize(("said", "given"), [(one, False) for one in DENIED] + [(one, True) for one in GIVEN])
def test_an_agent_was_given_unless_its_attribute_says_no(said, given, volume):
    assert volume("a", ContrastBolusIngredient=said).identity.agent == given
    assert volume("b", ContrastBolusAgent=said, ContrastBolusVolume=0).identity.agent == given
    assert volume("c", ContrastBolusAgent=said, ContrastBolusVolume=7.5).identity.agent
    assert volume("d", ContrastBolusTotalDose=0.1).identity.agent


def test_what_is_named_goes_together_but_for_what_a_standard_calls_another_contrast(volume, log):
    """A loose file's name never does."""
    scans = [volume("acq-pre_T1w"), volume("FLAIR"), volume("late", ContrastBolusIngredient="Gd")]
    found = grouped(scans, True)
    assert [[one.name for one in scan.each] for scan in found] == [["acq-pre_T1w", "FLAIR"], ["late"]]
    assert "late is rebuilt alone, not with acq-pre_T1w: a contrast agent was given before one of them." in log.messages
    found = grouped(scans, True, "late*")
    assert [[one.name for one in scan.each] for scan in found] == [["late"], ["acq-pre_T1w"], ["FLAIR"]]


def test_names_are_alike_by_the_words_that_they_begin_or_end_with():
    pairs = [("a b x", "a b"), ("x sag", "y z sag"), ("a b", "b a"), ("a", "")]
    assert [alike(one.split(), other.split()) for one, other in pairs] == [2, 1, 0, 0]


def test_stacks_of_bids_join_by_suffix_and_entities(volume):
    names = "acq-ax_T2w", "acq-sag_T2w", "run-2_T2w", "rec-x_T2w", "T1w"
    found = grouped([volume(f"sub-01_{name}") for name in names], False)
    assert sorted(len(scan.each) for scan in found) == [1, 1, 3]
    (joined,) = (scan for scan in found if len(scan.each) > 1)
    assert joined.result.name.endswith("_together_sr")


def test_loose_files_join_where_the_user_names_them_and_a_line_says_how(volume, log):
    scans = [volume("T2_ax"), volume("T2_sag", SAGITTAL)]
    assert len(grouped(scans, False)) == 2 and len(grouped(scans, True)) == 1
    assert any("To join them: drift-mri T2_ax T2_sag --together" in line for line in log.messages)


def test_scans_of_a_head_are_ordered_by_their_names_and_by_how_sharp_they_are(volume):
    scan = volume("anna_FLAIR", THICK)
    others = [
        volume("anna_T2_thin", (1, 1, 3)),
        volume("anna_T2_sag", SAGITTAL),
        volume("anna_T2_cube", CUBE),
        volume("anna_T1_cube", CUBE, ContrastBolusIngredient="Gd"),
        volume("anna_T1", CUBE),
        volume("anna_T1_ax", (1, 1, 4)),
        volume("anna_FLAIR_sag", SAGITTAL),
        volume("ben_T1", CUBE),
        volume("anna_brain", CUBE),
        scan,
    ]
    found = roles(scan, others)
    guides = [other.name.removeprefix("anna_") for other, role in found if role.rank]
    assert guides == ["T1", "T1_cube", "T2_cube", "T2_sag", "T2_thin", "brain", "FLAIR_sag", "ben_T1"]
    left = {other.name: role.why for other, role in found if not role.rank}
    assert list(left) == ["anna_T1_ax"] and "not sharp" in left["anna_T1_ax"]
    assert "no standard says its contrast" in dict((one.name, role.why) for one, role in found)["anna_brain"]


def test_what_standards_call_one_contrast_guides_nothing(volume):
    times = {"EchoTime": 0.1, "RepetitionTime": 5.0}
    for one, other, said in (("sub-1_T2w", "sub-1_acq-x_T2w", {}), ("a", "b", times)):
        found = roles(volume(one, **said), [volume(other, SAGITTAL, **said), volume(f"{other}_x", CUBE)])
        assert [role.why for _, role in found if not role.rank] == ["it has the same contrast and another direction"]
        assert len(found) == 2


@pytest.mark.parametrize(
    "degrees, frame, joins", [(20, "1", False), (30, "1", True), (90, "1", True), (90, "2", False)]
)
def test_stacks_of_one_contrast_and_frame_join_where_their_directions_differ(tmp_path, degrees, frame, joins):
    """Slices that are turned about the left-right axis."""
    turned = (1, 0, 0, 0, np.cos(np.radians(degrees)), np.sin(np.radians(degrees)))
    first = series(tmp_path, 1, "t2 tse tra", FrameOfReferenceUID="1")
    second = series(tmp_path, 2, "t2 tse cor", orientation=turned, FrameOfReferenceUID=frame)
    assert len(grouped([first, second], False)) == 2 - joins
    assert ("another direction" if degrees >= 30 else "the same direction") in roles(first, [second])[0][1].why


@pytest.mark.parametrize("orientation", ["axial", "sagittal", "oblique"])
def test_a_series_lies_as_its_volume_does(tmp_path, orientation):
    scan = series(tmp_path, 1, "t2", orientation=orientation, PixelSpacing=PIXEL)
    affine = dicom.read_series(scan.source).affine
    edges = voxel_spacing(affine)
    np.testing.assert_allclose(scan.identity.edges, edges, atol=1e-6)
    np.testing.assert_allclose(scan.identity.axes, affine[:3, :3] / edges, atol=1e-6)


@pytest.mark.parametrize(
    ("pixel", "spacing", "why"),
    [
        (2.9, 2.9, "are isotropic"),
        (3.1, 3.1, "not sharp across the slices"),
        (5.0, 5.0, "not sharp across the slices"),
        (1.0, 1.29, "are isotropic"),
        (1.0, 1.31, "its slices are 1.3 mm apart, not 5 mm"),
    ],
)
def test_a_scan_of_the_same_direction_guides_where_it_is_thinner(volume, pixel, spacing, why):
    ((_, role),) = roles(volume("FLAIR"), [volume("T1", (pixel, pixel, spacing))])
    assert why in role.why and bool(role.rank) == ("not sharp" not in why)


def test_a_run_without_a_guide_says_once_what_could_guide_and_one_with_a_guide_does_not(tmp_path, write_nifti, log):
    """Not of a scan alone, nor where nothing sharper or of another contrast lies beside it."""
    random = np.random.default_rng(0).random((24, 24, 24)).astype(np.float32) * 900

    def told(*names, guide=None):
        for name in names:
            cube = name.startswith("T1w")
            write_nifti(random if cube else random[..., ::4], np.diag([1.0, 1, 1 if cube else 4, 1]), f"{name}.nii.gz")
        log.clear()
        found = find_scans(tmp_path, tmp_path / "out", Selection(1.3), guide=guide)
        assert "T1w.nii.gz" not in {one.path.name for one in found}
        return [line for line in log.messages if "could guide" in line]

    assert not told("FLAIR") and not told("T2w")
    (line,) = told("T1w")
    assert line.startswith("T1w.nii.gz could guide FLAIR.nii.gz: one is FLAIR, the other T1w") and "--guide" in line
    assert not told(guide="auto")


PEOPLE = [  # files, each head's with a blank between, heads with a stroke
    "PD01_FLAIR PD01_T1 | PD02_FLAIR",
    "anna_T2_p2 anna_T1_iso",
    "7_t2_tse_tra 9_t1_mprage_sag",  # all first tokens differ
    "IXI002-Guys-0828-T1 IXI002-Guys-0828-T2 | IXI012-HH-1211-FLAIR",
    "TCGA-06-0125-T1 TCGA-06-0125_sag-FLAIR_iso | TCGA-06-0126-t2-3mm TCGA-06-0126-T1",
    "anna.T2 anna.T1 | ben T2 | carl-T1",
    "山田_T2 山田_T1 | Иванов_T2",
    "T2WI T1WI mp2rage_UNI T1w_defaced T1增强",  # names-with-wi
    "FLAIR_anna FLAIR_ben T1_anna T1_ben",  # a contrast's word is nobody's
    "T1 T2 brain",
    "T2/anna T1/anna | T2/ben T1/ben",
    "T1w_defaced/anna T2WI/anna | T2WI/ben",
    "anna/T1 anna/T2 | ben/T1 ben/T2",
    "anna/1 anna/2 | ben/1",
    "sub-T1_FLAIR | sub-T2_T1w",
    "sub-1/anat/sub-1_ses-T1_FLAIR sub-1/anat/sub-1_ses-T1_T2w | sub-2/anat/x",
]


@pytest.mark.parametrize("people", PEOPLE)
def test_loose_files_of_one_head_share_a_folder_and_the_first_token_of_their_names(people, tmp_path):
    expected = [sorted(head.split()) for head in people.replace("ben T2", "ben:T2").split("|")]
    paths = {name: tmp_path / f"{name.replace(':', ' ')}.nii.gz" for head in expected for name in head}
    for path in paths.values():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    found = by_head([Scan(name, path, (path,), path) for name, path in paths.items()])
    assert sorted(sorted(scan.name for scan in head) for head in found) == sorted(expected)


@pytest.mark.parametrize("name", ["{}_T1", "T1_{}", "scan_{}", "T1_{}/scan"])
def test_pairs_that_are_compared_grow_with_the_files_of_a_folder_and_not_with_their_square(name):
    """Each scan is beside all others of its head. No examination has so many files."""
    for count, most in ((40, 40**2), (41, 41), (1000, 1000), (2000, 2000)):
        heads = Counter(of_files(Path("study") / f"{name.format(f'p{k}')}.nii" for k in range(count)).values())
        assert sum(size**2 for size in heads.values()) <= most, (count, max(heads.values()))
        assert count > 40 or [*heads.values()] == [40], "an examination's files stay of one head"
    heads = of_files(Path("study") / f"p{k // 4}_{k % 4}.nii" for k in range(4000))
    assert sorted(Counter(heads.values()).values()) == [4] * 1000


def test_whoever_is_scanned_the_own_guide_is_among_the_first_three_candidates(tmp_path):
    """Sixty-three folders of two people each: nine layouts, names of many kinds (benchmarks/names.py)."""
    for k, layout in enumerate(layouts(63)):
        scans = []
        for name, (who, kind) in layout.items():
            path = add(tmp_path / str(k) / f"{name}.nii.gz", THICK if kind == "thick" else CUBE)
            scans.append(Scan(f"{who} {kind}", path, (path,), path))
        for head in by_head(scans):
            for scan in (one for one in head if one.name.endswith("thick")):
                first = [one.name for one, role in roles(scan, head) if role.rank][:MOST_GUIDES]
                assert scan.name.replace("thick", "sharp") in first, (layout, scan, first)


def test_guides_of_other_sessions_come_last_and_the_nearest_in_time_first(volume):
    own, found = replace(volume("sub-1_ses-1_FLAIR").identity, date=date(2020, 1, 1)), {}
    days = {"ses-4_T1w": None, "ses-3_T1w": date(2020, 3, 1), "ses-2_T1w": date(2019, 12, 30)}
    days |= {"ses-5_T1w": date(2020, 1, 1), "ses-1_acq-sag_T2w": None}
    for name, day in days.items():
        other = volume(f"sub-1_{name}", SAGITTAL if "sag" in name else CUBE).identity
        found[name] = role(own, replace(other, date=day))
    assert all(one.rank for one in found.values())
    assert sorted(found, key=lambda name: found[name].rank) == list(days)[::-1]


def test_a_sidecars_patient_and_study_say_whose_head_it_is_and_neither_does_alone(volume):
    study = {"StudyInstanceUID": "1.2"}
    for said, same in ((study | {"PatientName": "Doe"}, True), (study, False), ({"PatientID": "17"}, False)):
        scans = [volume(f"{name}_{kind}", **said) for name in ("anna", "ben") for kind in ("FLAIR", "T1")]
        assert len(by_head(scans)) == 2 - same, said


@pytest.mark.parametrize(
    ("name", "contrast"),
    [
        ("AxT2", "T2w"),
        ("t2_space_da-fl_sag_p2_iso", "FLAIR"),
        ("t2_fl2d_tra_hemo", "T2*w"),
        ("T2W_FFE", "T2*w"),
        ("3D T2* SWI", "T2*w"),
        ("GD3 KM01 T1D02 PD01", ""),
        ("posterior fossa", ""),
        ("mprage" * 20 + "x", ""),
    ],
)
def test_whole_words_of_a_name_show_a_contrast_and_give_no_agent(name, contrast, volume):
    assert contrast_of(name) == contrast and not volume(name.replace("*", "star") + " post KM Gd").identity.agent


@pytest.mark.parametrize(
    ("name", "times", "shown", "source"),
    [
        ("T2", (0.01, None, 0.5), "T1w", "its times"),
        ("T2", (0.1, 2.5, 9), "FLAIR", "its times"),
        ("T2", (0.1, None, 5), "T2w", "its name"),
        ("scan", (0.1, None, 5), "T2w", "its times"),
        ("sub-1_T2w", (0.01, None, 0.5), "T2w", "its suffix"),
        ("scan", (None,) * 3, "", ""),
    ],
)
def test_times_that_deny_a_name_show_the_contrast_with_a_remark(name, times, shown, source, volume):
    found = volume(name, **dict(zip(TIMES_READ, times))).identity.shows
    assert (found.contrast, found.source) == (shown, source)
    assert found.remark == (
        f"its name says T2w, its times are those of {shown}" if name == "T2" and shown != "T2w" else ""
    )


# echo, inversion and repetition time in ms: within the bounds of a contrast, and beyond one of them
BOUNDS = """
    FLAIR 100 1501 9000 | 100 1499 9000
    FLAIR 61 2000 9000 | 59 2000 9000
    T1w 14 900 2000 | 16 900 2000
    T1w 3 301 2000 | 3 299 2000
    T1w 3 1499 2000 | 3 1501 2000
    T1w 29 nan 999 | 31 nan 999 | 29 nan 1001
    T2w 71 nan 2001 | 69 nan 2001 | 71 nan 1999
"""


def test_times_say_a_contrast_where_they_leave_no_doubt():
    for kind, line in (line.split(maxsplit=1) for line in BOUNDS.strip().splitlines()):
        found = [by_times(np.array(times.split(), float), "SE") for times in line.split("|")]
        assert found[0] == kind and not any(found[1:]), line
    assert by_times(np.array([3, np.nan, 20]), "GR") == ""


def test_a_name_comes_before_an_id(tmp_path):
    """IDs are spelt in two ways, where names are alike; without names they tell people apart."""
    first = series(tmp_path, 1, "flair", PatientName="Doe^Jane", PatientID="17")
    other = series(tmp_path, 2, "t1", spacing=1.0, PatientName="DOE^JANE^", PatientID="0017")
    assert first.identity.head == other.identity.head
    first, other = (series(tmp_path, k, "flair", PatientName="", PatientID=str(k)) for k in (3, 4))
    assert (first.identity.head[0], other.identity.head[0]) == ("3", "4")


WRONG = ["15/06/2019", "0000-00-00", "2019", -1, 0, 1e300, 10**400, True, [1, "x"], {"a": None}, "\ud800", "ʒ² 9" * 99]
READ = [*TIMES_READ, *"SeriesDescription ProtocolName SeriesNumber PatientID PatientName StudyInstanceUID".split()]
READ += ["ScanningSequence", "ContrastBolusIngredient", "AcquisitionDateTime"]


@pytest.mark.parametrize("field", READ)
def test_nothing_that_a_sidecar_says_ends_a_cohort(field, volume, tmp_path):
    """Each scan of a dataset is there, with an identity, whatever one of its fields holds."""
    for k, wrong in enumerate(WRONG):
        scan = volume(f"t2_{k}", **{field: wrong})
        other = volume(f"t1_{k}", CUBE, **{field: wrong})
        assert roles(scan, [other]) and not scan.identity.broken


def test_a_date_of_another_form_is_none(volume):
    dates = [bids.day(said) for said in [*WRONG, None, "2019-06-15T12:00:00", "20190615"]]
    assert dates == [None] * (len(WRONG) + 1) + [date(2019, 6, 15)] * 2
    scan, other = volume("sub-1_ses-1_T2w").identity, volume("sub-1_ses-2_T1w", CUBE).identity
    for one in dates:
        assert role(replace(scan, date=date(2020, 1, 1)), replace(other, date=one)).rank


HEADER = (
    "PatientName PatientID StudyInstanceUID StudyDate SeriesNumber SeriesDescription ProtocolName SequenceName".split()
)
HEADER += [*TIMES_READ, *AMOUNTS, "ScanningSequence", "ContrastBolusAgent", "FrameOfReferenceUID"]


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
