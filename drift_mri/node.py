"""`drift-mri-node`: A DICOM node. It rebuilds the thick MR series that it receives, and sends the results to a peer."""

import argparse
import errno
import importlib
import json
import os
import re
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import Timeout
from pydicom import dcmread

from . import __version__
from .command import OPTIONS, Parser, overrides, workflow
from .spool import REASON, STATES, Spool
from .transfer import SUCCESS, TITLE, TLS, Peer, answering, evt, tls_contexts

# `command` has put the bundle on the path
# isort: split
from scripts.errors import InputError, flag, logger, report_input_errors
from scripts.files import whole_file
from scripts.options import number
from scripts.outputs.lock import alone

if TYPE_CHECKING:
    from scripts.inputs.scan import Scan

LONGER = 3  # times that a stack which seems to be cut settles
EARLY = ("inputs.scans", "outputs.one_scan", "pages.index")  # two threads that import them at once see halves of them
LEFT_OUT = (  # options of the command that a node has no use for: its input and output are settled
    "dtype output_format include exclude participant_label session_label reference regions allow_failures jobs dry_run"
).split()
COMMANDS = {name: one.argparse for name, one in OPTIONS.items() if name not in LEFT_OUT}
COMMANDS["guide"] = dict(action="store_const", const="auto", help="let a sharper series of the study guide a thick one")
FAILURE, NO_ROOM, NOT_UNDERSTOOD = 0x0110, 0xA700, 0xC000  # PS3.7, C and PS3.4, B.2.3
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def pause(failures: int) -> float:
    """Seconds to wait after so many failures: 5, 10, 20 and so on, at most 10 minutes."""
    return min(5.0 * 2 ** min(failures - 1, 30), 600.0)


