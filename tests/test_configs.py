"""The method as data: `$` wires and does not compute, files agree with each other and stack."""

import inspect
import re

import pytest
import torch
from monai.bundle import ConfigParser

from scripts.command_line import check_names
from tests import paper_values as paper
from tests.config_files import (
    COMPLETE,
    CONFIGS,
    FILES,
    HOST_IDS,
    REFERENCE,
    ROOT,
    SIZES,
    complaint,
    expressions,
    inherited,
    located,
    parser,
    raw,
    references,
    stack,
    strings,
    targets,
)

# Wiring


def test_expressions_wire_and_do_not_compute():
    problems = {f"{file}: {path}": complaint(text) for file in FILES for path, text in expressions(file)}
    assert {path: problem for path, problem in problems.items() if problem} == {}


def test_attributes_of_references_are_marked_by_a_dollar():
    """`@network.apn` without `$` is a string to MONAI, and whole: so a reference is all of its string.

    A macro, `%file::key`, resolves against the current directory: there is none.
    """
    plain = [(file, path, text) for file in FILES for path, text in strings(file) if not text.startswith("$")]
    assert [item for item in plain if item[2].startswith("%")] == []
    assert [item for item in plain if "@" in item[2] and not REFERENCE.fullmatch(item[2])] == []


def test_numbers_are_numbers():
    """YAML 1.1 reads 1e-4 as a string, and yes, no, on, off as booleans."""
    number = re.compile(r"[-+]?\.?\d[\d_.]*([eE][-+]?\d+)?")
    assert [(file, path, text) for file in FILES for path, text in strings(file) if number.fullmatch(text)] == []
    assert [file for file in FILES if re.search(r":\s+(yes|no|on|off)\b", (CONFIGS / file).read_text(), re.I)] == []


@pytest.mark.parametrize("file", COMPLETE)
def test_ids_that_hosts_look_up_stay(file):
    config = parser(file)
    assert [name for name in HOST_IDS[file].split() if name not in config] == []


def test_references_point_to_something():
    for file in FILES:
        config = parser(*stack(file))
        config.update(config.get("configs", {}))  # of the settings of --tracking, which MONAI puts there
        lost = [(path, name) for path, name in references(file) if name.replace("::", "#") not in config]
        assert lost == [], file


@pytest.mark.parametrize("file", FILES)
def test_a_file_defines_what_is_used_or_replaces_what_stands_below_it(file):
    """MONAI passes over a misspelt key in silence: it is a setting without effect."""
    found, below = raw(file), {key for lower in stack(file)[:-1] for key in raw(lower)}
    entry = {"imports", "initialize", "run", "several", "guided", "training", "error", "ship"}
    entry |= {"dataset_dir", "bundle_root", "output_dir", "finalize", "tables", "evidence"}
    entry |= {"handlers_id", "configs"}  # of MONAI's tracking
    entry |= {"plane_pairs"}  # of configs/models
    entry |= {"stages"}  # by whose names they are asked for
    used = {re.split("#|::", name)[0] for one in stack(file) for _, name in references(one)}
    hosts = {re.split("#", name)[0] for name in HOST_IDS.get(file, "").split()}
    whole = {key for key in found if not re.search("#|::", key)}
    assert whole - below - used - entry - hosts == set()
    assert {re.split("#|::", key)[0] for key in set(found) - whole} <= below | whole, "parts of something"


@pytest.mark.parametrize("file", FILES)
def test_no_name_is_taken_for_a_slip(file):
    check_names(parser(*stack(file)))


@pytest.mark.parametrize("file", COMPLETE)
def test_the_bundle_root_is_on_the_path_before_anything_of_scripts_is_named(file):
    steps = raw(file)["initialize"]
    assert steps[:2] == ["$import sys", "$sys.path.insert(0, @bundle_root)"]
    assert [step["_target_"] for step in steps[2:4]] == [
        "scripts.errors.report_input_errors",
        "scripts.command_line.check_options",
    ]


# Components


@pytest.mark.parametrize("file", FILES)
def test_components_exist_and_take_their_arguments(file):
    reserved = {"_target_", "_disabled_", "_requires_", "_desc_", "_mode_"}
    config = parser(*stack(file))
    config.update(config.get("configs", {}))
    for path, item in targets(raw(file)):
        item = inherited(item, config)
        component = located(item["_target_"])
        assert callable(component), f"{path}: {item['_target_']} cannot be found"
        given = {key: None for key in item if key not in reserved}
        try:
            signature = inspect.signature(component)
        except ValueError:  # built in C
            continue
        if item.get("_mode_") == "callable":
            signature.bind_partial(**given)
            continue
        try:
            signature.bind(**given)
        except TypeError as error:
            pytest.fail(f"{path}: {item['_target_']}: {error}")


# Sizes


@pytest.mark.parametrize("file", ["inference.yaml", "train.yaml"])
def test_every_complete_file_has_the_shipped_network(file):
    assert raw(file)["network_def"] == raw("inference.yaml")["network_def"]
    with torch.device("meta"):
        network = parser(file).get_parsed_content("network_def")
    weights = torch.load(ROOT / "models" / "model.pt", weights_only=True)
    assert {k: v.shape for k, v in network.state_dict().items()} == {k: v.shape for k, v in weights.items()}


@pytest.mark.parametrize(("base", "size"), zip(COMPLETE, SIZES))
def test_sizes_stack_and_have_the_papers_parameters(base, size):
    config = parser(base, f"models/{size}.yaml")
    with torch.device("meta"):
        network = config.get_parsed_content("network_def")
    assert sum(p.numel() for p in network.parameters()) == SIZES[size]
    assert not network.apn.residual, "the paper's networks have no residual connection"


@pytest.mark.parametrize("size", ["tiny", "large"])
def test_a_stacked_size_replaces_the_network_whole(size):
    """MONAI replaces plain keys: nothing of the tiny network may remain."""
    assert parser("inference.yaml", f"models/{size}.yaml")["network_def"] == raw(f"models/{size}.yaml")["network_def"]


# Stacking


def test_multi_gpu_initialises_as_train_does_and_joins_the_processes_before_the_seed():
    alone, together = raw("train.yaml")["initialize"], raw("multi_gpu.yaml")["initialize"]
    assert [step for step in together if step in alone] == alone
    (joins,) = [step for step in together if step not in alone]
    assert joins == {"_target_": "scripts.train.processes.start_process_group"}


def test_the_papers_intensities_are_scaled_and_shifted_as_it_says():
    parser = ConfigParser()
    parser.read_config([str(ROOT / "configs" / file) for file in ("train.yaml", "paper/paper.yaml")])
    assert [1 + bound for bound in parser.config["scale_range"]] == pytest.approx(paper.INTENSITY_SCALE)
    assert tuple(parser.config["shift_range"]) == paper.INTENSITY_SHIFT
