"""Options: one table, by which every door is made, and the check that no value is code to MONAI.

The command, its page in docs/usage.md, the Python door, MONAI Label, 3D Slicer and Boutiques are made of its rows. A
new option is a row here, a name in configs/inference.yaml, and where it is of one scan, an argument of
`drift_mri.rebuild`.
"""

import os
import re
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from .errors import InputError, flag

EVALUATED = ("$", "@", "%")  # a text that begins so is code, a reference or a file to a config
GROUPS = {  # of --help, and of docs/usage.md
    "input": "which scans are taken",
    "acquisition": "how the slices were measured",
    "other scans of the head": "what else shows this head",
    "method": "what is rebuilt, and by what",
    "output": "what is written",
    "run": "how the work is done",
}
NUMBERS: dict[str, tuple[type, str]] = {"number": (float, "a number"), "whole": (int, "a whole number")}


def number(kind: str, *words: str) -> Callable[[Any], Any]:
    """A reader of a kind of `NUMBERS`, and of `words` beside them, for argparse. Its error says which it takes."""
    made, called = NUMBERS[kind]

    def read(value: Any) -> Any:
        try:
            return str(value) if str(value) in words else made(str(value))
        except ValueError:
            raise ArgumentTypeError(f"{value!r} is given: expected {' or '.join((called, *words))}") from None

    return read


@dataclass(frozen=True)
class Option:
    """A row of the table.

    Attributes:
        group: a name of `GROUPS`.
        kind: of a value.
        help: its purpose.
        value: how the value is called in help.
        choices: the values that are taken, all of them.
        words: texts that are taken where a number is expected, such as auto.
        bare: the value of the option where none is given; empty where there has to be one.
        of_scan: whether it says how a single scan is rebuilt. Then Python, MONAI Label and 3D Slicer have it too.
    """

    group: str
    kind: Literal["switch", "number", "whole", "choice", "path", "paths", "pattern", "patterns"]
    help: str
    value: str = ""
    choices: tuple[Any, ...] = ()
    words: tuple[str, ...] = ()
    bare: str = ""
    of_scan: bool = False

    @property
    def argparse(self) -> dict[str, Any]:
        """Arguments of `add_argument`."""
        told = self.help.replace("%", "%%")  # argparse formats it
        if self.kind == "switch":
            return {"action": "store_true", "help": told}
        return {
            "help": told,
            **({"type": number(self.kind, *self.words)} if self.kind in NUMBERS else {}),
            **({"metavar": self.value} if self.value else {}),
            **({"choices": self.choices} if self.choices else {}),
            **({"nargs": "?", "const": self.bare} if self.bare else {}),
            **({"action": "extend", "nargs": "+"} if self.kind == "patterns" else {}),
            **({"action": "append"} if self.kind == "paths" else {}),
        }

    def read(self, name: str, value: Any) -> Any:
        """A value that a host sends, a text or of JSON, as a config takes it.

        Raises:
            InputError: for one that the option does not take.
        """
        if self.kind == "switch":
            return flag(name, value)
        try:
            given = number(self.kind, *self.words)(value) if self.kind in NUMBERS else value
            if not self.choices or given in self.choices:
                return given
        except ArgumentTypeError:
            pass
        taken = " or ".join(map(str, self.choices or (NUMBERS[self.kind][1], *self.words)))
        raise InputError(f"{name} is {value!r}: expected {taken}, or nothing for the default.")


