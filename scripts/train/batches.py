"""How a batch becomes network arguments in both stages, the handlers that stock trainers lack, and where they run."""

from __future__ import annotations

import os
from pathlib import Path

import ignite.distributed as idist
import torch
import torch.distributed as dist
from ignite.engine import Engine, Events
from ignite.handlers import EMAHandler
from monai.engines import PrepareBatch, SupervisedTrainer
from monai.engines.utils import IterationEvents
from monai.inferers import Inferer, SimpleInferer
from monai.utils import set_determinism
from PIL import Image
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR

from ..errors import InputError, flag
from ..files import whole_file
from ..method.flow import PathSample, endpoint_biased, interpolate
from ..stack import interpolation
from ..stack.acquisition import Acquisition


class ProjectionBatch(PrepareBatch):
    """Stage 1: degraded planes in, sharp planes out, thickness beside them."""

    def __call__(self, batchdata, device=None, non_blocking=False, **kwargs):
        """Returns `(image, label, (thickness,), {})` on the device."""
        image, label, thickness = (
            batchdata[key].to(device, non_blocking=non_blocking) for key in ("image", "label", "thickness")
        )
        return image, label, (thickness,), {}


class PrecisionInferer(SimpleInferer):
    """Calls the network, in bfloat16 where autocasting allows it; its weights and what it returns stay in float32.

    MONAI's engines autocast on CUDA alone.

    Args:
        bfloat16: false for float32 throughout.
    """

    def __init__(self, bfloat16: bool):
        super().__init__()
        self.bfloat16 = flag("bfloat16", bfloat16)

    def __call__(self, inputs: Tensor, network: nn.Module, *args, **kwargs) -> Tensor:  # type: ignore[override]
        """Arguments as the network's, its first one first."""
        with torch.autocast(inputs.device.type, torch.bfloat16, enabled=self.bfloat16):
            return network(inputs, *args, **kwargs).float()


class FlowBatch(PrepareBatch):
    """Stage 2: states on the path from the frozen APN's estimate to the truth, for a thickness and its neighbour.

    Both thicknesses of a CETA pair share the time. They make one batch, so that a step evaluates each network once, on
    `B + P` planes. The pair's second member is a training sample of the velocity like any other.

    Args:
        apn: stage 1; put in evaluation mode and frozen.
        inferer: how it is called.
        alpha: exponent of the endpoint-biased times, 2 in the paper.
        ceta_time: at which CETA compares endpoints (Sec. S12), for two more planes of each pair; null for the times of
            the flow's states, which cost nothing.

    Raises:
        InputError: if `ceta_time` is no time.
    """

    def __init__(self, apn: nn.Module, inferer: Inferer, alpha: float, ceta_time: float | None = None):
        if ceta_time is not None and not (isinstance(ceta_time, int | float) and 0 <= ceta_time <= 1):
            raise InputError(f"ceta_time is {ceta_time!r}: expected a time in [0, 1], or null. Set --ceta_time.")
        self.apn = apn.eval().requires_grad_(False)
        self.inferer = inferer
        self.alpha = alpha
        self.ceta_time = ceta_time

    def __call__(self, batchdata, device=None, non_blocking=False, **kwargs):
        """Returns `(xt, PathSample, (thickness, t), {})` on the device."""
        batch = {
            key: batchdata[key].to(device, non_blocking=non_blocking)
            for key in ("image", "label", "thickness", "proximal", "proximal_thickness")
        }
        partner = (batch["proximal_thickness"][:, 0] != batch["thickness"][:, 0]).nonzero()[:, 0]
        image = torch.cat([batch["image"], batch["proximal"][partner]])
        thickness = torch.cat([batch["thickness"], batch["proximal_thickness"][partner]])
        x1 = torch.cat([batch["label"], batch["label"][partner]])
        t = endpoint_biased(torch.rand(len(batch["image"]), device=x1.device), self.alpha)
        t = torch.cat([t, t[partner]])
        with torch.no_grad():
            x0 = self.inferer(image, self.apn, thickness)
        beside = 0
        if self.ceta_time is not None:
            first, beside = len(t), 2 * len(partner)
            again = torch.cat([partner, torch.arange(len(batch["image"]), first, device=x1.device)])
            x0, x1, thickness = (torch.cat([whole, whole[again]]) for whole in (x0, x1, thickness))
            t = torch.cat([t, t.new_full((beside,), self.ceta_time)])
            partner = torch.arange(first, first + len(partner), device=x1.device)
        xt = interpolate(x0, x1, t)
        return xt, PathSample(xt, x0, x1, t, partner, beside), (thickness, t), {}


