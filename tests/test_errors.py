"""An InputError reaches the user as one line, through whatever wraps it; nothing else is hidden."""

import logging
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from monai.transforms import Compose

from scripts.errors import InputError, input_error, logger, only, printable
from scripts.inputs.scans import scans
from scripts.inputs.selection import Selection
from tests.cohort_files import add
from tests.dicom_files import THIN
from tests.processes import TIMEOUT

ROOT = Path(__file__).parents[1]
MISTAKE = InputError("scan.nii.gz has 2 slices: expected 3 or more. Give another scan.")


def raised(function) -> BaseException:
    with pytest.raises(BaseException) as caught:
        function()
    return caught.value


def refuse(_=None):
    raise MISTAKE


def wrap_explicitly():
    try:
        refuse()
    except InputError as error:
        raise RuntimeError("applying transform") from error


def wrap_implicitly():
    try:
        wrap_explicitly()
    except RuntimeError:
        raise KeyError("while cleaning up")  # noqa: B904


@pytest.mark.parametrize("function", [refuse, wrap_explicitly, wrap_implicitly, lambda: Compose([refuse])(1)])
def test_the_mistake_is_found_through_every_wrapper(function):
    assert input_error(raised(function)) is MISTAKE


@pytest.mark.parametrize("error", [None, ValueError("x"), KeyError("y"), KeyboardInterrupt()])
def test_other_exceptions_are_no_mistake_of_the_user(error):
    assert input_error(error) is None


def test_the_outermost_of_two_mistakes_is_told():
    def twice():
        try:
            refuse()
        except InputError as error:
            raise InputError("the later one") from error

    assert str(input_error(raised(twice))) == "the later one"


def run(body: str) -> subprocess.CompletedProcess:
    program = f"from scripts.errors import InputError, report_input_errors\nreport_input_errors()\n{body}"
    return subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT)


def test_a_mistake_ends_the_program_with_one_line():
    ended = run(
        "try:\n    raise InputError('slice_axis is 3: expected 0, 1 or 2.')\n"
        "except InputError as error:\n    raise RuntimeError('applying transform') from error"
    )
    assert ended.returncode == 1
    assert ended.stderr == "error: slice_axis is 3: expected 0, 1 or 2.\n"
    assert ended.stdout == ""


def test_a_fault_of_the_program_keeps_its_trace():
    ended = run("def broken():\n    return 1 / 0\nbroken()")
    assert ended.returncode == 1
    assert ended.stderr.startswith("Traceback")
    assert "in broken" in ended.stderr and ended.stderr.endswith("ZeroDivisionError: division by zero\n")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("M\u00fcller \u5934 (1).nii", "M\u00fcller \u5934 (1).nii"),
        ("a\x1b[2Jb\r\n.nii", r"a\x1b[2Jb\r\n.nii"),
        ("a\u202eiin.b", r"a\u202eiin.b"),  # from here on from right to left
        ("a\udcff.nii", r"a\udcff.nii"),  # a byte that is no UTF-8
    ],
)
def test_what_terminals_would_obey_is_escaped(text, shown, log):
    assert printable(text) == str(InputError(text)) == shown
    logging.getLogger("drift").warning(f"%s:\n| a | {text[:1]} |", text.replace("\n", ""))
    assert log.messages == [f"{shown.replace(chr(92) + 'n', '')}:\n| a | {text[:1]} |"], "a table keeps its lines"


def test_a_thread_that_mutes_the_log_mutes_no_other_one(log):
    """A node receives and sends while it looks at a series."""
    with only(logging.WARNING):
        other = threading.Thread(target=logger.info, args=("an image came",))
        other.start()
        other.join()
        logger.info("a fact"), logger.warning("a doubt")
    logger.info("rebuilt")
    assert [line.message for line in log.records] == ["an image came", "a doubt", "rebuilt"]


SOURCES = {  # what is given -> the names of two scans in the log, and the folder that is named
    "study": (["a/T2w.nii.gz", "b/T2w.nii.gz"], "study"),
    "study/a study/b": (["a/T2w.nii.gz", "b/T2w.nii.gz"], "study"),
    "study/a/T2w.nii.gz study/a/T1w.nii.gz": (["T2w.nii.gz"], "study/a"),
    "study/a/T2w.nii.gz": (["study/a/T2w.nii.gz"], None),
}


@pytest.mark.parametrize("absolute", [False, True])
@pytest.mark.parametrize("given", SOURCES)
def test_the_log_names_the_folder_once_and_scans_from_there(given, absolute, tmp_path, monkeypatch, log):
    """No line holds a path twice."""
    monkeypatch.chdir(tmp_path)
    root = f"{tmp_path}/" * absolute
    for path in ("a/T2w", "b/T2w"):
        add(tmp_path / f"study/{path}.nii.gz")
    add(tmp_path / "study/a/T1w.nii.gz", (1, 1, 1))
    scans([root + one for one in given.split()], "out", Selection(THIN), guide="auto")
    shown, place = SOURCES[given]
    said = [m for m in log.messages if "T2w" in m]
    for name in shown:
        name = name if place else root + name
        assert [m for m in said if m.startswith(f"{name} has no guide") or f" guides {name}, if" in m]
    assert [m for m in log.messages if "study" in m and place] == [f"Scans are looked for in {root}{place}."] * bool(
        place
    )
    log.clear()
    logging.getLogger("drift").info(f"{root}study/a/T2w.nii.gz")
    assert log.messages == [f"{'' if place else root}study/a/T2w.nii.gz".removeprefix(f"{place}/")], "and in later work"