# Option of configs/inference.yaml, or `config` -> its row
OPTIONS: dict[str, Option] = {
    "missing_slices": Option(
        *("input", "choice"),
        "of a DICOM series that lacks slices: refuse it (default), or rebuild its longest unbroken part",
        choices=("refuse", "longest"),
        of_scan=True,
    ),
    "include": Option(
        *("input", "patterns"),
        "take only scans whose path within the folder, or whose series' name, matches one of these shell patterns, "
        "such as '*T2w*'",
        value="PATTERN",
    ),
    "exclude": Option("input", "patterns", "leave out scans that match one of these", value="PATTERN"),
    "participant_label": Option(
        *("input", "patterns"), "take only these participants of a BIDS dataset, with or without sub-", value="LABEL"
    ),
    "session_label": Option(
        *("input", "patterns"), "take only these sessions of a BIDS dataset, with or without ses-", value="LABEL"
    ),
    "slice_thickness": Option(
        *("acquisition", "number"),
        "thickness of the measured slices; without it the DICOM header's or BIDS sidecar's, else the slice spacing",
        value="MM",
        of_scan=True,
    ),
    "slice_spacing": Option(
        *("acquisition", "number"),
        "for slices that were interpolated: the spacing that they had, to which they are taken back first",
        value="MM",
        of_scan=True,
    ),
    "slice_axis": Option(
        *("acquisition", "whole"),
        "array axis of the slices; without it the one that the header names, else that of the largest spacing",
        choices=(0, 1, 2),
        of_scan=True,
    ),
    "noise": Option(
        *("acquisition", "number"),
        "standard deviation of the slices' noise, in % of the range of tissue; auto (default): as they show it; 0 "
        "keeps all texture",
        value="PERCENT",
        words=("auto",),
        of_scan=True,
    ),
    "guide": Option(
        *("other scans of the head", "path"),
        "a sharp scan of another contrast of the same head, such as a 3-D T1w, or a folder with its DICOM series; it "
        "is registered, and shows where edges are. Without SCAN, or auto: for each scan the first of three beside "
        "it that fits",
        value="SCAN",
        bare="auto",
        of_scan=True,
    ),
    "together": Option(
        *("other scans of the head", "switch"),
        "make one volume of all stacks of one head and contrast, such as an axial and a sagittal one; in folders "
        "standards say which",
    ),
    "reference": Option(
        *("other scans of the head", "pattern"),
        "with --together: the stack that gives grid, place and units, as a shell pattern on paths or series' names "
        "(default: the first)",
        value="PATTERN",
    ),
    "target_thickness": Option(
        *("method", "number"),
        "thickness to reach; without it the finer in-plane spacing, within what the weights were trained for",
        value="MM",
        of_scan=True,
    ),
    "sharp": Option(
        *("method", "switch"),
        "take the flow beyond the mean: a sharper result. Its detail is drawn from what heads look like: PSNR falls, "
        "and lesions may be drawn or lost (docs/limits.md)",
        of_scan=True,
    ),
    "isotropic": Option(
        *("method", "switch"),
        "resample the pixels to the target too, so that the result has cubes for voxels",
        of_scan=True,
    ),
    "motion": Option(
        *("method", "choice"),
        "take the slices of a head that moved between the packages of its stack back to their places (default), which "
        "takes about twice as long; a head that lay still is rebuilt as without; false: leave them",
        choices=("true", "false"),
        of_scan=True,
    ),
    "ckpt_path": Option(
        *("method", "path"),
        "weights, with their card beside them, model.json for model.pt (default: the shipped ones)",
        value="FILE",
        of_scan=True,
    ),
    "config": Option(
        *("method", "paths"),
        "a config to stack on configs/inference.yaml: settings of the method, a network of another size or of your own",
        value="FILE",
        of_scan=True,
    ),
    "error_map": Option(
        *("output", "switch"),
        "beside each result a map NAME_sr_error: the half-width of the interval that holds the truth",
        of_scan=True,
    ),
    "confidence": Option(
        *("output", "number"),
        "share of voxels whose truth is in the interval of --error_map, 0.5 to 0.99 (default: 0.9)",
        value="SHARE",
        of_scan=True,
    ),
    "regions": Option(
        *("output", "path"),
        "a label map in the scan's place; with --error_map, NAME_sr_error_regions.csv holds each region's mean and its "
        "error bar",
        value="FILE",
    ),
    "check": Option(
        *("output", "switch"),
        "test DRIFT on the scan's own slices: acquired again along an axis within them, rebuilt and compared, beside "
        "the cubic spline; the run takes up to a third longer",
        of_scan=True,
    ),
    "report": Option(
        *("output", "switch"),
        "a page for each scan, to scroll through: measured, cubic and rebuilt, geometry, spectra, agreement with the "
        "measurement",
    ),
    "output_format": Option(
        *("output", "choice"),
        "NIfTI (default); a derived MR series for scans that came as DICOM, without the others; or auto: each as it "
        "came",
        choices=("nifti", "dicom", "auto"),
    ),
    "dtype": Option(
        *("output", "choice"),
        "voxels of NIfTI results: float32 (default), or int16, scaled, in half the space, right to half a step",
        choices=("float32", "int16"),
    ),
    "dry_run": Option(
        *("run", "choice"),
        "list what would be done with which scan, and write nothing; json: for programs",
        value="json",
        choices=("true", "false", "json"),
        bare="true",
    ),
    "jobs": Option(
        *("run", "whole"),
        "scans at once, each in a process of its own; the cores are shared out (default: 1)",
        value="N",
    ),
    "allow_failures": Option("run", "switch", "exit with code 0 even if a scan failed; summary.csv names it"),
}
OF_SCAN = {name: one for name, one in OPTIONS.items() if one.of_scan}
SENT = {  # to a server, which opens no file of its own for a client, and answers with one volume
    name: one
    for name, one in OF_SCAN.items()
    if one.kind not in ("path", "paths") and name not in ("error_map", "confidence", "check")
}

