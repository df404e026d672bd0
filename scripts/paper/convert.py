"""The two checkpoints of the paper's authors become one weights file of this bundle, with its card.

    python -m scripts.paper.convert drift_hcp_stage1.ckpt drift_hcp_stage2.ckpt --output models/drift_hcp.pt

The authors license their weights for academic research only. They are not part of this bundle. Neither are
the files that this command makes of them: keep these to yourself.
"""

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from monai.bundle import ConfigParser
from torch import Tensor, nn

from ..errors import InputError, few, report_input_errors
from ..files import whole_file
from ..method.weights import Card, write_card

ROOT = Path(__file__).resolve().parents[2]
HCP_VOXEL = (0.7, 0.7)  # mm; of the authors' training volumes, and their one target thickness (Sec. 4.1)
MAX_THICKNESS = 6.0  # mm (Sec. S4.3)
N_MAX = 15  # Euler steps (Sec. 3.6)
SIZES = ("small", "base", "large")  # as the authors name them, and configs/models/ too
FROZEN = "stage1."  # before stage 1's names in a stage 2 checkpoint that holds the frozen stage 1 too
RENAMES = {  # parts of this bundle's names: the authors', one after the other
    "apn.embedding.": "model.protocol_embed.",
    "velocity.embedding.": "rf_model.cond_embed.",
    "apn.unet.": "model.",
    "velocity.unet.": "rf_model.",
    ".embed_thickness.": ".protocol_embed.",
    ".embed_input.": ".tau_lr_embed.",
    ".embed_target.": ".tau_hr_embed.",
    ".embed_time.0.": ".time_mlp.1.",
    ".embed_time.2.": ".time_mlp.3.",
    ".project.": ".cond_proj.",
}


def authors_name(name: str) -> str:
    """The authors' name of one of this bundle's weights: `apn.unet.conv_in.bias` is `model.conv_in.bias`."""
    for ours, theirs in RENAMES.items():
        name = name.replace(ours, theirs)
    return name


def empty_network(size: str) -> nn.Module:
    """The `Drift` of one of `SIZES`, without memory for its weights."""
    parser = ConfigParser()
    parser.read_config(str(ROOT / "configs" / "models" / f"{size}.yaml"))
    with torch.device("meta"):
        return parser.get_parsed_content("network_def")


def read_checkpoint(path: Path) -> tuple[str, dict[str, Tensor]]:
    """Size and weights of a Lightning checkpoint of the authors; nothing in it is executed."""
    try:
        checkpoint = torch.load(path, map_location="cpu", weights_only=True)
        size, weights = checkpoint["hyper_parameters"]["model_config"], dict(checkpoint["state_dict"])
    except Exception as error:  # torch raises many types for a broken file
        raise InputError(
            f"{path} is no checkpoint of the authors: it cannot be read, or holds more or less than their tensors and "
            "plain values. Download their file again."
        ) from error
    if size not in SIZES:
        raise InputError(f"{path} is of size {size!r}: expected one of {', '.join(SIZES)}. Other sizes are not known.")
    return size, {str(name): value for name, value in weights.items()}


def convert(stage1: Path, stage2: Path) -> tuple[str, dict[str, Tensor]]:
    """The authors' checkpoints of both stages as the size and the state of a `Drift`, in float32.

    A stage 1 inside the stage 2 file must equal `stage1`.
    """
    (size, first), (other, second) = read_checkpoint(stage1), read_checkpoint(stage2)
    if size != other:
        raise InputError(f"{stage1} is of size {size}, {stage2} of size {other}. Give two files of one size.")
    ours = empty_network(size).state_dict()
    expected = {authors_name(name): value.shape for name, value in ours.items()}
    found = {name: value for name, value in {**first, **second}.items() if not name.startswith(FROZEN)}
    wrong = [name for name in expected if getattr(found.get(name), "shape", None) != expected[name]]
    if wrong := [*wrong, *(name for name in found if name not in expected)]:
        raise InputError(
            f"{stage1} and {stage2} are not stage 1 and stage 2 of size {size}: {few(wrong)} missing, unexpected or of "
            "another shape. Give the authors' stage 1 first, then their stage 2."
        )
    for name in (name for name in second if name.startswith(FROZEN)):
        value = first.get(name.removeprefix(FROZEN))
        if value is None or not torch.equal(second[name], value):
            raise InputError(
                f"{stage2} was trained on another stage 1 than {stage1}. Give two files that belong together."
            )
    return size, {name: found[authors_name(name)].float() for name in ours}


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="Converts the checkpoints of the paper's authors for this bundle.")
    parser.add_argument("stage1", type=Path, help="their checkpoint of stage 1, such as drift_hcp_stage1.ckpt")
    parser.add_argument("stage2", type=Path, help="their checkpoint of stage 2, such as drift_hcp_stage2.ckpt")
    parser.add_argument("--output", type=Path, required=True, help="weights to write, such as models/drift_hcp.pt")
    given = parser.parse_args(arguments)
    if given.output.suffix != ".pt":  # a checkpoint's is .ckpt; the card gets the same name in .json
        raise InputError(f"--output is {given.output}: expected a name in .pt. Set another one.")
    size, weights = convert(given.stage1, given.stage2)
    try:
        with whole_file(given.output) as partial:
            torch.save(weights, partial)
        write_card(given.output, Card("the authors'", size, HCP_VOXEL, HCP_VOXEL, MAX_THICKNESS, (1.0, 1.0), N_MAX))
    except (OSError, RuntimeError) as error:  # torch raises RuntimeError on a full disk
        raise InputError(f"{given.output} cannot be written ({type(error).__name__}). Set another --output.") from error
    written = shlex.quote(os.path.relpath(given.output.resolve(), ROOT))
    sys.stdout.write(
        f"Wrote {given.output}, size {size}. For academic research only, by the authors' licence: do not pass it on.\n"
        "In the bundle's folder:\n"
        f"python -m monai.bundle run --config_file \"['configs/inference.yaml','configs/models/{size}.yaml']\" \\\n"
        f"  --ckpt_path {written} --input scan.nii.gz --output_dir out\n"
    )


if __name__ == "__main__":
    report_input_errors()
    main()
