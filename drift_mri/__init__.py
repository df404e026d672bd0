"""The command `drift-mri`, and the bundle that it runs, which travels inside this package as data."""

from pathlib import Path

_INSIDE = Path(__file__).parent / "bundle"
BUNDLE = _INSIDE if _INSIDE.is_dir() else Path(__file__).parents[1]  # in a wheel; in a copy of the repository
