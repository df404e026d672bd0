"""Runs an input through configs/inference.yaml, in a process of its own with limits, and looks at what came of it."""

import atexit
import functools
import hashlib
import logging
import multiprocessing
import os
import re
import resource
import shutil
import signal
import tempfile
import traceback
from dataclasses import dataclass
from pathlib import Path

import nibabel as nib
import numpy as np
import torch

from scripts.errors import input_error
from scripts.method.weights import write_card
from tests.config_files import on_planes, parser
from tests.corpus.given import PLAIN, Given, Maker
from tests.fixtures import CARD

SECONDS = 30  # for one input, on a busy machine
GIGABYTE = 2**30


@dataclass
class Finding:
    """What came of one input.

    Attributes:
        errors: each message that ended a scan or the run.
        remarks: warnings, and what was skipped and why.
        problems: of what must never happen: traceback, hang, changed input, partial file, wrong result.
    """

    errors: list[str]
    remarks: list[str]
    problems: list[str]


@functools.cache
def network() -> dict:
    """An untrained one: stage 1 is the identity and the flow at rest. It is loaded once, not for each input."""
    path = Path(tempfile.mkdtemp()) / "model.pt"
    atexit.register(shutil.rmtree, path.parent)
    given = {"ckpt_path": str(path), "device": "$torch.device('cpu')", "network_def": on_planes(4)}
    torch.save(parser("inference.yaml", **given).get_parsed_content("network_def").state_dict(), path)
    write_card(path, CARD)
    return {**given, "network": parser("inference.yaml", **given).get_parsed_content("network")}


def rebuild(given: Given, folder: Path) -> None:
    """The route of configs/inference.yaml."""
    source = given.source
    config = parser(
        "inference.yaml",
        **{
            "input": [str(one) for one in source] if isinstance(source, list) else str(source),
            "output_dir": str(folder / given.output),
            **network(),
            "inferer::roi_size": 16,
            "inferer::n_max": 1,
            "both_planes": False,
            "consistency": "measure",  # results are copies
            "inferer::deblocked": False,
            "inferer::progress": False,
            **given.options,
        },
    )
    given.before()
    config.get_parsed_content("run")


class Memory(logging.Handler):
    """Keeps what the bundle says."""

    def __init__(self):
        super().__init__()
        self.said: list[tuple[int, str, bool]] = []

    def emit(self, record):
        self.said.append((record.levelno, record.getMessage(), bool(record.exc_info)))


def _child(given: Given, folder: Path, channel, screen: int) -> None:
    """Runs with limits; sends what was said and the traceback that would be shown."""
    os.dup2(screen, 1)
    os.dup2(screen, 2)
    signal.alarm(SECONDS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 4 * GIGABYTE,) * 2)
    memory = Memory()
    logging.getLogger("drift").addHandler(memory)
    logging.getLogger("drift").setLevel(logging.INFO)
    trace, ending = "", None
    try:
        rebuild(given, folder)
    except SystemExit as end:
        if all(level < logging.ERROR for level, *_ in memory.said):  # else they were told one by one
            ending = str(end)
    except BaseException as error:  # noqa: BLE001  # a finding
        mistake = input_error(error)
        ending, trace = (str(mistake), "") if mistake else (None, traceback.format_exc()[-1500:])
    channel.send((memory.said, ending, trace))
    channel.close()


@functools.cache
def _warm_up() -> None:
    """One run in this process: those forked from it need not load everything again."""
    with tempfile.TemporaryDirectory() as folder:
        rebuild(PLAIN(Path(folder)), Path(folder))


def in_a_process(given: Given, folder: Path):
    """What was said, the last message, the traceback; then what stood on the screen and how the process ended."""
    _warm_up()
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    read, write = os.pipe()
    process = context.Process(target=_child, args=(given, folder, theirs, write))
    process.start()
    theirs.close()
    os.close(write)
    with os.fdopen(read, "rb") as screen:
        shown = screen.read().decode(errors="replace")
    process.join()
    try:
        said, ending, trace = ours.recv()
    except EOFError:
        said, ending, trace = [], None, f"ended by signal {-process.exitcode}: a hang, or killed"
    return said, ending, trace, shown


