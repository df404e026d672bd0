#!/usr/bin/env python3
"""DRIFT as a command-line module of 3D Slicer, which runs it as DRIFT.xml says (docs/hosts.md).

By its first line Slicer takes the file for such a module, and runs it apart from itself.
"""

import argparse
import sys
from xml.sax.saxutils import escape


def say(tag: str, content: object) -> None:
    """Tells Slicer where the work is: it reads tags in what is printed, and shows the rest."""
    print(f"<{tag}>{escape(str(content))}</{tag}>", flush=True)


def show(part: str, share: float) -> None:
    """Slicer's bar, which begins anew with each part, and the part's name beside it."""
    say("filter-comment", part)
    say("filter-progress", f"{share:.3f}")


def main() -> None:
    """Reads Slicer's words. A text that is empty, a length of 0 and `default` stand for none."""
    try:
        from drift_mri.scripts.options import OF_SCAN
        from drift_mri.scripts.rebuild.progress import watchers

        from drift_mri import InputError, rebuild
    except ImportError as error:
        raise SystemExit(
            f"error: DRIFT is not in Slicer's Python ({error}). Install it there: PythonSlicer -m pip install ."
        ) from None
    parser = argparse.ArgumentParser()
    parser.add_argument("input")
    parser.add_argument("output")
    for name, one in OF_SCAN.items():
        switch = one.kind == "switch" and name != "error_map"
        parser.add_argument(f"--{name}", **{"action": "store_true"} if switch else {})
    given = vars(parser.parse_args())
    scan, output, error_map = given.pop("input"), given.pop("output"), given.pop("error_map")
    wanted = {"error_map": bool(error_map)}
    watchers.append(show)
    say("filter-start", "DRIFT")
    try:
        for name, value in given.items():
            one = OF_SCAN[name]
            length = one.kind == "number" and not one.words
            if value not in (None, False, "", "default") and not (length and float(value) == 0):  # else it is left out
                wanted[name] = one.read(name, value)
        result = rebuild(scan, **wanted)
    except InputError as error:
        raise SystemExit(f"error: {error}") from None
    result.to_filename(output)
    if error_map:
        result.error_map.to_filename(error_map)
    if "Sharp" in result.record:
        print(result.record["Sharp"])
    if "Check" in result.record:
        print(result.record["Check"]["Description"])
    for warning in result.record["Warnings"]:
        print(f"warning: {warning}", file=sys.stderr)  # Slicer shows it in red
    say("filter-end", "DRIFT")


if __name__ == "__main__":
    main()
