"""BIDS as a source: which files of a dataset are anatomical scans, and what their sidecars say.

Gorgolewski et al., Sci. Data 3:160044 (2016).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..errors import InputError, few
from ..files import NIFTI, ends_as, stem, walk

DESCRIPTION = "dataset_description.json"
WEIGHTED = {"T1w", "T2w", "PDw", "T2starw", "FLAIR", "inplaneT1", "inplaneT2", "PDT2", "PD", "T2star", "FLASH", "angio"}
NOT_MAGNITUDE = {"part-phase", "part-real", "part-imag"}
NOT_ANATOMY = re.compile(  # suffixes, the last part of a name
    r"(deface)?mask|(.*\+)?[ad]?seg|probseg|labels?|.*map|phase(diff|[12])?|magnitude[12]?|epi|bold|cb[fv]|sbref|dwi|"
    r"m0scan|ph|real|imag(inary)?|e?adc|m(in|ax|n)?ip",
    re.IGNORECASE,
)
PERFUSION = re.compile(  # words of a name: ASL, pCASL, 3DpCASL
    r"(?<![a-z])(([23]d[ _-]?)?(c|p|pc|v)?asl|(?<!post[ _-])perfusion)(?![a-z])", re.IGNORECASE
)
DIFFUSION = re.compile(  # words of a name: ep2d_diff_3scan_trace, DWI, ADC
    r"(?<![a-z])(dwi|dti|dki|diff|diffusion|hardi|trace[wd]?|tensor|e?adc)(?![a-z])", re.IGNORECASE
)
REFERENCE = re.compile(r"(?<![a-z])sbref(?![a-z])", re.IGNORECASE)
PROJECTION = re.compile(r"(?<![a-z])m(in|ax|n)?ip(?![a-z])", re.IGNORECASE)
ELSEWHERE = "of a dataset the scans in the subjects' anat folders are taken"
SCANNER = (  # fields of a sidecar that hold for the rebuilt scan too; those on slices, their order or times do not
    "Modality MagneticFieldStrength Manufacturer ManufacturersModelName SoftwareVersions InstitutionName StationName "
    "BodyPart BodyPartExamined MRAcquisitionType ScanningSequence SequenceVariant SequenceName PulseSequenceType "
    "ReceiveCoilName ReceiveCoilActiveElements RepetitionTime EchoTime InversionTime FlipAngle EchoTrainLength "
    "NumberOfAverages PixelBandwidth ImagingFrequency ContrastBolusIngredient SeriesDescription ProtocolName"
).split()


def dataset_root(path: str | os.PathLike) -> Path | None:
    """Root of the BIDS dataset that a file or folder belongs to; None outside of one."""
    path = Path(path).absolute()
    return next((folder for folder in (path, *path.parents) if (folder / DESCRIPTION).is_file()), None)


def by_drift(folder: str | os.PathLike) -> bool:
    """Whether a folder is a dataset that DRIFT wrote."""
    tools = description(Path(folder)).get("GeneratedBy")
    return isinstance(tools, list) and any(isinstance(tool, dict) and tool.get("Name") == "DRIFT" for tool in tools)


def shows_anatomy(name: str) -> bool:
    """False for names of masks, maps, phases, projections, and functional, diffusion or perfusion series.

    >>> [shows_anatomy(name) for name in ("sub-01_T2w.nii.gz", "head.mgz", "sub-01_dseg.nii.gz", "brain_mask.nii")]
    [True, True, False, False]
    >>> [shows_anatomy(name) for name in ("3DpCASL.nii", "sub-01_acq-pcasl_T1w.nii", "nasal.nii")]
    [False, True, True]
    >>> [shows_anatomy(name) for name in ("8_swi_e1_ph.nii", "9_ep2d_diff_b1000.nii", "sub-01_desc-dwi_T2w.nii")]
    [False, False, True]
    """
    entities, suffix = _parts(stem(name))
    kinds = (PERFUSION, DIFFUSION, REFERENCE, PROJECTION) if suffix not in WEIGHTED else ()
    other = any(kind.search(stem(name)) for kind in kinds)
    return not (NOT_ANATOMY.fullmatch(suffix) or NOT_MAGNITUDE & entities or other)


def volumes(root: Path) -> list[tuple[Path, str | None]]:
    """NIfTI files of a dataset's subjects, sorted, each with the reason why it is no anatomical scan, or None."""
    ignored, found = _ignored(root), dict[Path, str | None]()
    for folder, folders, names in walk(root):
        if folder == root:
            folders[:] = [name for name in folders if name.startswith("sub-")]
            continue
        for name in (*folders, *names):  # a folder that is named as a scan is refused when its turn comes
            path = folder / name
            if not ends_as(name, NIFTI):
                continue
            if folder.name != "anat" or not name.startswith("sub-"):
                found[path] = ELSEWHERE
            elif ignored(path.relative_to(root).as_posix()):
                found[path] = "a line of the dataset's .bidsignore names it"
            elif not shows_anatomy(name):
                found[path] = "its name says that it is a mask, a map or a phase image"
            elif (suffix := _parts(stem(name))[1]) not in WEIGHTED:
                found[path] = f"{suffix} is none of the suffixes that are taken: {', '.join(sorted(WEIGHTED))}"
            else:
                found[path] = None
    return sorted(found.items())