def contents(folder: Path, leave_out: Path) -> dict[str, str]:
    """Kind, rights and hash of everything in a folder, but for results."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if leave_out in (path, *path.parents) and leave_out != folder:
            continue
        if path.is_symlink():
            found[str(path)] = os.readlink(path)
        elif path.is_file():
            found[str(path)] = f"{path.stat().st_mode} {hashlib.sha256(path.read_bytes()).hexdigest()}"
        else:
            found[str(path)] = str(path.stat().st_mode)
    return found


def wrong(result, array: np.ndarray, affine: np.ndarray) -> str | None:
    """What is wrong with a rebuilt scan, None if nothing is: its grid against the scan's, its values against copies."""
    values, fine = np.asarray(result.dataobj, dtype=float), result.affine
    edges, fine_edges = (np.linalg.norm(a[:3, :3], axis=0) for a in (affine, fine))
    (changed, *more) = [a for a in range(3) if values.shape[a] != array.shape[a]] or [2]
    if more or np.abs(affine[:3, :3] / edges - fine[:3, :3] / fine_edges).max() > 1e-4:
        return f"axes of {array.shape} became {values.shape}"
    extent, fine_extent = array.shape[changed] * edges[changed], values.shape[changed] * fine_edges[changed]
    if abs(extent - fine_extent) > fine_edges[changed] / 2 + 1e-3:
        return f"field of view {extent:g} mm became {fine_extent:g} mm"
    middle, fine_middle = (a @ [*(np.array(n) - 1) / 2, 1] for a, n in ((affine, array.shape), (fine, values.shape)))
    if np.linalg.norm(middle - fine_middle) > 1e-3 + 1e-6 * np.abs(middle).max():
        return f"centre {middle} became {fine_middle}"
    count, truth = values.shape[changed], np.asarray(array, dtype=float)
    ratio = fine_edges[changed] / edges[changed]
    centre = (np.arange(count) - (count - 1) / 2) * ratio + (truth.shape[changed] - 1) / 2
    allowed = 1e-4 * np.ptp(truth) + 1e-5 * np.abs(truth).max()
    errors = []
    for nudge in (-1e-3, 1e-3):  # on the border of two slices either will do
        nearest = np.clip(np.floor(centre + 0.5 + nudge), 0, truth.shape[changed] - 1).astype(int)
        errors.append(np.abs(values - truth.take(nearest, changed)).max(axis=tuple({0, 1, 2} - {changed})))
    if not (np.minimum(*errors) <= allowed).all():
        return f"intensities are off by up to {np.minimum(*errors).max():g}"
    return None


def examine(maker: Maker) -> Finding:
    """Makes an input in a folder of its own, runs it, and looks at what came of it."""
    case = Path(tempfile.mkdtemp(prefix="corpus-"))
    try:
        (case / "in").mkdir()
        given = maker(case / "in")
        out, before = case / given.output, contents(case / "in", case / given.output)
        said, ending, trace, shown = in_a_process(given, case)
        problems = [trace] if trace else ["a traceback"] if "Traceback" in shown or any(s[2] for s in said) else []
        after = contents(case / "in", out)
        problems += [f"changed: {name}" for name in before if after.get(name) != before[name]]
        problems += [f"left behind: {p.name}" for p in case.rglob(".*") if re.match(r"\.\d+-", p.name)]
        results = sorted(p for p in out.rglob("*.nii.gz") if p.is_file() and str(p) not in before)
        errors = [message for level, message, _ in said if level >= logging.ERROR] + ([ending] if ending else [])
        expected = list(given.scans)
        if len(results) != len(expected) and not errors:
            problems.append(f"{len(results)} results of {len(expected)} scans")
        for path in results:
            complaints = [wrong(nib.load(path), *scan) for scan in expected]
            if None not in complaints:
                problems.append(f"{path.name}: {complaints}")
        said_besides = [m for level, m, _ in said if level == logging.WARNING or "is skipped" in m]
        tidy = functools.partial(_tidy, case)
        return Finding([tidy(e) for e in errors], list(map(tidy, said_besides)), list(map(tidy, problems)))
    finally:
        for path in case.rglob("*"):
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o700)
        shutil.rmtree(case)


def _tidy(case: Path, text: str) -> str:
    """Without what differs from run to run and from one version of a library to the next."""
    text = text.replace(f"{case}/", "").removeprefix("error: ")
    text = re.sub(r"cannot be read \(.*\)\. ", "cannot be read (...). ", text, flags=re.S)
    text = re.sub(r"\.\d+-", ".PID-", text)
    return re.sub(r"x{20,}", "xx...", text)
