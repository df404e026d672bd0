"""Each baseline so small that tests can run it: its YAML stacked on the deployed ones, with a tiny network."""

from tests.nano import initialised, write_yaml

TRAINED = {  # as tests.nano
    "num_workers": 0,
    "patches_per_epoch": 8,
    "stage1_epochs": 2,
    "val_interval": 1000,
    "checkpoint_interval": 1,
    "average_decay": 0.9,
}
TINY = {  # name of the YAML -> what makes its network and its batches tiny
    "swinir": {
        "network_def::channels": 8,
        "network_def::depths": [2],
        "network_def::heads": 2,
        "patch_size": 32,
        "stage1_learning_rate": 5.0e-3,
    },
    **{
        name: {
            "network_def::features": 8,
            "network_def::blocks": 2,
            "network_def::hidden": 16,
            "patch_size": [8, 12],
            "pairs::draw::queries": 256,
            "stage1_learning_rate": 5.0e-3,
        }
        for name in ("liif", "lte", "arssr", "sainr")
    },
    "resshift": {
        "network_def::unet::channels": [8, 16],
        "network_def::unet::num_res_blocks": 1,
        "network_def::unet::attention_levels": [False, True],
        "network_def::unet::norm_num_groups": 4,
        "network_def::unet::num_head_channels": 8,
        "network_def::steps": 4,
        "patch_size": 16,
        "stage1_learning_rate": 5.0e-3,
    },
    "tpdm": {
        **{
            f"network_def::{prior}::{name}": value
            for prior in ("primary", "auxiliary")
            for name, value in {
                "channels": [8, 16],
                "num_res_blocks": 1,
                "attention_levels": [False, False],
                "norm_num_groups": 4,
            }.items()
        },
        "inferer::steps": 4,
        "patch_size": 16,
        "stage1_learning_rate": 5.0e-3,
    },
    "saint": {
        "network_def::features": 8,
        "network_def::trunk": [1, 2, 4],
        "network_def::fusion": [1, 2, 4],
        "planes": 8,
        "pairs::draw::width": 8,
        "stage1_learning_rate": 5.0e-3,
    },
    "afcm": {
        "network_def::generator::channels": [4, 8],
        "network_def::generator::latent": 8,
        "network_def::generator::image_code": 8,
        "network_def::discriminator::channels": 4,
        "network_def::discriminator::num_layers_d": 1,
        "planes": 16,
        "pairs::draw::width": 16,
        "stage1_batch_size": 2,
        "stage1_learning_rate": 3.0e-2,
    },
}
for name in ("arssr", "sainr"):
    TINY[name]["planes"] = 6
TINY["arssr"] |= {"network_def::layers": 2, "network_def::out_features": 8}


def workflow(base, name, folder, run_id="run", **overrides):
    """`configs/BASE.yaml` with the YAML of a baseline and tiny settings, initialised."""
    folder.mkdir(parents=True, exist_ok=True)
    tiny = write_yaml(folder / f"{name}.yaml", {**TINY[name], **(TRAINED if base == "train" else {})})
    below = {"train": ["train.yaml", "models/tiny.yaml"], "evaluate": ["inference.yaml", "evaluate.yaml"]}
    files = [*below.get(base, [f"{base}.yaml"]), f"paper/baselines/{name}.yaml", tiny]
    return initialised(files, run_id, device="$torch.device('cpu')", bfloat16=False, **overrides)
