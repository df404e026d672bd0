"""A short session on a GPU far away: pack here; train, measure and export there; join here. Each call resumes.

python -m benchmarks.gpu_session pack DATALIST FOLDER [--label_dir LABELS] [--limit 26]
python -m benchmarks.gpu_session train FOLDER WORK [--minutes 9] [--model configs/models/small.yaml] [OVERRIDES]
python -m benchmarks.gpu_session measure FOLDER WORK OUT [--minutes 9] [--model ...] [OVERRIDES]
python -m benchmarks.gpu_session export WORK OUT [--weights model.pt] [--part 0]
python -m benchmarks.gpu_session join OUT MODEL
python -m benchmarks.gpu_session rehearse DATALIST FOLDER

`pack` writes validation slabs, labels and volumes in 16 bits with a datalist, rare contrasts first, until LIMIT MiB are
full. `train` runs both stages of configs/train.yaml until the minutes are over; the same call goes on from the last
checkpoint in WORK. `measure` evaluates the weights on the slabs and times the networks. `export` copies the weights, in
half precision and with their card, to OUT in parts of 15 MiB, four a call: --part 0, 4, 8; `join` makes them one again.
`rehearse` does it all with a nano network, in minutes on a CPU. OVERRIDES: such as --stage1_epochs 40.
"""

import argparse
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import nibabel as nib
import numpy as np
import torch
import yaml

from scripts.files import stem
from scripts.method.weights import card_path, check_card, read_card, write_card
from scripts.rebuild.windows import signal_box
from scripts.stack.intensity import intensity_range
from scripts.train.datasets import label_maps, sharp_volumes

MIB = 2**20
LEVELS = 2047  # of the range of tissue: as fine as 16-bit floating point just below 1, in which training keeps volumes
APART = 3.0  # mm; planes that are closer along an axis that is not sharp are nearly the same
PLANES = 24  # of a volume for validation, along its last axis
PART, PARTS = 15 * MIB, 4  # bytes; files in one call
GPU = ["--num_workers", "14", "--stage1_batch_size", "32", "--stage2_batch_size", "32", "--patches_per_epoch", "9600"]
NANO = {"size": "nano", "network_def::apn::channels": [4, 8], "network_def::velocity::channels": [4, 8]}
NANO |= {"network_def::apn::blocks": [1, 1]}
REHEARSAL = "--num_workers 0 --patches_per_epoch 16 --stage1_epochs 2 --stage2_epochs 1 --distil_epochs 1".split()


