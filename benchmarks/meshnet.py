"""A segmenter for `--segmenter` of configs/evaluate.yaml: a MeshNet of brainchop, from its published files.

python -m benchmarks.meshnet FOLDER IMAGE LABELS

FOLDER holds the network, model.json and model.bin. IMAGE and LABELS are NIfTI files; the labels are on a grid of 1 mm,
whose axes point left, inferior and anterior. Another network of the kind serves as well.
"""

import json
from pathlib import Path

import nibabel as nib
import numpy as np
import torch
from nibabel.processing import conform
from torch import nn

from benchmarks import parser_of

LIGHTEST, DARKEST = 99.5, 0.5  # percentiles that become 1 and 0


def network(folder):
    """Convolutions with exponential units between them, their parameters in the order of the file."""
    described = json.loads((folder / "model.json").read_text())
    settings = [layer["config"] for layer in described["modelTopology"]["model_config"]["config"]["layers"]]
    convolutions = [s for s in settings if "kernel_size" in s]
    values = torch.from_numpy(np.fromfile(folder / "model.bin", "<f4"))
    layers, channels = [], 1
    for s in convolutions:
        layer = nn.Conv3d(channels, s["filters"], s["kernel_size"], dilation=s["dilation_rate"], padding="same")
        count = layer.weight.numel()
        kernel, bias, values = values[:count], values[count : count + s["filters"]], values[count + s["filters"] :]
        kernel = kernel.reshape(*s["kernel_size"], channels, s["filters"]).permute(4, 3, 0, 1, 2)
        layer.load_state_dict({"weight": kernel, "bias": bias})
        layers += [layer, nn.ELU(inplace=True)]
        channels = s["filters"]
    if len(values):
        raise ValueError(f"{folder / 'model.bin'} holds {len(values)} values too many for model.json.")
    return nn.Sequential(*layers[:-1]).eval()


def main():
    """Writes the labels."""
    parser = parser_of(__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("image", type=Path)
    parser.add_argument("labels", type=Path)
    options = parser.parse_args()
    image = nib.as_closest_canonical(nib.load(options.image))
    x, y, z = (int(np.ceil(n * edge)) for n, edge in zip(image.shape, image.header.get_zooms()))
    image = conform(image, (x, z, y), (1.0, 1.0, 1.0), order=1, orientation="LIA")
    values = image.get_fdata(dtype=np.float32)
    low, high = np.percentile(values, (DARKEST, LIGHTEST))
    scaled = torch.from_numpy(((values - low) / (high - low)).clip(0, 1)).float()
    with torch.inference_mode():
        labels = network(options.folder)(scaled[None, None])[0].argmax(0)
    nib.save(nib.Nifti1Image(labels.numpy().astype(np.uint8), image.affine), options.labels)


if __name__ == "__main__":
    main()
