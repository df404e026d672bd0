"""Examinations as people have them: small folders, and the role of every file or series in each."""

import json
from pathlib import Path

import nibabel as nib
import numpy as np
from scipy import ndimage

from tests.dicom_files import ORIENTATIONS, mr_slices, save

SHAPE = (28, 32, 12)
THICK, CUBE, SAGITTAL = (1.0, 1.0, 5.0), (1.0, 1.0, 1.0), (5.0, 1.0, 1.0)
PERSON = {"PixelSpacing": [1.0, 1.0], "SliceThickness": 5}


def head(shape=SHAPE, seed=0, scale=1.0):
    """A head whose slices resemble their neighbours, with detail in every voxel; air around it is 0."""
    rng = np.random.default_rng(seed)
    inside = sum(a**2 for a in np.meshgrid(*(np.linspace(-1.15, 1.15, n) for n in shape), indexing="ij")) < 1
    large = ndimage.gaussian_filter(np.random.default_rng(7).normal(size=shape), (3, 3, 2))
    return (scale * inside * (500 + 900 * large / large.std() * 0.2 + 25 * rng.normal(size=shape))).clip(0)


def interpolated(factor=5):
    """5 mm slices, as programs bring them to cubes of 1 mm."""
    return ndimage.zoom(head((32, 32, 8)), (1, 1, factor), order=1)


def nifti(folder, name, edges=THICK, values=None, **sidecar):
    """A file, with a sidecar where there are fields."""
    path = folder / f"{name}.nii.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    if values is None:
        values = head((32, 32, 32) if edges == CUBE else SHAPE if edges == THICK else SHAPE[::-1])
    values = values if values.dtype.kind == "f" and np.nanmax(values) <= 1.1 else values.astype(np.int16)
    nib.save(nib.Nifti1Image(values, np.diag([*edges, 1.0])), path)
    if sidecar:
        path.with_name(f"{name}.json").write_text(json.dumps(sidecar))
    return path


def series(folder, number, description, values=None, orientation="axial", spacing=5.0, **header):
    """A DICOM series of the examination."""
    names = {"SeriesInstanceUID": f"1.2.3.{number}", "SeriesNumber": number, "SeriesDescription": description}
    voxels = (head() if values is None else values).astype(np.uint16)
    directions = [*ORIENTATIONS.get(orientation, orientation)]
    return save(folder / f"{number}", mr_slices(voxels, directions, spacing=spacing, **{**names, **PERSON, **header}))


def cube(folder, number, description, **header):
    """An isotropic DICOM series."""
    return series(folder, number, description, head((32, 32, 32)), spacing=1.0, SliceThickness=1, **header)


def bids(folder):
    (folder / "dataset_description.json").write_text('{"Name": "x", "BIDSVersion": "1.9.0"}')


def files(*names, **others):
    """Thick files of these names, and others of given edges."""

    def make(folder):
        for name in names:
            nifti(folder, name)
        for name, edges in others.items():
            nifti(folder, name, edges)

    return make


def beside(name, values=None, edges=THICK, **sidecar):
    """A file beside a thick T2."""

    def make(folder):
        nifti(folder, "T2")
        nifti(folder, name, edges, values, **sidecar)

    return make


def labels(count=121):
    """A parcellation: whole numbers in patches."""
    return np.kron(np.random.default_rng(0).integers(0, count, (7, 8, 3)), np.ones((4, 4, 4))).astype(np.int16)


def region(value, meaning):
    """A code of SNOMED for a part of the body."""
    from pydicom import Dataset

    item = Dataset()
    item.CodeValue, item.CodingSchemeDesignator, item.CodeMeaning = value, "SCT", meaning
    return [item]


def half(attribute, value, order=lambda k: k > 5, values=None, **also):
    """A series in which half of the slices have another value."""
    other = {attribute: lambda k: value if order(k) else FIRST[attribute]}
    return lambda folder: series(folder, 1, "t2 tse tra", values, **{**other, **also})


T1 = {"EchoTime": 10, "RepetitionTime": 500}
FIRST = {
    "PatientName": "Doe^Jane",
    "PatientID": "17",
    "StudyInstanceUID": "1.2.3",
    "ImageType": ["ORIGINAL", "PRIMARY", "M"],
    "RepetitionTime": 4000,
    "SeriesInstanceUID": "1.2.3.1",
    "EchoTime": 90,
}
ODD = lambda k: k % 2 == 1  # noqa: E731