def cropped(image, sharp_axes, kind, guided):
    """Which voxels travel: the head; of a direction that is not sharp, planes 3 mm apart; for validation, a slab.

    Contrasts that guide each other stay whole, on their one grid.
    """
    if kind == "val":
        start = max((image.shape[2] - PLANES) // 2, 0)
        return (slice(None), slice(None), slice(start, start + PLANES))
    if guided:
        return (slice(None),) * 3
    volume = torch.from_numpy(np.asarray(image.dataobj, dtype=np.float32))
    box = list(signal_box(intensity_range(volume).to_unit(volume)))
    for axis in {0, 1, 2} - set(sharp_axes):
        step = max(1, int(APART / image.header.get_zooms()[axis]))
        box[axis] = slice(box[axis].start, box[axis].stop, step)
    return tuple(box)


def packed(image, voxels):
    """The voxels of a volume as integers, `LEVELS` of which are the range of tissue, at their place in the world."""
    scale = intensity_range(torch.from_numpy(np.asarray(image.dataobj, dtype=np.float32)))
    part = image.slicer[voxels]
    levels = (part.get_fdata() - scale.low) * (LEVELS / (scale.high - scale.low))
    return nib.Nifti1Image(np.clip(np.round(levels), 0, 2**16 - 1).astype(np.uint16), part.affine)


def packed_mask(image, voxels=()):
    """A mask or a map of labels, as it is."""
    part = image.slicer[voxels]
    return nib.Nifti1Image(np.asarray(part.dataobj, dtype=np.int16), part.affine)


def pack(datalist, folder, label_dir, limit):
    """Labels, validation, then training: of rare contrasts, sharp along all axes, and small volumes first."""
    folder.mkdir(parents=True, exist_ok=True)
    entries, left_out = [], []

    def total():
        return sum(path.stat().st_size for path in folder.rglob("*.nii.gz")) / MIB

    def fits(path, image):
        path.parent.mkdir(exist_ok=True)
        nib.save(image, path)
        if total() > limit:
            path.unlink()
            left_out.append(path.name)
        return path.exists()

    for item in label_maps(label_dir):
        fits(folder / "labels" / Path(item["label"]).name, packed_mask(nib.load(item["label"])))
    items = {kind: sharp_volumes(datalist, name) for kind, name in (("val", "validation"), ("train", "training"))}
    count = Counter(item["contrast"] for item in items["train"])
    names = {item["label"]: f"{kind}-{stem(Path(item['label']).name)}.nii.gz" for kind in items for item in items[kind]}

    def rank(item):
        return count[item["contrast"]], -len(item["sharp_axes"]), Path(item["label"]).stat().st_size

    for kind, found in items.items():
        for item in sorted(found, key=rank):
            image, name = nib.load(item["label"]), names[item["label"]]
            voxels = cropped(image, item["sharp_axes"], kind, "guides" in item)
            if fits(folder / name, packed(image, voxels)):
                entry = {**item, "kind": kind, "image": name}
                if "lesions" in item and fits(
                    folder / f"lesions-{name}", packed_mask(nib.load(item["lesions"]), voxels)
                ):
                    entry["lesions"] = f"lesions-{name}"
                entries.append({key: value for key, value in entry.items() if key != "label"})
    there = {entry["image"] for entry in entries}
    for entry in entries:
        if "guides" in entry:
            entry["guides"] = [names[one] for one in entry["guides"] if names.get(one) in there]
    (folder / "datalist.json").write_text(json.dumps(entries, indent=1))
    kept = Counter((entry["kind"], entry["contrast"]) for entry in entries)
    print(f"{total():.1f} MiB in {folder}: {dict(kept)}; left out: {', '.join(left_out) or 'nothing'}")


def bundle(run, config, model, minutes, overrides, **options):
    """`python -m monai.bundle run` until it ends or the minutes are over."""
    command = [sys.executable, "-m", "monai.bundle", "run", run, "--config_file", f"[{config},'{model}']"]
    command += [text for name, value in options.items() for text in (f"--{name}", str(value))]
    try:
        subprocess.run([*command, *overrides], check=True, timeout=60 * minutes)
    except subprocess.TimeoutExpired:
        print(f"stopped after {minutes:g} minutes: the same call goes on")


def train(folder, work, minutes, model, overrides):
    """Both stages, as far as the time goes."""
    options = {"dataset_dir": folder / "datalist.json", "output_dir": work}
    if (folder / "labels").is_dir():
        options["label_dir"] = folder / "labels"
    bundle("training", "'configs/train.yaml'", model, minutes, overrides, **options)


def measure(folder, work, out, minutes, model, overrides, weights="model.pt", speed=()):
    """The paired evaluation, and the tables of `benchmarks.speed` for this machine's device."""
    options = {"dataset_dir": folder / "datalist.json", "output_dir": out, "ckpt_path": work / weights}
    bundle("run", "'configs/inference.yaml','configs/evaluate.yaml'", model, minutes, overrides, **options)
    for what in speed:
        with open(out / f"speed-{what}.md", "w") as file:
            call = [sys.executable, "-m", "benchmarks.speed", what, "--plain_planes", "1"]
            subprocess.run(call, stdout=file, check=True, timeout=60 * minutes)


def export(work, out, weights, part):
    """Some parts of the weights, and their card."""
    out.mkdir(parents=True, exist_ok=True)
    half = work / "half.pt"
    if part == 0:
        state = torch.load(work / weights, map_location="cpu", weights_only=True)
        torch.save({name: value.half() for name, value in state.items()}, half)
        write_card(half, read_card(work / weights))
    count = -(-half.stat().st_size // PART)
    with open(half, "rb") as file:
        file.seek(part * PART)
        for k in range(part, min(part + PARTS, count)):
            (out / f"weights-{k:02}-of-{count:02}").write_bytes(file.read(PART))
    (out / "weights.json").write_bytes(card_path(half).read_bytes())
    print(f"parts {part} to {min(part + PARTS, count) - 1} of {count} are in {out}")


def join(out, model):
    """The parts in OUT as one file, whose card says that nothing is missing."""
    with open(model, "wb") as file:
        for path in sorted(out.glob("weights-??-of-??")):
            file.write(path.read_bytes())
    card_path(model).write_bytes((out / "weights.json").read_bytes())
    print(f"{model}: {check_card(model)}")


def rehearse(datalist, folder):
    """Everything once, at the smallest size."""
    pack(datalist, folder / "data", None, 8)
    model, work, out = folder / "nano.yaml", folder / "work", folder / "out"
    model.write_text(yaml.safe_dump(NANO))
    train(folder / "data", work, 4, model, REHEARSAL)
    measure(folder / "data", work, out, 4, model, ["--slab", "4", "--thicknesses", "[5.0]"])
    export(work, out, "model.pt", 0)
    join(out, folder / "model.pt")


def main():
    """One call."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["pack", "train", "measure", "export", "join", "rehearse"])
    parser.add_argument("paths", type=Path, nargs="+")
    parser.add_argument("--label_dir", type=Path)
    parser.add_argument("--limit", type=float, default=26.0, help="MiB; 64 less the repository and what it needs")
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--model", type=Path, default=Path("configs/models/small.yaml"))
    parser.add_argument("--weights", default="model.pt", help="stage1.pt before stage 2 is complete")
    parser.add_argument("--part", type=int, default=0)
    parser.add_argument("--speed", nargs="*", default=["networks", "volumes"])
    o, overrides = parser.parse_known_args()
    calls = {
        "pack": (pack, o.label_dir, o.limit),
        "train": (train, o.minutes, o.model, [*GPU, *overrides]),
        "measure": (measure, o.minutes, o.model, overrides, o.weights, o.speed),
        "export": (export, o.weights, o.part),
        "join": (join,),
        "rehearse": (rehearse,),
    }
    call, *others = calls[o.what]
    call(*o.paths, *others)


if __name__ == "__main__":
    main()