def warmup_cosine(optimizer: torch.optim.Optimizer, steps: int, epochs: int) -> SequentialLR:
    """Linear warm-up over 5 % of all steps, then a cosine from the peak rate to a tenth of it (Sec. S4.4).

    Args:
        optimizer: whose rates are scheduled.
        steps: in an epoch.
        epochs: of the training.
    """
    total = steps * epochs
    warmup = max(1, total // 20)
    peak = optimizer.param_groups[0]["lr"]
    rising = LinearLR(optimizer, start_factor=1 / warmup, total_iters=warmup - 1)
    falling = CosineAnnealingLR(optimizer, T_max=max(1, total - warmup), eta_min=0.1 * peak)
    return SequentialLR(optimizer, [rising, falling], milestones=[warmup])


class ClipGradient:
    """Clips the norm of the gradient before each step of the optimiser.

    Args:
        max_norm: largest norm, 1 in the paper.
    """

    def __init__(self, max_norm: float):
        self.max_norm = max_norm

    def attach(self, engine: Engine) -> None:
        """Called by the trainer."""
        engine.add_event_handler(IterationEvents.BACKWARD_COMPLETED, self)

    def __call__(self, engine: SupervisedTrainer) -> None:
        nn.utils.clip_grad_norm_(engine.network.parameters(), self.max_norm)


class Average(EMAHandler):
    """Exponential moving average of a network's weights, in `ema_model`; it is what validates and ships.

    The first updates forget faster, down to `(1 + n) / (10 + n)` kept, so that the initial weights do not linger. That
    is a function of the trainer's own count, so that a resumed training goes on as it was.

    Args:
        network: to be followed.
        decay: share of the old average that an iteration keeps, once under way.
    """

    def __init__(self, network: nn.Module, decay: float):
        super().__init__(network, momentum=1 - decay)

    def attach(self, engine: Engine) -> None:  # type: ignore[override]  # one name and one event serve
        """Called by the trainer."""
        engine.add_event_handler(Events.ITERATION_STARTED, self.set_momentum)
        super().attach(engine, warn_if_exists=False)

    def set_momentum(self, engine: Engine) -> None:
        """Sets the share of the new weights for the iteration that begins."""
        momentum = max(self.momentum, 9 / (9 + engine.state.iteration))
        engine.state.ema_momentum = momentum  # type: ignore[attr-defined]  # whence ignite takes it


class ValidationPicture:
    """A picture of each validation: the middle plane of its last volume as input, result and truth.

    Args:
        folder: for the pictures, named by their epochs.
    """

    def __init__(self, folder: str):
        self.folder = Path(folder)

    def attach(self, engine: Engine) -> None:
        """Called by the evaluator."""
        engine.add_event_handler(Events.EPOCH_COMPLETED, self)

    def __call__(self, engine: Engine) -> None:
        output: dict = engine.state.output[-1]  # type: ignore[assignment, index]  # ignite declares a number
        measured = interpolation.interpolate(output["image"].cpu(), Acquisition.of(output["image"]), "nearest")
        volumes = [volume[0] for volume in (measured, output["pred"], output["label"])]  # each (X, Y, Z) in [0, 1]
        planes = torch.cat([volume[..., volume.shape[-1] // 2].rot90() for volume in volumes], dim=1)
        grey = (255 * planes.clamp(0, 1)).byte().numpy()
        with whole_file(self.folder / f"{engine.state.epoch:04}.png") as partial:
            Image.fromarray(grey).save(partial)


def iteration_loss(output: dict | list[dict]) -> float:
    """Loss of a trainer's iteration, for the handlers that show it; decollated outputs repeat it for each sample."""
    loss = (output[0] if isinstance(output, list) else output)["loss"]
    return loss.item() if isinstance(loss, Tensor) else loss


def seed_process(seed: int) -> None:
    """Seeds every generator; processes of one training draw differently."""
    set_determinism(seed=seed + idist.get_rank())


def start_process_group() -> None:
    """Joins the processes that `torchrun` started: NCCL on GPUs, gloo without."""
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")


def local_device() -> torch.device:
    """This process's own GPU, or the CPU."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    return device


def is_follower() -> bool:
    """Whether this process is not the first."""
    return dist.get_rank() > 0


def distribute(network: nn.Module, device: torch.device) -> DistributedDataParallel:
    """The network with gradients averaged over processes; starts from the first process's weights."""
    return DistributedDataParallel(network, device_ids=[device] if device.type == "cuda" else None)
