"""Whether a scan's own guide is found, and never another person's, whatever the files are called.

python -m benchmarks.names DATALIST [--folders 200] [--seed 0] [--thickness 5]

Each folder has two real heads, drawn at random, a thick FLAIR and a sharp scan of another contrast of each. Layouts and
the names of people and contrasts are drawn too: initials, dates, codes such as PD01 and T1D02, hospital numbers, other
scripts. In six layouts a name says whose the file is. In three it says nothing or the wrong person: numbers of series,
a code for each file, and a number that one person's FLAIR shares with the other's guide. Both heads are then one group,
and images have to refuse the other's.

`inputs.scans` finds candidates, by the files alone. Their images are registered, and the first that fits and is no copy
guides. All have pixels of 2 mm, at which likeness looks. A pair of images is registered once, however many folders hold
it. Heads are subjects of the datalist with a sharp FLAIR.

The table has a line for each layout: heads, heads with their own guide, heads with another person's, heads before whose
own guide an image refused another's, and volumes that are to join with another person's.
"""

import random
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import nibabel as nib
import numpy as np
import torch
from nibabel.processing import resample_to_output, smooth_image

from benchmarks import CKPT_PATH, parser_of, shipped_config
from scripts.errors import InputError
from scripts.evaluate.tables import markdown
from scripts.inputs.scans import scans
from scripts.inputs.selection import Selection
from scripts.stack.acquisition import Acquisition
from scripts.stack.grid import respaced_affine
from scripts.stack.profile import acquire
from scripts.train.datasets import from_datalist
from scripts.train.truth import read_volume

LAYOUTS = (
    *("{who}/{what}", "{who}_{what}", "{who}-{what}", "{who} {what}", "{what}_{who}", "{what}/{who}"),
    *("{series:03}_{what}", "{code:05x}_{what}", "{what}_{wrong}"),
)
THICK = "FLAIR|t2_tirm_tra_dark-fluid|T2FLAIR|Flair_ax|flair_3mm|FLAIR加权|t2_spc_da-fl_tra|T2_FLAIR_defaced".split("|")
SHARP = {
    "T1": "mp2rage_UNI|T1w_defaced|T1WI|t1_mprage_sag|T1增强|T1|MPRAGE iso|T1_preprocessed|t1_con|BRAVO".split("|"),
    "T2": "T2WI|t2_space_sag|T2|T2w_brain|t2_MD|CUBE T2".split("|"),
}
PEOPLE = (  # of one study: two of one line
    "KM AB", "PD SE", "JD MR", "2019-03-04 2019-07-12", "20190304 20210112", "04.03.2019 12.07.2021", "PD37 PD38",
    "T1D02 T1D14", "PD01 PD_02", "TE1 TE2", "GM_1965 WM_1971", "H329382 H330017", "0008471 0012934", "4711 815",
    "IXI232-Guys-0790 IXI012-HH-1211", "TCGA-06-0125 TCGA-06-0126", "OAS30001 OAS30002", "sub-01 sub-02",
    "sub-PD01 sub-PD02", "山田 佐藤", "Иванов Петров", "Müller Schäfer", "anna ben", "case_001 case_002", "김 이",
)  # fmt: skip
PIXEL = 2.0  # mm


def layouts(number: int, seed: int = 0) -> Iterator[dict[str, tuple[int, str]]]:
    """Folders of two people: each file's path without its ending -> whose it is, 0 or 1, and `thick` or `sharp`."""
    chance = random.Random(seed)
    for k in range(number):
        numbers = {"series": chance.sample(range(1, 30), 4), "code": chance.sample(range(16**4, 16**5), 4)}
        form, people = LAYOUTS[k % len(LAYOUTS)], chance.choice(PEOPLE).split()
        found = dict[str, tuple[int, str]]()
        kinds = {"thick": THICK, "sharp": chance.choice([*SHARP.values()])}
        alike = chance.random() < 0.5  # one protocol for both
        drawn = {kind: chance.choice(names) for kind, names in kinds.items()}
        for person, who in enumerate(people):
            for kind, names in kinds.items():
                what = drawn[kind] if alike or "{what}/" in form else chance.choice(names)
                each = {name: those[len(found)] for name, those in numbers.items()}
                wrong = 1 + person if kind == "thick" else 2 - person
                found[form.format(who=who, what=what, wrong=wrong, **each)] = person, kind
        yield found


