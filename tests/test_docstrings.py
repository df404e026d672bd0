"""The examples in docstrings are true."""

import doctest
import importlib

import pytest

from tests.config_files import ROOT

WITH_EXAMPLES = [path for path in sorted((ROOT / "scripts").rglob("*.py")) if ">>> " in path.read_text()]


@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=lambda path: str(path.relative_to(ROOT)))
def test_examples(path):
    module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    failed, tried = doctest.testmod(module)
    assert tried and not failed
