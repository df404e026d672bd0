"""How sharp, how natural and how much like the truth the planes look: what `metrics: all` measures beside the rest."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from torch import Tensor, nn

from ..errors import InputError
from ..files import installed_file
from ..stack.grid import check_pair
from . import naturalness, perceptual
from .metrics import sharpness
from .reformats import Reformats

logger = logging.getLogger("drift")

EXTRA = "pip install --no-deps stlpips_pytorch==0.0.2 brisque==0.2.0 iqa-torch==1.2.1"
BLUR = "pip install scikit-image"
LPIPS = "pip install lpips, then once python -c 'import lpips; lpips.LPIPS()', which downloads AlexNet's weights"


@dataclass(frozen=True)
class Judges:
    """What can be measured on this machine; null for what cannot.

    Attributes:
        brisque: see `naturalness`.
        niqe: see `naturalness`.
        st_lpips: see `perceptual`.
        lpips: that of the package lpips.
        sharpness: see `metrics`.
    """

    brisque: naturalness.Brisque | None = None
    niqe: naturalness.Niqe | None = None
    st_lpips: nn.Module | None = None
    lpips: nn.Module | None = None
    sharpness: Callable[[Tensor, int], float] | None = None

    @classmethod
    def installed(cls) -> Judges:
        """With the parameters that are installed; a line in the log for each that is lacking says how to get it."""
        judges = cls(
            _load(naturalness.Brisque.load, naturalness.BRISQUE_MODEL, naturalness.BRISQUE_RANGES),
            _load(naturalness.Niqe.load, naturalness.NIQE_MODEL),
            _load(perceptual.ShiftTolerantLPIPS.load, perceptual.PARAMETERS),
            perceptual.lpips(),
            sharpness if find_spec("skimage") else None,
        )
        ways = {"BRISQUE": EXTRA, "NIQE": EXTRA, "ST-LPIPS": EXTRA, "LPIPS": LPIPS, "sharpness": BLUR}
        for (name, way), judge in zip(ways.items(), vars(judges).values()):
            if judge is None:
                logger.info(f"{name} is left out: its parameters are not installed. To have it: {way}.")
        return judges

    def no_reference(self, volume: Tensor, reformats: Reformats) -> dict[str, float]:
        """What needs no truth and is installed: `sharpness`, `brisque`, `niqe`.

        Args:
            volume: `(X, Y, Z)`.
            reformats: of the case, the same for all methods.
        """
        values = {} if self.sharpness is None else {"sharpness": self.sharpness(volume, reformats.slice_axis)}
        images = 255 * reformats.gray(volume).double().cpu().numpy()
        if self.brisque is not None:
            values["brisque"] = self.brisque(images)
        if self.niqe is not None:
            values["niqe"] = self.niqe(images, reformats.head.cpu().numpy())
        return values

    def paired(self, prediction: Tensor, truth: Tensor, reformats: Reformats) -> dict[str, float]:
        """What compares with the truth: `st_lpips` and `lpips`, where they are installed.

        Args:
            prediction: `(X, Y, Z)`.
            truth: `(X, Y, Z)`.
            reformats: of the case.

        Raises:
            ValueError: if shapes differ.
        """
        check_pair(prediction, truth)
        images = [reformats.gray(volume).cpu() for volume in (prediction, truth)]
        metrics = {"st_lpips": self.st_lpips, "lpips": self.lpips}
        return {name: perceptual.mean_distance(m, *images) for name, m in metrics.items() if m is not None}


def _load(load: Callable[..., Any], *files: tuple[str, str]) -> Any:
    """What `load` makes of files of installed packages; null where one is lacking."""
    paths = [installed_file(*file) for file in files]
    return load(*paths) if all(paths) else None


def judges(metrics: str) -> Judges | None:
    """Those that the option `metrics` asks for: none for `standard`, the installed ones for `all`.

    Raises:
        InputError: if it is neither.
    """
    if metrics not in ("standard", "all"):
        raise InputError(f"metrics is {metrics!r}: expected standard or all. Set --metrics.")
    return Judges.installed() if metrics == "all" else None
