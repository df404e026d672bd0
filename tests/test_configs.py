"""The method as data: `$` wires and does not compute, files agree with each other, with the paper and with MONAI."""

import ast
import importlib
import importlib.metadata
import inspect
import json
import pydoc
import re
import sys
import tomllib
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
import yaml
from monai.bundle import ConfigParser, ConfigWorkflow
from monai.bundle.config_item import ComponentLocator

from tests import paper_values as paper

ROOT = Path(__file__).parents[1]
CONFIGS = ROOT / "configs"
SCHEMA = Path(__file__).parent / "meta_schema_20240725.json"  # the model zoo's, which metadata.json names
FILES = sorted(str(path.relative_to(CONFIGS)) for path in CONFIGS.rglob("*.yaml"))
COMPLETE = ["inference.yaml", "train.yaml", "evaluate.yaml"]  # what people run; the others are stacked on these
SIZES = {"large": paper.PARAMETERS_LARGE, "base": paper.PARAMETERS_BASE, "small": paper.PARAMETERS_SMALL}

# Every top-level key that a file may have: MONAI passes over a misspelt one in silence.
SHARED = {"imports", "bundle_root", "dataset_dir", "output_dir", "device", "network_def", "network", "initialize"}
TRAINING = {
    *("seed", "follower", "num_workers", "patch_size", "stage1_batch_size", "stage2_batch_size", "patches_per_epoch"),
    *("stage1_epochs", "stage2_epochs", "stage1_learning_rate", "stage2_learning_rate", "average_decay", "bfloat16"),
    *(
        "val_interval",
        "checkpoint_interval",
        "label_dir",
        "ckpt_path",
        "charbonnier_epsilon",
        "ssim_weight",
        "curve_share",
        "bias_share",
        "bias_range",
        "scale_range",
        "shift_range",
    ),
    *("max_thickness", "target_range", "pixel_range", "size_range", "profiles", "spacing_ratio", "max_shift"),
    *("max_gain", "max_noise", "ceta_gap", "n_max", "size", "card"),
    *("averaged", "settings", "train", "validate", "stage", "stage1", "stage2", "training", "ship"),
}
DEPLOYED = {"speed", "bfloat16", "both_planes", "ckpt_path", "card", "weights", "inferer", "run"}
KNOWN = {
    "inference.yaml": SHARED
    | DEPLOYED
    | {"input", "slice_thickness", "target_thickness", "slice_axis", "isotropic", "flips"}
    | {"output_format", "report", "consistency", "profile", "output"}
    | {"preprocessing", "postprocessing", "scans", "dataset", "dataloader", "evaluator"},
    "train.yaml": SHARED | TRAINING,
    "evaluate.yaml": SHARED
    | DEPLOYED
    | {"thicknesses", "spacing_ratio", "axes", "noise", "seed", "profile", "slab", "consistency"}
    | {"flips", "stage1_inferer", "methods", "volumes"},
    "multi_gpu.yaml": {"device", "follower", "initialize", "finalize"},
    "paper.yaml": TRAINING,
    "mlflow.yaml": {"handlers_id", "configs"},
}
HOST_IDS = {  # that Label, Deploy, the zoo's checks or the documented commands look up
    "inference.yaml": "bundle_root device dataset_dir output_dir network_def network preprocessing inferer "
    "postprocessing dataset evaluator initialize run input slice_thickness target_thickness slice_axis ckpt_path",
    "train.yaml": "bundle_root device dataset_dir output_dir network_def network val_interval train#dataset "
    "train#dataset#data train#inferer train#handlers train#trainer train#trainer#max_epochs validate#dataset "
    "validate#handlers validate#evaluator initialize stage1 stage2 training",
    "evaluate.yaml": "bundle_root device dataset_dir output_dir network_def network inferer initialize run",
}