def lesion():
    """A soft ball of two voxels."""
    place = np.stack(np.meshgrid(*map(np.arange, SHAPE), indexing="ij"))
    return (1.4 - np.linalg.norm(place - np.array([14, 16, 6])[:, None, None, None], axis=0) / 2).clip(0, 1)


def tissue():
    """A soft map of a ball in air."""
    inside = ndimage.binary_erosion(head() > 0, iterations=3)
    return ndimage.gaussian_filter(np.float32(inside), 0.7)


def statistic(shape=SHAPE):
    """Smooth scores on both sides of 0, where the head is."""
    scores = ndimage.gaussian_filter(np.random.default_rng(1).normal(size=shape), 1)
    return np.where(head(shape) > 0, np.float32(scores / abs(scores).max()), 0)


def intent(code):
    def make(folder):
        nifti(folder, "T2")
        image = nib.load(path := nifti(folder, "x"))
        image.header["intent_code"] = code
        nib.save(nib.Nifti1Image(np.asarray(image.dataobj), image.affine, image.header), path)

    return make


def two_contrasts(order):
    values = head()
    values[..., [k for k in range(12) if order(k)]] = (600 - head())[..., [k for k in range(12) if order(k)]].clip(0)
    return values


def strangers(folder):
    series(
        folder, 1, "t2", PatientName=lambda k: ("Doe^Jane", "Roe^Ann")[k % 2], PatientID=lambda k: ("17", "18")[k % 2]
    )


def slabs(folder):
    """Six slices, and six more 63 mm above."""
    images = mr_slices(head().astype(np.uint16), spacing=5.0, **PERSON)
    for image in images[6:]:
        image.ImagePositionPatient[2] += 63
    save(folder / "1", images)


def side_by_side(folder):
    """The left and the right of something, in one series."""
    images = [*mr_slices(head().astype(np.uint16), spacing=5.0, **PERSON)]
    right = mr_slices(head(seed=3).astype(np.uint16), spacing=5.0, **PERSON)
    for image in right:
        image.ImagePositionPatient[0] += 70
    save(folder / "1", [*images, *right])


def study(*others):
    """A study of a thick T2 and others, `(description, maker, header)`."""

    def make(folder):
        series(folder, 1, "t2 tse tra")
        for number, (description, maker, header) in enumerate(others, start=2):
            maker(folder, number, description, **header)

    return make


def sessions(folder):
    bids(folder)
    nifti(folder / "sub-1/ses-a/anat", "sub-1_ses-a_FLAIR")
    nifti(folder / "sub-1/ses-b/anat", "sub-1_ses-b_T1w", CUBE)
    nifti(folder / "sub-1/ses-c/anat", "sub-1_ses-c_T1w", CUBE)
    days = "session_id\tacq_time\nses-a\t2020-01-01\nses-b\t2016-01-01\nses-c\t2021-01-01\n"
    (folder / "sub-1" / "sub-1_sessions.tsv").write_text(days)


def inherited(folder):
    """Sidecars of upper folders: the nearest wins, one with an entity that a scan lacks says nothing of it."""
    bids(folder)
    anat, agent = folder / "sub-1/anat", "ContrastBolusIngredient"
    nifti(anat, "sub-1_acq-post_T1w", EchoTime=None, **{agent: None})
    nifti(anat, "sub-1_acq-pre_T1w")
    nifti(anat, "sub-1_T2w")
    (folder / "T1w.json").write_text(json.dumps({agent: "GADOLINIUM"}))
    (folder / "sub-1/sub-1_acq-pre_T1w.json").write_text(json.dumps({agent: "NONE"}))
    (anat / "acq-other_T2w.json").write_text(json.dumps({agent: "GADOLINIUM"}))


def dataset(folder):
    """What a dataset holds beside its anatomical scans: maps, phases, series over time, derivatives, its DICOM."""
    bids(folder)
    for name in ("anat/sub-1_T2w", "anat/sub-1_T1map", "anat/sub-1_part-phase_T1w", "perf/sub-1_T1w", "anat/x_T1w"):
        nifti(folder / "sub-1", name)
    nifti(folder / "derivatives/sub-1/anat", "sub-1_FLAIR")
    series(folder / "sourcedata", 1, "t1 se tra", **T1)


def broken(folder):
    """A series over time, a file that is cut, and one whose sidecar is, beside a good one."""
    nifti(folder, "T2")
    nifti(folder, "bold", values=np.stack([head()] * 2, axis=-1))
    cut = nifti(folder, "T1")
    cut.write_bytes(cut.read_bytes()[:-300])
    nifti(folder, "FLAIR").with_name("FLAIR.json").write_text('{"EchoTime": ')


