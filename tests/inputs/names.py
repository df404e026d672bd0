"""Names as people, hospitals and converters give them to scans and folders, by a generator."""

import random
from collections.abc import Iterator
from itertools import count

CONTRASTS = {  # words of a contrast -> the weighting that they say
    "T1": "T1w",
    "t1_mprage_sag": "T1w",
    "T1w": "T1w",
    "t2_tse_tra": "T2w",
    "T2": "T2w",
    "AxT2": "T2w",
    "FLAIR": "FLAIR",
    "t2_tirm_tra_dark-fluid": "FLAIR",
    "T2_FLAIR_cor": "FLAIR",
    "PD": "PDw",
    "t2_fl2d_tra_hemo": "T2*w",
    "T2W_FFE": "T2*w",
}
# words of studies, hospitals and diseases before a person's number; many are words of protocols or contrasts too
PREFIXES = (
    "PD T1D P SE IR GE TE TI TR FL MR GD KM CE T DIR CSF WM GM PVE ADC DWI VMAP ROSMAP prob SUB sub- case patient OAS "
    "C3N- UCSF-PDGM- BraTS-GLI- anna bob Post Pre E CE- DIR- SE- PART- REC- ECHO- SPACE_ TASK- Sub_ STIR_ T1D_ p- G"
    " FLAIR ACQ- sub-PD"
).split()
FURTHER = (  # words after a contrast that say neither whose scan it is nor that it is none
    "bias_corrected posterior_fossa post_stroke post_RT after_perfusion mismatch native brain 3mm iso p2 n4 "
    "AX_POST_FOSSA nach_DWI thalamus follow-up"
).split()


def people(random: random.Random, number: int) -> list[str]:
    """Names of a few people of one study: a prefix and numbers, which are not always beside each other."""
    prefix, digits, between = random.choice(PREFIXES), random.choice((1, 2, 3, 4)), random.choice(("", "", "_", "-"))
    start = random.randrange(1, 10**digits - number) if 10**digits > number + 1 else 1
    return [f"{prefix}{between}{start + k:0{digits}d}" for k in range(number)]


def layouts(number: int, seed: int = 0) -> Iterator[dict[str, str]]:
    """Folders of several people: each file's path without its ending -> whose it is."""
    chance = random.Random(seed)
    forms = (
        "{who}/{contrast}",
        "{who}_{contrast}",
        "{contrast}_{who}",
        "{who}-{contrast}",
        "{contrast}/{who}",
        "{who}/anat/{who}_{contrast}",
        "{who} {contrast}",
    )
    for _ in range(number):
        form, kinds = chance.choice(forms), chance.sample(list(CONTRASTS), chance.choice((2, 3)))
        found, alone = dict[str, str](), chance.random() < 0.3 and not form.startswith("{contrast}/")
        for who, k in zip(people(chance, chance.choice((2, 3, 4))), count()):
            for kind in [kinds[k % len(kinds)]] if alone else kinds:
                found[form.format(who=who, contrast=kind)] = who
        yield found


def names(number: int, seed: int = 0) -> Iterator[tuple[str, str]]:
    """Names of scans without their endings, each with the weighting that it says."""
    chance = random.Random(seed)
    for _ in range(number):
        (who,), kind, further = people(chance, 1), chance.choice(list(CONTRASTS)), chance.choice(FURTHER)
        form = chance.choice(("{who}_{kind}", "{kind}_{further}", "{who}_{kind}_{further}", "{who} {further} {kind}"))
        yield form.format(who=who, kind=kind, further=further), CONTRASTS[kind]
