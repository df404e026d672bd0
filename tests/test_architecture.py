"""Who may import whom (DESIGN.md, section 3), and the small rules of the house, read from the source."""

import ast
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPTS = ROOT / "scripts"
MODULES = {  # by dotted name inside scripts; a package inside, such as dicom, is known by its __init__
    ".".join(path.relative_to(SCRIPTS).with_suffix("").parts).removesuffix(".__init__"): ast.parse(path.read_text())
    for path in sorted(SCRIPTS.rglob("*.py"))
}
PACKAGES = {name.split(".")[0] for name in MODULES if "." in name}

LEVELS = {
    0: {"__init__", "errors", "files"},
    1: {"slice_profile", "grid", "acquisition", "interpolation", "intensity", "schedule", "flow"},
    2: {"losses", "networks", "weights", "metrics", "spectra", "consistency", "dicom", "bids", "readers"}
    | {"ablations", "reformats", "perceptual", "naturalness", "appearance", "segmentation", "deblocking"},
    3: {"transforms", "simulation", "contrast", "training", "stage", "inference", "datasets", "scans", "sample"}
    | {"choice", "windows", "baselines"},
    4: {"cohort", "summary", "plan", "results", "report", "viewer", "planes", "overview", "evaluation", "tables"}
    | {"options"}
    | {"variants", "experiments", "comparison", "figures", "pictures"}
    | {"difficulty", "cost", "work", "unpaired"},
}
LEVEL_OF = {name: level for level, names in LEVELS.items() for name in names}
STRANGERS = {"bundle", "tests", "monailabel", "holoscan", "yaml", "scripts"}  # scripts: imports are relative inside
NO_INPUT_OUTPUT = {"os", "pathlib", "io", "json", "csv", "nibabel", "tempfile", "shutil", "subprocess", "socket"}
MOST_LINES = 300
NAMELESS = {"utils", "util", "helpers", "helper", "common", "misc", "tools", "base"}


def package(module):
    """The package inside scripts that a module belongs to, or the module itself."""
    return module.split(".")[0]


def level(module):
    return LEVEL_OF[package(module)]