def link_to_nothing(folder):
    nifti(folder, "T2")
    (folder / "T2.json").symlink_to("../.git/annex/objects/x.json")


def pointer(folder):
    nifti(folder, "T2")
    (folder / "T2.nii.gz").write_text("/annex/objects/MD5E-s300--0123.nii.gz\n")


def sform(folder, code, shear):
    """A good qform, and an sform of a standard space."""
    image = nib.Nifti1Image(head().astype(np.int16), np.diag([*THICK, 1.0]))
    image.set_qform(np.diag([*THICK, 1.0]), code=1)
    matrix = np.diag([1.2, 1.1, 5.6, 1.0])
    matrix[0, 2] = shear
    image.set_sform(matrix, code=code)
    nib.save(image, folder / "T2.nii.gz")


def real_world(folder):
    """A slope for each slice, in real-world values alone."""
    from pydicom import Dataset

    values = head().astype(np.uint16)
    images = mr_slices(values, spacing=5.0, **PERSON)
    for k, image in enumerate(images):
        mapping = Dataset()
        mapping.RealWorldValueSlope, mapping.RealWorldValueIntercept = 1.0 + 0.25 * (k % 3), 0.0
        mapping.RealWorldValueFirstValueMapped, mapping.RealWorldValueLastValueMapped = 0, 4095
        image.RealWorldValueMappingSequence = [mapping]
        image.PixelData = np.round(values[:, :, k].T / (1.0 + 0.25 * (k % 3))).astype(np.uint16).tobytes()
    save(folder / "1", images)


