"""The weighting of a scan and its contrast agent, by the words of names and descriptions, else by its times."""

import re

import numpy as np

PLANE = r"(ax|axi|axial|tra|trans|transverse|transversal|sag|sagittal|cor|coronal|obl|oblique)"
ORIENTATION = re.compile(  # words of names that say how the slices lie, or which of several runs it is
    rf"run-\w+|acq-{PLANE}(\d+(mm)?)?|{PLANE}", re.IGNORECASE
)
ENTITY = re.compile(r"(?<![a-z\d])(acq|desc|space|task|ses)-([a-z][a-z0-9]*)|(?<=_)(run|ses)-[a-z0-9]+")  # in any name
BIDS_NAME = re.compile(r"(sub-[a-z0-9]+)(_ses-[a-z0-9]+)?(?:_[a-z]+-[a-z0-9+]+)*_([a-z0-9]+)")  # ends in the weighting
PREFIX = re.compile(r"^\w+ \d+ (?=.*(t1|t2|pd|flair))")  # and number of a person, before a contrast
AGENTS = r"gd|gad(o[a-z]*)?|km|kontrast(mittel)?|contrast|ce|c\+|\+c|dotarem|magnevist|[a-z]+hance"
PROTOCOL = re.compile(  # words that say how a scan was made, and not whose it is: made of these parts alone
    rf"({PLANE}|{AGENTS}|[sev]?t[12]w?|t1[cn]|t2f(?![a-z])|t2?\*|starw?|pdw?|proton|density|weighted|flair|tirm|stir|dir|dark|"
    r"fluid|tse|fse|se|gre|ge|tfe|ffe|ir|fl(?=[23]d)|me(?=[23]d)|mp2?rage|mpr?|rage|space|vibe|bravo|f?spgr|swi|swan|"
    r"medic|ha?emo|cube|vista|blade|propeller|inplane|uni|sense|longtr|[23]d|\d+mm|\d+x\d+(x\d+)?(mm)?|iso(tropic)?|pre|post|nativ|"
    r"native|none|no|non|without|ohne|vor|sans|sin|senza|fs|fat|sat|spair|spir|dixon|water|(?<![a-z\d])w(?![a-z\d])|(?<=t1w)c|brain|bet|head|skull|stripped|n4|"
    r"defaced?|anon|orig|raw|vol|scan|image|img|mri?|thick|thin|hires|high|low|res|resampled|registered|reg|acpc|"
    r"norm(alized)?|denoised|corrected|preproc(essed)?|crop(ped)?|reorient(ed)?)+"
)
NUMBERED = re.compile(r"(p|e|t[eir]|flair|mprage|tse)[1-9]\d*")  # protocol where a folder has one such number
SHORT = ("p", "e", "te", "tr", "ti")  # that say nothing of the contrast
WEIGHTINGS = {  # of words of `PROTOCOL`, the first that is found; a T1 FLAIR is a T1w scan
    "STIR": r"stir|tirm(?!.*dark).*fs",
    "DIR": r"dir",
    "T1w": r"t1",
    "T2*w": r"t2w? ?(\*|star)|^(?=.*t2).*(fl(?=[23]d)|me(?=[23]d)|ffe|gre|ha?emo|swi|swan|medic)",
    "FLAIR": r"flair|tirm|dark ?fluid|t2f(?![a-z])",
    "T2w": r"t2",
    "PDw": r"pd|proton ?density",
}
SEQUENCES = {  # names of sequences that say it where no weighting is named
    "T1w": r"mp ?rage|mp2rage|bravo|vibe|tfe|spgr",
    "T2*w": r"swi|swan|ha?emo",
    "T2w": r"space",
}
AGENT = re.compile(r"gd|gad|km|kontrast|contrast|hance|(?<!spa)ce|dotarem|magnevist|t1w?c|c ?\+|\+ ?c|post(?! \?)")
NO_AGENT = re.compile(
    r"pre(?!proc)(?! \?)|nativ|ce none|(no|non|without|ohne|vor|sans|sin|senza) ?(gd|gad|contrast|ce|km|kontrast)"
)


def split(name: str) -> list[str]:
    """The words of a name, in small letters."""
    name = re.sub(r"(?<![a-z])da[-_ ]fl(?![a-z])", "dark-fluid", name.lower().replace("w/o", "without"))
    return [word for word in re.split(r"[^\w*+]+|_+", name) if word]


def of_protocol(word: str) -> bool:
    """Whether a word says how a scan was made. No long one does."""
    return len(word) < 40 and PROTOCOL.fullmatch(word) is not None


def contrast_of(name: str) -> str:
    """A name without the words that say how the slices lie.

    >>> [contrast_of(name) for name in ("sub-01_acq-ax_run-2_T2w", "t2_tse_tra_320", "acq-pre_T1w")]
    ['sub-01 t2w', 't2 tse 320', 'acq-pre t1w']
    """
    return " ".join(
        word for word in re.split(r"[^A-Za-z0-9+*-]+", name.lower()) if word and not ORIENTATION.fullmatch(word)
    )


def told(name: str) -> str:
    """The words of a name that speak of its contrast; numbers are left out, and `?` stands for any other word.

    A name as BIDS has them says its suffix and its agent alone. A scan in the place of another, `FLAIR_to_T1`, has its
    own words.

    >>> [told(name) for name in ("PD01_FLAIR", "T1 post RT", "FLAIR_to_T1", "sub-km01_ses-T1_ce-gd_T2w", "fl12_t1_3")]
    ['? flair', 't1 post ?', 'flair', 'ce gd t2w', '? t1']
    """
    name = name.lower()
    if whole := BIDS_NAME.fullmatch(name):
        name = " ".join([*re.findall(r"_(ce-[a-z0-9+]+)", name), whole[3]])
    words = split(PREFIX.sub("", " ".join(split(ENTITY.sub(lambda one: one[2] if one[1] == "acq" else "", name)))))
    end = next((k for k, word in enumerate(words) if k and word in ("to", "in")), None)
    plain = [one[1] if (one := NUMBERED.fullmatch(word)) else word for word in words[:end] if not word.isdecimal()]
    return " ".join(word if of_protocol(word) else "?" for word in plain if word not in SHORT)


def weighting(*names: str) -> str:
    """The weighting that names say, the first of them first; empty where none does."""
    said = [told(name) for name in names]
    found = (
        one for table in (WEIGHTINGS, SEQUENCES) for words in said for one, p in table.items() if re.search(p, words)
    )
    return next(found, "")


def agent(named: str, *names: str) -> bool | None:
    """Whether a contrast agent was given, by its name in a header, else by the words of names; None if none says it."""
    if named.strip().lower() not in ("", "none", "no"):
        return True
    said = " ".join(map(told, names))
    return False if NO_AGENT.search(said) else True if AGENT.search(said) else None


def by_times(times: np.ndarray, sequence: object) -> str:
    """The weighting by echo, inversion and repetition time in ms, where they leave no doubt."""
    echo, inversion, repetition = times
    if inversion > 1500 and echo > 60:
        return "FLAIR"
    if echo < 15 and 300 < inversion < 1500:
        return "T1w"
    if "GR" in str(sequence) or inversion > 0:
        return ""
    if echo < 30 and repetition < 1000:
        return "T1w"
    return "T2w" if echo > 70 and repetition > 2000 else ""
