"""SAINT: slices between slices, interpolated in both families of planes and fused slice by slice.

Peng et al., CVPR 2020. Marginal super-resolution makes each new slice of a plane with a filter of its own, which a
small network derives from the distances in mm to the measured pixels; the fusion network sees both families' results.
The paper's factors are 4 and 6, and a new slice counts from the slice before it. Here each new slice has its place in
mm to the nearest measured slice, so that any factor, and any place, will do.
"""

from itertools import pairwise

import torch
from monai.engines import PrepareBatch
from torch import Tensor, nn
from torch.nn.functional import pad

from ...stack.acquisition import Acquisition
from .rdn import ResidualDenseNetwork
from .stacks import HeadInferer

NEIGHBOURS = 3  # planes that the marginal network sees, and pixels along each side of a filter


class FilterNetwork(nn.Module):
    """Distances to the 3 x 3 nearest measured pixels -> one filter of 3 x 3 for each feature.

    Args:
        features: channels of the filters.
    """

    def __init__(self, features: int):
        super().__init__()
        widths = [1, 32, *[64] * 3, features]
        layers: list[nn.Module] = []
        for before, after in pairwise(widths):
            layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU()]
        self.layers = nn.Sequential(*layers[:-1])

    def forward(self, offset: Tensor, slice_spacing: Tensor, pixel: Tensor) -> Tensor:
        """Filters for new slices.

        Args:
            offset: `(B, K)`, where the new slices lie beyond their nearest measured ones, in mm.
            slice_spacing: `(B,)` in mm.
            pixel: `(B,)`, edge along the slices, in mm.

        Returns:
            `(B, K, features, 3, 3)`; rows are measured slices, columns pixels.
        """
        step = torch.arange(-1, 2, device=offset.device)
        along = offset[:, :, None] - step * slice_spacing[:, None, None]  # (B, K, 3)
        across = step * pixel[:, None]  # (B, 3)
        distance = torch.hypot(along[:, :, :, None], across[:, None, None, :])
        return self.layers(distance.reshape(-1, 1, 3, 3)).unflatten(0, offset.shape)


class Saint(nn.Module):
    """Marginal super-resolution in both families of planes, and their fusion.

    The published configuration, G0 64, (D, C, G) (6, 8, 32) and fusion (4, 6, 12), has 3,158,817 parameters. The
    paper's table says 4.5 M, which is what the marginal network has with ten dense blocks in place of six. Both parts
    are trained at once: the fusion passes no gradient to the marginal network, which the paper freezes for its turn.

    Args:
        features: channels `G0`.
        trunk: `(D, C, G)` of the marginal network's dense blocks.
        fusion: the same of the fusion network.
    """

    def __init__(self, features: int, trunk: tuple[int, int, int], fusion: tuple[int, int, int]):
        super().__init__()
        self.trunk = ResidualDenseNetwork(2, NEIGHBOURS, features, *trunk)
        self.filters = FilterNetwork(features)
        self.fusion = nn.Sequential(ResidualDenseNetwork(2, 2, features, *fusion), nn.Conv2d(features, 1, 3, padding=1))

    def marginal(self, slabs: Tensor, nearest: Tensor, offset: Tensor, slice_spacing: Tensor, pixel: Tensor) -> Tensor:
        """New slices of planes of one family.

        Args:
            slabs: `(B, P, 3, W, Z)`, see `slabs`; `Z` measured slices.
            nearest: `(B, K)`, the measured slice nearest to each new one.
            offset, slice_spacing, pixel: see `FilterNetwork`.

        Returns:
            `(B, P, W, K)`.
        """
        batch, _, _, width, _ = slabs.shape
        features = pad(self.trunk(slabs.flatten(0, 1)), (1, 1, 1, 1)).unflatten(0, slabs.shape[:2])
        rows = nearest[:, :, None] + torch.arange(NEIGHBOURS, device=nearest.device)  # in the padded features
        first = torch.arange(batch, device=nearest.device)[:, None, None]
        near = features.movedim(-1, 1)[first, rows]  # (B, K, 3, P, C, W + 2)
        filters = self.filters(offset, slice_spacing, pixel)
        columns = [
            torch.einsum("bkrpcw,bkcr->bpwk", near[..., j : j + width], filters[..., j]) for j in range(NEIGHBOURS)
        ]
        return torch.stack(columns).sum(0)

    def fuse(self, slices: Tensor) -> Tensor:
        """Both families' slices, `(B, 2, X, Y)`, to one, `(B, 1, X, Y)`: their mean and a correction."""
        return slices.mean(1, keepdim=True) + self.fusion(slices)

    def forward(self, thick: Tensor, nearest: Tensor, offset: Tensor, slice_spacing: Tensor, pixel: Tensor) -> Tensor:
        """New slices by either family, and fused.

        Args:
            thick: `(B, 1, X, Y, Z)`, the measured slices along the last axis.
            nearest, offset, slice_spacing, pixel: see `marginal`.

        Returns:
            `(B, 3, X, Y, K)`: by planes of constant X, of constant Y, and fused.
        """
        where = nearest, offset, slice_spacing, pixel
        by_x = self.marginal(slabs(thick[:, 0]), *where)
        by_y = self.marginal(slabs(thick[:, 0].transpose(1, 2)), *where).transpose(1, 2)
        views = torch.stack([by_x, by_y], dim=1)
        fused = self.fuse(views.detach().movedim(-1, 1).flatten(0, 1)).unflatten(0, (len(views), -1))
        return torch.cat([views, fused.movedim(1, -1)], dim=1)