T2, MAP = "thick T2w", "no: .*"
BY_VOXELS = "doubtful.*its (values|tissues)"
NAMES = {  # of scans, by which none is left out, doubtful, or with an agent; the contrast that they show, and a remark
    "T2_pve_1": "T2w", "T1_GM": "T1w", "T1map": "(?!T).*MAP", "T2_mask": "T2w.*MASK", "T1_c_spine": "T1w.*SPINE",
    "T2_012_F": "T2w", "T1w_defaced": "T1w", "mp2rage_UNI": "T1w", "c1T2": "", "localizer": "", "zstat1": "",
    "T1_CE": "T1w(?! with)", "T1_post_Gd": "T1w(?! with)", "T1_ohne_KM": "T1w", "FLAIR_ra": "FLAIR", "T2WI": "T2w",
    "T1增强": "T1w", "vibe": "T1w", "space": "T2w", "t2_tirm_cor": "STIR", "dir": "DIR", "swan": r"T2\*w",
    "t2_dark_fluid": "FLAIR", "T2_Eq_1": "T2w.*its slices lie unevenly",
    "bold_ADC": "(?!T).*ADC",
}  # fmt: skip
# situation: its maker, and each file's or series' role: thick and its contrast, by its first guide; else no and why.
# A single scan's role stands alone
SITUATIONS = {
    # guides from any source
    "NIfTI: a sharp T1w guides": (files("T2", T1=CUBE), {"T2": f"{T2} by T1", "T1": "no: thin"}),
    "DICOM: a sharp T1w guides": (
        study(("t1 mprage", cube, {})),
        {"t2_tse_tra": f"{T2} by t1_mprage", "t1_mprage": "no: thin"},
    ),
    "DICOM: a sagittal T1w guides": (
        study(("t1 se sag", series, {**T1, "orientation": "sagittal"})),
        {"t2_tse_tra": f"{T2} by t1_se_sag", "t1_se_sag": "thick T1w by t2_tse_tra"},
    ),
    "BIDS: a session's own": (
        lambda f: (bids(f), nifti(f / "sub-1/anat", "sub-1_T2w"), nifti(f / "sub-1/anat", "sub-1_T1w", CUBE)),
        {"sub-1_T2w": f"{T2} by sub-1_T1w", "sub-1_T1w": "no: thin"},
    ),
    "BIDS: another session's, the nearest": (
        sessions,
        {"sub-1_ses-a_FLAIR": "thick FLAIR by sub-1_ses-c_T1w", "sub-1_ses-b_T1w": MAP, "sub-1_ses-c_T1w": MAP},
    ),
    "a folder for each contrast": (files("T2/anna", **{"T1/anna": CUBE}), {"T2/anna": f"{T2} by anna", "T1/anna": MAP}),
    "DICOM: another study guides nothing": (
        study(("t1 mprage", cube, {"StudyInstanceUID": "1.2.99"})),
        {"t2_tse_tra": T2, "t1_mprage": "no: thin"},
    ),
    "a spoilt T1w, then the next": (
        lambda f: (files("T2")(f), nifti(f, "T1", CUBE, interpolated()), nifti(f, "FLAIR", CUBE)),
        {"T2": f"{T2} by FLAIR", "T1": "no: thin.*interpolated along axis 2", "FLAIR": "no: thin"},
    ),
    "NIfTI beside DICOM": (
        lambda f: (nifti(f, "FLAIR"), series(f, 1, "t2 tse tra")),
        {"FLAIR": "thick FLAIR", "t2_tse_tra": T2},
    ),
    # one stack, whatever differs
    "DICOM: a caret at the end of half of the names": (half("PatientName", "Doe^Jane^"), T2),
    "DICOM: half with another PatientID": (half("PatientID", "0017"), f"{T2}.*2 patient IDs: they are joined"),
    "DICOM: half with another study": (half("StudyInstanceUID", "1.2.4"), f"{T2}.*2 study UIDs"),
    "DICOM: half with another ImageType": (half("ImageType", ["DERIVED", "PRIMARY", "M"]), f"{T2}.*2 image types"),
    "DICOM: odd slices of another ImageType and contrast": (
        half("ImageType", ["DERIVED", "PRIMARY", "M"], ODD, two_contrasts(ODD)),
        "no: slices have 2 image types, and their pixels are of several contrasts",
    ),
    "DICOM: half is secondary": (
        half("ImageType", ["DERIVED", "SECONDARY", "M"]),
        "no: 6 of 12 slices of one stack are secondary",
    ),
    "DICOM: a triggered scan": (
        lambda f: series(f, 1, "t2 tse tra", RepetitionTime=lambda k: 4000 + 137 * (k * 5 % 7)),
        f"{T2}.*7 repetition times",
    ),
    "DICOM: odd and even slices under two UIDs": (half("SeriesInstanceUID", "1.2.3.9", ODD), f"{T2}.*12 slices"),
    "DICOM: odd slices under another UID and of another contrast": (
        half("SeriesInstanceUID", "1.2.3.9", ODD, two_contrasts(ODD)),
        "no: slices have 2 series UIDs, and their pixels are of several contrasts",
    ),
    "DICOM: a UID for each image": (
        lambda f: series(f, 1, "t2 tse tra", SeriesInstanceUID=lambda k: f"1.2.3.{100 + k}"),
        f"{T2}.*12 series UIDs: they are joined",
    ),
    "DICOM: two persons in one series": (strangers, "no: slices of two persons"),
    "DICOM: two parallel stacks": (slabs, "no: 2 parallel stacks of 6 and 6 slices, 68 mm apart"),
    "DICOM: two stacks side by side": (side_by_side, "no: two parallel stacks beside each other, 70 mm apart"),
    # whose head
    "persons by hyphens": (
        files("IXI002-Guys-0828-FLAIR", "IXI012-HH-1211-FLAIR", **{"IXI002-Guys-0828-T1": CUBE}),
        {
            "IXI002-Guys-0828-FLAIR": "thick FLAIR by IXI002-Guys-0828-T1",
            "IXI012-HH-1211-FLAIR": "thick FLAIR",
            "IXI002-Guys-0828-T1": MAP,
        },
    ),
    "persons behind the contrast": (
        files("T2_anna", "T2_bob", T1_bob=CUBE),
        {"T2_anna": f"{T2} by T1_bob", "T2_bob": f"{T2} by T1_bob", "T1_bob": MAP},  # their images tell
    ),
    "years": (
        files("T2_2023", T1_2019=CUBE, T1_2023=CUBE),
        {"T2_2023": f"{T2} by T1_2023", "T1_2019": MAP, "T1_2023": MAP},
    ),
    "points": (
        files("anna.T2", "ben.T2", **{"ben.T1": CUBE}),
        {"anna.T2": T2, "ben.T2": f"{T2} by ben.T1", "ben.T1": MAP},
    ),
    # what kind
    "names settle nothing": (files(*NAMES), {name: f"thick {shown}" for name, shown in NAMES.items()}),
    "a localizer by its protocol": (beside("x", RepetitionTime=0.008), {"T2": T2, "x": "no: its sidecar.*a localizer"}),
    "one more slice than a localizer has": (
        beside("x", head((32, 32, 21)), RepetitionTime=0.008),
        {"T2": T2, "x": "thick"},
    ),
    "DICOM: a localizer by its protocol": (
        study(("t1 tra", series, {"RepetitionTime": 8})),
        {"t2_tse_tra": T2, "t1_tra": "no: a localizer"},
    ),
    "DICOM: a thin slab of angiography": (
        study(("tof tra", series, {"RepetitionTime": 22, "MRAcquisitionType": "3D"})),
        {"t2_tse_tra": T2, "tof_tra": "thick"},
    ),
    "a statistic by its header": (intent(5), {"T2": T2, "x": "no: its header says by intent_code 5"}),
    "a statistic by its voxels": (beside("result", statistic()), {"T2": T2, "result": BY_VOXELS}),
    "a statistic with NaN within": (
        beside("con_0001", np.where(statistic() < 0, np.nan, statistic())),
        {"T2": T2, "con_0001": "no: a statistic or a map: it has NaN within"},
    ),
    "a scan of 16 bits, stored as signed numbers": (  # unsigned-as-signed
        beside("T1", head(scale=50).astype(np.uint16).astype(np.int16)),
        {"T2": T2, "T1": "thick T1w.*values above 32767"},
    ),
    "a scan of 0 to 1": (beside("T1", head() / head().max()), {"T2": T2, "T1": "thick T1w"}),
    "a parcellation of any name": (beside("result", labels()), {"T2": T2, "result": "no: a label map"}),
    "a tissue map of any name": (
        beside("result", tissue()),
        {"T2": T2, "result": BY_VOXELS},
    ),
    "thin ones that are doubtful or none": (
        lambda f: (
            nifti(f, "sub-1_T1w", CUBE),
            nifti(f, "sub-2_T1w_mask", CUBE),
            nifti(f, "sub-3_result", CUBE, statistic((32, 32, 32))),
            nifti(f, "sub-4_seg", CUBE, np.kron(labels(9)[::4, ::4, ::4], np.ones((5, 4, 10)))),
            nifti(f, "sub-5_T1w", CUBE, Units="Hz"),
            nifti(f, "sub-6_T2w"),
        ),
        {
            "sub-1_T1w": "no: thin(?!.*may be)",
            "sub-2_T1w_mask": "no: thin(?!.*may be)",
            "sub-3_result": "no: thin.*it may be no scan of a head: its values",
            "sub-4_seg": "no: a label map",
            "sub-5_T1w": "no: its sidecar says",
            "sub-6_T2w": T2,
        },
    ),
    "a lesion map of any name": (beside("result", lesion()), {"T2": T2, "result": "no: a map of few voxels"}),
    "DICOM: a subtraction": (
        study(("t1 sub", series, T1), ("t1 x", series, {"ImageType": ["DERIVED", "PRIMARY", "SUBTRACTION"]})),
        {"t2_tse_tra": T2, "t1_sub": "thick", "t1_x": "no: a subtraction"},
    ),
    "DICOM: Dixon's images": (
        study(
            ("t1 dixon tra_F", series, {}),
            ("t1 dixon tra_W", series, {}),
            ("t1 tse fat sat", series, {}),
            ("t1 dixon", series, {"ImageType": ["DERIVED", "PRIMARY", "FAT"]}),
        ),
        {
            "t2_tse_tra": T2,
            "t1_dixon_tra_F": "thick",
            "t1_dixon_tra_W": "thick",
            "t1_tse_fat_sat": "thick",
            "t1_dixon": "no: the fat image",
        },
    ),
    "DICOM: another region, by its code": (
        study(
            ("t2 tse sag", series, {"AnatomicRegionSequence": region("72696002", "Knee")}),
            ("t2 tse head", series, {"AnatomicRegionSequence": region("12738006", "Brain")}),
            ("t2 spine", series, {}),
        ),
        {
            "t2_tse_tra": T2,
            "t2_tse_sag": "no: not a head: AnatomicRegionSequence says Knee",
            "t2_tse_head": T2,
            "t2_spine": "thick T2w.*SPINE",
        },
    ),
    # contrast
    "DICOM: an agent, unless its attribute says no": (  # agent-by-exam-protocol
        study(
            ("t1", series, {**T1, "ContrastBolusAgent": "Gd"}),
            ("t1 post", series, {**T1, "ContrastBolusAgent": "NO", "ContrastBolusVolume": 0}),
            ("t1 dose", series, {**T1, "ContrastBolusAgent": "unknown", "ContrastBolusVolume": 7.5}),
        ),
        {
            "t2_tse_tra": T2,
            "t1": "thick T1w with agent",
            "t1_post": "thick T1w(?! with)",
            "t1_dose": "thick T1w with agent",
        },
    ),
    "DICOM: three contrasts under one UID": (  # one-uid-three-contrasts
        lambda f: [
            series(f, k, name, SeriesInstanceUID="1.2.3.9", SeriesNumber=3, EchoTime=echo, RepetitionTime=tr)
            for k, (name, echo, tr) in enumerate([("T2 TSE", 90, 4000), ("T1 SE", 10, 500), ("FLAIR", 120, 9000)])
        ],
        {"T2_TSE": T2, "T1_SE": "thick T1w", "FLAIR": "thick FLAIR"},
    ),
    "times that deny a name": (  # description-denied-by-times
        beside("x_T2", EchoTime=0.01, RepetitionTime=0.5),
        {"T2": T2, "x_T2": "thick T1w.*its name says T2w, its times are those of T1w"},
    ),
    "contrast by its times alone": (
        beside("scan", EchoTime=0.11, InversionTime=2.5, RepetitionTime=9.0),
        {"T2": T2, "scan": "thick FLAIR"},
    ),
    "contrast by its description before its name": (
        beside("T1", SeriesDescription="t2 flair tra"),
        {"T2": T2, "T1": "thick FLAIR"},
    ),
    # copies
    "a copy in the place of another": (
        files("FLAIR", FLAIR_to_T1=CUBE),
        {"FLAIR": "thick FLAIR by FLAIR_to_T1", "FLAIR_to_T1": "no: thin"},  # unless its image shows a copy
    ),
    "a T1w of half the spacing guides": (files("T2", T1=(1.0, 1.0, 2.5)), {"T2": f"{T2} by T1", "T1": "thick T1w"}),
    "an interpolated T1w guides nothing": (
        lambda f: (nifti(f, "T2"), nifti(f, "T1", CUBE, interpolated())),
        {"T2": f"{T2}(?! by)", "T1": "no: thin.*interpolated along axis 2: they show no more than"},
    ),
    "a T1w of repeated slices guides nothing": (
        lambda f: (nifti(f, "T2"), nifti(f, "T1", CUBE, head((32, 32, 8)).repeat(4, 2))),
        {"T2": f"{T2}(?! by)", "T1": "no: thin.*interpolated along axis 2: they show no more than [34]"},
    ),
    "an interpolated scan": (
        lambda f: nifti(f, "T2", (1.0, 1.0, 1.4), interpolated()),
        f"{T2}.*its slices were interpolated along axis 2.*--slice_spacing",
    ),
    # headers that deny themselves
    "lost spacing": (
        beside("T1", ndimage.gaussian_filter(head((44, 48, 60)), 1.5)[..., ::5], CUBE),
        {"T2": f"{T2}(?! by)", "T1": "no: thin.*the spacing was lost"},
    ),
    "a sheared sform of a standard space": (lambda f: sform(f, 4, 0.7), f"{T2}.*the qform is used"),
    "DICOM: a slope for each slice": (real_world, T2),
    "a sidecar that was not fetched": (link_to_nothing, "fails: .*T2.json cannot be read.*datalad get"),
    "what cannot be read": (
        broken,
        {
            "T2": T2,
            "bold": "no: it has shape .*: expected a 3-D volume",
            "T1": "fails: .*T1.nii.gz",
            "FLAIR": "fails: .*FLAIR.json cannot be read",
        },
    ),
    "BIDS: anatomical scans alone": (
        dataset,
        {
            "sub-1_T2w": T2,
            "sub-1_T1map": "no: T1map is none of the suffixes",
            "sub-1_part-phase_T1w": "no: phase",
        },
    ),
    "BIDS: sidecars of upper folders": (
        inherited,
        {
            "sub-1_acq-post_T1w": "thick T1w with agent",
            "sub-1_acq-pre_T1w": "thick T1w(?! with)",
            "sub-1_T2w": f"{T2}(?! with)",
        },
    ),
    "a scan that was not fetched": (pointer, "fails: .*cannot be read.*datalad get"),
    "lists in a sidecar": (
        beside("T1", SliceThickness=[4, 4], EchoTime=[0.01] * 3),
        {"T2": T2, "T1": "thick T1w.* 4 mm"},
    ),
}


def make(name: str, folder: Path) -> dict[str, str] | str:
    """Makes a situation; the roles that are expected."""
    maker, roles = SITUATIONS[name]
    maker(folder)
    return roles
