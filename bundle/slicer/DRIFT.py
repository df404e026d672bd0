"""DRIFT as a command-line module of 3D Slicer, which runs it as DRIFT.xml says (docs/platforms.md)."""

import argparse

from drift_mri import InputError, rebuild

parser = argparse.ArgumentParser()
parser.add_argument("input")
parser.add_argument("output")
parser.add_argument("--error_map")
parser.add_argument("--slice_thickness", type=float)
parser.add_argument("--isotropic", action="store_true")
given = parser.parse_args()
wanted = {"slice_thickness": given.slice_thickness or None, "isotropic": given.isotropic}
try:
    result = rebuild(given.input, error_map=bool(given.error_map), **wanted)
except InputError as error:
    raise SystemExit(f"error: {error}") from None
result.to_filename(given.output)
if given.error_map:
    result.error_map.to_filename(given.error_map)