class UniqueKeys(yaml.SafeLoader):
    """YAML takes the last of two equal keys in silence; this loader does not."""

    def construct_mapping(self, node, deep=False):
        keys = [key.value for key, _ in node.value]
        assert len(keys) == len(set(keys)), f"a key stands twice: {sorted({k for k in keys if keys.count(k) > 1})}"
        return super().construct_mapping(node, deep)


def raw(file):
    return yaml.load((CONFIGS / file).read_text(), UniqueKeys)


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


def parser(*files, **overrides):
    result = ConfigParser()
    result.read_config([str(CONFIGS / file) if isinstance(file, str) else str(file) for file in files])
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


# Wiring


@pytest.mark.parametrize("file", FILES)
def test_expressions_wire_and_do_not_compute(file):
    problems = {path: complaint(text) for path, text in expressions(file) if complaint(text)}
    assert not problems


@pytest.mark.parametrize(
    "expression",
    [
        "lambda x: x",
        "1 if @a else 2",
        "[i for i in @a]",
        "@a + 1",
        "-@a",
        "@a > 1",
        "not @a",
        "@a and @b",
        "@a[0]",
        "@a['b']",
        "{'a': @a}",
        "f'{@a}'",
        "scripts.flow.endpoint(@a)",
        "import scripts",
    ],
)
def test_that_computing_would_be_noticed(expression):
    assert complaint(expression)


@pytest.mark.parametrize(
    "expression", ["@a", "@a#b.c(1, x=@d::e)", "import os", "os.path.join(@a, 'b')", "f([1, 'a'])"]
)
def test_that_wiring_would_pass(expression):
    assert complaint(expression) is None


@pytest.mark.parametrize("file", FILES)
def test_attributes_of_references_are_marked_by_a_dollar(file):
    """`@network.apn` without `$` is a string to MONAI, and whole: so a reference is all of its string."""
    wrong = [(path, text) for path, text in strings(file) if "@" in text and not text.startswith("$")]
    assert [item for item in wrong if not REFERENCE.fullmatch(item[1])] == []


@pytest.mark.parametrize("file", FILES)
def test_no_macros(file):
    """`%file::key` resolves against the current directory."""
    assert not [text for _, text in strings(file) if text.startswith("%")]


@pytest.mark.parametrize("file", FILES)
def test_numbers_are_numbers(file):
    """YAML 1.1 reads 1e-4 as a string, and yes, no, on, off as booleans."""
    for path, text in strings(file):
        assert not re.fullmatch(r"[-+]?\.?\d[\d_.]*([eE][-+]?\d+)?", text), f"{path} is the string {text!r}"
    assert not re.search(r":\s+(yes|no|on|off)\b", (CONFIGS / file).read_text(), re.I)


@pytest.mark.parametrize("file", FILES)
def test_top_level_keys_are_known(file):
    known = {"size", "network_def"} if file.startswith("models/") else KNOWN.get(file, KNOWN["train.yaml"])
    keys = {key for key in raw(file) if "::" not in key and "#" not in key}
    assert keys <= known, f"misspelt, or to be added to this test: {sorted(keys - known)}"


@pytest.mark.parametrize("file", COMPLETE)
def test_ids_that_hosts_look_up_stay(file):
    config = parser(file)
    assert [name for name in HOST_IDS[file].split() if name not in config] == []


def references(file):
    return [(path, name[1:]) for path, text in strings(file) for name in REFERENCE.findall(text)]


@pytest.mark.parametrize("file", FILES)
def test_references_point_to_something(file):
    config = parser(*([file] if file in COMPLETE else ["train.yaml", file]))
    config.update(config.get("configs", {}))  # of the settings of --tracking, which MONAI puts there
    assert [(path, name) for path, name in references(file) if name.replace("::", "#") not in config] == []


