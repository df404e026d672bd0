"""The method in one picture: slices, both families of planes after stage 1, weighed, after stage 2, reconciled.

python -m benchmarks.method VOLUME docs/method.png [--axis 1] [--thickness 5] [--place 0.62]

VOLUME is any sharp scan of a head, here `ds002748-31_T1w.nii.gz` (OpenNeuro ds002748, CC0). Thick slices along `--axis`
are simulated from it and rebuilt by configs/inference.yaml. A part of one plane is shown, at a share of its axis.
"""

import io
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure
from PIL import Image

from benchmarks import CKPT_PATH, deployed, parser_of, shipped_network
from scripts.pages.planes import cut, shades, window
from scripts.rebuild.inferer import DriftInferer, longer_first
from scripts.rebuild.windows import signal_box
from scripts.stack.interpolation import interpolate
from scripts.stack.slices import Slices
from scripts.train.simulation import slices_of
from scripts.train.truth import read_volume

NAMES = {0: "sagittal", 1: "coronal", 2: "axial"}  # planes, by the axis across them
ROWS, COLUMNS = (0.47, 0.97), (0.04, 0.54)  # the part of the head that is shown, as shares of its box
BRIGHT = 1.1  # of the window: white matter is not white
EDGE = 1.9  # inches of a panel
GAP = 0.42  # inches between panels, which hold an arrow


@dataclass(eq=False)
class Watched(DriftInferer):
    """The shipped inferer, which keeps the result of each of its steps."""

    def stage1(self, slices, box, others, network, guide):
        """Keeps the planes of both families."""
        self.first = super().stage1(slices, box, others, network, guide)
        return self.first

    def flow(self, head, others, slices, network):
        """Keeps the weighed head, and the one that the flow has moved."""
        self.weighed, self.moved = head.clone(), super().flow(head, others, slices, network)
        return self.moved


def steps(truth, axis, thickness, place):
    """Each step's picture: a list of columns, each of which is a list of (name, plane in [0, 1])."""
    inferer = deployed(_target_="benchmarks.method.Watched")
    slices = Slices.of(slices_of(truth, axis, thickness)).canonical  # as the inferer sees them
    axis = slices.acquisition.slice_axis
    result = inferer.rebuilt(slices, shipped_network(CKPT_PATH)).volume.as_tensor()
    nearest = interpolate(slices.array, slices.acquisition, "nearest")
    box = signal_box(interpolate(slices.filled.unit.array, slices.acquisition, "nearest"))
    others = longer_first(result[box].shape, axis)
    normal = max(others)  # the planes of one family are seen as they are, those of the other from the side
    place = round(place * result.shape[normal]) - box[normal].start

    def seen(volume, low, high):
        plane = cut(volume, normal, place)
        (top, bottom), (left, right) = ([round(s * n) for s in share] for share, n in zip((ROWS, COLUMNS), plane.shape))
        return shades(plane[top:bottom, left:right], low, low + BRIGHT * (high - low))

    scan, unit = window(result), window(inferer.weighed)
    stage1 = [p[:, 0].float().cpu().movedim((1, 2), (axis, other)) for p, other in zip(inferer.first, others)]
    names = [f"{NAMES[3 - axis - other]} planes" for other in others]
    return [
        [(f"{thickness:g} mm slices", seen(nearest[box], *scan))],
        [(f"stage 1, {name}", seen(family, *unit)) for name, family in zip(names, stage1)],
        [("both, weighed", seen(inferer.weighed, *unit))],
        [("stage 2", seen(inferer.moved, *unit))],
        [("reconciled", seen(result[box], *scan))],
    ]


def draw(columns, path):
    """Columns of panels from left to right, an arrow between them."""
    height = EDGE * columns[1][0][1].shape[0] / columns[1][0][1].shape[1]
    whole = len(columns) * EDGE + (len(columns) - 1) * GAP, 2 * height + 0.7
    figure = Figure(figsize=whole, facecolor="black")
    for place, panels in enumerate(columns):
        left = place * (EDGE + GAP) / whole[0]
        for row, (name, plane) in enumerate(panels):
            bottom = (height + 0.35) * (1 - row) if len(panels) == 2 else (height + 0.35) / 2
            panel = figure.add_axes((left, bottom / whole[1], EDGE / whole[0], height / whole[1]))
            panel.imshow(plane, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
            panel.set_title(name, color="white", fontsize=9, pad=3)
            panel.axis("off")
        if place:
            figure.text(left - GAP / 2 / whole[0], 0.47, "→", color="white", fontsize=18, ha="center", va="center")
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=110, facecolor="black")
    Image.open(drawn).convert("L").quantize(64).save(path, optimize=True)


def main():
    """Draws the picture."""
    parser = parser_of(__doc__)
    parser.add_argument("volume")
    parser.add_argument("picture", type=Path)
    parser.add_argument("--axis", type=int, default=1, choices=range(3), help="array axis of the slices, RAS+")
    parser.add_argument("--thickness", type=float, default=5.0, help="mm")
    parser.add_argument("--place", type=float, default=0.62, help="of the plane")
    options = parser.parse_args()
    draw(steps(read_volume(options.volume), options.axis, options.thickness, options.place), options.picture)


if __name__ == "__main__":
    main()
