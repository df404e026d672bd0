"""A real examination, nothing simulated: pairs of measured slices make one, and the result must foretell them.

python -m benchmarks.examination SCAN GUIDE [--ckpt_path WEIGHTS] [--picture FILE]

Two neighbouring slices are averaged into one of twice the thickness. It is rebuilt without and with the guide, and seen
again as slices of the measured thickness. Their distance from the measured slices is printed as PSNR in the head.
"""

import math

import numpy as np
import torch

from benchmarks import CKPT_PATH, parser_of, shipped_config
from scripts.evaluate.with_truth import draw_comparison
from scripts.stack.acquisition import Acquisition
from scripts.stack.intensity import data_range
from scripts.stack.interpolation import interpolate
from scripts.stack.profile import acquire
from scripts.stack.slices import Slices
from scripts.stack.tissue import head_mask

SHOWN = (0.5, 99.9)  # percentiles in the head that are black and white: a lesion keeps its shades


def halved(measured):
    """An even number of slices `(X, Y, Z)`, and the means of each two of them."""
    a, axis = measured.acquisition, measured.acquisition.slice_axis
    count, affine = a.slice_count // 2, measured.affine.clone()
    kept = measured.array.narrow(axis, 0, 2 * count)
    affine[:3, 3] += affine[:3, axis] / 2
    affine[:3, axis] *= 2
    coarse = Acquisition.stack(
        axis, count, spacing=2 * a.slice_spacing, thickness=2 * a.slice_spacing, target=a.target_spacing
    )
    return kept, Slices(kept.unflatten(axis, (count, 2)).mean(axis + 1), coarse, affine)


def main():
    """Prints one line for each way."""
    parser = parser_of(__doc__)
    parser.add_argument("scan")
    parser.add_argument("guide")
    parser.add_argument("--ckpt_path", default=CKPT_PATH)
    parser.add_argument("--picture", help="the guide, the slices and each result side by side")
    options = parser.parse_args()
    overrides = {"ckpt_path": options.ckpt_path, "inferer::progress": False}
    rebuilder = shipped_config(**overrides).get_parsed_content("rebuilder")
    measured = rebuilder.measure(options.scan)
    slices, thick = halved(measured)
    coarse = thick.acquisition
    half = coarse.slice_spacing / 2
    fine = Acquisition.stack(
        coarse.slice_axis, 2 * coarse.slice_count, spacing=half, thickness=half, target=coarse.target_spacing
    )
    head = head_mask(slices)

    def tell(name, volume):
        foretold = acquire(torch.as_tensor(volume), fine)
        error = (foretold - slices)[head].square().mean().item()
        shown[name] = torch.as_tensor(volume)
        print(f"{name}: {20 * math.log10(data_range(slices) / error**0.5):.2f} dB", flush=True)

    shown = {"slices": interpolate(thick.array, coarse, "nearest")}
    tell("cubic spline", interpolate(thick.array, coarse, "cubic"))
    tell("DRIFT", rebuilder(thick).volume)
    placed = rebuilder.place(rebuilder.read_guide(options.guide), thick)
    placed.check(thick)
    print(f"registered: {placed.degrees:.1f} degrees, {placed.millimetres:.1f} mm, likeness {placed.likeness:.2f}")
    tell("DRIFT, guided", rebuilder(thick, placed).volume)
    if options.picture is not None:
        guide, head = placed.volume.as_tensor()[0].nan_to_num(-1.0), head_mask(shown["DRIFT, guided"])
        ends, window = (np.percentile(volume[head], SHOWN) for volume in (guide, shown["DRIFT, guided"]))
        beside = np.interp(guide, ends, window, left=window[0])  # the guide has a window of its own
        beside[~head] = 0
        draw_comparison({"guide": torch.from_numpy(beside), **shown}, coarse.slice_axis, options.picture, tuple(window))


if __name__ == "__main__":
    main()
