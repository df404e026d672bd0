"""How a batch becomes network arguments in both stages, and the handlers that stock trainers lack."""

from __future__ import annotations

import os
from pathlib import Path

import ignite.distributed as idist
import torch
import torch.distributed as dist
from ignite.engine import Engine, Events
from monai.engines import PrepareBatch, SupervisedTrainer
from monai.engines.utils import IterationEvents
from monai.handlers import CheckpointLoader
from monai.inferers import Inferer, SimpleInferer
from monai.utils import set_determinism
from PIL import Image
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR
from torch.optim.swa_utils import AveragedModel

from .errors import flag
from .files import whole_file
from .flow import PathSample, endpoint_biased, interpolate
from .weights import load_weights


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
    """

    def __init__(self, apn: nn.Module, inferer: Inferer, alpha: float):
        self.apn = apn.eval().requires_grad_(False)
        self.inferer = inferer
        self.alpha = alpha

    def __call__(self, batchdata, device=None, non_blocking=False, **kwargs):
        """Returns `(xt, PathSample, (thickness, t), {})` on the device."""
        batch = {
            key: batchdata[key].to(device, non_blocking=non_blocking)
            for key in ("image", "label", "thickness", "proximal", "proximal_thickness")
        }
        partner = (batch["proximal_thickness"][:, 0] < batch["thickness"][:, 0]).nonzero()[:, 0]
        image = torch.cat([batch["image"], batch["proximal"][partner]])
        thickness = torch.cat([batch["thickness"], batch["proximal_thickness"][partner]])
        x1 = torch.cat([batch["label"], batch["label"][partner]])
        t = endpoint_biased(torch.rand(len(batch["image"]), device=x1.device), self.alpha)
        t = torch.cat([t, t[partner]])
        with torch.no_grad():
            x0 = self.inferer(image, self.apn, thickness)
        xt = interpolate(x0, x1, t)
        return xt, PathSample(xt, x0, x1, t, partner), (thickness, t), {}


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


def moving_average(network: nn.Module, decay: float) -> AveragedModel:
    """A copy of the network whose weights follow by exponential moving average; it is what validates and ships.

    The first updates forget faster, `(1 + n) / (10 + n)`, so that the initial weights do not linger.

    Args:
        network: to be followed.
        decay: share of the old average that an iteration keeps, once under way.
    """

    def average(old: Tensor, new: Tensor, count: Tensor | int) -> Tensor:
        n = float(count)
        return torch.lerp(new, old, min(decay, (1 + n) / (10 + n)))

    return AveragedModel(network, avg_fn=average).requires_grad_(False).eval()


class UpdateAverage:
    """Moves the averaged network after each iteration.

    Args:
        average: of `moving_average`.
        network: which it follows.
    """

    def __init__(self, average: AveragedModel, network: nn.Module):
        self.average = average
        self.network = network

    def attach(self, engine: Engine) -> None:
        """Called by the trainer."""
        engine.add_event_handler(Events.ITERATION_COMPLETED, self)

    def __call__(self, engine: Engine) -> None:
        self.average.update_parameters(self.network)


class Checkpoint:
    """The state of a stage in one file: written every few epochs and at the end, and read when the stage starts again.

    MONAI's saver writes in place, so that a run killed while it writes could not go on.

    Args:
        path: file.
        state: name -> object with a state dictionary.
        interval: epochs between two writes.
    """

    def __init__(self, path: str, state: dict, interval: int):
        self.path = path
        self.state = state
        self.interval = interval

    def resume(self, engine: Engine) -> None:
        """Restores the state, if there is a file."""
        if os.path.isfile(self.path):
            engine.logger.info(f"resuming from {self.path}")
            # MONAI declares a dictionary alone, torch takes a name as well
            CheckpointLoader(self.path, self.state, map_location="cpu")(engine)  # type: ignore[arg-type]

    def save(self) -> None:
        """Writes the state."""
        with whole_file(self.path) as partial:
            torch.save({name: item.state_dict() for name, item in self.state.items()}, partial)


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
        volumes = [output[key][0] for key in ("image", "pred", "label")]  # each (X, Y, Z) in [-1, 1]
        planes = torch.cat([volume[..., volume.shape[-1] // 2].rot90() for volume in volumes], dim=1)
        grey = (127.5 * (planes.clamp(-1, 1) + 1)).byte().cpu().numpy()
        with whole_file(self.folder / f"{engine.state.epoch:04}.png") as partial:
            Image.fromarray(grey).save(partial)


def iteration_loss(output: dict | list[dict]) -> float:
    """Loss of a trainer's iteration, for the handlers that show it; decollated outputs repeat it for each sample."""
    loss = (output[0] if isinstance(output, list) else output)["loss"]
    return loss.item() if isinstance(loss, Tensor) else loss


def start_from(network: nn.Module, ckpt_path: str | None) -> None:
    """Loads the weights that a training starts from, if there are any; see `weights.load_weights`."""
    if ckpt_path is not None:
        load_weights(network, ckpt_path)


def train_stage(
    trainer: Engine, checkpoint: Checkpoint, average: AveragedModel, export_path: str, follower: bool
) -> None:
    """Runs one stage to its end, from its last checkpoint if there is one, and exports the averaged network.

    Args:
        trainer: of the stage.
        checkpoint: of the stage.
        average: of `moving_average`.
        export_path: file for the weights, written when the stage is finished.
        follower: true on all processes but the first, which alone writes.
    """
    trainer.add_event_handler(Events.STARTED, checkpoint.resume)
    if not follower:
        trainer.add_event_handler(Events.EPOCH_COMPLETED(every=checkpoint.interval), checkpoint.save)
    trainer.run()
    if not follower and trainer.state.epoch == trainer.state.max_epochs:
        checkpoint.save()
        with whole_file(export_path) as partial:
            torch.save(average.module.state_dict(), partial)
    idist.barrier()  # the next stage reads what the first process has written


def seed_process(seed: int) -> None:
    """Seeds every generator; processes of one training draw differently."""
    set_determinism(seed=seed + idist.get_rank())


def default_device() -> torch.device:
    """CUDA when there is one."""
    return torch.device("cuda:0" if torch.cuda.is_available() else "cpu")


def fast_bfloat16(device: torch.device | str) -> bool:
    """Whether the device computes in bfloat16 by itself, and so faster: GPUs since Ampere, CPUs with such instructions.

    Elsewhere bfloat16 is emulated and several times slower than float32.
    """
    if torch.device(device).type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    capabilities = torch.cpu.get_capabilities()
    return bool(capabilities.get("amx_bf16") or capabilities.get("avx512_bf16"))


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