def prepared(items, thickness: float, folder: Path) -> dict[str, dict[str, list[Path]]]:
    """Files of each head: a thick FLAIR, and sharp scans of other contrasts."""
    heads: dict[str, dict[str, list[Path]]] = {}
    flair = {item["subject"] for item in items if item["contrast"] == "FLAIR" and 2 in item["sharp_axes"]}
    for item in (one for one in items if one["subject"] in flair):
        contrast, path = item["contrast"], folder / f"{Path(item['label']).name}"
        volume = read_volume(item["label"])
        values, affine = volume.as_tensor()[0], volume.affine.numpy()
        if thick := contrast == "FLAIR":
            edge = float(np.linalg.norm(affine[:3, 2]))
            values = values[..., : int(values.shape[2] * edge // thickness * thickness / edge)]
            a = Acquisition.of_truth(2, values.shape[2], edge=edge, thickness=thickness)
            slices = acquire(values.float(), a)
            affine = respaced_affine(affine, 2, values.shape[2], slices.shape[2], thickness)
            values = slices
        values = torch.as_tensor(values).numpy()
        image = nib.Nifti1Image((values * 1000 / values.max()).astype(np.int16), affine)
        image = smooth_image(image, (PIXEL, PIXEL, 0 if thick else PIXEL))
        nib.save(resample_to_output(image, (PIXEL, PIXEL, thickness if thick else PIXEL), order=1), path)
        heads.setdefault(item["subject"], {}).setdefault("thick" if thick else "sharp", []).append(path)
    return {name: kinds for name, kinds in heads.items() if len(kinds) == 2}


def main():
    """Prints the table."""
    parser = parser_of(__doc__)
    parser.add_argument("datalist", type=Path)
    parser.add_argument("--folders", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--thickness", type=float, default=5.0)
    parser.add_argument("--ckpt_path", default=CKPT_PATH)
    options = parser.parse_args()
    rebuilder = shipped_config(ckpt_path=options.ckpt_path, **{"inferer::progress": False}).get_parsed_content(
        "rebuilder"
    )

    @cache
    def placed(guide: Path, scan: Path):
        measured = rebuilder.measure(scan)
        beside = rebuilder.place(rebuilder.read_guide(guide), measured)
        print(f"{guide.name} beside {scan.name}: {beside.likeness:.2f}, {beside.relation:.2f}", flush=True)
        try:
            beside.check(measured)
        except InputError:
            return None
        return beside

    with tempfile.TemporaryDirectory() as work:
        (made := Path(work) / "made").mkdir()
        items = [one for section in ("training", "validation") for one in from_datalist(options.datalist, section)]
        heads = prepared(items, options.thickness, made)
        chance, rows = random.Random(options.seed), {form: [form, 0, 0, 0, 0, 0] for form in LAYOUTS}
        for k, layout in enumerate(layouts(options.folders, options.seed)):
            two = chance.sample(sorted(heads), 2)
            files = {(person, kind): chance.choice(heads[two[person]][kind]) for person, kind in layout.values()}
            folder, original, whose = Path(work) / str(k), dict[Path, Path](), dict[Path, int]()
            for name, (person, kind) in layout.items():
                path = folder / f"{name}.nii.gz"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.hardlink_to(files[person, kind])
                original[path], whose[path] = files[person, kind], person
            found = scans(folder, Path(work) / "out", Selection(1.3), guide="auto", together=True)
            row = rows[LAYOUTS[k % len(LAYOUTS)]]
            for scan in found:
                row[5] += len({whose[stack.path] for stack in scan.each}) > 1
                for stack in scan.each:
                    first, tried = original[stack.path], [one.scan.path for one in scan.guides]
                    guide = next((one for one in tried if placed(original[one], first)), None)
                    own = [whose[one] == whose[stack.path] for one in tried]
                    row[1] += 1
                    row[2] += (found_own := guide is not None and whose[guide] == whose[stack.path])
                    row[3] += guide is not None and not found_own
                    row[4] += found_own and not own[0]
                    if not found_own:
                        print(f"{stack.path.relative_to(folder)}: {guide and guide.relative_to(folder)}", flush=True)
        every = ["all", *(sum(row[column] for row in rows.values()) for column in range(1, 6))]
        columns = zip(*([str(one) for one in row] for row in (*rows.values(), every)))
        print(markdown(dict(zip(["layout", "heads", "own guide", "another's", "refused first", "joined"], columns))))


if __name__ == "__main__":
    main()
