"""Who may import whom, and the small rules of the house, read from the source."""

import ast
import tomllib
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
SCRIPTS = ROOT / "scripts"
MODULES = {  # by dotted name below scripts; the file of a package is known by the package's name
    ".".join(path.relative_to(SCRIPTS).with_suffix("").parts).removesuffix("__init__").rstrip("."): path
    for path in sorted(SCRIPTS.rglob("*.py"))
}
FLOORS = [  # a folder imports from those on lower floors alone
    {""},  # errors, files, options
    {"stack", "method"},
    {"rebuild", "inputs"},
    {"pages", "train"},
    {"outputs", "evaluate"},
    {"paper"},
]
FLOOR = {folder: number for number, folders in enumerate(FLOORS) for folder in folders}
STRANGERS = {"bundle", "benchmarks", "tests", "monailabel", "holoscan", "yaml", "scripts"}  # inside they are relative
NO_INPUT_OUTPUT = {"os", "pathlib", "io", "json", "csv", "nibabel", "tempfile", "shutil", "subprocess", "socket"}
NAMELESS = {"utils", "util", "helpers", "helper", "common", "misc", "tools", "base"}


@cache
def tree(module):
    return ast.parse(MODULES[module].read_text())


def folder(module):
    """Where a module lies; empty for those at the top, on the lowest floor."""
    return module.split(".")[0] if "." in module or module in FLOOR else ""


def imports(module):
    """(dotted name, whether it is below scripts) of what each import statement names, at any depth."""
    here = module.split(".") if MODULES[module].name == "__init__.py" else module.split(".")[:-1]
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, False) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level:
            assert node.level <= len(here) + 1, f"{module}: relative imports end at scripts"
            source = [*here[: len(here) - node.level + 1], *(node.module or "").split(".")]
            for alias in node.names:
                name = ".".join(filter(None, [*source, alias.name]))
                yield (name if name in MODULES else name.rpartition(".")[0]), True
        elif isinstance(node, ast.ImportFrom) and node.module == "monai":
            yield from ((f"monai.{alias.name}", False) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module, False


@cache
def inner(module):
    """Modules of scripts that a module imports."""
    return {name for name, below in imports(module) if below}


@cache
def outer(module):
    """Other top-level packages that it imports."""
    return {name.split(".")[0] for name, below in imports(module) if not below}


def attributes(module):
    return {node.attr for node in ast.walk(tree(module)) if isinstance(node, ast.Attribute)}


def test_every_folder_has_a_floor():
    assert {folder(module) for module in MODULES} == set(FLOOR)


def test_arrows_point_down():
    """Between folders; within one, and over all, there is no circle."""
    for module in MODULES:
        for name in inner(module):
            assert name in MODULES, f"{module} imports {name}, which is not in scripts"
            here, there = folder(module), folder(name)
            assert here == there or FLOOR[there] < FLOOR[here], f"{module} must not import {name}"


def runs(module):
    """Modules that an import of a module runs before its own end: also the packages that theirs lie in."""
    parts = {name: name.split(".") for name in inner(module)}
    found = {".".join(one[:count]) for one in parts.values() for count in range(1, len(one) + 1)} & MODULES.keys()
    return {name for name in found if name != module and not module.startswith(f"{name}.")}


def test_no_modules_import_each_other_in_a_circle():
    clear = set()

    def reach(module, path):
        assert module not in path, f"circle: {' -> '.join([*path, module])}"
        for name in runs(module) - clear:
            reach(name, [*path, module])
        clear.add(module)

    for module in MODULES:
        reach(module, [])


def test_the_mathematics_needs_no_monai_no_files_and_no_chance_of_its_own():
    for module in (name for name in MODULES if folder(name) == "stack"):
        assert not outer(module) & {"monai", "ignite", "matplotlib", "logging"}, module
    for module in (name for name in MODULES if folder(name) in ("stack", "method") and name != "method.weights"):
        roots = outer(module) - ({"nibabel"} if module == "stack.grid" else set())  # nibabel.orientations is geometry
        assert not roots & NO_INPUT_OUTPUT, module
        assert not attributes(module) & {"load", "save", "read_text", "write_text", "manual_seed"}, module
        assert not attributes(module) & {"rand", "randn", "randint", "rand_like", "randn_like", "default_rng"}, module


def test_scripts_import_no_host_no_tests_and_no_yaml():
    for module in MODULES:
        assert not outer(module) & STRANGERS, module
        assert not any(name.startswith("monai.deploy") for name, _ in imports(module)), module


def test_pydicom_stays_in_its_folders():
    readers = {module for module in MODULES if "pydicom" in outer(module)}
    assert all(module.startswith(("inputs.dicom.", "inputs.headers", "outputs.dicom.")) for module in readers)


def test_no_module_without_a_concept():
    assert not [module for module in MODULES if set(module.split(".")) & NAMELESS]


def test_what_is_installed_needs_no_experiment():
    """A module called scripts would collide with others': the command's package holds the bundle as data, no paper."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = project["tool"]["setuptools"]["packages"]
    assert all(package.split(".")[0] == "drift_mri" for package in packages)
    folders = {path.parent.relative_to(ROOT).as_posix().replace("/", ".") for path in MODULES.values()}
    carried = {package.removeprefix("drift_mri.bundle.") for package in packages if ".bundle.scripts" in package}
    assert carried == {name for name in folders if ".paper" not in name}


def test_no_two_test_files_have_one_name():
    """Pytest takes the second for the first."""
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert len(names) == len(set(names))
