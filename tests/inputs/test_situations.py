"""What each scan of an examination is: one table of situations, and every door that is asked of it."""

import json
import re
from collections import Counter
from itertools import chain
from pathlib import Path

import numpy as np
import pydicom
import pytest

from drift_mri.command import overrides, parser
from scripts.errors import InputError, input_error
from scripts.inputs.dicom import select
from scripts.inputs.scans import scans
from scripts.inputs.selection import Selection
from scripts.inputs.transforms import LoadScand
from scripts.rebuild.preprocessing import SettleAcquisitiond
from scripts.stack.acquisition import Acquisition
from scripts.train.datasets import sharp_volumes
from tests.corpus import situations
from tests.dicom_files import THIN
from tests.fixtures import CARD
from tests.node.conftest import make
from tests.outputs.test_guided_scans import guided_bundle

__all__ = ["guided_bundle", "make"]
FILES = [name for name in situations.SITUATIONS if not name.startswith("DICOM")]
SERIES = [name for name in situations.SITUATIONS if name.startswith("DICOM")]


def short(name, root):
    """A file below the folder without its ending; a series without number and mark."""
    if name.startswith(str(root)):
        return Path(name).relative_to(root).as_posix().removesuffix(".nii.gz")
    return re.sub(r"^\d+-(.*)-\w{6}$", r"\1", name)


def roles(root):
    """File or series -> what the command takes it for."""
    selection = Selection(THIN)
    try:
        found = scans(root, root / "out", selection, guide="auto")
    except InputError as error:
        assert "no thick-slice scan" in str(error)
        found = []
    said = {short(name, root): f"no: {why}" for name, why in selection.skipped}
    for scan in found:
        try:
            read = LoadScand("image")({"image": scan.source})
            a = Acquisition.of(SettleAcquisitiond("image", CARD)(read)["image"])
        except InputError as error:
            said[short(scan.name, root)] = f"fails: {error}"
            continue
        guide = f" by {short(scan.guides[0].scan.name, root).split('/')[-1]}" if scan.guides else ""
        facts = f"{a.slice_count} slices, {a.slice_thickness:g} mm; {' '.join(a.warnings)} {scan.mark} {scan.remark}"
        kind = "doubtful" if scan.mark else "thick"
        said[short(scan.name, root)] = f"{kind} {scan.identity.contrast}{guide}: {facts}"
    return said


def listed(rows, root):
    """File or series -> what a dry run says of it, in the words of the table."""
    said = {}
    for row in rows:
        name, why = short(row["scan"], root), row["why"]
        if row["what"] in ("will skip", "will guide"):
            said[name] = f"no: {re.sub('^guides .*?, if it fits(; )?', '', why)}"
        elif row["what"] == "will fail":
            said[name] = f"fails: {why}"
        else:
            guide = f" by {short(row['guide'], root).split('/')[-1]}" if row["guide"] else ""
            kind = "doubtful" if "it may be no scan of a head" in why else "thick"
            said[name] = f"{kind} {row['contrast'] or ''}{guide}: {row['slice_count']} slices, {row['thickness']:g} mm"
    return said


def agree(found, expected, root):
    """Holds what a door says of files and series to the table."""
    key = {one: one.split("/")[-1] if root.joinpath("sub-1").exists() else one for one in found}
    found = {key[one]: role for one, role in found.items()}
    expected = {next(iter(found)): expected} if isinstance(expected, str) else expected
    assert found.keys() == expected.keys()
    for one, role in expected.items():
        assert re.match(role, found[one]), (one, found[one])
        assert " by " not in found[one].partition(":")[0] or " by " in role


def dry_run(bundle, capsys, root, **given):
    """What the dry run of the command says of each file or series; of a folder without any scan, its one mistake."""
    with pytest.raises((SystemExit, RuntimeError)) as stopped:
        bundle(root, dry_run="json", **given)
    if mistake := input_error(stopped.value):
        return str(mistake)
    return listed(json.loads(capsys.readouterr().out), root)


@pytest.mark.parametrize("name", situations.SITUATIONS)
def test_each_scan_of_an_examination_is_what_it_shows(name, tmp_path, guided_bundle, capsys):
    """To a run and its dry run. Training learns from those that are sharp and sure, in the same folder."""
    root = tmp_path / "study"
    root.mkdir()
    expected = situations.make(name, root)
    found = roles(root)
    agree(found, expected, root)
    assert not [one for one in found.values() if re.match(r"no: .*\.$", one)], "the line that says it ends in a stop"
    said = dry_run(guided_bundle, capsys, root, guide="auto")
    if isinstance(said, str):  # no scan at all
        assert all(role.startswith("no: ") for role in found.values())
        assert "no thick-slice scan was found" in said and any(role[4:] in said for role in found.values())
    else:
        assert said.keys() == found.keys() and all(found[one].startswith(role) for one, role in said.items())
    if name in FILES:
        sharp = {one for one, why in found.items() if re.match("no: thin(?!.*(interpolated|may be no scan|lost))", why)}
        try:
            assert {short(item["label"], root) for item in sharp_volumes(root, "all")} == sharp
        except InputError as mistake:
            assert not sharp, mistake


