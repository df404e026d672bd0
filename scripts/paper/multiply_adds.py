"""How many multiply-adds a call makes, and a method for each voxel."""

from collections.abc import Callable, Mapping
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from ..evaluate.paired import Method
from ..stack.acquisition import Acquisition
from ..train.simulation import central_slab, slices_of
from ..train.truth import read_volume

SLAB, THICKNESS = 16, 5.0  # slices, mm


class Counter(TorchDispatchMode):
    """Counts `flops` while it is entered, two for a multiply-add.

    PyTorch's `FlopCounterMode` follows modules as well, and so refuses the gradients that TPDM takes.
    """

    def __init__(self) -> None:
        super().__init__()
        self.flops = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        count = flop_registry.get(func._overloadpacket)
        if count is None:  # may be made of others that count
            with self:
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        result = func(*args, **kwargs)
        if count is not None:
            self.flops += count(*args, **kwargs, out_val=result)
        return result


def multiply_adds(call: Callable[[], Any]) -> float:
    """Multiply-adds of the convolutions and matrix products of a call."""
    with Counter() as counter:
        call()
    return counter.flops / 2


def multiply_adds_per_voxel(method: Method, item: Mapping) -> float:
    """Multiply-adds of a method for each voxel that it makes, in 1e6.

    Args:
        method: of the paired evaluation.
        item: of `datasets.sharp_volumes`; 16 of its slices are degraded to 5 mm.
    """
    axis = item["sharp_axes"][0]
    sharp = central_slab(read_volume(item["label"]), axis, SLAB)
    thick = slices_of(sharp, axis, THICKNESS)
    return multiply_adds(lambda: method(thick, Acquisition.of(thick))) / 1e6 / sharp.numel()
