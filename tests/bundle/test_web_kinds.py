"""The page leaves out what shows no head, as the command does: by headers, sidecars and voxels; and what is cut."""

import json
import zipfile

import nibabel as nib
import numpy as np
import pytest

from scripts.inputs import kinds
from scripts.stack import contents
from tests.bundle.test_web import HEAD, axial, exported, in_node, javascript, pytestmark, series
from tests.corpus.dicom import dicom, without
from tests.corpus.situations import statistic
from tests.stack.test_contents import OTHERS, SCANS, VARIANTS

__all__ = ["exported", "pytestmark"]
SHOWN = [  # fields of sidecars
    *({"ImageType": ["DERIVED", "PRIMARY", word]} for words in kinds.SAYS.values() for word in words.split()),
    *({"ImageType": ["DERIVED", "PRIMARY", word]} for word in sorted(kinds.MEASURES | kinds.CONTRASTS)),
    *({"ImageType": ["ORIGINAL", "PRIMARY", word]} for word in ["T2 MAP", "T2", "ASL", "TRACEW", "M", "SW_P", "SW_M"]),
    *({"BodyPartExamined": part} for part in ["Right hip", "LSPINE", "HEADNECK", "HIPPOCAMPUS", "Brain/neck"]),
    *({key: "KNEE", "ProtocolName": name} for key in ("BodyPart", "BodyPartExamined") for name in ("t2", "T2 brain")),
    *(
        {"AnatomicalOrientationType": one, "QualityControlImage": two}
        for one, two in (("QUADRUPED", "NO"), ("", "YES"))
    ),
    *(
        {"ScanningSequence": said, "MRAcquisitionType": kind}
        for said in ("EP_SE", "SE", "EP\\GR")
        for kind in ("2D", "3D")
    ),
    *({"SequenceName": name} for name in ("*ep_b0", "tse2d1_15", "ep2d")),
    *({"DiffusionBValue": b} for b in (0, 1000.0, [800.0], 1000000000, 1000000800)),
    *({"AcquisitionContrast": kind} for kind in ("DIFFUSION", "PERFUSION", "T2")),
    *({"Units": unit} for unit in ("rad", "Hz", "BQML", "MM^2/S")),
    *({"Modality": kind} for kind in ("CT", "PT", "MR")),
    {"ImageType": "DERIVED\\PRIMARY\\DIFFUSION\\ADC"},
    {"ImageTypeText": ["ORIGINAL", "PRIMARY", "P"]},
    {"PulseSequenceName": "*ep_b1000#4"},
    {"DiffusionScheme": "Bipolar"},
    {"ComplexImageComponent": "IMAGINARY"},
    {"VolumeBasedCalculationTechnique": "MIN_IP"},
    {"ArterialSpinLabelingContrast": "PSEUDOCONTINUOUS"},
    {"EchoPlanarPulseSequence": "YES"},
    {"ImageType": 5, "Units": None},
    {},
]


@pytest.mark.filterwarnings("ignore::UserWarning")  # of pydicom
def test_an_image_shows_what_python_says_that_it_shows():
    code = """
        const [{ ofSidecar }] = await get("inputs/kinds.js");
        say(JSON.parse(given[0]).map((one) => ofSidecar(one) ?? null));"""
    (by_sidecar,) = javascript(code, json.dumps(SHOWN))
    assert dict(zip(map(str, SHOWN), by_sidecar)) == {str(one): kinds.of_sidecar(one) for one in SHOWN}


