"""How much of lesions' contrast lies in detail that slices of 3 and 5 mm measure: a paragraph of docs/benchmarks.md.

python -m benchmarks.lesions DATALIST

Each held-out volume with a mask of lesions loses all detail above half of the slices' frequency, along each sharp axis
in turn. No slice profile and no network has a part in it.
"""

import torch

from benchmarks import parser_of
from scripts.evaluate.metrics import lesion_contrast_kept
from scripts.evaluate.paired import SMALL_LESION, read_lesion_sizes
from scripts.evaluate.tables import markdown
from scripts.stack.grid import voxel_spacing
from scripts.train.datasets import sharp_volumes
from scripts.train.truth import read_volume

THICKNESSES = (3.0, 5.0)  # mm


def without_finer_detail(volume, axis, spacing, thickness):
    """A volume `(X, Y, Z)` without frequencies above `1 / (2 thickness)` along an axis."""
    moved = volume.movedim(axis, -1)
    spectrum = torch.fft.rfft(moved)
    spectrum[..., torch.fft.rfftfreq(moved.shape[-1], spacing) > 1 / (2 * thickness)] = 0
    return torch.fft.irfft(spectrum, n=moved.shape[-1]).movedim(-1, axis)


def main():
    """Prints the table."""
    parser = parser_of(__doc__)
    parser.add_argument("datalist")
    options = parser.parse_args()
    columns = {"volume": [], "axis": [], "T (mm)": [], "lesions": [], "small lesions": []}
    for item in sharp_volumes(options.datalist, "validation"):
        truth = read_volume(item["label"])
        known = read_lesion_sizes(item, truth)
        if known is None:
            continue
        volume, sizes = truth.as_tensor()[0].double(), known.as_tensor()[0]
        for axis in item["sharp_axes"]:
            for thickness in THICKNESSES:
                seen = without_finer_detail(volume, axis, voxel_spacing(truth.affine)[axis], thickness)
                kept = [lesion_contrast_kept(seen, volume, sizes, *below) for below in ((), (SMALL_LESION,))]
                name = f"{item['subject']} {item['contrast']}"
                for column, value in zip(
                    columns.values(), (name, str(axis), f"{thickness:g}", *(f"{k:.2f}" for k in kept))
                ):
                    column.append(value)
    print(markdown(columns))


if __name__ == "__main__":
    main()
