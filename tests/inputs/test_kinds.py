"""What headers and sidecars say in defined terms that an image shows."""

import pytest
from pydicom import Dataset, uid

from scripts.inputs import kinds
from scripts.inputs.headers import first_reason
from scripts.inputs.kinds import remark_on


def header(**attributes):
    found = Dataset()
    for name, value in attributes.items():
        setattr(found, name, value)
    return found


def code(value, scheme="SCT", meaning="x"):
    return [header(CodeValue=value, CodingSchemeDesignator=scheme, CodeMeaning=meaning)]


@pytest.mark.parametrize(("code", "settles"), [(0, False), (5, True), (1002, True), (2016, False)])
def test_the_intent_of_nifti_settles_what_a_volume_shows(code, settles):
    assert bool(kinds.of_intent(code)) == settles


@pytest.mark.parametrize(
    ("milliseconds", "said", "settles"),
    [
        *((time, {}, time < 28) for time in (4.0, 20.0, 28.0, 250.0)),  # that of a slab of susceptibility is 28
        (22.0, {"MRAcquisitionType": "2D", "AngioFlag": "N"}, True),
        (22.0, {"MRAcquisitionType": "3D"}, False),
        (22.0, {"AngioFlag": "Y"}, False),
        (22.0, {"AcquisitionContrast": "TOF"}, False),
        (22.0, {"AcquisitionContrast": "T1"}, True),
    ],
)
def test_few_slices_that_take_seconds_are_a_localizer_and_a_slab_is_none(milliseconds, said, settles):
    for found in (header(RepetitionTime=milliseconds, **said), {"RepetitionTime": milliseconds / 1000, **said}):
        assert [bool(kinds.localizer(slices, found)) for slices in (20, 21)] == [settles, False]


@pytest.mark.parametrize(
    ("attributes", "why"),
    [
        ({"AnatomicRegionSequence": code("72696002", meaning="Knee")}, "not a head: AnatomicRegionSequence says Knee"),
        ({"AnatomicRegionSequence": code("T-D14AE", "SRT", "Orbit")}, "says Orbit"),
        ({"AnatomicRegionSequence": code("12738006", meaning="Brain")}, None),
        ({"AnatomicRegionSequence": code("T-D1100", "SRT", "Head")}, None),
        ({"AnatomicRegionSequence": code("1", "99LOCAL", "Knee")}, None),  # of no list
        ({"AnatomicRegionSequence": []}, None),
        ({"BodyPartExamined": "LSPINE"}, "BodyPartExamined is LSPINE"),  # other-body-parts
        ({"BodyPartExamined": "ORBIT"}, "BodyPartExamined is ORBIT"),
        ({"BodyPartExamined": "NECK", "SeriesDescription": "BRAIN"}, "BodyPartExamined is NECK"),
        ({"BodyPartExamined": "HEADNECK"}, None),
        ({"SeriesDescription": "T2 C-SPINE", "ProtocolName": "knee"}, None),
        ({"AnatomicalOrientationType": "QUADRUPED"}, "an animal"),
        ({"AnatomicalOrientationType": "BIPED"}, None),
        ({"PatientSpeciesCodeSequence": code("448771007", meaning="Dog")}, "an animal"),
        ({"PatientSpeciesCodeSequence": code("337915000", meaning="Homo sapiens")}, None),
        ({"QualityControlImage": "YES"}, "of a phantom"),
        ({"ImageType": ["DERIVED", "PRIMARY", "T2", "NONE"]}, "parametric maps, not anatomy: T2"),
        ({"ImageType": ["DERIVED", "PRIMARY", "T2"], "SOPClassUID": uid.EnhancedMRImageStorage}, None),
        ({"ImageType": ["DERIVED", "PRIMARY", "ADC"], "SOPClassUID": uid.EnhancedMRImageStorage}, "parametric maps"),
    ],
)
def test_codes_and_defined_terms_settle_that_an_image_shows_no_head(attributes, why):  # enhanced-derived-t2
    found = first_reason(header(**attributes), kinds.CONTENTS)
    assert found is None if why is None else why in found


@pytest.mark.parametrize(
    ("name", "word"),
    [("SAG T2 C-SPINE", "SPINE"), ("t2_knee", "KNEE"), ("T2_mask", "MASK"), ("ADC", "ADC"), ("t1map", "T1MAP")]
    + [(name, "") for name in ("T2_012_F", "FLAIR_ra", "T2_MD", "T1_con", "armin_T2", "posterior_fossa", "headache")],
)
def test_a_whole_word_of_a_body_part_or_a_map_is_remarked_on(name, word):
    assert (f"its name says {word}" in remark_on(name)) if word else not remark_on(name)
