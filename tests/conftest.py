"""How the tests are shared out; their fixtures are in `fixtures.py`."""

import gc
import os
from importlib import import_module

gc.disable()  # until all is imported and collected: what stays for good is searched for waste again and again, for 5 s
os.environ["OMP_NUM_THREADS"] = "1"  # small tensors: threads only wait for each other; here, before torch counts them

SLOW = "container experiments ray label deploy node node_goes_on transfer baselines zoo pack"
LONGEST = [f"test_{name}" for name in f"{SLOW} end_to_end training input_corpus".split()]


def pytest_collection_modifyitems(items):
    """Files that take long come first: at the end one of them would leave the other workers idle."""
    items.sort(key=lambda item: LONGEST.index(item.path.stem) if item.path.stem in LONGEST else len(LONGEST))


def pytest_collection_finish():
    gc.freeze()
    gc.enable()


def pytest_xdist_auto_num_workers(config):
    """None for files that are named: a worker takes 15 s to start."""
    return 0 if all(".py" in argument for argument in config.args) else None


def pytest_configure(config):
    """The process that shares the tests out to workers runs none, and need not wait for the imports of the fixtures."""
    if config.getoption("numprocesses", None):
        gc.enable()
    else:
        config.pluginmanager.register(import_module("tests.fixtures"))
