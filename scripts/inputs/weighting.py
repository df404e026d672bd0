"""The weighting of a scan and its contrast agent, by the words of names and descriptions, else by its times."""

import re

import numpy as np

PLANE = r"(ax|axi|axial|tra|trans|transverse|transversal|sag|sagittal|cor|coronal|obl|oblique)"
ORIENTATION = re.compile(  # words of names that say how the slices lie, or which of several runs it is
    rf"run-\w+|acq-{PLANE}(\d+(mm)?)?|{PLANE}", re.IGNORECASE
)
WEIGHTINGS = {  # the first that is found; a T1 FLAIR is a T1w scan
    "STIR": r"stir(?![a-z])",
    "DIR": r"(?<![a-z])dir(?![a-z])",
    "T1w": r"(?<![a-z\d])t1(?!\d|rho)|inplanet1",
    "T2*w": r"(?<![a-z\d])t2 ?(\*|star)",
    "FLAIR": r"flair|tirm|dark ?fluid|(?<![a-z\d])t2f(?![a-z])",
    "T2w": r"(?<![a-z\d])t2(?!\d)|inplanet2",
    "PDw": r"(?<![a-z])pd(?![a-su-z])|proton ?density",
}
SEQUENCES = {  # names of sequences that say it where no weighting is named
    "T1w": r"mp ?rage|mp2rage|(?<![a-z])(bravo|vibe|3?d?tfe|f?spgr)(?![a-z])",
    "T2*w": r"(?<![a-z])(swi|swan|ha?emo)(?![a-z])",
    "T2w": r"(?<![a-z])space(?![a-z])",
}
AGENTS = (
    r"gd|gad[a-z]*|km|kontrast(mittel)?|contrast|post(?! ?op)|ce|t1w?(gd|ce|c)|dotarem|magnevist|prohance|multihance|"
    r"omniscan|primovist|clariscan|vueway|elucirem"
)
AGENT = re.compile(rf"(?<![a-z])({AGENTS})(?![a-z])|(?<![a-z])c ?\+|\+ ?c(?![a-z])")
NO_AGENT = re.compile(
    r"(?<![a-z])(pre(?! ?op)|nativ|native|ohne (km|kontrast\w*)|no ?(gd|contrast)|ce none|(w/?o|without|non) ?contrast)"
    r"(?![a-z])"
)
ELSEWHERE = re.compile(r"(?<![a-z\d])(to|in)(?![a-z\d]).*")  # a scan in the place of another: whose words follow


def contrast_of(name: str) -> str:
    """A name without the words that say how the slices lie.

    >>> [contrast_of(name) for name in ("sub-01_acq-ax_run-2_T2w", "t2_tse_tra_320", "acq-pre_T1w")]
    ['sub-01 t2w', 't2 tse 320', 'acq-pre t1w']
    """
    return " ".join(
        word for word in re.split(r"[^A-Za-z0-9+*-]+", name.lower()) if word and not ORIENTATION.fullmatch(word)
    )


def weighting_and_agent(
    description: str, named: str, agent: str, times: np.ndarray, sequence: object
) -> tuple[str, bool | None]:
    """Weighting, by the description, else by other names, else by the times in ms; and whether an agent was given."""
    said = [_separated(ELSEWHERE.sub("", _separated(one))) for one in (description, named)]
    tables = [(table, one) for table in (WEIGHTINGS, SEQUENCES) for one in said]
    found = [name for table, one in tables for name, words in table.items() if re.search(words, one)]
    given = True if agent.strip() and agent.strip().lower() not in ("none", "no") else None
    both = " ".join(said)
    if given is None and NO_AGENT.search(both):
        given = False
    elif given is None and AGENT.search(both):
        given = True
    return (found[0] if found else _by_times(times, "GR" in str(sequence))), given


def _separated(name: str) -> str:
    return re.sub(r"[\s_.-]+", " ", name.lower())


def _by_times(times: np.ndarray, gradient: bool) -> str:
    """The weighting by echo, inversion and repetition time in ms, where they leave no doubt."""
    echo, inversion, repetition = times
    if inversion > 1500 and echo > 60:
        return "FLAIR"
    if echo < 15 and 300 < inversion < 1500:
        return "T1w"
    if gradient or inversion > 0:
        return ""
    if echo < 30 and repetition < 1000:
        return "T1w"
    return "T2w" if echo > 70 and repetition > 2000 else ""


def names_contrast(word: str) -> bool:
    """Whether a word names a weighting, or a sequence of one."""
    return any(re.search(words, word) for table in (WEIGHTINGS, SEQUENCES) for words in table.values())
