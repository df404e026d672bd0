"""Whether a scan's result depends on the air around the head: the table of docs/benchmarks.md.

python -m benchmarks.air DATALIST [--volumes 0 1 6] [--ckpt_path models/model.pt]

A block is cut from the middle of each head and turned into slices of 5 mm. They are rebuilt as they are, and in so much
air that the block fills a part of the field. PSNR and step ratio are those of the block. PSNR leaves out the 4 mm
beside the cut, which is an edge in air and none without.
"""

import torch
from monai.data import MetaTensor
from monai.transforms import SpatialPad

from benchmarks import deployed, parser_of_volumes, shipped_network
from scripts.evaluate import metrics
from scripts.evaluate.tables import markdown
from scripts.rebuild.device import default_device
from scripts.rebuild.rebuilder import Rebuilder
from scripts.stack import tissue
from scripts.stack.acquisition import Acquisition
from scripts.stack.grid import voxel_spacing
from scripts.stack.slices import Slices
from scripts.stack.trace import step_ratio
from scripts.train.datasets import sharp_volumes
from scripts.train.simulation import slices_of
from scripts.train.truth import read_volume

EDGE = 64.0  # mm; of the block
RIM = 4.0  # mm
THICKNESS = 5.0  # mm
SHARES = (1.0, 0.3, 0.1, 0.02)  # of the field that the block fills


def block_of(truth):
    """The block in the middle of the head."""
    mask = tissue.head_mask(truth.as_tensor()[0])
    cuts = []
    for axis, edge in enumerate(voxel_spacing(truth.affine)):
        inside = mask.movedim(axis, 0).flatten(1).any(1).nonzero()[:, 0]
        start = int(inside.float().mean() - EDGE / edge / 2)
        cuts.append(slice(max(start, 0), start + round(EDGE / edge)))
    return truth[(slice(None), *cuts)]


def rows(truth, axis, network, inferer, shares=SHARES):
    """Yields the share, PSNR and step ratio."""
    sharp: MetaTensor = block_of(truth)
    thick, plain = slices_of(sharp, axis, THICKNESS), sharp.as_tensor()[0].float()
    acquisition, flat = Acquisition.of(thick), tissue.flat_tissue(plain)
    rims = [0 if a == axis else round(RIM / edge) for a, edge in enumerate(voxel_spacing(truth.affine))]
    core = tuple(slice(rim, n - rim) for rim, n in zip(rims, plain.shape))
    for share in shares:
        size = [n if a == axis else round(n * share**-0.5) for a, n in enumerate(thick.shape[1:])]
        field = SpatialPad(size)(thick)
        slices = Slices(field.as_tensor()[0], acquisition, field.affine)
        result = Rebuilder(network, inferer, default_device())(slices).volume.as_tensor()
        start = [0 if a == axis else (n - plain.shape[a]) // 2 for a, n in enumerate(result.shape)]
        result = result[tuple(slice(s, s + n) for s, n in zip(start, plain.shape))]
        yield f"{share:.0%}", metrics.psnr(result[core], plain[core]), step_ratio(result, acquisition, flat)


def main():
    """Prints the table."""
    parser = parser_of_volumes(__doc__)
    parser.add_argument("--volumes", type=int, nargs="+", help="which of the held-out volumes; all without it")
    options = parser.parse_args()
    volumes = sharp_volumes(options.datalist, "validation")
    network, inferer = shipped_network(options.ckpt_path), deployed(options.ckpt_path)
    table = {"volume": [], "share of the field": [], "PSNR (dB)": [], "step ratio": []}
    for index in options.volumes or range(len(volumes)):
        item = volumes[index]
        with torch.no_grad():
            for share, quality, ratio in rows(read_volume(item["label"]), item["sharp_axes"][0], network, inferer):
                line = (f"{item['subject']} {item['contrast']}", share, f"{quality:.2f}", f"{ratio:.2f}")
                for column, text in zip(table.values(), line):
                    column.append(text)
    print(markdown(table))


if __name__ == "__main__":
    main()
