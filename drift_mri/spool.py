"""The spool: the folder in which a DICOM node keeps all that it knows."""

import os
import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from filelock import Timeout

from scripts.errors import InputError, logger  # `command` has put the bundle on the path
from scripts.files import whole_file
from scripts.outputs.lock import alone

# folder of the spool -> what index.html says of what lies in it
STATES = dict(received="waiting", working="being rebuilt", sending="to be sent", done="sent", aside="put aside")
LATER = ("sending", "done", "aside")
REASON = "reason.txt"
PATIENT = ["PatientID", "PatientName"]
LARGE = 0.8  # of the largest area of tissue; slices at the end of a whole head have less


def _fsync(folder: Path) -> None:
    """Makes the names in a folder outlast a loss of power."""
    opened = os.open(folder, os.O_RDONLY)
    os.fsync(opened)
    os.close(opened)


def _ends_in_tissue(frames: Any) -> bool:
    """Whether a stack of `headers.Frame` ends where tissue is nearly as large as at its largest, as if it were cut."""
    from scripts.inputs.dicom.pixels import blocks
    from scripts.stack.tissue import TISSUE

    slices = blocks(frames)
    areas = [int(one.sum()) for one in slices > TISSUE * max(np.percentile(one, 99) for one in slices)]
    return max(areas[0], areas[-1]) > LARGE * max(areas)


class Spool:
    """A folder that holds all that a node knows: a folder for each state, in it one for the images of each UID.

    A series, or a study, moves from state to state by one renaming: a killed node loses nothing. Nobody else may look
    into a new spool, and not everybody into an earlier one. A folder of other things is refused, since a node removes
    what is old.
    """

    def __init__(self, path: Path):
        self.path = path
        try:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            used = any(self.path.iterdir())
            if used and not (self.path / "received").is_dir():
                raise InputError(f"--folder {self.path} holds other things. Choose a new folder, or a spool.")
            if not used:
                self.path.chmod(0o700)
            elif os.name == "posix" and self.path.stat().st_mode & 0o007:
                raise InputError(f"--folder {self.path} is open to everybody, with its patients. Run chmod o= on it.")
            for name in (*STATES, "results"):
                (self.path / name).mkdir(exist_ok=True)
        except OSError as error:
            raise InputError(f"--folder {self.path} cannot be written ({error}). Choose another one.") from error

    def names(self, state: str, age: float = 0) -> list[str]:
        """UIDs in a state to which nothing has come for so many seconds, the oldest first."""
        found = []
        for one in os.scandir(self.path / state):
            with suppress(FileNotFoundError):  # another node has just moved it
                if one.name[0] != "." and time.time() - one.stat().st_mtime >= age:
                    found.append((one.stat().st_mtime, one.name))
        return [name for _, name in sorted(found)]

    def images(self, state: str, name: str) -> list[Path]:
        """The images of a UID."""
        return sorted((self.path / state / name).glob("[!.]*.dcm"))

    def patients(self, state: str, name: str) -> int:
        """How many patients the images of a UID that can be read may be of: how many names, or IDs, they say."""
        from scripts.inputs.headers import UNSAID, quiet, read_dataset, said  # here: it takes seconds

        found = []
        for image in self.images(state, name):
            with suppress(Exception), quiet():  # a broken one is named when the series is read
                header = read_dataset(image, stop_before_pixels=True, specific_tags=PATIENT)
                found.append([said(header, keyword) for keyword in PATIENT])
        return max((len({*values} - UNSAID) for values in zip(*found)), default=0)

    def keep(self, name: str, instance: str, content: bytes) -> None:
        """Puts an image into `received`. It is whole and on the disk afterwards, or there is an `OSError`."""
        path = self.path / "received" / name / f"{instance}.dcm"
        while True:
            with suppress(FileNotFoundError):  # the folder has moved on in between
                with whole_file(path) as partial, open(partial, "wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                _fsync(path.parent)
                return _fsync(path.parent.parent)

    def may_grow(self, name: str) -> bool:
        """Whether slices of a received UID may still be on their way: its stack ends where tissue is still large."""
        from scripts.inputs.dicom.select import find_series  # here: they take seconds

        try:
            found = find_series(self.path / "received" / name)
            return any(_ends_in_tissue(one.frames) for one in found if not one.skipped)
        except Exception:  # noqa: BLE001  # what is broken is put aside when its turn comes
            return False

    def take(self, name: str) -> None:
        """Moves a UID from `received` to `working`, unless that has one yet."""
        if not (self.path / "working" / name).exists():
            logger.info(f"{name}: {len(self.images('received', name))} images have come.")
            self.move(name, "received", "working")

    def join_earlier(self, name: str) -> bool:
        """Moves the images that came earlier into `working`. If all in it did, they are removed: False.

        An image that came with another content is another one: the last one counts.
        """
        folder, came = self.path / "working" / name, self.images("working", name)
        earlier = {path.name: path for state in LATER for path in self.images(state, name)}
        from .same_image import is_same_image  # here: it takes seconds

        others = [path for path in came if path.name not in earlier or not is_same_image(path, earlier[path.name])]
        if not others:
            logger.info(f"{name}: all its {len(came)} images came earlier.")
            shutil.rmtree(folder)
            return False
        if replaced := sum(path.name in earlier for path in others):
            logger.info(f"{name}: {replaced} of its {len(came)} images replace earlier ones of other content.")
        for path in earlier.values():  # killed here, it moves the rest next time
            if not (folder / path.name).exists():
                path.replace(folder / path.name)
        for state in LATER:
            shutil.rmtree(self.path / state / name, ignore_errors=True)
        return True

    def move(self, name: str, state: str, to: str) -> None:
        """Moves a UID to another state. The folder's time is now."""
        os.utime(self.path / state / name)
        os.rename(self.path / state / name, self.path / to / name)
        _fsync(self.path / to)

    def tidy(self, days: float) -> None:
        """Removes series that were sent so many days ago, and their results."""
        for name in self.names("done", days * 86400):
            with suppress(Timeout), alone(self.path / name, wait=False):
                if name in self.names("done", days * 86400):
                    for state in ("results", "done"):
                        shutil.rmtree(self.path / state / name, ignore_errors=True)

    def write_page(self) -> None:
        """Writes `index.html`: the series that wait, are rebuilt, sent and put aside."""
        from scripts.outputs.summary import read_rows  # here: it takes seconds
        from scripts.pages.index import write_index

        where = {name: state for state in STATES for name in self.names(state)}
        rows: list[dict[str, Any]] = []
        for row in read_rows(self.path / "summary.csv"):
            name, result = Path(row["result"]).parts[-2:] if row["result"] else ("", "")
            if name in where and (self.path / "results" / name / result).is_dir():
                rows.append({**row, "outcome": STATES[where[name]]})
        for name, state in where.items():
            path = self.path / state / name / REASON
            why = path.read_text(encoding="utf-8") if path.is_file() else f"{len(self.images(state, name))} images"
            if state in ("received", "working", "aside"):
                rows.append({"input": name, "result": "", "outcome": STATES[state], "warnings": why.strip()})
        write_index(self.path, rows)