@pytest.mark.parametrize("file", COMPLETE)
def test_complete_files_use_all_that_they_define(file):
    """A key that nothing refers to is a setting without effect, or misspelt."""
    entry = {"imports", "initialize", "run", "training", "ship", "dataset_dir", "bundle_root", "output_dir"}
    used = {re.split("#|::", name)[0] for _, name in references(file)}
    hosts = {re.split("#", name)[0] for name in HOST_IDS[file].split()}
    assert set(raw(file)) - used - entry - hosts == set()


@pytest.mark.parametrize("file", COMPLETE)
def test_the_bundle_root_is_on_the_path_before_anything_of_scripts_is_named(file):
    steps = raw(file)["initialize"]
    assert steps[:2] == ["$import sys", "$sys.path.insert(0, @bundle_root)"]
    assert steps[2] == {"_target_": "scripts.errors.report_input_errors"}


# Components


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
        base = config[item["_target_"][1:]]
        if "_mode_" not in base:  # an object that is called
            return {**item, "_target_": f"{base['_target_']}.__call__", "self": None}
        item = {**base, **item, "_target_": base["_target_"]}
        item.pop("_mode_")
    return item


def located(name):
    module = ComponentLocator().get_component_module_name(name)
    if isinstance(module, list):
        module = module[0]
    return pydoc.locate(f"{module}.{name}" if module else name)


@pytest.mark.parametrize("file", FILES)
def test_components_exist_and_take_their_arguments(file):
    reserved = {"_target_", "_disabled_", "_requires_", "_desc_", "_mode_"}
    config = parser(*([file] if file in COMPLETE else ["train.yaml", file]))
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


@pytest.mark.parametrize("file", COMPLETE)
def test_every_complete_file_has_the_shipped_network(file):
    assert raw(file)["network_def"] == raw("models/tiny.yaml")["network_def"]


@pytest.mark.parametrize("base", COMPLETE)
@pytest.mark.parametrize("size", SIZES)
def test_sizes_stack_and_have_the_papers_parameters(base, size):
    config = parser(base, f"models/{size}.yaml")
    with torch.device("meta"):
        network = config.get_parsed_content("network_def")
    assert sum(p.numel() for p in network.parameters()) == SIZES[size]
    assert not network.apn.residual, "the paper's networks have no residual connection"
    if size == "large":
        assert sum(p.numel() for p in network.apn.parameters()) == paper.PARAMETERS_LARGE_APN
        assert sum(p.numel() for p in network.velocity.parameters()) == paper.PARAMETERS_LARGE_VELOCITY


def test_sizes_are_the_papers():
    for size, channels in (("large", paper.CHANNELS_LARGE), ("small", paper.CHANNELS_SMALL)):
        definition = raw(f"models/{size}.yaml")["network_def"]
        assert definition["apn"]["channels"] == definition["velocity"]["channels"] == list(channels)


@pytest.mark.parametrize("size", ["tiny", *SIZES])
def test_a_stacked_size_replaces_the_network_whole(size):
    """MONAI replaces plain keys: nothing of the tiny network may remain."""
    assert parser("inference.yaml", f"models/{size}.yaml")["network_def"] == raw(f"models/{size}.yaml")["network_def"]


# The paper's numbers


def kind(item):
    return item["_target_"].rsplit(".", 1)[-1]


def transform(name, config, section="train#acquisition"):
    return [t for t in config[section]["transforms"] if kind(t) == name]


def test_training_uses_the_papers_objectives():
    stacked = parser("train.yaml", "paper.yaml")
    loss = stacked.get_parsed_content("train#trainer#loss_function")
    assert loss.ssim_weight == paper.SSIM_WEIGHT and loss.epsilon < 0.01  # absolute errors
    config = parser("train.yaml")
    assert config["stage2#trainer#loss_function#delta"] == paper.HUBER_DELTA
    assert config["stage2#trainer#loss_function#ceta_weight"] == paper.CETA_WEIGHT
    assert config["stage2#trainer#prepare_batch#alpha"] == paper.ENDPOINT_ALPHA
    assert config["ceta_gap"] == paper.CETA_GAP