def test_what_shows_no_head_is_left_out_of_a_folder_of_volumes(tmp_path):
    """As in the command; a volume that is given alone is taken."""
    (tmp_path / "all").mkdir()
    for name in ("t2", "t2_sr", "dwi", "ct", "brain_mask"):
        nib.save(
            nib.Nifti1Image(np.float32(HEAD > 300) if "mask" in name else HEAD, axial()),
            tmp_path / "all" / f"{name}.nii.gz",
        )
    (tmp_path / "all" / "dwi.bval").touch()
    (tmp_path / "all" / "ct.json").write_text('{"Modality": "CT"}')
    nib.save(nib.Nifti1Image(np.stack([HEAD, HEAD], -1), axial()), tmp_path / "all" / "bold.nii.gz")
    whole = (tmp_path / "all" / "t2.nii.gz").read_bytes()
    (tmp_path / "all" / "t1.nii.gz").write_bytes(whole[:-300])
    (tmp_path / "all" / "old.zip").write_bytes(b"PK")
    done = in_node(tmp_path / "all", tmp_path / "scan_sr.nii.gz")
    assert done.returncode == 0, done.stderr
    record = json.loads((tmp_path / "scan_sr.json").read_text())
    assert list(record["Sources"]) == ["all/t2.nii.gz"]
    assert any(line.startswith("old.zip cannot be unpacked") for line in record["Warnings"])
    assert sorted(line for line in record["Warnings"] if ".nii" in line) == [
        "bold.nii.gz has shape (28, 32, 7, 2): expected a 3-D volume. Save one volume of it.",
        "brain_mask.nii.gz is skipped: a mask or a label map: it holds 2 values.",
        "ct.nii.gz is skipped: its sidecar says: not MR: the modality is CT.",
        "dwi.nii.gz is skipped: a diffusion series, whose b-values lie beside it.",
        "t1.nii.gz cannot be read (its compressed content is cut or broken). Copy or export it again.",
        "t2_sr.nii.gz is skipped: its name ends in _sr, as those of results do.",
    ]


def test_a_time_that_headers_lack_and_directions_that_hardly_differ_split_no_stack():
    code = """
        const [{ alikeAcross, stacksOf }] = await get("inputs/labels.js");
        const volume = { data: new Float32Array(96).fill(1), shape: [4, 4, 6] };
        for (const times of given) {
          const headers = times.split(",").map((RepetitionTime) => ({ RepetitionTime }));
          say(alikeAcross(volume, [...headers.keys()], headers, (header, key) => header[key] ?? ""));
        }
        const plane = (k) => ({ x00200032: [0, 0, 5 * k], x00200037: [1, k % 2 ? 1e-5 : -1e-5, 0, 0, 1, 0] });
        const header = (elements) => ({ elements, string: () => "", floatString: (tag, k) => elements[tag][k] });
        say(stacksOf(Array.from({ length: 6 }, (_, k) => ({ header: header(plane(k)) }))).length);"""
    lacking, two, stacks = javascript(code, "4000,,4000,,4000,", "4000,4000,4000,5000,5000,5000")
    assert lacking == "" and two.startswith("slices have 2 repetition times") and stacks == 1


def test_the_page_opens_a_scan_before_doubtful_ones(tmp_path):
    for name, values in (("a.nii", statistic(HEAD.shape)), ("t2.nii", HEAD), ("x.nii", statistic(HEAD.shape))):
        nib.save(nib.Nifti1Image(np.float32(values), axial()), tmp_path / name)
    code = """
        const [{ findScans, thickOf }] = await get("inputs/readers.js");
        const read = async (name) => ({ name, path: name, bytes: new Uint8Array(await readFile(name)) });
        const found = await findScans(await Promise.all(given.map(read)));
        say(thickOf(found).map(({ scan }) => scan.name.split("/").pop()));"""
    (names,) = javascript(code, *sorted(tmp_path.iterdir()))
    assert names == ["t2.nii", "a.nii", "x.nii"]


def test_voxels_show_what_they_show_in_the_command(tmp_path):
    volumes = {**SCANS, **{name: voxels for name, (voxels, *_) in OTHERS.items()}}
    volumes["holes"] = np.where(OTHERS["statistic"][0] < 0, np.nan, OTHERS["statistic"][0])
    volumes["a spike"] = np.where(SCANS["in noise"] == SCANS["in noise"].max(), 1e6, SCANS["in noise"])
    volumes |= {name: change(SCANS["in noise"], SCANS["phantom"] > 0) for name, change in VARIANTS.items()}
    for name, voxels in volumes.items():
        np.ascontiguousarray(voxels, dtype=np.float32).tofile(tmp_path / name)
    code = """
        const [{ ofVoxels }] = await get("stack/contents.js");
        for (const one of given) {
          const [path, ...shape] = one.split(":");
          say(ofVoxels({ data: new Float32Array((await readFile(path)).buffer.slice(0)), shape: shape.map(Number) }));
        }"""
    given = [":".join(map(str, (tmp_path / name, *voxels.shape))) for name, voxels in volumes.items()]
    own = dict(zip(volumes, javascript(code, *given)))
    assert own == {name: contents.verdict(np.float32(voxels))._asdict() for name, voxels in volumes.items()}


