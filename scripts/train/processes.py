"""The processes of one training: how they join, how each is seeded."""

from collections.abc import Sequence

import ignite.distributed as idist
import torch
from monai.data import DataLoader, DistributedSampler, DistributedWeightedRandomSampler
from monai.utils import set_determinism
from torch import nn
from torch.utils.data import Dataset, Sampler, WeightedRandomSampler

from ..errors import InputError


def start_process_group() -> None:
    """Joins the processes that `torchrun` started: NCCL, each on a GPU of its own, or gloo where there is no GPU."""
    idist.initialize("nccl" if torch.cuda.is_available() else "gloo")


def seed_process(seed: int) -> None:
    """Seeds every generator. Processes of one training draw differently."""
    set_determinism(seed=seed + idist.get_rank())


def together(network: nn.Module) -> nn.Module:
    """The network as several processes train it; in one process itself."""
    return idist.auto_model(network) if idist.get_world_size() > 1 else network


def placed(network: nn.Module, device: torch.device | str) -> nn.Module:
    """The network on a device, the weights of its 2-D convolutions with their channels last, which is faster."""
    network.to(device)
    for parameter in network.parameters():
        if parameter.dim() == 4:
            parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)
    return network


def patch_loader(
    dataset: Dataset, weights: Sequence[float], samples: int, batch_size: int, num_workers: int
) -> DataLoader:
    """Batches of an epoch of training. Each process draws from its own share of the volumes.

    Args:
        weights: how often each item of the dataset is drawn, relative.
        samples: of an epoch, in each process.
    """
    if samples < batch_size:
        raise InputError(
            f"patches_per_epoch is below {batch_size}, one batch: expected that or more. Set --patches_per_epoch."
        )
    sampler: Sampler = WeightedRandomSampler(weights, samples)
    if idist.get_world_size() > 1:
        sampler = DistributedWeightedRandomSampler(dataset, list(weights), num_samples_per_rank=samples)
    return DataLoader(dataset, num_workers, sampler=sampler, batch_size=batch_size, drop_last=True)


def own_share(dataset: Dataset) -> Sampler | None:
    """The items that this process validates; None for all. Fewer items than processes are validated more than once."""
    count = idist.get_world_size()
    if count == 1:
        return None
    return DistributedSampler(dataset, even_divisible=len(dataset) < count, shuffle=False)  # type: ignore[arg-type]
