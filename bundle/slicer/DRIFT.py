"""DRIFT as a command-line module of 3D Slicer, which runs it as DRIFT.xml says (docs/hosts.md)."""

import argparse

from drift_mri.scripts.options import OF_SCAN  # type: ignore[import-not-found]

from drift_mri import InputError, rebuild

parser = argparse.ArgumentParser()
parser.add_argument("input")
parser.add_argument("output")
for name, one in OF_SCAN.items():
    parser.add_argument(f"--{name}", **{"action": "store_true"} if one.kind == "switch" and name != "error_map" else {})
given = vars(parser.parse_args())
scan, output, error_map = given.pop("input"), given.pop("output"), given.pop("error_map")
wanted = {"error_map": bool(error_map)}
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
