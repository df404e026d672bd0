"""`drift-mri`: what it takes, what it refuses, and that the configs know every option."""

import os
import re
from pathlib import Path, PurePosixPath

import nibabel as nib
import pytest
from monai.bundle import ConfigParser

from drift_mri.command import GROUPS, OPTIONS, PATHS, PATTERNS, UNNEEDED, main, overrides, parser, table
from scripts.errors import InputError
from tests.cohort_files import add
from tests.processes import DRIFT_MRI, ROOT, fresh


def test_every_option_is_one_of_the_config():
    config = ConfigParser()
    config.read_config(ROOT / "configs" / "inference.yaml")
    assert set(OPTIONS) - {"config"} <= set(config.get().keys())


def test_no_option_takes_a_text_that_monai_would_evaluate():
    """Each has its values, a number, or a path or pattern, which is no text."""
    for name, one in OPTIONS.items():
        closed = one.kind in ("switch", "number", "whole", "paths") or one.choices
        assert closed or name in (*PATHS, *PATTERNS), name
        assert one.group in GROUPS


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ["scan.nii", "-o", "out", "--slice_thicknes", "3"],
            "--slice_thicknes is no option; the nearest is --slice_th",
        ),
        (["scan.nii", "-o", "out", "--qqq"], "--qqq is no option. See drift-mri --help."),
        (["scan.nii", "-o", "out", "--report", "true"], "true is one too many"),
        (["scan.nii", "-o", "out", "--slice_axis", "3"], "--slice_axis"),
        (["scan.nii", "-o", "out", "--slice_axis", "1.5"], "--slice_axis: '1.5' is given: expected a whole number"),
        (["scan.nii", "-o", "out", "--noise", "high"], "--noise: 'high' is given: expected a number or auto"),
        (["", "-o", "out"], "input is empty"),
        (["scan.nii", "-o", ""], "output_dir is empty"),
        (["scan.nii"], "-o"),
        (["bids", "out", "group"], "group is no level of this app"),
        (["bids", "out", "participants"], "expected -o OUT, or BIDS_DIR OUT participant"),
        (["scan.nii", "-o", "out", "--confidence", "$open('x', 'w')"], "--confidence"),
        ([], "input"),
        (["scan.nii", "-o", "out", "--device", "cpu"], "--device is no option: the first NVIDIA GPU"),
        (["scan.nii", "-o", "out", "--threads=4"], "OMP_NUM_THREADS=N before the command"),
        (["scan.nii", "-o", "out", "--quiet"], "> /dev/null"),
        (["scan.nii", "-o", "out", "--overwrite"], "is done again by itself"),
        (["bids", "out", "participant", "--skip-bids-validator", "-w", "work"], "-w is no option: nothing is kept"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(arguments, told, capsys):
    with pytest.raises(SystemExit) as stop:
        overrides(parser().parse_args(arguments))
    message = capsys.readouterr().err
    assert stop.value.code == 2
    assert told in message and message.count("\n") == 1


@pytest.mark.parametrize("name", ["$a", "@b", "%c", "2024_01_15", "#", "~", "a'b\"c", "1e3"])
def test_any_name_is_taken_as_it_is(name, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    given = overrides(parser().parse_args([name, "-o", name]))
    assert given == {"input": [tmp_path / name], "output_dir": tmp_path / name}


@pytest.mark.parametrize("option", ["--participant-label", "--participant_label"])
def test_a_bids_app_takes_dataset_results_and_level(option, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    given = overrides(parser().parse_args(["bids", "out", "participant", option, "01", "02"]))
    labels = [PurePosixPath("01"), PurePosixPath("02")]
    assert given == {"input": [tmp_path / "bids"], "output_dir": tmp_path / "out", "participant_label": labels}
    granted = parser().parse_args(["bids", "out", "participant", "--skip-bids-validator", option, "01", "02"])
    assert overrides(granted) == given, "no dataset is validated"
    named = overrides(parser().parse_args(["bids", "out", "participant", "-o", "results"]))
    assert len(named["input"]) == 3, "with -o these are three scans"


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [("a.nii", "", "cannot be read"), ("a.yaml", "a: [", "cannot be read"), ("a.json", "[1]", "holds a list")],
)
def test_a_config_that_is_none_is_refused_and_nothing_is_written(name, text, told, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path(name).write_text(text)
    with pytest.raises(InputError) as stop:
        main([".", "-o", "out", "--config", name])
    assert told in str(stop.value) and "expected settings" in str(stop.value) and "\n" not in str(stop.value)
    assert os.listdir() == [name]


def test_a_guide_without_a_name_is_no_path(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    given = [overrides(parser().parse_args(["a", "-o", "out", "--guide", *name])) for name in ((), ("t1.nii",))]
    assert [one["guide"] for one in given] == ["auto", tmp_path / "t1.nii"]


def test_the_options_of_the_page_are_those_of_the_help():
    assert table() in (ROOT / "docs" / "usage.md").read_text(encoding="utf-8")
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"--(\w+)", "".join(re.findall(r"^\| `.*$", text, re.MULTILINE)))) <= set(OPTIONS)
    assert text.index("drift-mri scan.nii.gz -o out") < text.index("python -m monai.bundle run"), "the command first"
    assert len(re.sub(r"^\|.*$", "", text, flags=re.MULTILINE).split()) <= 700, "for somebody in a hurry"


def test_a_scan_may_follow_the_dry_run():
    for words, value in (("--dry-run a.nii", "true"), ("a.nii --dry_run json", "json"), ("a.nii --dry_run", "true")):
        given = parser().parse_args([*words.split(), "-o", "out"])
        assert (given.input, given.dry_run) == (["a.nii"], value)


def test_patterns_and_labels_may_be_several_and_of_any_letters(tmp_path, monkeypatch, capfd):
    words = "a -o out --include $x @y --include *.nii --exclude %z --participant_label 01 sub-02".split()
    given = overrides(parser().parse_args(words))
    patterns = {name: given[name] for name in ("include", "exclude", "participant_label")}
    assert all(type(one) is PurePosixPath for found in patterns.values() for one in found), "no backslash on Windows"
    texts = {name: list(map(str, found)) for name, found in patterns.items()}
    assert texts == {"include": ["$x", "@y", "*.nii"], "exclude": ["%z"], "participant_label": ["01", "sub-02"]}
    add(tmp_path / "$x.nii.gz")
    add(tmp_path / "b.nii.gz")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="0"):
        main([".", "-o", "out", "--include", "$x*", "--dry_run"])
    told = capfd.readouterr().out
    assert "$x.nii.gz" in told and "b.nii.gz" not in told and "1 scan. Nothing" in told
    assert {path.name for path in tmp_path.iterdir()} == {"$x.nii.gz", "b.nii.gz"}


@pytest.mark.slow
def test_from_another_folder_with_odd_names_and_hyphens(tmp_path):
    add(tmp_path / "$(touch gone) #1.nii.gz")
    words = ("$(touch gone) #1.nii.gz", "-o", "2024_01_15", "--slice-thickness", "4", "--report")
    done = fresh("-c", f"{DRIFT_MRI[1]}; import sys; print(*sys.modules)", *words, cwd=tmp_path, PYTHONPATH=ROOT)
    assert done.returncode == 0, done.stderr
    modules = {*done.stdout.split()}
    assert "torch" in modules and not modules & {*UNNEEDED, "nilearn", "SimpleITK"}, "a light installation rebuilds"
    result = nib.load(tmp_path / "2024_01_15" / "$(touch gone) #1_sr.nii.gz")
    assert result.shape == (8, 9, 30)
    assert "Warning" not in done.stderr and not (tmp_path / "gone").exists()
    assert {path.name for path in tmp_path.iterdir()} == {"$(touch gone) #1.nii.gz", "2024_01_15"}


def test_the_help_is_in_groups_and_can_be_printed(capsys):
    with pytest.raises(SystemExit, match="0"):
        parser().parse_args(["--help"])
    told = capsys.readouterr().out
    assert all(f"\n{group}:\n" in told for group in GROUPS) and "in % of the range" in " ".join(told.split())


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["{gone}"], "the input"),
        (["{scan}", "--guide", "{gone}"], "--guide"),
        (["{scan}", "--config", "{scan}", "--config", "{gone}"], "--config"),
    ],
)
def test_a_file_that_is_not_there_is_named_before_monai_is_imported(words, option, tmp_path):
    add(tmp_path / "scan.nii.gz")
    places = {"gone": str(tmp_path / "gone.nii.gz"), "scan": str(tmp_path / "scan.nii.gz")}
    code = f"""
import sys
from drift_mri.command import main
try:
    main({[*(word.format(**places) for word in words), "-o", str(tmp_path / "out")]!r})
except Exception as error:
    print(error)
print({{"monai", "torch"}} & {{*sys.modules}})
"""
    said, imported = fresh("-c", code, cwd=tmp_path, PYTHONPATH=ROOT).stdout.splitlines()
    assert said.endswith(f"gone.nii.gz does not exist. Set {option} to a file or a folder that is there.")
    assert imported == "set()" and not (tmp_path / "out").exists()


def test_the_package_runs_as_the_command_does(tmp_path):
    done = fresh("-m", "drift_mri", "--version", cwd=tmp_path, PYTHONPATH=ROOT)
    assert done.returncode == 0 and done.stdout.startswith("drift-mri ")