def _ignored(root: Path) -> Callable[[str], bool]:
    """A test whether a dataset's `.bidsignore`, in the syntax of gitignore, names a path, relative to its root."""
    path = root / ".bidsignore"
    if not path.is_file():
        return lambda name: False
    from pathspec import GitIgnoreSpec  # here, because hosts need it only for such datasets

    try:
        return GitIgnoreSpec.from_lines(path.read_text(encoding="utf-8").splitlines()).match_file
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read ({error}). Mend it, or remove it.") from error


def _parts(name: str) -> tuple[set[str], str]:
    """Entities, such as `sub-01`, and suffix, such as `T2w`, of a file name without its ending."""
    *entities, suffix = name.split("_")
    return set(entities), suffix


def derivative_name(name: str) -> str:
    """Name of a scan's derivative without its ending. A name has one description: BIDS allows no second one.

    >>> [derivative_name(name) for name in ("sub-01_T2w.nii.gz", "sub-01_desc-preproc_T2w.nii.gz")]
    ['sub-01_desc-sr_T2w', 'sub-01_desc-preprocsr_T2w']
    """
    *entities, suffix = stem(name).split("_")
    label = next((one for one in entities if one.startswith("desc-")), "desc-")
    return "_".join([*(one for one in entities if one != label), f"{label}sr", suffix])


def sidecars(path: str | os.PathLike) -> list[Path]:
    """JSON sidecars of a scan, the nearest first.

    In a BIDS dataset it inherits those of upper folders that have its suffix and no entity that it lacks: `T2w.json` at
    the root speaks of `sub-01/anat/sub-01_acq-tse_T2w.nii.gz`.
    """
    path = Path(path)
    own = path.with_name(stem(path.name) + ".json")
    found = [own] if own.is_file() else []
    if (root := dataset_root(path)) is not None:
        entities, suffix = _parts(stem(path.name))
        for folder in (one for one in path.absolute().parents if one.is_relative_to(root)):
            for candidate in sorted(folder.glob(f"*{suffix}.json")):
                theirs, kind = _parts(candidate.stem)
                if kind == suffix and theirs <= entities and candidate.is_file() and candidate not in found:
                    found.append(candidate)
    return found


def _values(path: str | os.PathLike, names: Sequence[str]) -> dict[str, tuple[Any, Path]]:
    """Fields in the nearest sidecars that have them: name -> its value, and that sidecar."""
    found: dict[str, tuple[Any, Path]] = {}
    for sidecar in sidecars(path):
        wanted = [name for name in names if name not in found]
        if not wanted:
            break
        try:
            content = json.loads(sidecar.read_text(encoding="utf-8"))
            found |= {name: (content[name], sidecar) for name in wanted if content.get(name) is not None}
        except (ValueError, AttributeError, RecursionError) as error:
            raise InputError(f"{sidecar}: {few(wanted)} cannot be read ({error}). Mend it, or remove it.") from error
    return {name: found[name] for name in names if name in found}


def sidecar_value(path: str | os.PathLike, name: str) -> tuple[Any, Path | None]:
    """A field's value in the nearest sidecar that has it, and that sidecar; None and None where none has."""
    return _values(path, [name]).get(name, (None, None))


def sidecar(path: str | os.PathLike) -> dict[str, Any]:
    """All that the sidecars of a scan say; the nearest wins."""
    found: dict[str, Any] = {}
    for one in reversed(sidecars(path)):
        try:
            found |= json.loads(one.read_text(encoding="utf-8"))
        except (ValueError, TypeError, RecursionError) as error:
            raise InputError(f"{one} cannot be read ({error}). Mend it, or remove it.") from error
    return found


def kept(path: str | os.PathLike) -> tuple[dict[str, Any], bool]:
    """Fields of a scan's sidecars that hold for the rebuilt scan too, and whether `SkullStripped` is a guess.

    Whether a scan shows the brain alone, derivatives have to say. Raw scans do not, where no sidecar says so.
    """
    fields = {name: value for name, (value, _) in _values(path, ["SkullStripped", *SCANNER]).items()}
    root = dataset_root(path)
    raw = root is not None and description(root).get("DatasetType", "raw") == "raw"
    guess = raw and "SkullStripped" not in fields
    return {**({"SkullStripped": False} if guess else {}), **fields}, guess


def description(root: Path) -> dict[str, Any]:
    """Content of a dataset's `dataset_description.json`; empty if it is missing or cannot be read."""
    try:
        content = json.loads((root / DESCRIPTION).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
