"""Which scans a user wants: shell patterns on their names, participants and sessions of BIDS datasets."""

import logging
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

from ..errors import InputError, few, logger, printable
from .scan import Scan


def _texts(option: str, value: Any, kind: str) -> list[str]:
    texts = [str(one) for one in (value if isinstance(value, list | tuple) else [] if value is None else [value])]
    if not all(texts):
        raise InputError(f"--{option} is empty: expected {kind}. Leave it out for all scans.")
    return texts


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Whether a scan's name matches a pattern. The name of a series matches its parts as well, `NAME-1` and so on."""
    return any(fnmatchcase(name, one) or re.fullmatch(r"-\d+", name.removeprefix(one)) for one in patterns)


def _labels(option: str, value: Any, prefix: str) -> list[str]:
    labels = [prefix + one.removeprefix(prefix) for one in _texts(option, value, f"a label, such as {prefix}01")]
    for label in labels:
        if not re.fullmatch(rf"{prefix}[A-Za-z0-9]+", label):
            raise InputError(f"--{option} {label} is none: expected letters and digits, such as {prefix}01.")
    return labels


class Selection:
    """The scans that a user wants.

    It is asked for every scan, with `takes`, and remembers them all. `check` then names patterns that matched nothing.
    `skipped` has the name of each scan that is wanted but not rebuilt, and why. `candidates` has the scans that may
    guide others: the sharp ones, and the ones that `include` leaves out.

    Args:
        thin: slices no thicker and no farther apart than this, in mm, need no rebuilding: the largest trained target.
        include: shell patterns, of which one must match a scan's name; `*` matches `/` as well. Null: all match.
        exclude: shell patterns. None of them may match.
        participant_label: participants of BIDS datasets, with or without `sub-`.
        session_label: sessions of BIDS datasets, with or without `ses-`.
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
        self.patterns = {
            "include": _texts("include", include, "a pattern, such as '*T2w*'"),
            "exclude": _texts("exclude", exclude, "a pattern, such as '*T1w*'"),
        }
        self.labels = {
            "participant_label": _labels("participant_label", participant_label, "sub-"),
            "session_label": _labels("session_label", session_label, "ses-"),
        }
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
        included = not self.patterns["include"] or matches(name, self.patterns["include"])
        labelled = all(not given or set(given) & set(labels) for given in self.labels.values())
        wanted = included and labelled and not self.shuts_out(name)
        self.taken += wanted
        return wanted

    def shuts_out(self, name: str) -> bool:
        """Whether a pattern of `exclude` matches."""
        return matches(name, self.patterns["exclude"])

    def asks_for(self, name: str) -> bool:
        """Whether `include` has this very name, and no pattern that it happens to match."""
        return name in self.patterns["include"]

    def skip(self, name: str, why: str) -> None:
        """Logs and remembers why a scan that is wanted is not rebuilt. The table of a dry run says it instead."""
        self.skipped.append((printable(name), why))
        logger.log(logging.DEBUG if self.listed else logging.INFO, f"{name} is skipped: {why}.")

    def check(self) -> None:
        """Logs how many scans are not wanted, when `takes` has seen all. A pattern that matches nothing is refused."""
        for option, patterns in self.patterns.items():
            for pattern in patterns:
                if not any(matches(name, [pattern]) for name in self.names):
                    raise InputError(f"--{option} {pattern} matches no scan: expected one of {few(self.names)}.")
        for option, labels in self.labels.items():
            for label in labels:
                if label not in self.present:
                    alike = sorted(one for one in self.present if one[:4] == label[:4])
                    there = few(alike) if self.present else "a BIDS dataset, which the input is not"
                    raise InputError(f"--{option} {label} is not there: expected one of {there}.")
        left_out = len(self.names) - self.taken
        if left_out and not self.taken:
            raise InputError(
                f"--include, --exclude and the labels together leave none of {few(self.names)}. Choose fewer."
            )
        if left_out:
            options = [f"--{option}" for option, given in {**self.patterns, **self.labels}.items() if given]
            logger.info(f"{left_out} of {len(self.names)} scans are left out, by {' and '.join(options)}.")
