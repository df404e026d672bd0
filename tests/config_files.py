"""The files of `configs/`, read for the tests: raw, stacked, and their components."""

import ast
import copy
import functools
import pydoc
import re
from pathlib import Path

import yaml
from monai.bundle import ConfigParser
from monai.bundle.config_item import ComponentLocator

from scripts.train.stages import config_of
from tests import paper_values as paper

ROOT = Path(__file__).parents[1]
CONFIGS = ROOT / "configs"
SCHEMA = Path(__file__).parent / "meta_schema_20240725.json"  # the model zoo's, which metadata.json names
FILES = sorted(str(path.relative_to(CONFIGS)) for path in CONFIGS.rglob("*.yaml"))
COMPLETE = ["inference.yaml", "train.yaml", "evaluate.yaml"]  # what people run; the others are stacked on these
BASELINES = [file for file in FILES if file.startswith("paper/baselines/")]
LOCATOR = ComponentLocator()  # it looks through all modules of MONAI once
ON_PLANES = yaml.safe_load((CONFIGS / "models" / "tiny.yaml").read_text())  # a training of the paper's kind
SIZES = {"large": paper.PARAMETERS_LARGE, "base": paper.PARAMETERS_BASE, "small": paper.PARAMETERS_SMALL}

HOST_IDS = {  # that Label, Deploy, the zoo's checks or the documented commands look up
    "inference.yaml": "bundle_root device dataset_dir output_dir network_def network preprocessing inferer "
    "postprocessing dataset evaluator initialize run input slice_thickness target_thickness slice_axis ckpt_path",
    "train.yaml": "bundle_root device dataset_dir output_dir network_def network val_interval train#dataset "
    "train#dataset#data train#inferer train#dataloader train#handlers train#key_metric train#trainer "
    "train#trainer#max_epochs validate#dataset validate#dataloader validate#handlers validate#key_metric "
    "validate#evaluator loss optimizer lr_scheduler initialize run training stage1 stage2",
    "evaluate.yaml": "bundle_root device dataset_dir output_dir network_def network inferer initialize run",
}
ERROR = {"_target_": "scripts.method.error_pattern.ErrorPatternNetwork"}


def of_stage(config, stage):
    """The config of a stage of training."""
    return config if stage == "stage1" else config_of(config, stage)


def on_planes(*channels, error=None):
    """`network_def` of the paper's kind, which the fixtures' weights have."""
    kind = "scripts.method.networks."
    apn = {"_target_": kind + "AnatomicalProjectionNetwork", "channels": list(channels), "residual": True}
    velocity = {"_target_": kind + "VelocityNetwork", "channels": list(channels), "width": 8}
    return {"_target_": kind + "Drift", "apn": apn, "velocity": velocity, "error": error}


def on_slices(channels, fine_channels, velocity, **others):
    """`network_def` of the kind that ships, on the measured slices; `others` are of the velocity."""
    kind = "scripts.method."
    apn = {"_target_": kind + "slice_projection.SliceProjectionNetwork", "channels": channels, "blocks": [1, 1]}
    apn |= {"fine_channels": fine_channels, "guide_channels": 4}
    flow = {"_target_": kind + "networks.VelocityNetwork", "channels": velocity, "width": 8, **others}
    return {"_target_": kind + "networks.Drift", "apn": apn, "velocity": flow}


class UniqueKeys(yaml.SafeLoader):
    """YAML takes the last of two equal keys in silence; this loader does not."""

    def construct_mapping(self, node, deep=False):
        keys = [key.value for key, _ in node.value]
        assert len(keys) == len(set(keys)), f"a key stands twice: {sorted({k for k in keys if keys.count(k) > 1})}"
        return super().construct_mapping(node, deep)


@functools.cache
def _parsed(file):
    return yaml.load((CONFIGS / file).read_text(), UniqueKeys)


def raw(file):
    return copy.deepcopy(_parsed(file))


def stack(file):
    """A file on what it changes."""
    evaluates = [f"paper/{name}.yaml" for name in ("difficulty", "guided", "image_quality", "several")]
    below = "evaluate.yaml" if file in evaluates else "train.yaml"
    if file in BASELINES:  # on either one
        return [below, "inference.yaml", "evaluate.yaml", file]
    return [file] if file in COMPLETE else [below, file]


def leaves(item, path=""):
    """(id, value) of everything that is neither mapping nor list."""
    if isinstance(item, dict | list):
        pairs = item.items() if isinstance(item, dict) else enumerate(item)
        for key, value in pairs:
            yield from leaves(value, f"{path}#{key}" if path else str(key))
    else:
        yield path, item


def strings(file):
    return [(path, value) for path, value in leaves(raw(file)) if isinstance(value, str)]


def expressions(file):
    return [(path, value[1:]) for path, value in strings(file) if value.startswith("$")]


def _stacked(files):
    return ConfigParser.load_config_files([str(CONFIGS / file) for file in files])


_stacked_once = functools.cache(_stacked)  # MONAI takes 0.1 s to parse a file


def parser(*files, **overrides):
    """Files, by their names in `configs/` or by paths, as `monai.bundle run` stacks them."""
    if files[0] == "evaluate.yaml":
        files = ("inference.yaml", *files)
    own = all(isinstance(file, str) for file in files)
    result = ConfigParser()
    result.locator = LOCATOR
    result.read_config(copy.deepcopy(_stacked_once(files) if own else _stacked(files)))
    result.read_meta(str(CONFIGS / "metadata.json"))
    result.update({"bundle_root": str(ROOT), **overrides})
    return result


REFERENCE = re.compile(r"@(?:\w|::|#)+")
WIRING = (
    *(ast.Module, ast.Expr, ast.Import, ast.alias, ast.Load, ast.Name, ast.Attribute, ast.Call, ast.keyword),
    *(ast.Constant, ast.List, ast.Tuple),
)


def complaint(expression):
    """Why a `$` expression is more than wiring; None if it is not."""
    tree = ast.parse(REFERENCE.sub("reference", expression))
    if len(tree.body) != 1:
        return "expected one statement"
    for node in ast.walk(tree):
        if not isinstance(node, WIRING):
            return f"{type(node).__name__} computes: give it a name in scripts/"
    if re.search(r"\bscripts\b", expression):
        return "scripts in a $ string: hosts evaluate these without it; use _target_"
    return None


def references(file):
    return [(path, name[1:]) for path, text in strings(file) for name in REFERENCE.findall(text)]


def targets(item, path=""):
    if isinstance(item, dict):
        if "_target_" in item:
            yield path, item
        for key, value in item.items():
            yield from targets(value, f"{path}#{key}" if path else str(key))
    elif isinstance(item, list):
        for index, value in enumerate(item):
            yield from targets(value, f"{path}#{index}")


def inherited(item, config):
    """A component whose `_target_` is a reference is that one, with more arguments."""
    while item["_target_"].startswith("@"):
        base, mode = config[item["_target_"][1:]], item.get("_mode_")
        if "_mode_" not in base:  # an object that is called
            return {**item, "_target_": f"{base['_target_']}.__call__", "self": None}
        item = {**base, **item, "_target_": base["_target_"], "_mode_": mode}
    return item


def located(name):
    module = LOCATOR.get_component_module_name(name)
    if isinstance(module, list):
        module = module[0]
    return pydoc.locate(f"{module}.{name}" if module else name)


def kind(item):
    return item["_target_"].rsplit(".", 1)[-1]


def transform(name, config, section):
    return [t for t in config[section]["transforms"] if isinstance(t, dict) and kind(t) == name]
