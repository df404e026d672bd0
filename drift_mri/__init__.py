"""Thick-slice brain MRI to isotropic resolution: the command `drift-mri`, and `rebuild` for Python.

    from drift_mri import rebuild

    result = rebuild("scan.nii.gz")

The bundle that both run travels inside this package as data.
"""

import getpass
import json
import os
import sys
from pathlib import Path

from .one_module import SecondName

_INSIDE = Path(__file__).parent / "bundle"
BUNDLE = _INSIDE if _INSIDE.is_dir() else Path(__file__).parents[1]  # in a wheel; in a copy of the repository
__path__.append(str(BUNDLE))  # where `drift_mri.scripts` is
sys.meta_path.insert(0, SecondName(BUNDLE))
__version__: str = json.loads((BUNDLE / "configs" / "metadata.json").read_text(encoding="utf-8"))["version"]

try:
    getpass.getuser()
except (KeyError, OSError):  # a container's user may be a bare number; MONAI asks for a name when it is imported
    os.environ["LOGNAME"] = str(os.getuid())

from .python import InputError, RebuiltImage, rebuild  # noqa: E402  # they need BUNDLE

__all__ = ["BUNDLE", "InputError", "RebuiltImage", "__version__", "rebuild"]
