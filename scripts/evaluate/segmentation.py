"""How far a rebuilt volume segments as its truth does, by any segmenter with a command line."""

import math
import shlex
import shutil
import subprocess
import tempfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import torch
from monai.data import MetaTensor
from monai.metrics import compute_dice
from nibabel.filebasedimages import ImageFileError
from torch import Tensor

from ..errors import InputError
from ..stack.grid import name_of
from .paired import same_grid

PLACES = ("{image}", "{labels}")


@dataclass(frozen=True)
class Segmenter:
    """A command that reads a NIfTI file of intensities and writes one of labels; `paired.Metrics`.

    Attributes:
        words: of the command; `{image}` and `{labels}` stand for the paths.
    """

    words: Sequence[str]

    def __call__(self, truth: MetaTensor, slice_axis: int) -> Callable[[Tensor], dict[str, float]]:
        """A measure of `dice` for volumes `(X, Y, Z)` against their truth, which is segmented once."""
        name = Path(name_of(truth, "the truth")).name
        labels = self.labels(truth, name)

        def measure(prediction: Tensor) -> dict[str, float]:
            result = f"a result of {name}"
            found = self.labels(MetaTensor(prediction, affine=truth.affine), result)
            return {"dice": agreement(found, labels, result)}

        return measure

    def labels(self, volume: MetaTensor, name: str) -> MetaTensor:
        """Labels of a volume `(X, Y, Z)` with an affine, whole numbers on the grid that the command chooses."""
        with tempfile.TemporaryDirectory() as folder:
            image, labels = Path(folder, "image.nii.gz"), Path(folder, "labels.nii.gz")
            array = volume.as_tensor().cpu().numpy().astype(np.float32)
            nib.save(nib.Nifti1Image(array, np.asarray(volume.affine, dtype=np.float64)), image)
            words = [w.replace("{image}", str(image)).replace("{labels}", str(labels)) for w in self.words]
            try:
                done = subprocess.run(words, capture_output=True, stdin=subprocess.DEVNULL, check=False)
            except OSError as error:
                raise InputError(f"segmenter {words[0]!r} cannot be run: {error.strerror}. Mend it.") from error
            last = (done.stderr.strip() or done.stdout.strip()).decode(errors="replace").splitlines()[-1:]
            said = f" It said: {last[0]}" if last else ""
            if done.returncode:
                raise InputError(f"segmenter {words[0]!r} ended with exit code {done.returncode} on {name}.{said}")
            if not labels.is_file():
                raise InputError(f"segmenter {words[0]!r} wrote no {{labels}} of {name}.{said}")
            return _read(labels, f"what segmenter {words[0]!r} wrote of {name}")


def _read(path: Path, name: str) -> MetaTensor:
    try:
        image: Any = nib.load(path)
        values = np.squeeze(np.asanyarray(image.dataobj))
    except (ImageFileError, OSError, ValueError, EOFError, zlib.error) as error:
        raise InputError(f"{name} cannot be read as NIfTI: {error}. Mend the segmenter.") from error
    labels = np.rint(values)
    if values.ndim != 3 or not np.array_equal(labels, values):
        raise InputError(f"{name} is {values.dtype} of shape {values.shape}: expected a 3-D map of whole numbers.")
    return MetaTensor(torch.from_numpy(labels.astype(np.int64)), affine=torch.from_numpy(image.affine))


def segmenter(command: str | None) -> Segmenter | None:
    """The segmenter of a command as it is typed, such as `mri_synthseg --i {image} --o {labels}`; null for none.

    Names with blanks stand in quotes. No shell sees it: nothing in it is expanded, redirected or joined.
    """
    if command is None:
        return None
    try:
        words = shlex.split(command) if isinstance(command, str) else []
    except ValueError as error:
        raise InputError(f"segmenter is {command!r}: {error}. Close the quotes.") from error
    if not all(sum(word.count(place) for word in words) == 1 for place in PLACES):
        raise InputError(
            f"segmenter is {command!r}: expected a command with {{image}} and {{labels}} once each, for the paths. "
            'Set --segmenter "mri_synthseg --i {image} --o {labels}".'
        )
    if shutil.which(words[0]) is None:
        raise InputError(f"segmenter: no program {words[0]!r} is found. Install it, or give its whole path.")
    return Segmenter(tuple(words))


def agreement(prediction: MetaTensor, truth: MetaTensor, name: str) -> float:
    """Mean Dice of the labels that the truth's segmentation holds, but for 0 (Sec. S14).

    This is no accuracy: the segmenter may be wrong on both.

    1 for the same labels everywhere; NaN where the truth holds no label. Messages name the rebuilt volume.
    """
    if not same_grid(prediction, truth):
        raise InputError(
            f"the segmentation of {name} has shape {tuple(prediction.shape)}, that of its truth {tuple(truth.shape)}, "
            "or another affine: expected one grid. Have the segmenter keep the grid of its input."
        )
    found, expected = (labels.as_tensor()[None, None] for labels in (prediction, truth))
    scores = [compute_dice(found == label, expected == label).item() for label in expected.unique() if label]
    return float(np.mean(scores or [math.nan]))