@pytest.mark.parametrize("page", [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))], ids=lambda page: page.name)
def test_no_documented_command_passes_none(page):
    """MONAI's runner drops options that are None, and `null` arrives as text."""
    commands = "".join(re.findall(r"```bash\n(.*?)```", page.read_text(), re.DOTALL))
    assert re.findall(r"--[\w:#]+[ =](?:None|null)\b", commands) == []


def test_training_uses_the_papers_data():
    config = parser("train.yaml")
    assert config["patch_size"] == paper.PATCH_SIZE
    assert [flip["prob"] for flip in transform("RandFlipd", config)] == [paper.FLIP_PROBABILITY] * 2
    assert sorted(flip["spatial_axis"] for flip in transform("RandFlipd", config)) == [0, 1]
    (scale,) = transform("ScaleIntensityRanged", config)
    assert (scale["a_min"], scale["a_max"]) == (0.0, 1.0)
    assert (scale["b_min"], scale["b_max"]) == paper.INTENSITY_RANGE
    assert not scale.get("clip", False), "bright voxels stay brighter than 1"


def test_pairs_share_every_augmentation():
    """Each transform after the acquisition is drawn once for image, label and proximal image."""
    transforms = parser("train.yaml")["train#acquisition#transforms"]
    place = [kind(t) for t in transforms].index("RandAcquired")
    before, after = transforms[: place + 1], transforms[place + 1 :]
    assert before and after
    assert all(t["keys"] == "label" for t in before)
    assert all(t["keys"] == ["image", "label", "proximal"] for t in after)


def test_contrasts_change_before_the_acquisition():
    """A scanner measures thick slices of an anatomy that has its contrast already; curves do not commute with that."""
    config = parser("train.yaml")
    for section, contrasts in (
        ("preprocessing", {"RandHistogramShiftd", "RandIntensityCurved"}),
        ("label_preprocessing", {"RandTissueContrastd"}),
    ):
        *transforms, last = config[f"train#{section}#transforms"]
        assert last == "@train#acquisition"
        assert transforms.pop(0) == "@train#loading"
        kinds = [kind(t) for t in transforms]
        assert contrasts <= set(kinds[kinds.index("RandPlaned") + 1 :]), "what precedes the plane is cached"


@pytest.mark.parametrize("trainer", ["train#trainer", "stage2#trainer"])
def test_training_uses_the_papers_optimiser(trainer):
    config = parser("train.yaml")
    optimizer = inherited(config[trainer]["optimizer"], config)
    assert optimizer["_target_"] == "torch.optim.AdamW"
    assert optimizer["weight_decay"] == paper.WEIGHT_DECAY
    assert tuple(optimizer.get("betas", (0.9, 0.999))) == paper.ADAMW_BETAS
    handlers = config[trainer]["train_handlers"]
    assert {"_target_": "@stage#clip"} in (config[handlers[1:]] if isinstance(handlers, str) else handlers)
    assert config["stage#clip#max_norm"] == paper.GRADIENT_CLIP


def test_paper_yaml_is_the_papers_training():
    config = parser("train.yaml", "models/large.yaml", "paper.yaml")
    assert config["stage1_batch_size"] == paper.STAGE1_BATCH
    assert config["stage2_batch_size"] == paper.STAGE2_BATCH
    assert config["stage1_epochs"] == config["stage2_epochs"] == paper.EPOCHS
    assert config["stage1_learning_rate"] == paper.STAGE1_LEARNING_RATE
    assert config["stage2_learning_rate"] == paper.STAGE2_LEARNING_RATE
    assert config["max_thickness"] == paper.MAX_THICKNESS


