"""Which scans a user wants: shell patterns on their names, and participants of BIDS datasets."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

from ..errors import InputError, printable

logger = logging.getLogger("drift")

SHOWN = 5  # names in a message


def _texts(option: str, value: Any, kind: str) -> list[str]:
    """Values of an option that is given as one, as a list, or not at all.

    Args:
        option: its name.
        value: as given.
        kind: what is expected, for the message.

    Raises:
        InputError: if one is empty.
    """
    texts = [str(one) for one in (value if isinstance(value, list | tuple) else [] if value is None else [value])]
    if not all(texts):
        raise InputError(f"--{option} is empty: expected {kind}. Leave it out for all scans.")
    return texts


class Selection:
    """The scans that a user wants.

    It is asked for every scan, with `takes`, and remembers them all. `check` then tells what matched nothing.

    Args:
        include: shell patterns. One of them must match a scan's name; `*` matches `/` as well. Null: all match.
        exclude: shell patterns. None of them may match.
        participant_label: participants of BIDS datasets, with or without `sub-`.

    Raises:
        InputError: if a pattern is empty, or a label is none.
    """

    def __init__(self, include: Any = None, exclude: Any = None, participant_label: Any = None):
        self.patterns = {
            "include": _texts("include", include, "a pattern, such as '*T2w*'"),
            "exclude": _texts("exclude", exclude, "a pattern, such as '*T1w*'"),
        }
        labels = _texts("participant_label", participant_label, "a participant, such as 01")
        self.participants = [f"sub-{label.removeprefix('sub-')}" for label in labels]
        for label in self.participants:
            if not re.fullmatch(r"sub-[A-Za-z0-9]+", label):
                raise InputError(f"--participant_label {label} is none: expected letters and digits, such as sub-01.")
        self.names: list[str] = []  # of all scans that it was asked for
        self.present: set[str] = set()  # all participants
        self.taken = 0
        self.skipped: list[str] = []  # a line for each scan that is wanted but not rebuilt

    def takes(self, name: str, participant: str | None = None) -> bool:
        """Whether a scan is wanted.

        Args:
            name: its path relative to the folder that was given, or the name of its series.
            participant: of a BIDS dataset, with `sub-`.
        """
        self.names.append(name)
        self.present |= {participant} if participant else set()
        include, exclude = (any(fnmatchcase(name, one) for one in given) for given in self.patterns.values())
        wanted = (include or not self.patterns["include"]) and not exclude
        wanted = wanted and (not self.participants or participant in self.participants)
        self.taken += wanted
        return wanted

    def skip(self, name: str, why: str) -> None:
        """Logs why a scan that is wanted is not rebuilt."""
        self.skipped.append(f"{printable(name)} is skipped: {why}.")
        logger.info(self.skipped[-1])

    def check(self) -> None:
        """Logs how many scans are not wanted. It is called when `takes` has seen all.

        Raises:
            InputError: if a pattern or a label matches nothing that is there, or all together leave nothing.
        """
        for option, patterns in self.patterns.items():
            for pattern in patterns:
                if not any(fnmatchcase(name, pattern) for name in self.names):
                    raise InputError(f"--{option} {pattern} matches no scan: expected one of {_few(self.names)}.")
        for label in self.participants:
            if label not in self.present:
                there = _few(sorted(self.present)) if self.present else "a BIDS dataset, which the input is not"
                raise InputError(f"--participant_label {label} is not there: expected one of {there}.")
        left_out = len(self.names) - self.taken
        if left_out and not self.taken:
            raise InputError(
                f"--include, --exclude and --participant_label together leave none of {_few(self.names)}. Choose fewer."
            )
        if left_out:
            logger.info(f"{left_out} of {len(self.names)} scans are left out, as --include and its like say.")


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return (", ".join(names[:SHOWN]) or "none") + more