def test_the_bids_app_takes_for_scans_what_the_command_takes(tmp_path, bundle, capsys):
    """Each situation is a subject."""
    root, expected = tmp_path / "dataset", {}
    for k, name in enumerate(name for name in FILES if not name.startswith("BIDS")):
        folder, anat = tmp_path / str(k), root / f"sub-{k}" / "anat"
        folder.mkdir()
        anat.mkdir(parents=True)
        made = situations.make(name, folder)
        for run, path in enumerate(sorted(folder.glob("**/*.nii.gz"))):
            own, to = path.relative_to(folder).as_posix().removesuffix(".nii.gz"), f"sub-{k}_run-{run}_T1w"
            expected[to] = made if isinstance(made, str) else made[own]
            path.rename(anat / f"{to}.nii.gz")
            if (sidecar := folder / f"{own}.json").is_symlink() or sidecar.exists():
                sidecar.rename(anat / f"{to}.json")
    situations.bids(root)
    given = overrides(parser().parse_args([str(root), str(tmp_path / "out"), "participant"]))
    said = dry_run(bundle, capsys, *given["input"], output_dir=str(given["output_dir"]))
    said = {name.split("/")[-1]: role for name, role in said.items()}
    assert said.keys() == expected.keys()
    for name, role in expected.items():
        answer = re.match(r"thick|doubtful|no|fails", role)[0]
        assert said[name].startswith(answer), (name, role, said[name])


ASIDE = {"DICOM: half with another PatientID": "2 patients", "DICOM: two persons in one series": "2 patients"}


def test_the_node_rebuilds_the_sure_scans_and_says_of_others_why(tmp_path, guided_bundle, make):
    """A study comes at once where guides are asked for. One whose images are of two studies comes in two."""
    node = make(0, guide="auto", ckpt_path=str(guided_bundle.weights), **guided_bundle.network)
    for k, name in enumerate(name for name in SERIES if name != "DICOM: half with another study"):
        roles = situations.make(name, folder := tmp_path / str(k))
        for path in folder.glob("*/*"):
            image = pydicom.dcmread(path, stop_before_pixels=True)
            working = node.spool.path / "working" / f"{k}.{image.StudyInstanceUID}"
            working.mkdir(exist_ok=True)
            path.rename(working / f"{image.SOPInstanceUID}.dcm")
        studies = node.spool.names("working")
        taken, aside = (list(chain(*each)) for each in zip(*map(node.scans, studies)))
        found = {short(scan.name, folder): scan for scan in taken}
        roles = {next(iter(found), ""): roles} if isinstance(roles, str) else roles
        sure = {one: role for one, role in roles.items() if role.startswith("thick") and name not in ASIDE}
        assert found.keys() == sure.keys(), (name, aside)
        for one, role in sure.items():
            guides = [short(guide.scan.name, folder) for guide in found[one].guides[:1]]
            assert guides == re.findall(r" by (\w+)", role), (name, one)
        for one, role in roles.items():
            if role.startswith("doubtful") or name in ASIDE or not sure:
                why = "it may be no scan of a head" if sure else ASIDE.get(name, role.removeprefix("no: "))
                assert any(re.search(why, said) for said in aside), (name, one, aside)
        for study in studies:
            node.spool.move(study, "working", "done")


def test_real_world_slopes_are_used(tmp_path):
    situations.make("DICOM: a slope for each slice", tmp_path)
    (scan,) = scans(tmp_path, tmp_path / "out", Selection(THIN))
    np.testing.assert_allclose(LoadScand("image")({"image": scan.source})["image"][0], situations.head(), atol=1.6)


def test_a_header_is_read_once_to_find_out_what_it_is(tmp_path, monkeypatch):
    """Then its pixels, of a thin series that may guide."""
    situations.make("DICOM: a sharp T1w guides", tmp_path)
    opened = Counter()
    read = select.read_dataset
    monkeypatch.setattr(select, "read_dataset", lambda path, **how: opened.update([path]) or read(path, **how))
    scans(tmp_path, tmp_path / "out", Selection(THIN), guide="auto")
    assert len(opened) == 44 and set(opened.values()) == {1}
