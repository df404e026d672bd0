"""`Rebuilder` rebuilds a scan, from its file to the fine volume: every host calls this."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from monai.data import MetaTensor
from torch import nn

from ..errors import InputError, flag, logger, printable
from ..method.calibration import Foretelling
from ..method.origin import Origin
from ..stack.grid import name_of
from ..stack.slices import Slices
from .error_map import ErrorMaps, error_map
from .guide import GuideScan, PlacedGuide
from .motion import by_volume, motion_of, steady, taken_back
from .progress import part, passing
from .rebuilt import Rebuilt
from .reduced_resolution import Check, check
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
        check: whether the method is tested on each scan's own slices; it changes no result.
        foretelling: of the weights' card; None where there is none.
    """

    network: nn.Module
    inferer: StackInferer
    device: torch.device | str
    preprocessing: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None
    error_maps: ErrorMaps = field(default_factory=ErrorMaps)
    guide_preprocessing: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None
    guide_share: float = 0.0
    motion: bool = False
    check: bool = False
    foretelling: Foretelling | None = None

    def __post_init__(self) -> None:
        for name in ("motion", "check"):
            object.__setattr__(self, name, flag(name, getattr(self, name)))  # the text true, of a command line, is True
        origin = Origin.of(self.network)
        if self.inferer.sharp and not origin.flows:
            raise InputError(
                f"sharp is true, and the network is {origin.name}: it has no flow of DRIFT's that leads further. Leave "
                "out --sharp."
            )

    def measure(self, source: Any) -> Slices:
        """The slices of a scan that `readers.ScanReader` reads, or of a volume in memory."""
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
        """A scan of another contrast that is to guide, from any source of `measure`."""
        self.check_guides()
        return self.guide_scan(replace(self, preprocessing=self.guide_preprocessing).measure(source))

    def guide_scan(self, other: Slices) -> GuideScan:
        """A scan that is to guide; one of thick slices is rebuilt first."""
        a = other.acquisition
        if a.at_target or a.slice_spacing <= SHARP:
            return GuideScan(other)
        with passing("the guide"):
            method = replace(self, error_maps=ErrorMaps(), inferer=self.inferer.mean)  # drawn detail would guide, too
            return GuideScan(Slices.sharp(method(other).volume), other)

    def place(self, guide: GuideScan, slices: Slices) -> PlacedGuide:
        """A guide beside the slices that it guides, whether it fits or not (`PlacedGuide.check`)."""
        with part("registering", wanted=self.inferer.progress):
            return guide.place(steady(slices)[0] if self.motion else slices)

    def __call__(self, measured: Slices, guide: PlacedGuide | None = None) -> Rebuilt:
        """Rebuilds a stack of slices, with or without a guide that `place` has placed.

        Motion between the packages is looked for in any case.
        """
        shown = None if guide is None else guide.volume
        slices, motion = steady(measured, shown, self._draft) if self.motion else (measured, motion_of(measured))
        rebuilt = self.inferer.rebuilt(slices, self.network, shown)
        rebuilt = replace(rebuilt, guide=guide, motion=motion, taken_back=slices is not measured)
        maps = self.error_maps
        if not maps.wanted or maps.calibration is None:
            return rebuilt
        with passing("without the guide"):
            plain = None if guide is None else self.inferer.rebuilt(slices, self.network).volume
        left = slices is measured and motion is not None and motion.moved
        back = taken_back(slices, motion) if left else None  # type: ignore[arg-type]  # there is one
        network, half = self.network, self.inferer.bfloat16
        error = error_map(rebuilt, network, self.device, maps.calibration, half, plain, back)  # type: ignore[arg-type]
        return replace(rebuilt, error_map=error)

    def checked(self, slices: Slices) -> Check | None:
        """The test of the method on a scan's own slices, without a guide; None where none can be made."""
        method, origin = self.inferer.one_family, Origin.of(self.network)
        with part("checking", wanted=method.progress):
            method = replace(method, progress=False)
            found = check(slices, lambda one: method.rebuilt(one, self.network).volume.as_tensor(), self.foretelling)
        return found if found is None or origin.ours else replace(found, by=origin.name)

    def each(self, stacks: Sequence[Slices], guides: Sequence[PlacedGuide | None]) -> list[Rebuilt]:
        """Rebuilds stacks of one head, each with its guide.

        Slices that are taken back without a guide are taken back again by the poses that another stack shows: it
        measured what lies between them.
        """
        if len(stacks) == 1:
            return [self(stacks[0], guides[0])]
        first = list[Rebuilt]()
        for number, (measured, guide) in enumerate(zip(stacks, guides), start=1):
            with passing(f"stack {number} of {len(stacks)}"):
                first.append(self(measured, guide))
        return [
            self._beside_others(measured, one, [other for other in first if other is not one])
            for measured, one in zip(stacks, first)
        ]

    def _beside_others(self, measured: Slices, one: Rebuilt, others: Sequence[Rebuilt]) -> Rebuilt:
        if not one.taken_back or one.motion is None or one.guide is not None:
            return one
        for other in others:
            with part("registering", wanted=self.inferer.progress):
                beside = GuideScan(Slices.sharp(other.volume), other.slices).place(one.slices)
            motion = by_volume(measured, beside.volume, one.motion) if beside.fits else one.motion
            if motion is not one.motion:
                with passing("once more"):
                    again = self.inferer.rebuilt(taken_back(measured, motion, one.volume), self.network)
                return replace(again, motion=motion, taken_back=True)
        return one

    def _draft(self, slices: Slices, guide: MetaTensor | None) -> MetaTensor:
        """The volume of some slices, for `motion.steady`."""
        with passing("a draft to find motion"):
            return self.inferer.draft.rebuilt(slices, self.network, guide).volume
