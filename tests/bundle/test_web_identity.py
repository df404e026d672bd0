"""Whose head a file shows to the page, and by which contrast: as the command says, in folders of many people."""

import json

from benchmarks.names import layouts
from scripts.inputs.bids import sidecar_value
from scripts.inputs.scan import Scan, heads
from tests.bundle.test_web import exported, head, javascript, pytestmark
from tests.corpus.situations import NAMES, bids, nifti
from tests.inputs.test_examination import PEOPLE

__all__ = ["exported", "pytestmark"]
OF_NAMES = """
    const [{ headsOf, ofFile }] = await get("inputs/identity.js");
    for (const paths of JSON.parse(await readFile(given[0], "utf8"))) {
      const found = paths.map((path) => {
        const [name, ...above] = path.split("/").reverse();
        const identity = ofFile(above.reverse().join("/"), name, {}, [], undefined);
        return { files: [{ name: `${name}.nii.gz` }], identity };
      });
      say(found.map((one) => [headsOf(found)(one), one.identity]));
    }"""


def test_names_say_the_same_as_to_the_command(tmp_path):
    every = [list(layout) for layout in layouts(60)] + [people.replace("|", "").split() for people in PEOPLE]
    every += [["sub-km01_ses-post_T1w", "sub-km01_ses-pre_ce-gd_T1w", "sub-1_acq-x_mask"], [*NAMES]]
    every += [["AxT2", "FLAIRax", "T2增强T1", "Ünï_T2w", "Mu\u0308ller-T1", "3DT1_SPACE", "a.b c+d T2*", "t2_knee"]]
    (tmp_path / "names.json").write_text(json.dumps(every))
    for k, (layout, said) in enumerate(zip(every, javascript(OF_NAMES, tmp_path / "names.json"), strict=True)):
        paths = [tmp_path / str(k) / f"{name}.nii.gz" for name in layout]
        scans = [Scan(path.name, path, (path,), path) for path in paths]
        of, pairs = heads(scans), {}
        for scan, (theirs, own) in zip(scans, said, strict=True):
            pairs.setdefault(theirs, set()).add(of[scan.source])
            one = scan.identity
            shows = {key: getattr(one.shows, key) for key in ("contrast", "remark", "named")}
            assert (own["shows"], own["session"], own["agent"]) == (shows, one.session, one.agent), scan.name
            assert (own["stated"], own["words"]) == ([*one.stated], [*one.words]), scan.name
        assert all(len(one) == 1 for one in pairs.values()) and len(pairs) == len({*of.values()}), layout


FOLDERS = """
    const [{ findScans }, { roles }] = await get("inputs/readers.js", "inputs/examination.js");
    const entries = (await readdir(given[0], { recursive: true, withFileTypes: true })).filter((one) => one.isFile());
    const read = async ({ name, parentPath }) =>
      ({ name, path: `${parentPath}/${name}`, bytes: new Uint8Array(await readFile(`${parentPath}/${name}`)) });
    const found = await findScans(await Promise.all(entries.map(read)));
    for (const own of found) {
      const guides = roles(own, found).filter(({ role }) => role.rank.length).map(({ other }) => other.files[0]);
      const path = (one) => one.path.slice(given[0].length + 1);
      say([path(own.files[0]), guides.map(path), own.scan.stated.slice_thickness ?? null, own.identity.session]);
    }"""


def test_folders_tell_people_and_sidecars_apart(tmp_path):
    (tmp_path / "set").mkdir()
    bids(tmp_path / "set")
    (tmp_path / "set" / "FLAIR.json").write_text('{"SliceThickness": 4.5}')
    nifti(tmp_path / "a", "FLAIR", values=head((28, 32, 12)), SliceThickness=4)
    nifti(tmp_path / "b", "FLAIR", values=head((28, 32, 12)))
    nifti(tmp_path / "b", "T1", (1.0, 1.0, 1.0), values=head((32, 32, 32)))
    nifti(tmp_path / "set/sub-1/ses-T1/anat", "sub-1_ses-T1_FLAIR", values=head((28, 32, 12)))
    nifti(tmp_path / "set/sub-1/ses-2/anat", "sub-1_ses-2_T1w", (1.0, 1.0, 1.0), values=head((32, 32, 32)))
    nifti(tmp_path / "set/sub-2/ses-2/anat", "sub-2_ses-2_T1w", (1.0, 1.0, 1.0), values=head((32, 32, 32)))
    said = {name: rest for name, *rest in javascript(FOLDERS, tmp_path)}
    assert said["a/FLAIR.nii.gz"] == [[], [4, "the sidecar FLAIR.json"], ""]
    assert said["b/FLAIR.nii.gz"] == [["b/T1.nii.gz"], None, ""]
    of_another_session = ["set/sub-1/ses-2/anat/sub-1_ses-2_T1w.nii.gz"]
    inherited = sidecar_value(tmp_path / "set/sub-1/ses-T1/anat/sub-1_ses-T1_FLAIR.nii.gz", "SliceThickness")
    assert said["set/sub-1/ses-T1/anat/sub-1_ses-T1_FLAIR.nii.gz"] == [
        of_another_session,
        [inherited[0], f"the sidecar {inherited[1].name}"],
        "ses-T1",
    ]
