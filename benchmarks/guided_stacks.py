"""Two thick stacks of a head and a guide: a table of docs/benchmarks.md.

python -m benchmarks.guided_stacks DATALIST [--thickness 5] [--by T1w] [--ckpt_path WEIGHTS]

The stacks lie along the first two sharp axes. Before the second stack and before the guide the head moves by up to 5
degrees and 5 mm, and a coil shades it by 20 %; all have 1 % noise. The guide is of a given contrast, or the first that
the datalist names.
"""

import numpy as np
import torch

from benchmarks import deployed, parser_of_volumes, shipped_network
from scripts.evaluate.metrics import psnr
from scripts.evaluate.tables import markdown
from scripts.paper.guided import drawn_guide
from scripts.paper.several import several_stacks
from scripts.rebuild.device import default_device
from scripts.rebuild.rebuilder import Rebuilder
from scripts.rebuild.registration import placed
from scripts.rebuild.stacks import Stack
from scripts.rebuild.together import together
from scripts.stack.slices import Slices
from scripts.stack.tissue import head_mask
from scripts.train.datasets import sharp_volumes
from scripts.train.truth import read_volume

MOTION, SHADING, NOISE = (5.0, 5.0), 0.2, 0.01


def main():
    """Prints the table."""
    parser = parser_of_volumes(__doc__)
    parser.add_argument("--thickness", type=float, default=5.0)
    parser.add_argument("--by", help="contrast of the guides")
    options = parser.parse_args()
    rebuilder = Rebuilder(
        shipped_network(options.ckpt_path), deployed(options.ckpt_path), default_device(), guide_share=1.0
    )
    volumes = sharp_volumes(options.datalist, "validation")
    contrasts, rows = {item["label"]: item["contrast"] for item in volumes}, []
    for number, item in enumerate(one for one in volumes if one.get("guides")):
        named = [path for path in item["guides"] if options.by in (None, contrasts.get(path))]
        if not named:
            continue
        sharp, path, rng = read_volume(item["label"]), named[0], np.random.default_rng([0, number])
        truth, affine = sharp.as_tensor()[0].float(), np.asarray(sharp.affine, dtype=float)
        head, axes = head_mask(truth), item["sharp_axes"][:2]
        drawn = several_stacks(affine, truth, axes, options.thickness, rng, MOTION, SHADING, NOISE)
        guide = drawn_guide(read_volume(path), rng, MOTION, SHADING, NOISE)
        found = {}
        for way, beside in {"": None, ", guided": guide}.items():
            stacks = []
            for thick, _ in drawn:
                slices = Slices.of(thick)
                placed_guide = None
                if beside is not None:
                    placed_guide = rebuilder.place(rebuilder.guide_scan(Slices.of(beside)), slices)
                stacks.append(Stack.of(slices, rebuilder(slices, placed_guide).volume))
            volume, parts = together(stacks)
            for name, stack, part in zip(("first", "second"), stacks, parts):
                view = placed(stack.rebuilt, stacks[0].rebuilt, part.motion)[0] * part.gain
                found[name + way] = psnr(torch.as_tensor(view), truth, head)
            found["both" + way] = psnr(torch.as_tensor(volume), truth, head)
        better = max(found["first"], found["second"])
        rows.append(
            {"scan": item["contrast"], "guide": contrasts.get(path, path)}
            | {name: f"{value:.2f}" for name, value in found.items()}
            | {"both, guided, over the better one": f"{found['both, guided'] - better:+.2f}"}
        )
    print(markdown({name: [row[name] for row in rows] for name in rows[0]}))


if __name__ == "__main__":
    main()