CORES = "threads of a scan are set by OMP_NUM_THREADS=N before the command, and --jobs N rebuilds N scans at once"
CARD = (
    "the first NVIDIA GPU is taken where there is one. CUDA_VISIBLE_DEVICES=1 before the command takes the second, "
    "CUDA_VISIBLE_DEVICES= the CPU"
)
NO_WORK = "nothing is kept but results, and a run that is repeated goes on by itself. Leave it out"
LINES = "the same lines are in drift.log. Add > /dev/null to the command for silence"
AGAIN = "what is changed is done again by itself, and the rest is complete. Set another -o, or remove the result"
# Words of other programs -> the way to the same here
MEANINGS = {
    **dict.fromkeys(("device", "gpu", "gpus", "gpu_id", "cuda", "cpu", "use_gpu", "no_gpu"), CARD),
    **dict.fromkeys(("threads", "nthreads", "n_threads", "num_threads", "omp_nthreads", "ncpus", "n_cpus"), CORES),
    **dict.fromkeys(("n_procs", "nprocs", "n_jobs", "njobs", "num_workers", "workers", "j"), CORES),
    **dict.fromkeys(("quiet", "q", "silent", "verbose", "v", "log_level"), LINES),
    **dict.fromkeys(("overwrite", "force", "f", "redo", "clean", "no_overwrite"), AGAIN),
    **dict.fromkeys(("w", "work_dir", "work", "scratch", "tmp", "resume", "stop_on_first_crash"), NO_WORK),
    **dict.fromkeys(("mem", "mem_gb", "mem_mb", "memory"), "a scan takes about a gigabyte, and no option says more"),
    **dict.fromkeys(("i", "input", "in"), "drift-mri takes scans without an option: drift-mri SCAN -o OUT"),
    **dict.fromkeys(("out", "output", "outdir", "out_dir"), "set --output_dir OUT"),
    **dict.fromkeys(("model", "weights", "checkpoint", "ckpt"), "set --ckpt_path FILE"),
    **dict.fromkeys(("thickness", "st"), "set --slice_thickness MM, as measured, or --target_thickness MM, to reach"),
    **dict.fromkeys(("spacing", "voxel_size", "resolution", "voxsize"), "set --target_thickness MM, and --isotropic"),
    "analysis_level": "write BIDS_DIR OUT participant",
}
GRANTED = ("skip_bids_validator", "skip_bids_validation")  # taken: no dataset is validated

PATHS = (  # segmenter is a command, which begins with one
    *("bundle_root", "input", "dataset_dir", "label_dir", "output_dir", "guide", "regions"),
    *("ckpt_path", "stage2_start", "error_start", "shipped", "segmenter"),
)
READ = {"input", "scan", "guide", "regions", "ckpt_path", "config"}  # paths that have to be there
PATTERNS = tuple(name for name, one in OPTIONS.items() if one.kind in ("pattern", "patterns"))


def check_there(given: Mapping[str, Any]) -> None:
    """Refuses a file or folder of options, name -> value, that is not there."""
    for name in given.keys() & READ:
        paths = given[name] if isinstance(given[name], list) else [given[name]]
        for path in paths if paths != ["auto"] else ():  # of guides
            if isinstance(path, str | os.PathLike) and not os.path.exists(path):
                shown, option = path or "''", {"input": "the input", "scan": "scan"}.get(name, f"--{name}")
                raise InputError(f"{shown} does not exist. Set {option} to a file or a folder that is there.")


def sent(request: Mapping[str, Any], others: Iterable[str]) -> dict[str, Any]:
    """Options of `SENT` that a host's request gives; an empty one is left out, and keeps the bundle's default.

    Args:
        others: names in the request that are the host's own.

    Raises:
        InputError: for a name that is neither, and for a value that its option does not take.
    """
    if strange := sorted(request.keys() - {*SENT, *others}):
        raise InputError(f"{strange[0]} is no option: expected {', '.join(SENT)}. Give one of these, or none.")
    return {
        name: one.read(name, request[name]) for name, one in SENT.items() if request.get(name, "") not in ("", None)
    }


def as_arguments(text: str) -> str:
    """A message of the command for those who call a function: options are named as arguments."""
    return re.sub(r"--(\w+)", lambda found: found[1] if found[1] in OPTIONS else found[0], text)


def texts(value: Any) -> Iterator[str]:
    """The texts in a value, at any depth."""
    if isinstance(value, list | tuple | dict):
        for one in value.values() if isinstance(value, dict) else value:
            yield from texts(one)
    elif isinstance(value, str):
        yield value


def check_texts(options: Mapping[str, Any]) -> None:
    """Refuses options, name -> value, whose text MONAI would evaluate, or look up, when it is put into a config."""
    for name, value in options.items():
        for text in texts(value):
            if text.startswith(EVALUATED):
                plain = f"./{text}" if name in PATHS else f"[{text[0]}]{text[1:]}"  # to a shell pattern the same
                remedy = f"Write it as {plain}." if name in (*PATHS, *PATTERNS) else "Give a value."
                raise InputError(f"--{name} {text} begins with {text[0]}, which MONAI would evaluate. {remedy}")