class Node:
    """Receives, rebuilds and sends, by a `ConfigParser` of configs/inference.yaml."""

    def __init__(self, config: Any, spool: Spool, peer: Peer, settle: float, keep: float):
        for module in EARLY:
            importlib.import_module(f"scripts.{module}")
        self.spool, self.peer, self.settle, self.days = spool, peer, settle, keep
        self.rebuilder, self.output = map(config.get_parsed_content, ("rebuilder", "output"))
        own = ("_target_", "source", "output_dir", "selection", "dry_run")
        self.options = {k: config.get_parsed_content(f"scans::{k}") for k in config["scans"] if k not in own}
        self.thin = config.get_parsed_content("selection::thin")
        guided = self.options["guide"] is not None
        self.by_study = guided or flag("together", self.options["together"])
        if guided:
            self.rebuilder.check_guides()
        self.turns: dict[tuple[str, str], tuple[int, float]] = {}  # failed series -> how often, and when its turn comes
        self.growing: dict[str, tuple[int, bool]] = {}  # series -> images that had come, and whether they seem cut
        self.stop = threading.Event()

    def store(self, event: evt.Event) -> int:
        """Answers C-STORE: the status."""
        from scripts.inputs.headers import read_dataset  # here: it takes seconds

        try:
            content, instance = event.encoded_dataset(), str(event.request.AffectedSOPInstanceUID)
            keyword = "StudyInstanceUID" if self.by_study else "SeriesInstanceUID"
            name = str(read_dataset(content, stop_before_pixels=True, specific_tags=[keyword])[keyword].value)
            if not all(re.fullmatch(r"[0-9][0-9.]{0,63}", one) for one in (name, instance)):  # names of files
                raise ValueError("its UIDs are none")
            self.spool.keep(name, instance, content)
            return SUCCESS
        except OSError as error:
            logger.error(f"an image cannot be kept ({error.strerror}); the sender is told so.")
            return NO_ROOM if error.errno in FULL else FAILURE
        except Exception as error:  # noqa: BLE001  # pydicom raises many types for broken objects
            logger.warning(f"an object from {event.assoc.requestor.ae_title} cannot be read ({error}).")
            return NOT_UNDERSTOOD

    def listening(
        self, host: str, port: int, allow: Sequence[str], tls: TLS | None = None
    ) -> AbstractContextManager[int]:
        """See `transfer.answering`."""
        return answering(self.peer.own, self.store, (host, port), allow, tls)

    def take(self, name: str) -> None:
        """Moves a UID that has settled on. A stack that seems to be cut waits `LONGER` times as long.

        Its pixels are read once for the images that have come; when more have, the stack may be whole.
        """
        images, (seen, grows) = len(self.spool.images("received", name)), self.growing.get(name, (0, False))
        waited = name in self.spool.names("received", LONGER * self.settle)
        if images != seen and not waited:
            grows = self.spool.may_grow(name)
            self.growing[name] = images, grows
            if grows:
                logger.info(
                    f"{name}: its {images} slices end where tissue is still large: it waits for more, {LONGER} times "
                    "--settle."
                )
        if waited or not grows:
            self.growing.pop(name, None)
            self.spool.take(name)

    def scans(self, name: str) -> tuple[list["Scan"], list[str]]:
        """The scans of a UID in `working` that are rebuilt, and why others are not. Archives get no doubtful ones."""
        from scripts.inputs.scans import scans  # here: they take seconds
        from scripts.inputs.selection import Selection

        selection, results = Selection(self.thin), self.spool.path / "results" / name
        try:
            if (patients := self.spool.patients("working", name)) > 1:
                raise InputError(f"its images are of {patients} patients. Send all of it again, with the right one.")
            every = scans(self.spool.path / "working" / name, results, selection, **self.options)
        except OSError:
            raise
        except Exception as error:  # noqa: BLE001  # no thick scan, or a broken one
            return [], [f"{one}: {reason}" for one, reason in selection.skipped] or [str(error)]
        taken = [replace(one, archived=True) for one in every if not one.mark]
        return taken, [f"{one.name}: {one.mark}" for one in every if one.mark]

    def work(self, name: str) -> None:
        """Rebuilds a series in `working`, and moves it on: to `sending`, or to `aside`.

        A rebuilt scan is sent even if another scan of the same UID failed; that scan's reason comes with it.
        """
        from scripts.outputs.one_scan import rebuild_scan
        from scripts.outputs.summary import add_rows

        folder, results = self.spool.path / "working" / name, self.spool.path / "results" / name
        os.utime(folder)  # should it bring the node down, the others come first
        if not self.spool.join_earlier(name):
            return
        (folder / REASON).unlink(missing_ok=True)
        (found, why), rows = self.scans(name), []
        for scan in found:
            if self.stop.is_set():
                return
            rows += (own := rebuild_scan(scan, self.rebuilder, self.output))
            for row in (one for one in own if "result" in one):
                logger.info(f"{row['input']} {row['outcome']}, {row['seconds']:g} s.")
            if not any("result" in row for row in own) and shutil.disk_usage(self.spool.path).free < 1 << 28:  # bytes
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        made = {Path(row["result"]).name for row in rows if "result" in row}
        for record in results.glob("[!.]*_sr.json"):
            if record.stem not in made:  # of fewer images, before others came
                record.unlink()
        add_rows(self.spool.path / "summary.csv", rows, index=False)
        why += [row["warnings"] for row in rows if "result" not in row]
        if why:
            text = "; ".join(dict.fromkeys(why))
            logger.warning(f"{name} is put aside: {text}")
            with whole_file(folder / REASON) as partial:
                partial.write_text(text + "\n", encoding="utf-8", errors="backslashreplace")
        self.spool.move(name, "working", "sending" if made else "aside")

    def send(self, name: str) -> None:
        """Sends the results of a series in `sending`, and moves it on: to `done`, or `aside` if a scan of it failed."""
        results = self.spool.path / "results" / name
        records = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(results.glob("[!.]*_sr.json"))]
        made = {results / one: state["SHA256"] for record in records for one, state in record["Results"].items()}
        for folder in filter(Path.is_dir, made):
            files = sorted(folder.glob("*.dcm"))
            sent = results / f".{dcmread(files[0], specific_tags=['SeriesInstanceUID']).SeriesInstanceUID}"
            if self.stop.is_set():
                return
            if not sent.exists() or sent.read_text() != made[folder]:
                self.peer.store(files)
                sent.write_text(made[folder])
                logger.info(f"{folder.name}: {len(files)} images were sent to {self.peer.title}.")
        reason = self.spool.path / "sending" / name / REASON
        self.spool.move(name, "sending", "aside" if reason.is_file() else "done")

    def _each(self, state: str, act: Callable[[str], None], age: float = 0) -> None:
        """Acts on each UID in a state that no other node is at, and to which nothing has come for so many seconds."""
        for name in self.spool.names(state, age):
            failures, turn = self.turns.get((state, name), (0, 0.0))
            if self.stop.is_set() or time.monotonic() < turn:
                continue
            try:
                with suppress(Timeout), alone(self.spool.path / name, wait=False):
                    if (self.spool.path / state / name).is_dir():
                        act(name)
                    self.turns.pop((state, name), None)
            except Exception as error:  # a full disk, a peer that is away or refuses an image; the node outlives it
                wait = pause(failures + 1)
                self.turns[state, name] = failures + 1, time.monotonic() + wait
                logger.warning(f"{name}: {error}. Tried again in {wait:g} s.", exc_info=not isinstance(error, OSError))

    def _repeat(self, act: Callable[[], None]) -> None:
        """Acts again and again until `stop` is set. An error does not end it."""
        while not self.stop.wait(0.5):
            try:
                act()
            except Exception as error:
                logger.exception(f"{error}; the node goes on.")
                self.stop.wait(pause(1))

    def run(self) -> None:
        """Works and sends until `stop` is set. The scan at work is finished first."""
        shown = []

        def rebuild() -> None:
            self._each("received", self.take, self.settle)
            self._each("working", self.work)
            self.spool.tidy(self.days)

        def send() -> None:
            self._each("sending", self.send)
            content = [self.spool.names(state) for state in STATES]
            if content != shown:
                self.spool.write_page()
                shown[:] = content

        sender = threading.Thread(target=self._repeat, args=(send,), name="sender")
        sender.start()
        try:
            self._repeat(rebuild)
        finally:
            self.stop.set()
            sender.join()
            with suppress(OSError):
                self.spool.write_page()