def test_a_zip_file_that_says_it_unpacks_to_too_much_is_refused(tmp_path):
    nib.save(nib.Nifti1Image(HEAD, axial()), tmp_path / "scan.nii")
    with zipfile.ZipFile(tmp_path / "scan.zip", "w", zipfile.ZIP_DEFLATED) as packed:
        packed.write(tmp_path / "scan.nii", "scan.nii")
    whole = (tmp_path / "scan.zip").read_bytes()
    assert in_node(tmp_path / "scan.zip", tmp_path / "whole.nii.gz").returncode == 0
    place = whole.index(b"PK\x01\x02") + 24  # of the unpacked size, in the directory at its end
    (tmp_path / "scan.zip").write_bytes(whole[:place] + (2**31 - 1).to_bytes(4, "little") + whole[place + 4 :])
    done = in_node(tmp_path / "scan.zip", tmp_path / "out.nii.gz")
    assert done.stderr.splitlines()[-1] == "error: scan.zip unpacks to more than 1024 MB. Give a part of it."


def of_vendor(group, creator, element, kind, content):
    """Gives images a private attribute."""

    def change(images):
        for image in images:
            image.private_block(group, creator, create=True).add_new(element, kind, content)
        return images

    return change


UNFIT = {
    "a slice missing": (without(2), {}, "7_t2_tse: slices lie unevenly"),
    "a tilted line": (list, {"step": [0, 0.5, 4.8]}, "7_t2_tse: slices lie unevenly"),
    "a localizer": (list, {"ImageType": ["ORIGINAL", "PRIMARY", "LOCALIZER"]}, "a localizer"),
    "a phase image of GE's": (of_vendor(0x43, "GEMS_PARM_01", 0x2F, "SS", 1), {}, "phase, real or imaginary images"),
    "diffusion of GE's": (of_vendor(0x43, "GEMS_PARM_01", 0x39, "IS", ["1000000800", "8"]), {}, "a diffusion series"),
    "nothing but padding": (
        list,
        {"PixelPaddingValue": 0, "PixelPaddingRangeLimit": 9999},
        "7_t2_tse: all voxels are padding (PixelPaddingValue). Export the series again.",
    ),
    "inverted": (list, {"PhotometricInterpretation": "MONOCHROME1"}, "inverted images (MONOCHROME1)"),
}


@pytest.mark.parametrize("kind", UNFIT)
def test_dicom_that_is_no_even_stack_of_mr_is_refused(tmp_path, kind):
    change, attributes, expected = UNFIT[kind]
    folder = dicom(change, scans=(), **attributes)(tmp_path).source
    done = in_node(folder, tmp_path / "scan_sr.nii.gz")
    assert done.returncode == 1
    assert expected in done.stderr


def test_an_image_that_is_cut_is_named(tmp_path):
    """Alone, and in a study whose other series are whole."""
    for number in (1, 2):
        series(tmp_path / "study", number)
    path = tmp_path / "study" / "1" / "003"
    path.write_bytes(path.read_bytes()[:-300])
    done = in_node(path.parent, tmp_path / "scan_sr.nii.gz")
    mistake = "003 cannot be read (its pixels end too early). Copy or export it again."
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(f"error: no thick-slice scan was found. {mistake} 1_t2_tse: ")
    assert in_node(tmp_path / "study", tmp_path / "scan_sr.nii.gz").returncode == 0
    record = json.loads((tmp_path / "scan_sr.json").read_text())
    assert mistake in record["Warnings"] and len(record["Sources"]) == 7
