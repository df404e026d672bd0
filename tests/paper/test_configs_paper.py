"""The method as data: what the paper says and what is said twice stands in the configs as it should."""

import inspect
import json
from dataclasses import asdict

import pytest

from tests import paper_values as paper
from tests.config_files import ROOT, kind, located, of_stage, parser, raw


def test_training_uses_the_papers_objectives():
    stacked = parser("train.yaml", "models/large.yaml", "paper/paper.yaml")
    loss = stacked.get_parsed_content("train#trainer#loss_function").loss
    assert loss.ssim_weight == paper.SSIM_WEIGHT and loss.epsilon < 0.01  # absolute errors
    config = parser("train.yaml")
    assert of_stage(stacked, "stage2").get_parsed_content("loss").delta == paper.HUBER_DELTA
    assert stacked["ceta_weight"] == paper.CETA_WEIGHT
    assert config["alpha"] == paper.ENDPOINT_ALPHA
    assert config["ceta_gap"] == paper.CETA_GAP


def test_pairs_share_every_augmentation():
    """Each transform after the acquisition is drawn once for image, label and proximal image."""
    config = parser("train.yaml", "models/large.yaml")
    *before, last = config["train#acquisition#transforms"]
    assert config["pairs"] == "@plane_pairs"
    first, *after = config["plane_pairs#transforms"]
    assert last == "@pairs" and first == "@acquired" and kind(config["acquired"]) == "RandAcquired"
    assert before and after
    assert all("label" in t["keys"] for t in (*before, config["acquired"]))
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
        kinds = [kind(t) for t in transforms]
        assert contrasts <= set(kinds[kinds.index("RandPlaned") + 1 :]), "what precedes the plane is cached"


@pytest.mark.parametrize("stage", ["stage1", "stage2"])
def test_training_uses_the_papers_optimiser(stage):
    config = of_stage(parser("train.yaml", "models/large.yaml", "paper/paper.yaml"), stage)
    optimizer = config["optimizer"]
    assert optimizer["_target_"] == "torch.optim.AdamW"
    assert optimizer["weight_decay"] == paper.WEIGHT_DECAY
    assert tuple(optimizer.get("betas", (0.9, 0.999))) == paper.ADAMW_BETAS
    assert config.get_parsed_content("max_norm") == paper.GRADIENT_CLIP


def test_paper_yaml_is_the_papers_training():
    config = parser("train.yaml", "models/large.yaml", "paper/paper.yaml")
    assert config["stage1_batch_size"] == paper.STAGE1_BATCH
    assert config["stage2_batch_size"] == paper.STAGE2_BATCH
    assert config["stage1_epochs"] == config["stage2_epochs"] == paper.EPOCHS
    assert config["stage1_learning_rate"] == paper.STAGE1_LEARNING_RATE
    assert config["stage2_learning_rate"] == paper.STAGE2_LEARNING_RATE
    assert config["stage2_average_decay"] == config["average_decay"]
    assert (config["max_thickness"], config["patch_size"]) == (paper.MAX_THICKNESS, paper.PATCH_SIZE)


def test_paper_yaml_simulates_the_papers_acquisition_and_no_other_contrast():
    """What paper.yaml gives the transforms is what they take by themselves, and augmentations beyond it are off."""
    config = parser("train.yaml", "paper/paper.yaml")
    item = config["acquired"]
    given = {key: config[value[1:]] for key, value in item.items() if str(value).startswith("@")}
    defaults = inspect.signature(located(item["_target_"])).parameters
    for key in ("profiles", "spacing_ratio", "max_shift", "max_gain", "max_noise", "ceta_gap"):
        default = defaults[key].default
        assert given[key] == (list(default) if isinstance(default, tuple) else default), key
    assert config["curve_share"] == config["bias_share"] == config["interpolated_share"] == 0
    assert config["size_range"] == [1.0, 1.0]
    assert config["label_dir"] is None


def test_windows_are_whole_planes_or_the_papers():
    config = parser("inference.yaml")
    assert config.get_parsed_content("inferer").roi_size > 2 * paper.WINDOW
    assert config["inferer"]["overlap"] * paper.WINDOW == paper.WINDOW_OVERLAP


def test_evaluation_rebuilds_as_inference_does():
    """What is evaluated is what ships; stage 1 differs by its steps alone, and has no error maps."""
    evaluated, shipped = parser("evaluate.yaml")["inferer"], parser("inference.yaml")["inferer"]
    assert evaluated == shipped
    stage1, whole = (
        raw("evaluate.yaml")["stage1_inferer"],
        {"n_max", "sharp", "sharp_velocity", "sharp_detail", "spread", "sw_batch_size", "progress"},
    )
    own = {"roi_size": "@inferer::roi_size", "bfloat16": "@inferer::bfloat16", "steps": 0}
    assert stage1 == {**{name: value for name, value in shipped.items() if name not in whole}, **own}


def test_the_shipped_card_says_what_train_yaml_trains_for():
    card = json.loads((ROOT / "models" / "model.json").read_text())
    trained = asdict(parser("train.yaml").get_parsed_content("card"))
    for name in (
        "size",
        "n_max",
        "sharp_velocity",
        "sharp_detail",
        "target_range",
        "pixel_range",
        "max_thickness",
        "spacing_ratio",
    ):
        assert card.get(name) == (list(trained[name]) if isinstance(trained[name], tuple) else trained[name])
