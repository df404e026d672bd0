"""Which scans a user wants: shell patterns on their names, participants and sessions of BIDS datasets."""

import logging
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

from ..errors import InputError, few, logger, printable
from .scan import Scan

OPTIONS = {  # option -> the beginning of BIDS labels that it takes; patterns have none
    "include": "",
    "exclude": "",
    "participant_label": "sub-",
    "session_label": "ses-",
}


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Whether a scan's name matches a pattern. The name of a series matches its parts as well, `NAME-1` and so on."""
    return any(fnmatchcase(name, one) or re.fullmatch(r"-\d+", name.removeprefix(one)) for one in patterns)


def _texts(option: str, given: Any) -> list[str]:
    prefix = OPTIONS[option]
    texts = [str(one) for one in (given if isinstance(given, list | tuple) else [] if given is None else [given])]
    if not all(texts):
        kind = f"a label, such as {prefix}01" if prefix else "a pattern, such as '*T2w*'"
        raise InputError(f"--{option} is empty: expected {kind}. Leave it out for all scans.")
    texts = [prefix + one.removeprefix(prefix) for one in texts]
    for one in texts:
        if prefix and not re.fullmatch(rf"{prefix}[A-Za-z0-9]+", one):
            raise InputError(f"--{option} {one} is none: expected letters and digits, such as {prefix}01.")
    return texts


class Selection:
    """The scans that a user wants.

    It is asked for every scan, with `takes`, and remembers them all. `check` then names patterns that matched nothing.
    `skipped` has the name of each scan that is wanted but not rebuilt, and why. `candidates` has the scans that may
    guide others: the sharp ones, and the ones that `include` leaves out.

    Args:
        thin: slices no thicker and no farther apart than this, in mm, need no rebuilding: the largest trained target.
        include, exclude: shell patterns on a scan's name, of which one must match, and none; `*` matches `/` as well.
        participant_label, session_label: of BIDS datasets, with or without `sub-` and `ses-`.
    """

    def __init__(
        self,
        thin: float,
        include: Any = None,
        exclude: Any = None,
        participant_label: Any = None,
        session_label: Any = None,
    ):
        self.thin = thin
        given = zip(OPTIONS, (include, exclude, participant_label, session_label))
        self.given = {option: _texts(option, one) for option, one in given}
        self.names: list[str] = []  # of all scans that it was asked for
        self.present: set[str] = set()  # all participants and sessions
        self.taken = 0
        self.skipped: list[tuple[str, str]] = []
        self.candidates: list[Scan] = []
        self.listed = False  # whether a dry run lists skipped scans

    def takes(self, name: str, labels: Sequence[str] = ()) -> bool:
        """Whether a scan is wanted.

        Args:
            name: its path relative to the folder that was given, or the name of its series.
            labels: participant and session of a scan of a BIDS dataset, such as `sub-01` and `ses-1`.
        """
        self.names.append(name)
        self.present |= set(labels)
        included = not self.given["include"] or matches(name, self.given["include"])
        labelled = all(not given or set(given) & set(labels) for option, given in self.given.items() if OPTIONS[option])
        wanted = included and labelled and not self.shuts_out(name)
        self.taken += wanted
        return wanted

    def shuts_out(self, name: str) -> bool:
        """Whether a pattern of `exclude` matches."""
        return matches(name, self.given["exclude"])

    def asks_for(self, name: str) -> bool:
        """Whether `include` has this very name, and no pattern that it happens to match."""
        return name in self.given["include"]

    def skip(self, name: str, why: str) -> None:
        """Logs and remembers why a scan that is wanted is not rebuilt. The table of a dry run says it instead."""
        self.skipped.append((printable(name), why))
        logger.log(logging.DEBUG if self.listed else logging.INFO, f"{name} is skipped: {why}.")

    def check(self) -> None:
        """Logs how many scans are not wanted, when `takes` has seen all. A pattern that matches nothing is refused."""
        for option, given in self.given.items():
            prefix = OPTIONS[option]
            there = sorted(one for one in self.present if one.startswith(prefix)) if prefix else self.names
            for one in given:
                if not any(matches(name, [one]) for name in there):
                    expected = few(there) if self.present or not prefix else "a BIDS dataset, which the input is not"
                    raise InputError(f"--{option} {one} matches no scan: expected one of {expected}.")
        left_out = len(self.names) - self.taken
        if left_out and not self.taken:
            raise InputError(
                f"--include, --exclude and the labels together leave none of {few(self.names)}. Choose fewer."
            )
        if left_out:
            options = [f"--{option}" for option, given in self.given.items() if given]
            logger.info(f"{left_out} of {len(self.names)} scans are left out, by {' and '.join(options)}.")