def slabs(thick: Tensor) -> Tensor:
    """Each plane with the planes beside it: `(B, P, W, Z)` to `(B, P, 3, W, Z)`; the outermost are repeated."""
    beside = torch.cat([thick[:, :1], thick, thick[:, -1:]], dim=1)
    return beside.unfold(1, NEIGHBOURS, 1).movedim(-1, 2)


def places(position: Tensor, slice_count: int, slice_spacing: Tensor) -> tuple[Tensor, Tensor]:
    """Places of the new slices, as the network takes them.

    Args:
        position: `(B, K)`, in slice spacings from the first measured slice.
        slice_count: measured slices.
        slice_spacing: `(B,)` in mm.

    Returns:
        `(B, K)` nearest measured slices, and offsets from them in mm.
    """
    nearest = (position + 0.5).floor().clamp(0, slice_count - 1)
    return nearest.long(), (position - nearest) * slice_spacing[:, None]


class SaintBatch(PrepareBatch):
    """Measured slices in, sharp slices between them out, thrice: for either family and their fusion."""

    def __call__(self, batchdata, device=None, non_blocking=False, **kwargs):
        """Returns `(image, label, (nearest, offset, slice_spacing, pixel), {})` on the device."""
        image, label, position, spacing, pixel = (
            batchdata[key].to(device, non_blocking=non_blocking)
            for key in ("image", "label", "position", "slice_spacing", "target_spacing")
        )
        where = *places(position, image.shape[-1], spacing), spacing, pixel
        return image, label.expand(-1, 3, -1, -1, -1), where, {}


class SaintInferer(HeadInferer):
    """All planes of both families, then all slices of the fine grid.

    Pixels are taken to have the target's edge; `--isotropic true` gives them that.

    Args:
        others: see `StackInferer`.
    """

    def head(self, stack: Tensor, acquisition: Acquisition, network: Saint) -> Tensor:
        """See `HeadInferer.head`."""
        a = acquisition
        spacing, pixel = (torch.tensor([length], device=stack.device) for length in (a.slice_spacing, a.target_spacing))
        position = torch.from_numpy(a.fine_rows).float().to(stack.device)[None]
        where = *places(position, a.slice_count, spacing), spacing, pixel
        with torch.autocast(stack.device.type, torch.bfloat16, enabled=self.bfloat16):
            views = []
            for planes in (stack, stack.transpose(0, 1)):
                near = slabs(planes[None])
                calls = self.parts(len(planes), planes.shape[1] * a.fine_count, "planes")
                views.append(torch.cat([network.marginal(near[:, k], *where)[0].float() for k in calls]))
            both = torch.stack([views[0], views[1].transpose(0, 1)]).movedim(-1, 0)  # (Z', 2, X, Y)
            calls = self.parts(len(both), both[0, 0].numel(), "slices")
            fused = torch.cat([network.fuse(both[k])[:, 0].float() for k in calls])
        return fused.movedim(0, -1)
