"""Whose head a file shows in the page's modules: as the command says, in folders of many people."""

import json
from pathlib import Path

from scripts.inputs.identity import Identity
from tests.bundle.test_web import exported, head, javascript, pytestmark
from tests.corpus.situations import bids, nifti
from tests.inputs import names

__all__ = ["exported", "pytestmark"]
OF_NAMES = """
    const [{ besideOf, ofFile }] = await get("inputs/identity.js");
    for (const paths of JSON.parse(await readFile(given[0], "utf8"))) {
      const placed = paths.map((path) => path.split("/")).map((parts) => [parts.slice(0, -1).join("/"), parts.at(-1)]);
      const beside = (folder) => besideOf(placed.filter(([own]) => own === folder).map(([, name]) => name));
      say(placed.map(([folder, name]) => ofFile(folder, name, {}, beside(folder), undefined)));
    }"""
FURTHER = [
    "7_t2_tse_tra 9_t1_mprage_sag",
    "7_t2_tse_20190102 9_T1W_SENSE_3a PD01_3_T2_e1 PD_03_T2 TCGA-06-0125_T2 sub-T1_x_FLAIR_3 T1/T1 T1/T2",
    "case_001_0000 case_001_0001 case_002_0000",
    "T1/anna T2/anna visit_T2/MPRAGE",
    "anna_t2_tse_p2 anna_t1_p3 P1_T1_post P2_T1_post_op",
    "sub-km01_ses-post_T1w sub-km01_ses-pre_ce-gd_T1w acq-post_T1w T1_w-o_contrast",
    "t2_fl2d_tra_hemo T2W_FFE t2_tirm_cor_fs Müller_T2* FLAIR_to_T1 T1c+",
]


def test_names_say_the_same_as_to_the_command(tmp_path):
    layouts = [*map(list, names.layouts(50)), *(line.split() for line in FURTHER), [one for one, _ in names.names(100)]]
    (tmp_path / "names.json").write_text(json.dumps(layouts))
    for k, (layout, said) in enumerate(zip(layouts, javascript(OF_NAMES, tmp_path / "names.json"), strict=True)):
        root = tmp_path / str(k)
        for name in layout:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / f"{name}.nii.gz").touch()
        for name, own in zip(layout, said, strict=True):
            theirs = Identity.of(root / f"{name}.nii.gz")
            folder = str(Path(theirs.person[0]).relative_to(root)).removeprefix(".")
            assert own["person"] == [folder, *theirs.person[1:]], name
            assert own["perhaps"] == [folder, *theirs.perhaps[1:]], name
            assert (own["session"], own["weighting"], own.get("agent")) == (
                theirs.session,
                theirs.weighting,
                theirs.agent,
            ), name


FOLDERS = """
    const [{ findScans }, { roles }] = await get("inputs/readers.js", "inputs/examination.js");
    const entries = (await readdir(given[0], { recursive: true, withFileTypes: true })).filter((one) => one.isFile());
    const read = async ({ name, parentPath }) =>
      ({ name, path: `${parentPath}/${name}`, bytes: new Uint8Array(await readFile(`${parentPath}/${name}`)) });
    const found = await findScans(await Promise.all(entries.map(read)));
    for (const own of found) {
      const guides = roles(own, found).filter(({ role }) => role.what === "guides").map(({ other }) => other.files[0]);
      const path = (one) => one.path.slice(given[0].length + 1);
      say([path(own.files[0]), guides.map(path), own.scan.stated.slice_thickness?.[0] ?? null, own.identity.session]);
    }"""


def test_folders_tell_people_and_sidecars_apart(tmp_path):
    (tmp_path / "set").mkdir()
    bids(tmp_path / "set")
    nifti(tmp_path / "a", "FLAIR", values=head((28, 32, 12)), SliceThickness=4)
    nifti(tmp_path / "b", "FLAIR", values=head((28, 32, 12)))
    nifti(tmp_path / "b", "T1", (1.0, 1.0, 1.0), values=head((32, 32, 32)))
    nifti(tmp_path / "set/sub-1/ses-T1/anat", "sub-1_ses-T1_FLAIR", values=head((28, 32, 12)))
    nifti(tmp_path / "set/sub-1/ses-2/anat", "sub-1_ses-2_T1w", (1.0, 1.0, 1.0), values=head((32, 32, 32)))
    nifti(tmp_path / "set/sub-2/ses-2/anat", "sub-2_ses-2_T1w", (1.0, 1.0, 1.0), values=head((32, 32, 32)))
    said = {name: rest for name, *rest in javascript(FOLDERS, tmp_path)}
    assert said["a/FLAIR.nii.gz"] == [[], 4, ""]
    assert said["b/FLAIR.nii.gz"] == [["b/T1.nii.gz"], None, ""]
    of_another_session = ["set/sub-1/ses-2/anat/sub-1_ses-2_T1w.nii.gz"]
    assert said["set/sub-1/ses-T1/anat/sub-1_ses-T1_FLAIR.nii.gz"] == [of_another_session, None, "ses-T1"]
