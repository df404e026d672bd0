"""`Rebuilder` rebuilds a scan, from its file to the fine volume: every host calls this."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from monai.data import MetaTensor
from torch import nn

from ..errors import InputError, flag, logger, printable
from ..stack.grid import name_of
from ..stack.slices import Slices
from .error_map import ErrorMaps, error_map
from .guide import GuideScan, Placed, on_grid, place
from .guided_motion import guided
from .motion import Motion, first_package, found, steadied, taken_back
from .progress import part
from .rebuilt import Rebuilt
from .registration import ALIKE, placed
from .stack_inferer import StackInferer

SHARP = 2.5  # mm; a guide with slices no farther apart guides as it is, by a spline (docs/benchmarks.md)


@dataclass(frozen=True)
class Rebuilder:
    """The parts of a config that rebuild.

    Attributes:
        network: on the device, in evaluation mode.
        preprocessing: file -> slices with their acquisition, as a transform of MONAI on the key `image`; None where
            slices come in memory.
        error_maps: whether results get one; it changes no result.
        guide_preprocessing: as `preprocessing`, of guides: options that describe the scan do not describe its guide.
        guide_share: of the pairs by which the weights were trained; 0 for weights that know no guides.
        motion: whether slices of a head that moved between the packages of its stack are taken back to their places.
    """

    network: nn.Module
    inferer: StackInferer
    device: torch.device | str
    preprocessing: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None
    error_maps: ErrorMaps = field(default_factory=ErrorMaps)
    guide_preprocessing: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None
    guide_share: float = 0.0
    motion: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "motion", flag("motion", self.motion))  # the text true, of a command line, is True

    def measure(self, source: Any) -> Slices:
        """The slices of a scan, of what `readers.ScanReader` reads, or of a volume in memory."""
        if self.preprocessing is None:
            raise ValueError("this rebuilder has no preprocessing: give it slices that are measured already.")
        slices = Slices.of(self.preprocessing({"image": source})["image"])
        for warning in slices.warnings:
            logger.warning(f"{printable(name_of(slices, 'the scan'))}: {warning}")
        return slices

    def check_guides(self) -> None:
        """Refuses a guide for weights that know none."""
        if not self.guide_share:
            raise InputError(
                "these weights were trained without guides: a guide would change nothing. Leave out the guide, or set "
                "--ckpt_path to weights that were trained with them."
            )

    def read_guide(self, source: Any) -> GuideScan:
        """A scan of another contrast that is to guide, of what `measure` takes."""
        self.check_guides()
        return self._sharp(replace(self, preprocessing=self.guide_preprocessing).measure(source))

    def guide(self, other: GuideScan, slices: Slices) -> Placed:
        """A scan of another contrast, of `read_guide`, beside the scan that it guides."""
        placed = self._beside(other, slices)
        if not placed.fits:
            raise InputError(
                f"{placed.name} does not fit {name_of(slices, 'the scan')}: their likeness is "
                f"{placed.likeness:.2f}, and from {ALIKE} on they show one head. The guide may be of another person or "
                "region, or damaged. Leave it out, or give another one."
            )
        if placed.copies:
            raise InputError(
                f"{placed.name} has the contrast of {name_of(slices, 'the scan')}: a rising curve explains "
                f"{placed.relation:.0%} of the scan by it. A copy of the scan brings nothing. Leave it out, or give a "
                "scan of another contrast."
            )
        if saw_little := placed.coverage.warning(printable(placed.name)):
            logger.warning(f"{printable(name_of(slices, 'the scan'))}: {saw_little}")
        return placed

    def place(self, other: Slices, slices: Slices) -> Placed:
        """A guide beside the slices that it guides, whether it fits or not. Thick slices of it are rebuilt first."""
        return self._beside(self._sharp(other), slices)

    def _sharp(self, other: Slices) -> GuideScan:
        a = other.acquisition
        if a.at_target or a.slice_spacing <= SHARP:
            return GuideScan(other)
        return GuideScan(Slices.sharp(replace(self, error_maps=ErrorMaps())(other).volume), other)

    def _beside(self, other: GuideScan, slices: Slices) -> Placed:
        with part("registering", wanted=self.inferer.progress):
            return place(other.sharp, self._steady(slices), other.stack)

    def __call__(self, measured: Slices, guide: Placed | None = None) -> Rebuilt:
        """Rebuilds a stack of slices, with or without a guide that `guide` has placed.

        Motion between the packages is looked for in any case. Where it is taken back, drafts of the stack and, without
        a guide, of its first package come first.
        """
        motion, shown = found(measured), None if guide is None else guide.volume
        slices, taken = measured, self._to_take_back(measured)
        if taken is not None:
            slices, motion = self._taken_back(measured, taken, shown)
        rebuilt = self.inferer.rebuilt(slices, self.network, shown)
        rebuilt = replace(rebuilt, guide=guide, motion=motion, taken_back=taken is not None)
        maps = self.error_maps
        if not maps.wanted or maps.calibration is None:
            return rebuilt
        plain = None if guide is None else self.inferer.rebuilt(slices, self.network).volume
        steady = steadied(slices, motion) if taken is None and motion is not None and motion.moved else None
        network, half = self.network, self.inferer.bfloat16
        error = error_map(rebuilt, network, self.device, maps.calibration, half, plain, steady)  # type: ignore[arg-type]
        return replace(rebuilt, error_map=error)

    def each(self, stacks: Sequence[Slices], guides: Sequence[Placed | None]) -> list[Rebuilt]:
        """Rebuilds stacks of one head, each with its guide.

        Slices that are taken back without a guide are taken back again by the poses that another stack shows: it
        measured what lies between them.
        """
        first = [self(measured, guide) for measured, guide in zip(stacks, guides)]
        return [
            self._beside_others(measured, one, [other for other in first if other is not one])
            for measured, one in zip(stacks, first)
        ]

    def _beside_others(self, measured: Slices, one: Rebuilt, others: Sequence[Rebuilt]) -> Rebuilt:
        if not one.taken_back or one.motion is None or one.guide is not None:
            return one
        for other in others:
            with part("registering", wanted=self.inferer.progress):
                beside = place(Slices.sharp(other.volume), one.slices, other.slices)
            motion = guided(measured, beside.volume, one.motion) if beside.fits else one.motion
            if motion is not one.motion:
                again = self.inferer.rebuilt(taken_back(measured, one.volume, motion), self.network)
                return replace(again, motion=motion, taken_back=True)
        return one

    def _taken_back(self, measured: Slices, motion: Motion, shown: MetaTensor | None) -> tuple[Slices, Motion]:
        """Slices in one place, and their poses, which a sharp volume shows best: a guide, or the first package alone.

        The result of the first package alone is of one place and of wide gaps. By it the moved slices are taken back,
        more precisely than by their spline. The result of all of them takes them back for good.
        """
        first = first_package(measured, motion) if shown is None else None
        if first is None:
            motion = motion if shown is None else guided(measured, shown, motion)
            slices = steadied(measured, motion)
        else:
            alone = self.inferer.draft.rebuilt(first, self.network).volume
            motion = guided(measured, on_grid(Slices.sharp(alone), measured, np.eye(4)), motion)
            whole = MetaTensor(torch.empty(measured.fine_shape), affine=measured.fine_affine)
            there, _ = placed(alone, whole, np.eye(4), order=1)
            slices = taken_back(measured, MetaTensor(there, affine=measured.fine_affine), motion)
        volume = self.inferer.draft.rebuilt(slices, self.network, shown).volume
        return taken_back(measured, volume, motion), motion

    def _steady(self, slices: Slices) -> Slices:
        """Slices taken back by their spline (`motion.steadied`); themselves if that is not asked for."""
        motion = self._to_take_back(slices)
        return slices if motion is None else steadied(slices, motion)

    def _to_take_back(self, slices: Slices) -> Motion | None:
        """The motion by which slices are taken back; None for slices that stay as they are."""
        motion = found(slices) if self.motion else None
        reached = motion is not None and motion.moved and motion.in_reach(slices.acquisition.slice_spacing)
        return motion if reached else None