def test_paper_yaml_simulates_the_papers_acquisition_and_no_other_contrast():
    """What paper.yaml gives the transforms is what they take by themselves, and augmentations beyond it are off."""
    config = parser("train.yaml", "paper.yaml")
    (item,) = transform("RandAcquired", config)
    given = {key: config[value[1:]] for key, value in item.items() if str(value).startswith("@")}
    defaults = inspect.signature(located(item["_target_"])).parameters
    for key in ("profiles", "spacing_ratio", "max_shift", "max_gain", "max_noise", "ceta_gap"):
        default = defaults[key].default
        assert given[key] == (list(default) if isinstance(default, tuple) else default), key
    assert config["curve_share"] == config["bias_share"] == 0
    assert config["size_range"] == [1.0, 1.0]
    assert config["label_dir"] is None


def test_paper_yaml_names_the_options_in_which_it_is_not_the_papers():
    text = (CONFIGS / "paper.yaml").read_text()
    papers = {"data", "seed", "patch_size", "ceta_gap", "bias_range"}  # bias_range: without effect at a share of 0
    left = set(raw("train.yaml")["settings"]) - set(raw("paper.yaml")) - papers
    header = text[: text.index("\nstage1_batch_size")]
    assert left == {"target_range", "average_decay", "patches_per_epoch"}
    assert all(name in header for name in left)
    assert header.count("\n# ") >= 6 and re.findall(r"^# (\d)\. ", header, re.M) == list("123456")


def test_shares_and_ranges_are_ranges():
    config = parser("train.yaml")
    for name in ("curve_share", "bias_share", "max_gain", "max_noise", "max_shift"):
        assert 0 <= config[name] <= 1, name
    for name in ("bias_range", "target_range", "pixel_range", "size_range", "spacing_ratio"):
        low, high = config[name]
        assert low < high, name
    profile = located("scripts.slice_profile.slice_profile")
    for name in config["profiles"]:
        assert profile(name)


@pytest.mark.parametrize("file", ["inference.yaml", "evaluate.yaml"])
def test_windows_are_whole_planes_or_the_papers(file):
    config = parser(file)
    assert config.get_parsed_content("inferer").roi_size > 2 * paper.WINDOW
    assert parser(file, speed="paper").get_parsed_content("inferer").roi_size == paper.WINDOW
    assert config["inferer"]["overlap"] * paper.WINDOW == paper.WINDOW_OVERLAP


def test_evaluation_rebuilds_as_inference_does():
    """What is evaluated is what ships; stage 1 differs by its steps alone."""
    evaluated, stage1, shipped = (
        raw("evaluate.yaml")["inferer"],
        raw("evaluate.yaml")["stage1_inferer"],
        raw("inference.yaml")["inferer"],
    )
    window = {"roi_size": "@inferer::roi_size"}
    assert {**stage1, "n_max": evaluated["n_max"]} == {**evaluated, **window, "steps": 0}
    assert shipped.pop("bfloat16") == {**raw("evaluate.yaml")[evaluated.pop("bfloat16")[1:]], "given": "@bfloat16"}
    assert evaluated == {k: v for k, v in shipped.items() if k not in {"sw_batch_size", "progress"}}


def test_the_shipped_card_says_what_train_yaml_trains_for():
    card = json.loads((ROOT / "models" / "model.json").read_text())
    trained = asdict(parser("train.yaml").get_parsed_content("card"))
    for name in ("size", "target_range", "pixel_range", "max_thickness", "spacing_ratio", "n_max"):
        assert card[name] == (list(trained[name]) if isinstance(trained[name], tuple) else trained[name])


def test_the_papers_training_writes_a_card_of_the_papers_ranges():
    card = parser("train.yaml", "paper.yaml", "models/large.yaml").get_parsed_content("card")
    assert card.size == "large" and card.n_max == paper.N_MAX
    assert card.pixel_range == card.target_range and card.spacing_ratio == (1, 1)
    assert card.max_thickness == paper.MAX_THICKNESS


def test_simulated_acquisitions_are_named_alike_in_training_and_evaluation():
    assert parser("evaluate.yaml")["profile"] in parser("train.yaml")["profiles"]
    assert parser("evaluate.yaml")["profile"] == located("scripts.slice_profile.SLR")


