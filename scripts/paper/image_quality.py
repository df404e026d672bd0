"""How sharp, how natural and how much like the truth planes look (Sec. 4.4, Tab. S6)."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ..errors import logger
from ..stack.grid import check_pair
from . import no_reference, st_lpips
from .reformats import Reformats

EXTRA = "pip install --no-deps stlpips_pytorch==0.0.2 brisque==0.2.0 iqa-torch==1.2.1"
LPIPS = "pip install lpips, then once python -c 'import lpips; lpips.LPIPS()', which downloads AlexNet's weights"


@dataclass(frozen=True)
class ImageQuality:
    """The metrics that can be measured on this machine; null for the others.

    Attributes:
        brisque: see `no_reference`.
        niqe: see `no_reference`.
        st_lpips: see `st_lpips`.
        lpips: the metric of the package lpips.
    """

    brisque: no_reference.Brisque | None = None
    niqe: no_reference.Niqe | None = None
    st_lpips: nn.Module | None = None
    lpips: nn.Module | None = None

    @classmethod
    def installed(cls) -> "ImageQuality":
        """With the parameters that are installed. For each that is lacking, a line in the log says how to get it."""
        found = cls(
            _load(no_reference.Brisque.load, no_reference.BRISQUE_MODEL),
            _load(no_reference.Niqe.load, no_reference.NIQE_MODEL),
            _load(st_lpips.ShiftTolerantLPIPS.load, st_lpips.PARAMETERS),
            st_lpips.lpips(),
        )
        ways = {"BRISQUE": EXTRA, "NIQE": EXTRA, "ST-LPIPS": EXTRA, "LPIPS": LPIPS}
        for (name, way), metric in zip(ways.items(), vars(found).values()):
            if metric is None:
                logger.info(f"{name} is left out: its parameters are not installed. To have it: {way}.")
        return found

    def __call__(self, truth: Tensor, slice_axis: int) -> Callable[[Tensor], dict[str, float]]:
        """A measure for volumes of one case; see `paired.Metrics`.

        Args:
            truth: `(X, Y, Z)`; it chooses the planes, and what is black and white in them.
            slice_axis: of the thick slices.
        """
        truth = truth.as_subclass(Tensor)  # type: ignore[arg-type]
        return partial(self._measure, truth=truth, reformats=Reformats.of(truth, slice_axis))

    def _measure(self, prediction: Tensor, truth: Tensor, reformats: Reformats) -> dict[str, float]:
        return self.paired(prediction, truth, reformats) | self.unpaired(prediction, reformats)

    def unpaired(self, volume: Tensor, reformats: Reformats) -> dict[str, float]:
        """`sharpness`, and `brisque` and `niqe` where they are installed. None of them needs a truth.

        Args:
            volume: `(X, Y, Z)`.
            reformats: of the case, the same for all methods.
        """
        values = {"sharpness": no_reference.sharpness(volume, reformats.slice_axis)}
        images = 255 * reformats.gray(volume).double().cpu().numpy()
        if self.brisque is not None:
            values["brisque"] = self.brisque(images)
        if self.niqe is not None:
            values["niqe"] = self.niqe(images, reformats.head.cpu().numpy())
        return values

    def paired(self, prediction: Tensor, truth: Tensor, reformats: Reformats) -> dict[str, float]:
        """`st_lpips` and `lpips` from the truth, where they are installed.

        Args:
            prediction: `(X, Y, Z)`.
            truth: `(X, Y, Z)`.
            reformats: of the case.
        """
        check_pair(prediction, truth)
        images = [reformats.gray(volume).cpu() for volume in (prediction, truth)]
        metrics = {"st_lpips": self.st_lpips, "lpips": self.lpips}
        return {name: st_lpips.mean_distance(m, *images) for name, m in metrics.items() if m is not None}


def installed_file(package: str, path: str) -> Path | None:
    """A file of an installed package, which is not imported; None where the package or the file is not there."""
    try:
        file = Path(str(metadata.distribution(package).locate_file(path)))
    except metadata.PackageNotFoundError:
        return None
    return file if file.is_file() else None


def _load(load: Callable[..., Any], file: tuple[str, str]) -> Any:
    """The content of a file of an installed package, by `load`; null where it is lacking."""
    path = installed_file(*file)
    return None if path is None else load(path)
