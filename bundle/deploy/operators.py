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
from monai.deploy.core import ExecutionContext, Fragment, InputContext, Operator, OperatorSpec, OutputContext

from scripts.errors import InputError, input_error
from scripts.inputs import dicom
from scripts.outputs.dicom import write_series
from scripts.rebuild.rebuilder import Rebuilder

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


def thick_series(folder: Path, thin: float) -> list[dicom.Series]:
    """The thick 2-D MR series of a folder; those that are skipped are logged."""
    found = dicom.find_series(folder, thin)
    for series in found:
        if series.skipped:
            logger.info(f"{series.name} is skipped: {series.skipped}")
    taken = [series for series in found if not series.skipped]
    if not taken:
        reasons = "; ".join(f"{series.name}: {series.skipped}" for series in found) or "it holds no DICOM series"
        raise InputError(f"{folder}: no thick 2-D MR series was found ({reasons}). Give the folder of such a study.")
    return taken


class Finding(Operator):
    """Emits the thick 2-D MR series of a folder, one each time. The condition `more` lets this operator run."""

    def __init__(self, fragment: Fragment, more: Any, failures: list[str], folder: Path, thin: float):
        self.more, self.folder, self.thin, self.failures = more, folder, thin, failures
        self.left: list[dicom.Series] = []
        super().__init__(fragment, more, name="finding")

    def setup(self, spec: OperatorSpec) -> None:
        """Declares the output, `series`: a `dicom.Series`."""
        spec.output("series")

    def start(self) -> None:
        """Searches the folder."""
        with noted(self.failures, str(self.folder)):
            self.left = thick_series(self.folder, self.thin)
        if not self.left:
            self.more.disable_tick()

    def compute(self, op_input: InputContext, op_output: OutputContext, context: ExecutionContext) -> None:
        """Emits the next series."""
        op_output.emit(self.left.pop(0), "series")
        if not self.left:
            self.more.disable_tick()


class Rebuilding(Operator):
    """Reads a series and rebuilds it, by the rebuilder of `configs/inference.yaml`."""

    def __init__(self, fragment: Fragment, failures: list[str], rebuilder: Rebuilder):
        self.rebuilder, self.failures = rebuilder, failures
        super().__init__(fragment, name="rebuilding")

    def setup(self, spec: OperatorSpec) -> None:
        """Declares the input, `series`, and the output, `result`: the series and its `(X, Y, Z)` volume."""
        spec.input("series")
        spec.output("result")

    def compute(self, op_input: InputContext, op_output: OutputContext, context: ExecutionContext) -> None:
        """Rebuilds one series."""
        series, start = op_input.receive("series"), time.perf_counter()
        with noted(self.failures, series.name):
            rebuilt = self.rebuilder(self.rebuilder.measure(series))
            op_output.emit((series, rebuilt.volume), "result")
            logger.info(f"{series.name} rebuilt, {rebuilt.steps} Euler steps, {time.perf_counter() - start:.1f} s")


class Writing(Operator):
    """Writes a derived MR series, in a folder of its name."""

    def __init__(self, fragment: Fragment, failures: list[str], folder: Path, version: str, key: str):
        self.folder, self.version, self.key, self.failures = folder, version, key, failures
        super().__init__(fragment, name="writing")

    def setup(self, spec: OperatorSpec) -> None:
        """Declares the input, `result`."""
        spec.input("result")

    def compute(self, op_input: InputContext, op_output: OutputContext, context: ExecutionContext) -> None:
        """Writes one series."""
        series, volume = op_input.receive("result")
        with noted(self.failures, series.name):
            array, affine = volume.as_tensor().numpy(), np.asarray(volume.affine)
            write_series(self.folder / f"{series.name}_sr", array, affine, series, self.version, self.key)