def test_stages_differ_in_nothing_but_what_they_train():
    """All that is not said of one stage is said once, under `stage`."""
    config = parser("train.yaml")
    first, second = config["train#trainer"], config["stage2#trainer"]
    assert set(first) == set(second)
    assert first["_target_"] == second["_target_"] == "@stage#trainer"
    assert config["train#handlers"] == second["train_handlers"]
    for key in ("train_data_loader", "optimizer"):
        assert first[key]["_target_"] == second[key]["_target_"] and first[key].keys() == second[key].keys()
    assert second["prepare_batch"]["inferer"] == "@train#inferer", "the frozen APN in one precision with all"
    shipped = {"_target_": "scripts.inference.DriftInferer"}
    assert config["validate#inferer"] == {**shipped, "steps": 0}, "stage 1 alone takes no Euler step"
    assert config["stage2#evaluator#inferer"] == {**shipped, "n_max": "@n_max"}
    assert config["validate#evaluator"].keys() == config["stage2#evaluator"].keys()
    assert config["stage1"].keys() == config["stage2"].keys()


def test_every_option_that_changes_the_result_is_in_the_key_of_the_checkpoints():
    """The key has the data and what differs between stages from the trainer itself."""
    config = raw("train.yaml")
    free = {"device", "output_dir", "follower", "num_workers", "bfloat16", "val_interval", "checkpoint_interval"}
    data = {"dataset_dir", "label_dir", "ckpt_path", "bundle_root", "size", "n_max"}
    names = list(config)
    options = set(names[names.index("bundle_root") : names.index("network_def")])
    staged = {name for name in options if name.startswith(("stage1_", "stage2_"))}
    assert options - free - data - staged == set(config["settings"]) - {"data"}
    assert all(value == f"@{name}" for name, value in config["settings"].items() if name != "data")


# Versions


def pyproject():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def metadata():
    return json.loads((CONFIGS / "metadata.json").read_text())


def requirements():
    from packaging.requirements import Requirement

    return {r.name.lower(): r.specifier for r in map(Requirement, pyproject()["dependencies"])}


def test_the_bundle_has_one_version_and_its_change_is_noted():
    assert metadata()["version"] == pyproject()["version"]
    assert metadata()["version"] in metadata()["changelog"]


def stated_versions():
    named = {"monai": "monai_version", "torch": "pytorch_version", "numpy": "numpy_version"}
    return {
        **{package: metadata()[key] for package, key in named.items()},
        **metadata().get("required_packages_version", {}),
    }


@pytest.mark.parametrize("package", stated_versions())
def test_stated_versions_are_exact_and_within_what_is_installed_by_pip(package):
    version = stated_versions()[package]
    assert re.fullmatch(r"\d+(\.\d+)+", version), "the zoo installs name==version"
    assert requirements()[package.lower()].contains(version)


@pytest.mark.parametrize("package", ["monai", "torch", "numpy"])
def test_stated_versions_are_those_in_use(package):
    stated, installed = stated_versions()[package], importlib.metadata.version(package)
    assert stated.split(".")[:2] == installed.split("+")[0].split(".")[:2]


def test_every_dependency_has_a_stated_version():
    assert set(requirements()) == {name.lower() for name in stated_versions()}


def test_metadata_has_what_the_schema_requires():
    assert set(json.loads(SCHEMA.read_text())["required"]) <= set(metadata())


def test_metadata_describes_one_image_in_and_one_out():
    """Hosts make a port of each input: more than `image` and `pred` breaks them."""
    form = metadata()["network_data_format"]
    assert list(form["inputs"]) == ["image"]
    assert list(form["outputs"]) == ["pred"]
    stride = 2 ** (paper.LEVELS - 1)
    for tensor in (form["inputs"]["image"], form["outputs"]["pred"]):
        assert tensor["spatial_shape"] == [f"{stride}*n"] * 2
        assert tensor["num_channels"] == 1
        assert tuple(tensor["value_range"]) == paper.INTENSITY_RANGE


