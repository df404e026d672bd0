"""The operators: which series are taken, the bundle's own method, the derived series.

The SDK's own do not serve: its loader keeps one of several images at a place, its selector compares attributes with
constants, its bundle operator casts results to 8 bits, and none of its writers writes MR images.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from monai.data import MetaTensor
from monai.deploy.core import ExecutionContext, Fragment, InputContext, Operator, OperatorSpec, OutputContext
from monai.inferers import Inferer
from monai.transforms import Compose

from scripts import dicom
from scripts.errors import InputError, input_error

logger = logging.getLogger("drift")


@contextmanager
def noted(failures: list[str], name: str) -> Iterator[None]:
    """Notes a mistake of the input or the disk and lets the other series go on; anything else stops the application."""
    try:
        yield
    except Exception as error:
        mistake = input_error(error)
        if mistake is None and not isinstance(error, OSError):
            raise
        failures.append(str(mistake or f"{name}: {error}. Check the disk and the rights to the folders."))


def thick_series(folder: Path) -> list[dicom.Series]:
    """The thick 2-D MR series of a folder, at any depth; those that are skipped are named.

    Raises:
        InputError: if there is none.
    """
    found, _ = dicom.find_series(folder)
    for series in found:
        if series.skipped:
            logger.info(f"{series.name} is skipped: {series.skipped}")
    taken = [series for series in found if not series.skipped]
    if not taken:
        reasons = "; ".join(f"{series.name}: {series.skipped}" for series in found) or "it holds no DICOM series"
        raise InputError(f"{folder}: no thick 2-D MR series was found ({reasons}). Give the folder of such a study.")
    return taken


class Selection(Operator):
    """Emits the thick 2-D MR series of a folder, one each time.

    Args:
        more: condition that lets this operator run.
        folder: searched at any depth.
        failures: what could not be done is added to it.
    """

    def __init__(self, fragment: Fragment, more: Any, *, folder: Path, failures: list[str], name: str):
        self.more, self.folder, self.failures = more, folder, failures
        self.left: list[dicom.Series] = []
        super().__init__(fragment, more, name=name)

    def setup(self, spec: OperatorSpec) -> None:
        """Declares the output, `series`: a `dicom.Series`."""
        spec.output("series")

    def start(self) -> None:
        """Searches the folder."""
        with noted(self.failures, str(self.folder)):
            self.left = thick_series(self.folder)
        if not self.left:
            self.more.disable_tick()

    def compute(self, op_input: InputContext, op_output: OutputContext, context: ExecutionContext) -> None:
        """Emits the next series."""
        op_output.emit(self.left.pop(0), "series")
        if not self.left:
            self.more.disable_tick()


class Rebuilding(Operator):
    """Reads a series and rebuilds it: preprocessing, network, inferer and postprocessing of the bundle.

    Args:
        device, preprocessing, network, inferer, postprocessing: parts of `configs/inference.yaml`, under their names.
        failures: what could not be done is added to it.
    """

    def __init__(
        self,
        fragment: Fragment,
        *,
        device: torch.device,
        preprocessing: Compose,
        network: torch.nn.Module,
        inferer: Inferer,
        postprocessing: Compose,
        failures: list[str],
        name: str,
    ):
        self.device, self.network, self.inferer, self.failures = device, network, inferer, failures
        self.preprocessing, self.postprocessing = preprocessing, postprocessing
        super().__init__(fragment, name=name)

    def setup(self, spec: OperatorSpec) -> None:
        """Declares the input, `series`, and the output, `result`: the series and its `(X, Y, Z)` volume."""
        spec.input("series")
        spec.output("result")

    def compute(self, op_input: InputContext, op_output: OutputContext, context: ExecutionContext) -> None:
        """Rebuilds one series."""
        series, start = op_input.receive("series"), time.perf_counter()
        with noted(self.failures, series.name):
            scan = self.preprocessing({"image": series})
            scan["pred"] = self.inferer(scan["image"][None].to(self.device), self.network)[0]
            volume: MetaTensor = self.postprocessing(scan)["pred"][0].cpu()
            op_output.emit((series, volume), "result")
            logger.info(
                f"{series.name} rebuilt, {int(volume.meta['steps'])} Euler steps, {time.perf_counter() - start:.1f} s"
            )


class Writing(Operator):
    """Writes a derived MR series, in a folder of its name.

    Args:
        folder: of the results.
        version: of the bundle.
        failures: what could not be done is added to it.
    """

    def __init__(self, fragment: Fragment, *, folder: Path, version: str, failures: list[str], name: str):
        self.folder, self.version, self.failures = folder, version, failures
        super().__init__(fragment, name=name)

    def setup(self, spec: OperatorSpec) -> None:
        """Declares the input, `result`."""
        spec.input("result")

    def compute(self, op_input: InputContext, op_output: OutputContext, context: ExecutionContext) -> None:
        """Writes one series."""
        series, volume = op_input.receive("result")
        with noted(self.failures, series.name):
            header = dicom.read_series(series).header
            affine, folder = np.asarray(volume.affine), self.folder / f"{series.name}_sr"
            dicom.write_series(folder, volume.as_tensor().numpy(), affine, header, self.version, "deployed")