def imports(module):
    """(module that is imported, whether from within scripts) of every import statement, at any depth."""
    inside = package(module) in PACKAGES
    for node in ast.walk(MODULES[module]):
        if isinstance(node, ast.Import):
            yield from ((alias.name, False) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level:
            assert node.level <= 1 + inside, "relative imports end at scripts"
            home = f"{package(module)}." if inside and node.level == 1 else ""
            names = [alias.name for alias in node.names] if node.module is None else [node.module]
            yield from ((home + name, True) for name in names)
        elif isinstance(node, ast.ImportFrom) and node.module == "monai":
            yield from ((f"monai.{alias.name}", False) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module, False


def inner(module):
    return {name for name, relative in imports(module) if relative}


def outer(module):
    return {name for name, relative in imports(module) if not relative}


def calls(tree, name):
    return [n for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id == name]


def functions(body, prefix=""):
    """Public classes, functions and methods with their qualified names; not those inside functions."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            yield prefix + node.name, node
            if isinstance(node, ast.ClassDef):
                yield from functions(node.body, f"{prefix}{node.name}.")


@pytest.mark.parametrize("module", MODULES)
def test_every_module_has_a_level(module):
    assert package(module) in LEVEL_OF


@pytest.mark.parametrize("module", MODULES)
def test_arrows_point_down(module):
    """A module imports from its own level and those below; circles have their own test."""
    for name in inner(module):
        assert name in MODULES, f"{module} imports {name}, which is not in scripts"
        assert level(name) <= level(module), f"{module} must not import {name}"


def test_no_modules_import_each_other_in_a_circle():
    def reach(module, path):
        assert module not in path, f"circle: {' -> '.join([*path, module])}"
        for name in inner(module):
            reach(name, [*path, module])

    for module in MODULES:
        reach(module, [])


@pytest.mark.parametrize("module", sorted(LEVELS[1]))
def test_the_mathematics_needs_no_monai_and_no_files(module):
    tree = MODULES[module]
    roots = {name.split(".")[0] for name in outer(module) - {"nibabel.orientations"}}  # which is geometry alone
    assert not roots & ({"monai", "ignite", "matplotlib", "logging"} | NO_INPUT_OUTPUT)
    assert not calls(tree, "open")
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            assert node.attr not in {"load", "save", "read_text", "write_text", "manual_seed"}


@pytest.mark.parametrize("module", sorted(LEVELS[1]))
def test_the_mathematics_draws_no_random_numbers_of_its_own(module):
    for node in ast.walk(MODULES[module]):
        if isinstance(node, ast.Attribute):
            assert node.attr not in {"rand", "randn", "randint", "rand_like", "randn_like", "random", "default_rng"}


@pytest.mark.parametrize("module", MODULES)
def test_scripts_import_no_host_no_tests_and_no_yaml(module):
    for name in outer(module):
        assert name.split(".")[0] not in STRANGERS, f"{module} imports {name}"
        assert not name.startswith("monai.deploy")


@pytest.mark.parametrize("module", MODULES)
def test_only_dicom_imports_pydicom(module):
    assert package(module) == "dicom" or "pydicom" not in {name.split(".")[0] for name in outer(module)}


@pytest.mark.parametrize("module", MODULES)
def test_errors_are_raised_not_asserted(module):
    assert not [node.lineno for node in ast.walk(MODULES[module]) if isinstance(node, ast.Assert)]


@pytest.mark.parametrize("module", [name for name in MODULES if name != "errors"])
def test_nothing_is_printed(module):
    assert not [node.lineno for node in calls(MODULES[module], "print")]


def test_errors_go_to_stderr():
    for call in calls(MODULES["errors"], "print"):
        assert {k.arg: ast.unparse(k.value) for k in call.keywords} == {"file": "sys.stderr"}


@pytest.mark.parametrize("module", MODULES)
def test_no_module_without_a_concept(module):
    assert not set(module.split(".")) & NAMELESS


@pytest.mark.parametrize("module", [name for name in MODULES if name != "__init__"])
def test_what_is_public_is_documented(module):
    tree = MODULES[module]
    assert ast.get_docstring(tree), f"{module} has no docstring"
    lacking = [name for name, node in functions(tree.body) if not ast.get_docstring(node)]
    assert not lacking


@pytest.mark.parametrize("module", MODULES)
def test_exceptions_are_not_swallowed(module):
    """No bare `except:`, and none whose body does nothing."""
    for node in ast.walk(MODULES[module]):
        if isinstance(node, ast.ExceptHandler):
            assert node.type is not None
            assert not all(isinstance(statement, ast.Pass) for statement in node.body)


@pytest.mark.parametrize("folder", ["scripts", "bundle", "configs", "tests", "drift_mri"])
def test_no_file_has_two_jobs(folder):
    """Nor more than 300 lines."""
    kinds = {".py", ".yaml", ".html", ".css", ".js", ".conf"}
    lengths = {
        path.relative_to(ROOT).as_posix(): len(path.read_text().splitlines())
        for path in (ROOT / folder).rglob("*")
        if path.suffix in kinds and "site-packages" not in path.parts
    }
    assert lengths, f"{folder} holds no file"
    assert not {name: lines for name, lines in lengths.items() if lines > MOST_LINES}


def test_scripts_are_not_installed_but_carried():
    """A module called scripts would collide with others'; the command's package holds the bundle as data."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = project["tool"]["setuptools"]["packages"]
    assert all(package.split(".")[0] == "drift_mri" for package in packages)
    folders = {path.parent for path in (ROOT / "scripts").rglob("*.py")}
    carried = {package.removeprefix("drift_mri.bundle.") for package in packages if ".bundle.scripts" in package}
    assert carried == {folder.relative_to(ROOT).as_posix().replace("/", ".") for folder in folders}
