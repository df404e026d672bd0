"""The bundle is one set of modules, whichever door is the first, and a package of the user's own keeps its name."""

import subprocess
import sys

import pytest

from drift_mri import InputError
from drift_mri.command import main
from tests.processes import ROOT

SAME = """
assert drift_mri.InputError is scripts.errors.InputError
from scripts.outputs import lock
from drift_mri.scripts.outputs import lock as again
assert lock is again and not {a for a in sys.modules if a.startswith("scripts.")} - {
    a.removeprefix("drift_mri.") for a in sys.modules}
"""
THEIRS = """
import scripts.mine
import drift_mri.python
assert scripts.mine.NUMBER == 7
method = drift_mri.python._config(None, None).get_parsed_content("inferer")
assert type(method).__module__ == "drift_mri.scripts.rebuild.inferer"
assert "scripts.errors" not in sys.modules and scripts.mine.NUMBER == 7
"""


def run(code, folder):
    """In a new Python, of which a folder is the first on its path; the bundle is not on it."""
    script = folder / "trial.py"
    begin = f"import importlib.util, sys\nspec = importlib.util.spec_from_file_location('drift_mri', {str(ROOT)!r} + "
    begin += "'/drift_mri/__init__.py')\ndef door():\n    module = importlib.util.module_from_spec(spec)\n"
    begin += "    sys.modules['drift_mri'] = module\n    spec.loader.exec_module(module)\n    return module\n"
    script.write_text(begin + code)
    done = subprocess.run([sys.executable, "-P", str(script)], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "first",
    [
        "drift_mri = door()\nimport scripts.errors",
        f"sys.path.insert(0, {str(ROOT)!r})\nimport scripts.errors\nimport drift_mri",
        f"sys.path.insert(0, {str(ROOT)!r})\nimport drift_mri.command\nimport scripts.errors",
    ],
)
def test_a_module_of_the_bundle_is_one_object_by_either_name(first, tmp_path):
    run(first + SAME, tmp_path)


def test_a_package_of_the_users_own_that_is_called_scripts_stays_theirs(tmp_path):
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "__init__.py").touch()
    (tmp_path / "scripts" / "mine.py").write_text("NUMBER = 7\n")
    run(f"sys.path.insert(0, {str(tmp_path)!r})\ndoor()" + THEIRS, tmp_path)


def test_an_input_that_is_not_there_is_an_input_error_of_the_command_as_of_rebuild(tmp_path):
    with pytest.raises(InputError, match=r"nothing.nii.gz"):
        main([str(tmp_path / "nothing.nii.gz"), "-o", str(tmp_path)])
