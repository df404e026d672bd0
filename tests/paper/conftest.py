"""Experiments and rivals are tested where everything is: nobody who rebuilds or trains waits for them."""

from pathlib import Path

import pytest


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents and item.path.name != "test_configs_paper.py":
            item.add_marker(pytest.mark.slow)
