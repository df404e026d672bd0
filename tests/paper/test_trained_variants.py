"""How long the variants of experiments are trained, how often, and on how many voxels."""

import pytest

from scripts.paper.trained_variants import stages_to
from tests.config_files import parser, raw


@pytest.fixture
def sharp(write_nifti, phantom):
    """A folder with the sharp volumes of two people."""
    for k in range(2):
        path = write_nifti(phantom, name=f"data/sub-{k}_T1w.nii.gz")
    return str(path.parent)


def test_a_variant_may_have_seeds_of_its_own_and_an_experiment_changes_of_variants(sharp):
    trained = parser("paper/reproduce.yaml", dataset_dir=sharp, seed=4).get_parsed_content("trained")()
    variants = {"thrice": {"seeds": 3}, "once": {"length": 2}, "shipped": {"shipped": True, "seeds": 3}}
    listed = trained.variants({"variants": variants, "changes": {"thrice": {"length": 0.5}}})
    told = [(name, seed, stage and stage.length) for name, _, seed, stage in listed]
    assert told == [("thrice", 4, 0.5), ("thrice", 5, 0.5), ("thrice", 6, 0.5), ("once", 4, 2.0), ("shipped", 4, None)]
    trained.seeds = 2
    assert [name for name, *_ in trained.variants({"variants": variants})] == [
        *["thrice"] * 2,
        *["once"] * 2,
        "shipped",
    ]


@pytest.mark.parametrize(("budget", "epochs", "epoch"), [(8, 1, 8), (100, 1, 96), (479, 1, 472), (480, 2, 240)])
def test_a_training_sees_its_budget_but_for_less_than_a_batch_an_epoch(sharp, budget, epochs, epoch):
    trained = parser("paper/reproduce.yaml", dataset_dir=sharp, budget=budget).get_parsed_content("trained")()
    stage = trained.config_of(trained.last_stage({"stage1_length": 1}, 0))
    assert (stage["stage2_epochs"], stage["patches_per_epoch"]) == (epochs, epoch)


def test_a_variant_may_have_the_network_that_ships(sharp):
    trained = parser("paper/reproduce.yaml", dataset_dir=sharp, budget=960).get_parsed_content("trained")()
    content = {"size": "slices", "stage1_length": 2, "length": 1, "seeds": 2}
    stages = stages_to(trained.last_stage(content, 1))
    assert [stage.run_id for stage in stages] == ["stage1", "stage2"]
    assert [stage.settings["seed"] for stage in stages] == [1, 1], "a stage 1 of each seed"
    configs = list(map(trained.config_of, stages))
    assert [config["network_def"] for config in configs] == [raw("train.yaml")["network_def"]] * 2
    assert [configs[k][f"{stage.run_id}_epochs"] for k, stage in enumerate(stages)] == [4, 2]
    (start, *_) = stages_to(trained.last_stage({}, 1))
    assert start.settings["seed"] == 0, "one stage 1 of all"
    assert trained.config_of(start)["network_def"] == raw("models/tiny.yaml")["network_def"]
