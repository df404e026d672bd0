"""How long the variants of experiments are trained, how often, and on how many voxels."""

import pytest

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


def voxels(config):
    """Sharp ones that the loss of a baseline sees in a patch."""
    drawn = {} if config["pairs"] == "@plane_pairs" else config["pairs"]["draw"]
    if "targets" in drawn:
        return drawn["targets"] * drawn["width"] * config["planes"]
    return drawn["queries"] if drawn else config["patch_size"] ** 2


def test_equal_numbers_of_voxels_are_equal():
    content = raw("paper/reproduce.yaml")
    spec, changes = content["experiments"]["baselines_voxels"], content["experiments"]["baselines_voxels"]["changes"]
    rivals = {name: variant for name, variant in spec["variants"].items() if variant.get("baseline")}
    assert rivals
    epoch, alone = raw("models/tiny.yaml")["patches_per_epoch"], changes["DRIFT, stage 1"]["stage1_length"]
    assert sum(changes["DRIFT"].values()) == alone
    for name, variant in rivals.items():
        assert content["budget"] * changes[name]["length"] % epoch == 0, "patches beyond whole epochs are not seen"
        seen = changes[name]["length"] * voxels(parser("train.yaml", "models/tiny.yaml", *variant["files"]))
        assert seen == pytest.approx(alone * content["training"]["patch_size"] ** 2, rel=0.05), name


def test_a_long_training_is_four_times_as_long():
    content = raw("paper/reproduce.yaml")
    spec = content["experiments"]["baselines_long"]
    for name, variant in spec["variants"].items():
        lengths = {key: value for key, value in variant.items() if key.endswith("length")}
        longer = {key: value for key, value in spec["changes"].get(name, {}).items() if key.endswith("length")}
        assert longer == {key: 4 * value for key, value in lengths.items()}, name
    assert len(spec["variants"]) == len(spec["changes"]) + 1, "the shipped weights alone are not trained"
