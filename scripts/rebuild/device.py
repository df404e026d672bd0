"""Where the networks run, and in which precision."""

import torch
from torch import nn

from ..errors import flag


def default_device() -> torch.device:
    """CUDA when there is one."""
    return torch.device("cuda:0" if torch.cuda.is_available() else "cpu")


def device_of(network: nn.Module) -> torch.device:
    """Where a network's weights are; the CPU for a network without any."""
    return next((weight.device for weight in network.parameters()), torch.device("cpu"))


def fast_bfloat16(device: torch.device | str, given: bool | None = None) -> bool:
    """Whether the device computes in bfloat16 by itself, and so faster: GPUs since Ampere, CPUs with such instructions.

    Elsewhere bfloat16 is emulated and several times slower than float32. The user's choice wins.
    """
    if given is not None:
        return flag("bfloat16", given)
    if torch.device(device).type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    capabilities = torch.cpu.get_capabilities()
    return bool(capabilities.get("amx_bf16") or capabilities.get("avx512_bf16"))
