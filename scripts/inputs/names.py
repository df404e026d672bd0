"""Names: the contrast that they say, for people and for the order of candidates, and the group that loose files make.

Names are of files, series and folders. Their words are cut at signs and blanks, at a change of script, as in `T1增强`,
and at one of case, as in `AxT2`. A name settles nothing: images say whether a group shows one head and one contrast.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import takewhile
from pathlib import Path

from ..files import stem

ENDS = r"[_.\s]"  # signs that end a first token
Head = tuple[str, ...]
MOST = 40  # files of a head; a guide is looked for among all of them
BETWEEN = re.compile(r"[^\w*]+|_+")
CHANGE = re.compile(
    r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z]{3})(?=[a-z])|(?<=\d)(?=[A-Z][a-z])"
    r"|(?<=[A-Za-z\d*])(?=[^\x00-\x7f])|(?<=[^\x00-\x7f])(?=[A-Za-z\d])"
)
AROUND = re.compile(r"^[23]d(?=[a-z])|(?<=..)w(i|eighted)?$|(?<=..)[23]d$")  # about the words below: 3dT1, T2WI
GRADIENT = "fl2d fl3d me2d me3d ffe gre hemo haemo medic swi swan".split()
WEIGHTINGS = {  # contrast -> words that name it; of several in one string all. The first that is found decides
    "DIR": ["dir"],
    "T1w": "t1 t1c t1n t1ce t1gd t1flair t1mpr t1mprage t1vibe".split(),
    "T2*w": ["t2*", "t2star", "t2 star", *(f"t2 {word}" for word in GRADIENT)],
    "FLAIR": ["flair", "t2flair", "t2wflair", "t2f", "dark fluid", "darkfluid", "da fl"],
    "STIR": ["stir", "tirm"],
    "T2w": ["t2", "t2tse", "t2fse"],
    "PDw": ["pd", "proton density"],
}
SEQUENCES = {  # words of sequences that say it where no weighting is named
    "T1w": "mprage mp2rage bravo vibe tfe spgr fspgr unit1 inplanet1".split(),
    "T2*w": GRADIENT[-6:],
    "T2w": "space cube vista inplanet2".split(),
}


def words(name: str) -> list[str]:
    """The words of a name, in small letters.

    >>> words("AxT2_FLAIR3D-3mm"), words("T2WI"), words("T1增强"), words("T1D02")
    (['ax', 't2', 'flair', '3mm'], ['t2'], ['t1', '增强'], ['t1d02'])
    """
    found = (part for one in BETWEEN.split(unicodedata.normalize("NFC", name)) for part in CHANGE.split(one))
    return [AROUND.sub("", one.lower()) for one in found if one]


def contrast_of(*names: str) -> str:
    """The contrast that names say, the first of them first; empty where none does.

    >>> [contrast_of(name) for name in ("t2_tirm_tra_dark-fluid", "mp2rage_UNI", "T1 FLAIR", "PD01", "PD tra", "MD")]
    ['FLAIR', 'T1w', 'T1w', '', 'PDw', '']
    """
    said = [set(words(name)) for name in names]
    found = (
        contrast
        for table in (WEIGHTINGS, SEQUENCES)
        for own in said
        for contrast, every in table.items()
        if any(own.issuperset(one.split()) for one in every)
    )
    return next(found, "")


def first_token(name: str) -> str:
    """The first token of a name, up to `_`, a blank or a dot; empty if it begins with a contrast.

    A hyphen ends it before a contrast and before its last words of letters, as in `anna-T1`: it may stand in a number.

    >>> [first_token(name) for name in ("anna-T1_brain", "TCGA-06-0125-T1", "IXI2-Guys-79-sag", "T1-anna")]
    ['anna', 'TCGA-06-0125', 'IXI2-Guys-79', '']
    """
    token, *others = _begin(name).split("-")
    numbers = "-".join([token, *takewhile(lambda one: not contrast_of(one), others)])
    return "" if contrast_of(token) else re.sub(r"(-[^\W\d_][^-]*)+$", "", numbers)


def folder(path: Path) -> Path:
    """The folder of a file; the one above where it is named after a contrast, as in `T1/anna.nii.gz`."""
    return next(one for one in path.absolute().parents if not contrast_of(_begin(one.name)))


def of_files(paths: Iterable[Path]) -> dict[Path, Head]:
    """The heads of loose files: their folder, and in it the files that share a first token, where at least two do.

    Where all first tokens of a folder differ, it is of one head. No examination has more than `MOST` files: each of
    more is a head of its own. Training's split goes by the same tokens.
    """
    found: dict[Path, Head] = {path: (str(folder(path)), first_token(stem(path.name)).casefold()) for path in paths}
    shared = {where for (where, token), count in Counter(found.values()).items() if token and count > 1}
    found = {path: (where, token if where in shared else "") for path, (where, token) in found.items()}
    sizes = Counter(found.values())
    return {path: head if sizes[head] <= MOST else (*head, str(path)) for path, head in found.items()}


def _begin(name: str) -> str:
    return re.split(ENDS, unicodedata.normalize("NFC", name))[0]


def alike(one: Sequence[str], other: Sequence[str]) -> int:
    """How many words two names begin or end with alike, by which candidates are ordered."""
    both = zip(one, other), zip(one[::-1], other[::-1])
    return max(len([*takewhile(lambda pair: pair[0] == pair[1], pairs)]) for pairs in both)