# MONAI's own checks


@pytest.fixture
def workflow(tmp_path, monkeypatch):
    """A bundle as hosts build it. `initialize` changes the interpreter, which is put back afterwards."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)

    def build(file, kind, **overrides):
        bundle = ConfigWorkflow(
            config_file=str(CONFIGS / file),
            meta_file=str(CONFIGS / "metadata.json"),
            logging_file=False,
            workflow_type=kind,
            bundle_root=str(ROOT),
            output_dir=str(tmp_path / "out"),
            **overrides,
        )
        bundle.initialize()
        return bundle

    return build


def test_training_has_the_properties_that_monai_expects(workflow, tmp_path, write_nifti, phantom):
    for k in range(16):
        write_nifti(phantom[:8, :8, :8], name=f"data/sub-{k:02}.nii.gz")
    bundle = workflow("train.yaml", "train", dataset_dir=str(tmp_path / "data"))
    assert not bundle.check_properties()


# Stacking


def test_multi_gpu_overrides_what_train_defines():
    train = parser("train.yaml")
    changes = raw("multi_gpu.yaml")
    assert changes["device"] != raw("train.yaml")["device"]
    for key in changes:
        parent, _, name = key.replace("::", "#").rpartition("#")
        if parent:
            assert parent in train, f"{key}: train.yaml has no {parent}"
        elif name != "finalize":
            assert name in train, f"train.yaml has no {name}"
    stacked = parser("train.yaml", "multi_gpu.yaml")
    assert stacked["train#trainer#network"]["network"] == train["train#trainer#network"]
    assert stacked["stage2#trainer#network"]["network"] == train["stage2#trainer#network"]
    assert stacked["train#trainer#optimizer"] == train["train#trainer#optimizer"], "the rest of the trainer stays"
    assert stacked["validate#dataloader#sampler"]["dataset"] == "@validate#dataset"
    assert "@train#weights" in stacked["train#sampler"]["weights"], "contrasts keep their shares"


def test_multi_gpu_initialises_as_train_does_and_joins_the_processes_before_the_seed():
    alone, together = raw("train.yaml")["initialize"], raw("multi_gpu.yaml")["initialize"]
    assert [step for step in together if step in alone] == alone
    (joins,) = [step for step in together if step not in alone]
    assert joins == {"_target_": "scripts.training.start_process_group"}


def test_ranks_draw_from_distinct_volumes():
    from monai.data import DistributedWeightedRandomSampler

    sampler = raw("multi_gpu.yaml")["train::sampler"]
    assert sampler["_target_"] == "DistributedWeightedRandomSampler"
    options = {key: sampler[key] for key in sampler if key not in ("_target_", "dataset", "weights")}
    options["num_samples_per_rank"] = 200
    volumes = list(range(10))
    drawn = []
    for rank in (0, 1):
        indices = DistributedWeightedRandomSampler(
            volumes, weights=torch.ones(len(volumes)), num_replicas=2, rank=rank, **options
        )
        drawn.append(set(indices))
        assert len(list(indices)) == 200
    assert drawn[0] | drawn[1] == set(volumes)
    assert not drawn[0] & drawn[1]


def test_yaml_files_have_the_ending_that_hosts_look_for():
    assert not list(CONFIGS.rglob("*.yml"))


@pytest.mark.parametrize("file", FILES)
def test_files_say_what_they_are(file):
    assert (CONFIGS / file).read_text().startswith("# ")


def test_the_papers_intensities_are_scaled_and_shifted_as_it_says():
    parser = ConfigParser()
    parser.read_config([str(ROOT / "configs" / file) for file in ("train.yaml", "paper.yaml")])
    assert [1 + bound for bound in parser.config["scale_range"]] == pytest.approx(paper.INTENSITY_SCALE)
    assert tuple(parser.config["shift_range"]) == paper.INTENSITY_SHIFT
