"""The pages name what is there: links, files, functions, tests, options; examples in docstrings are true."""

import ast
import doctest
import importlib
import json
import re
import shlex
from pathlib import Path
from pydoc import locate

import pytest
from monai.bundle import ConfigParser

from drift_mri.command import parser as command_parser

ROOT = Path(__file__).parents[1]
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text()
    for path in (ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md")), *sorted(ROOT.glob("bundle/*/README.md")))
}
MAP = PAGES["docs/paper_to_code.md"]
OPTIONS = {key for path in ROOT.glob("configs/**/*.yaml") for key in ConfigParser.load_config_file(path)}
MONAIS_OPTIONS = {"config_file", "meta_file", "filepath", "ckpt_file", "use_trace", "tracking", "runner_id"}
ROOMS = ("scripts", "configs", "drift_mri", "bundle", "benchmarks")
ENDINGS = "py|yaml|json|conf|md|sh|txt|png|svg"
FILE = rf"(?<![\w./-])((?:scripts|configs|docs|bundle|tests|benchmarks)/[\w./-]+\.(?:{ENDINGS}))\b"
SOURCES = {
    path.relative_to(ROOT).as_posix(): path.read_text()
    for pattern in ("*.toml", "*file", "*.def", ".ci/run", *(f"{room}/**/*" for room in ROOMS))
    for path in sorted(ROOT.glob(pattern))
    if path.suffix in (".py", ".yaml", ".conf", ".sh", ".mjs", ".ts", ".js", ".html", ".service", ".toml", ".def", "")
    and path.is_file()
    and "node_modules" not in path.parts
}


def functions_of(path):
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}


def named(pattern, text):
    return sorted(set(re.findall(pattern, text)))


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page):
    for target in named(r"\]\((?!https?:)([^)#]+)", PAGES[page]):
        assert (ROOT / page).parent.joinpath(target).exists(), target


@pytest.mark.parametrize("page", PAGES)
def test_every_file_of_the_bundle_that_a_page_names_exists(page):
    for name in named(FILE, PAGES[page]):
        assert (ROOT / name).is_file(), name
    for module in named(r"-m (benchmarks[\w.]+)", PAGES[page]):
        assert (ROOT / f"{module.replace('.', '/')}.py").is_file(), module
    for name in named(r"\b(scripts(?:\.\w+)+)", PAGES[page]):
        assert locate(name) is not None, name


def test_every_file_of_the_bundle_that_code_and_configs_name_exists():
    """In comments and messages too."""
    found = [(source, name) for source, text in SOURCES.items() for name in named(FILE, text)]
    lost = {(source, name) for source, name in found if not (ROOT / name).is_file()}
    assert len(found) > 50 and lost == set()


@pytest.mark.parametrize("page", PAGES)
def test_every_option_that_a_page_names_is_known(page):
    commands = [
        command.split("monai.bundle run")[1]
        for block in re.findall(r"```bash\n(.*?)```", PAGES[page], re.DOTALL)
        for command in block.replace("\\\n", " ").splitlines()
        if "monai.bundle run" in command
    ]
    rows = [line for line in PAGES[page].splitlines() if line.startswith("| `--")]
    for option in named(r"--([a-z]\w*)", "\n".join(commands + rows)):
        assert option in OPTIONS | MONAIS_OPTIONS | {"config"}, option


def test_the_command_takes_what_the_readme_shows():
    lines = re.findall(r"^drift-mri (.*)$", PAGES["README.md"], re.MULTILINE)
    assert len(lines) >= 3
    for line in lines:
        command_parser().parse_args(shlex.split(line, comments=True))


def test_every_function_of_the_map_exists():
    """`module.function` or `module.Class.method`, of `scripts/`."""
    names = named(r"`([a-z]\w*(?:\.\w+)+)`", MAP)
    names = [name for name in names if not re.fullmatch(rf".*\.(?:{ENDINGS})", name)]
    assert len(names) > 40
    for name in names:
        found = locate(f"scripts.{name}")
        assert found is not None, name
        home = getattr(found, "__module__", None) or found.__name__
        assert home.startswith(f"scripts.{name.split('.')[0]}"), f"{name} is in {home}"


def test_every_test_of_the_map_exists():
    """`test_file: test_name` holds until the next file of the same line; without a file, the name stands anywhere."""
    tests = {path.stem: functions_of(path) for path in ROOT.glob("tests/**/test_*.py")}
    count = 0
    for line in MAP.splitlines():
        file = None
        for stated, name in re.findall(r"`(?:(test_\w+): )?(test_\w+)`", line):
            file = stated or file
            assert name in (tests[file] if file else set().union(*tests.values())), f"{file}: {name}"
            count += 1
    assert count > 60


def test_every_equation_of_the_paper_is_in_the_map():
    numbered = MAP.split("## Numbered equations")[1].split("\n## ")[0]
    equations = re.findall(r"^\| (S?\d+) \|.*`test_", numbered, re.MULTILINE)
    assert equations == [*map(str, range(1, 15)), "S1", "S2", "S3", "S4"]


def test_the_metadata_has_the_gains_of_the_benchmarks():
    """`| 3 | +3.10 ± 1.29 (+1.49) | ...`: a row for each thickness, a column for each contrast."""
    text = PAGES["docs/benchmarks.md"].split("over the cubic spline's (dB), mean ± SD (smallest):")[1]
    heading, _, *rows = text.split("\n\n")[1].splitlines()
    table = {}
    for thickness, *cells in ([cell.strip() for cell in row.strip("|").split("|")] for row in rows):
        contrasts = [name.strip() for name in heading.strip("|").split("|")[1:]]
        gains = {name: float(cell.split("±")[0]) for name, cell in zip(contrasts, cells)}
        table[f"psnr_in_head_over_cubic_spline_{thickness}mm_dB"] = gains
    assert len(table) == 2
    metrics = json.loads((ROOT / "configs/metadata.json").read_text())["eval_metrics"]
    version = metrics.pop("version")
    section = PAGES["docs/benchmarks.md"].split("## How good")[1].split("\n## ")[0]
    assert metrics == table and f"*Version {version}.*" in section


@pytest.mark.parametrize(
    "source", [name for name, text in SOURCES.items() if name.startswith("scripts/") and ">>> " in text]
)
def test_the_examples_in_docstrings_are_true(source):
    failed, tried = doctest.testmod(importlib.import_module(source.removesuffix(".py").replace("/", ".")))
    assert tried and not failed
