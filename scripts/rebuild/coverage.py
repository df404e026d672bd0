"""The part of a head that a guide saw, and where its field of view ends."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from ..stack import grid

ENOUGH = 0.9  # of the head; people should know of a guide that saw less
FEW = 0.02  # of the head; where no more lies beyond a border, there is none
LITTLE = 0.2  # of the head beyond a border; where a guide saw more, its field of view ends askew
COVERED = "the guide {name} saw {share:.0%} of the head{ends}. The rest is as sharp as without a guide."
BORDER_AT = "it ends at {side} {place:.1f} mm"
BORDER_BEYOND = "toward {end} it ends at {side} {place:.1f} mm"


@dataclass(frozen=True)
class Coverage:
    """The part of a head that a guide saw.

    Attributes:
        share: of the voxels of the head.
        borders: side of the patient, `L`, `R`, `P`, `A`, `I` or `S` -> a place `(x, y, z)` in mm, RAS+, where the
            guide's field of view ends toward that side; only sides where the head goes on beyond it.
    """

    share: float = 1.0
    borders: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)

    @classmethod
    def of(cls, head: Tensor, seen: Tensor, affine: Tensor) -> "Coverage":
        """The part of a `head` that was `seen`, both `(X', Y', Z')` bool on the grid of an affine.

        Along an axis the guide saw the planes of which it saw at least half as much as of the plane that it saw best.
        """
        count, both = int(head.sum()), head & seen
        if not both.any():
            return cls(0.0)
        middle, borders = head.nonzero().double().mean(0).numpy(), dict[str, tuple[float, float, float]]()
        turn = grid.Turn.of(affine)
        for world, axis in enumerate(turn.axes):
            across = tuple(one for one in range(3) if one != axis)
            voxels, found = head.sum(across).double(), both.sum(across).double()
            shares = found / voxels.clamp(min=1)
            (rows,) = (shares >= shares.max() / 2).numpy().nonzero()
            beyond = slice(rows[0]), slice(rows[-1] + 1, None)
            for end, (part, row) in enumerate(zip(beyond, (rows[0] - 0.5, rows[-1] + 0.5))):
                if voxels[part].sum() > FEW * count and found[part].sum() < LITTLE * voxels[part].sum():
                    place = affine.double().numpy() @ [*np.where(np.arange(3) == axis, row, middle), 1]
                    x, y, z = place[:3].round(1).tolist()
                    borders[grid.SIDES[world][end != (world in turn.flipped)]] = x, y, z
        return cls(int(both.sum()) / count, borders)

    def warning(self, name: str) -> str:
        """The words for people; empty where a guide, of that name, saw enough."""
        if self.share >= ENOUGH:
            return ""
        ends = []
        for end, place in self.borders.items():
            (world,) = (k for k, sides in enumerate(grid.SIDES) if end in sides)
            side = grid.SIDES[world][int(place[world] >= 0)]
            words = BORDER_AT if side == end else BORDER_BEYOND
            ends.append(words.format(end=end, side=side, place=abs(place[world])))
        shown = f": {', '.join(ends)}" if ends else ""
        return COVERED.format(name=name, share=self.share, ends=shown)


WHOLE = Coverage()  # of a guide that saw all