def parser() -> Parser:
    """The parser of the command line."""
    result = Parser(prog="drift-mri-node", description=(__doc__ or "").split(": ")[1], allow_abbrev=False)
    result.add_argument("--aet", default="DRIFT", metavar="TITLE", help="title of this node (default: DRIFT)")
    result.add_argument("--host", default="127.0.0.1", help="address to listen at (default: 127.0.0.1, this machine)")
    result.add_argument("--port", type=number("whole"), default=11112, help="port to listen at (default: 11112)")
    result.add_argument("--folder", required=True, metavar="SPOOL", help="folder of all that is received and made")
    result.add_argument("--send_to", required=True, metavar="TITLE@HOST:PORT", help="peer that gets the results")
    result.add_argument("--allow", required=True, nargs="+", metavar="TITLE", help="titles that may send to this node")
    result.add_argument(
        "--settle", type=number("number"), default=30, metavar="SECONDS", help="of silence end a series (30)"
    )
    result.add_argument(
        "--keep", type=number("number"), default=7, metavar="DAYS", help="for which what was sent stays (7)"
    )
    result.add_argument("--tls", nargs=3, metavar=("CERT", "KEY", "CA"), help="PEM files; both directions are secured")
    result.add_argument("--echo", action="store_true", help="ask the peer whether it is there, by C-ECHO, and end")
    for name, how in COMMANDS.items():
        result.add_argument(f"--{name}", default=None, **how)
    result.add_argument("--version", action="version", version=f"drift-mri-node {__version__}")
    return result


def main(arguments: Sequence[str] | None = None) -> None:
    """The command. Its exit code is 1 if an option is wrong or `--echo` finds no peer."""
    options = parser().parse_args(sys.argv[1:] if arguments is None else arguments)
    given = overrides(argparse.Namespace(**{k: v for k, v in vars(options).items() if k in COMMANDS}))
    report_input_errors()
    for title in (options.aet, *options.allow):
        if not re.fullmatch(TITLE, title):
            raise InputError(f"{title!r} is no title: expected 1 to 16 letters. Set --aet and --allow.")
    for name, most in {"port": 65535, "settle": 86400, "keep": 36500}.items():
        if not 0 <= getattr(options, name) <= most:
            raise InputError(f"--{name} is {getattr(options, name):g}: expected 0 to {most}.")
    server, client = tls_contexts(*options.tls) if options.tls else (None, None)
    peer = Peer(options.send_to, options.aet, client)
    if options.echo:
        try:
            peer.echo()
        except ConnectionError as error:
            raise InputError(f"{error}. Check --send-to, and what the peer knows of {options.aet}.") from None
        return print(f"{peer.name} answers.")
    spool = Spool(Path(options.folder).absolute())
    settled = {"output_dir": spool.path, "output_format": "dicom", "inferer::progress": False}
    config = workflow(options, {**given, **settled}).parser
    node = Node(config, spool, peer, options.settle, options.keep)
    signal.signal(signal.SIGTERM, lambda *_: node.stop.set())
    with node.listening(options.host, options.port, options.allow, server) as port:
        logger.info(f"{options.aet} {__version__} listens at {options.host}:{port}. Results go to {peer.name}.")
        node.run()
    logger.info("ended; the same command goes on.")
