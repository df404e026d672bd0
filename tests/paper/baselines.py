"""Each baseline so small that tests can run it: its YAML stacked on the deployed ones, with a tiny network."""

import sys
from pathlib import Path

import yaml
from monai.bundle import ConfigWorkflow

ROOT = Path(__file__).parents[2]
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
    tiny = folder / f"{name}.yaml"
    tiny.parent.mkdir(parents=True, exist_ok=True)
    tiny.write_text(yaml.safe_dump({**TINY[name], **(TRAINED if base == "train" else {})}))
    result = ConfigWorkflow(
        config_file=[
            *([str(ROOT / "configs" / "inference.yaml")] if base == "evaluate" else []),
            str(ROOT / "configs" / f"{base}.yaml"),
            *([str(ROOT / "configs" / "models" / "tiny.yaml")] if base == "train" else []),
            str(ROOT / "configs/paper/baselines" / f"{name}.yaml"),
            str(tiny),
        ],
        meta_file=str(ROOT / "configs" / "metadata.json"),
        logging_file=False,
        run_id=run_id,
        bundle_root=str(ROOT),
        device="$torch.device('cpu')",
        bfloat16=False,
        **overrides,
    )
    path, hook = list(sys.path), sys.excepthook
    result.initialize()
    sys.path[:], sys.excepthook = path, hook  # initialize changes the interpreter
    return result


def train(name, output_dir, dataset_dir, **overrides):
    """Trains it; returns the workflow."""
    given = {"dataset_dir": str(dataset_dir), "output_dir": str(output_dir), **overrides}
    result = workflow("train", name, output_dir.parent / "tiny", "training", **given)
    result.run()
    return result
