"""The processes of one training: how they join, how each is seeded."""

import ignite.distributed as idist
import torch
from monai.utils import set_determinism


def start_process_group() -> None:
    """Joins the processes that `torchrun` started: NCCL, each on a GPU of its own, or gloo where there is no GPU."""
    idist.initialize("nccl" if torch.cuda.is_available() else "gloo")


def seed_process(seed: int) -> None:
    """Seeds every generator. Processes of one training draw differently."""
    set_determinism(seed=seed + idist.get_rank())
