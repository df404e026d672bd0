"""Laws of recipes: all that a result depends on is in there, and nothing else."""

import os

import pytest
from monai.bundle import ConfigParser

from scripts.train.recipe import data_digest, differences, options_of, parser_at_work, recipe
from tests.config_files import of_stage, parser, raw

STAGES = ("stage1", "stage2")


def recipe_of(config, stage):
    return recipe(of_stage(config, stage), "train::trainer")


def changed(stage, **values):
    """What another value changes in the recipe of a stage of `configs/train.yaml`."""
    return differences(recipe_of(parser("train.yaml"), stage), recipe_of(parser("train.yaml", **values), stage))


@pytest.mark.parametrize(
    ("values", "stages"),
    [
        ({"seed": 1}, {"stage1", "stage2"}),
        ({"num_workers": 4}, {"stage1", "stage2"}),
        ({"network_def::apn::fine_channels": 8}, {"stage1", "stage2"}),
        ({"max_norm": 2.0}, {"stage1"}),
        ({"stage2_max_norm": 2.0}, {"stage2"}),
        ({"stage2_times": 3}, {"stage2"}),
        ({"train::preprocessing::transforms::4::prob": 0.7}, {"stage1", "stage2"}),
        ({"_meta_": {"version": "0.0.1"}}, {"stage1", "stage2"}),
        ({"max_thickness": 6.0}, {"stage1", "stage2"}),
        ({"stage1_learning_rate": 0.5}, {"stage1"}),
        ({"ssim_weight": 0.5}, {"stage1"}),
        ({"alpha": 1.0}, {"stage2"}),
        ({"stage2_epochs": 1}, {"stage2"}),
        ({"label_dir": "maps", "dataset_dir": "data", "ckpt_path": "start.pt", "output_dir": "out"}, set()),
        ({"device": "cuda", "val_interval": 1, "checkpoint_interval": 1}, set()),
        ({"tracking": [{"_target_": "MLFlowHandler"}], "stages::stage2::start": "elsewhere/stage1.pt"}, set()),
    ],
)
def test_a_value_is_in_the_recipes_of_the_stages_that_depend_on_it(values, stages):
    assert {name for name in STAGES if changed(name, **values)} == stages


def test_every_option_is_in_a_recipe_but_for_places_machine_and_intervals():
    names = list(raw("train.yaml"))
    options = set(names[names.index("bundle_root") : names.index("network_def")])
    roots = {place.split("::")[0] for name in STAGES for place in recipe_of(parser("train.yaml"), name)}
    free = {"patch_size", "shift_range"}  # of networks on planes
    free |= {"bundle_root", "dataset_dir", "label_dir", "output_dir", "ckpt_path", "stage2_start", "device", "tracking"}
    assert options - roots == free | {"val_interval", "checkpoint_interval"}


def test_where_weights_lie_is_in_no_recipe():
    here, there = (parser("train.yaml", "error_map.yaml") for _ in range(2))
    for name in ("ckpt_path", "stage2_start", "error_start", "shipped"):
        here[name], there[name] = "models/model.pt", "/data/models/model.pt"
    for stage in STAGES:
        assert recipe_of(here, stage) == recipe_of(there, stage), stage


def test_what_a_recipe_holds_can_be_kept_in_a_file():
    config = parser("train.yaml")
    config["train::stage::extra"] = object()
    values = recipe(config, "stage1")
    assert values.pop("train::stage::extra") == "builtins.object"
    assert all(value in (None, {}, []) or isinstance(value, str | int | float) for value in values.values())


def test_of_many_differences_the_first_are_named_and_the_others_counted():
    old, new = ({f"value{k}": k + shift for k in range(9)} for shift in (0, 1))
    assert differences(old, old) == ""
    assert differences(old, new).endswith("value2 was 2, is 3; and 6 more")
    assert differences(old, {**old, "new": None}) == "new was absent, is None"


def test_a_component_finds_the_parser_that_makes_it():
    content = {"seed": 3, "about": {"_target_": f"{__name__}.known"}}
    assert ConfigParser(content).get_parsed_content("about")["seed"] == 3
    with pytest.raises(RuntimeError, match="ConfigParser"):
        parser_at_work()


def known():
    return parser_at_work()


def test_options_are_told_from_parts_and_references():
    assert options_of({"seed": 3, "stage::seed": "@seed", "network": "$f()", "name": "@seed"}) == {"seed": 3}


def test_data_are_told_apart_by_what_their_files_hold_and_by_what_is_said_of_them(tmp_path):
    path, copied = tmp_path / "a.nii", tmp_path / "moved" / "b.nii"
    path.write_bytes(b"1234")
    copied.parent.mkdir()
    copied.write_bytes(b"1234")
    os.utime(copied, (1, 1))
    item = {"label": str(path), "sharp_axes": (0, 1, 2), "lesions": str(path)}
    first = data_digest([item], [])
    assert data_digest([{**item, "label": str(copied), "lesions": str(copied)}], []) == first, "the same data elsewhere"
    assert data_digest([{**item, "sharp_axes": (0, 1)}], []) != first
    assert data_digest([], [item]) != first
    assert data_digest([item, item], []) != first
    copied.write_bytes(b"1243")
    os.utime(copied, (path.stat().st_atime, path.stat().st_mtime))
    changed = data_digest([{**item, "label": str(copied)}], [])
    assert changed != first and changed != data_digest([{**item, "lesions": str(copied)}], [])
