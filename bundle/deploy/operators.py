"""The operator: which series are taken, the bundle's own method, the derived series.

The SDK's own do not serve: its loader keeps one of several images at a place, its selector compares attributes with
constants, its bundle operator casts results to 8 bits, and none of its writers writes MR images.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from monai.deploy.core import ExecutionContext, Fragment, InputContext, Operator, OutputContext

from scripts.errors import input_error, logger
from scripts.inputs.scan import Scan
from scripts.inputs.scans import scans
from scripts.inputs.selection import Selection
from scripts.method.origin import Origin
from scripts.outputs.dicom import write_series
from scripts.rebuild.rebuilder import Rebuilder


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


class Rebuilding(Operator):
    """Rebuilds the thick 2-D MR series of a folder, one each time. The condition `more` lets this operator run.

    Args:
        failures: gets the series that failed.
        folders: of the study, and of the results: a derived MR series each, in a folder of its name.
        made_with: version of the bundle, and a text that names settings and weights (`write_series`).
    """

    def __init__(
        self,
        fragment: Fragment,
        more: Any,
        failures: list[str],
        folders: tuple[Path, Path],
        thin: float,
        rebuilder: Rebuilder,
        made_with: tuple[str, str],
    ):
        self.more, self.failures, (self.source, self.target), self.thin = more, failures, folders, thin
        self.rebuilder, self.made_with = rebuilder, made_with
        self.left: list[Scan] = []
        super().__init__(fragment, more, name="rebuilding")

    def start(self) -> None:
        """Searches the folder."""
        with noted(self.failures, str(self.source)):
            found = scans(self.source, self.target, Selection(self.thin))
            self.left = [one for one in found if one.is_dicom and not one.mark]
            for one in (one for one in found if one.mark):  # others' archives get none of them
                logger.warning(f"{one.name} is left alone: {one.mark}.")
        if not self.left:
            self.more.disable_tick()

    def compute(self, op_input: InputContext, op_output: OutputContext, context: ExecutionContext) -> None:
        """Reads, rebuilds and writes the next series."""
        scan, start = self.left.pop(0), time.perf_counter()
        with noted(self.failures, scan.name):
            rebuilt = self.rebuilder(self.rebuilder.measure(scan.source))
            array, affine = rebuilt.volume.as_tensor().numpy(), np.asarray(rebuilt.volume.affine)
            facts = {"by": Origin.of(self.rebuilder.network).said(self.made_with[0]), "sharp": rebuilt.sharp}
            facts["warnings"] = [*rebuilt.warnings, *filter(None, [scan.remark])]
            write_series(scan.result, array, affine, scan.source, *self.made_with, **facts)
            logger.info(f"{scan.name} rebuilt, {rebuilt.steps} Euler steps, {time.perf_counter() - start:.1f} s")
        if not self.left:
            self.more.disable_tick()
