"""The pictures of docs/: a terminal during a run, its page, its index and a dry run, from the built-in sample.

python -m benchmarks.pictures FOLDER

FOLDER becomes one in which somebody worked: scans, the whole sample and slabs of it under several slices, one of them
noisy and one broken; and out, what drift-mri made of them. Beside them stand terminal.png, dry_run.png,
page.png and overview.png, and moving.gif: the run in a twentieth of its time, then the page.
It needs chromium, pillow, and pyte, a terminal's emulator; pip installs the last two.
"""

import html
import json
import math
import os
import pty
import re
import shutil
import subprocess
import sys
import termios
import time
from pathlib import Path

import nibabel as nib
import numpy as np
import torch
from scipy.ndimage import zoom

from benchmarks import parser_of
from scripts.inputs.sample import built_in_sample
from scripts.stack.acquisition import Acquisition
from scripts.stack.grid import respaced_affine
from scripts.stack.profile import acquire
from tests.browser import Browser

ROOT = Path(__file__).parents[1]
COMMAND = ["scans", "-o", "out", "--report"]
SLAB = 16  # mm
SHOWN = 3  # scans that are done in the picture of the terminal
PAUSE = 6.0  # seconds between two pictures of the run that moves; shown for a twentieth of it
CUTS = range(60, 160, 20)  # coronal planes that the page shows when it moves
SMALL = 720  # pixels of the width of what moves
GREYS = 16  # of it
COLUMNS, ROWS = 190, 24  # of the terminal
WIDTH = 1400  # pixels of the browser; an index is a table from 1351 on
SLICES = {  # of the slabs: slice axis, thickness and spacing in mm, noise
    "subject-02": (2, 5.0, 6.0, 0.0),
    "subject-03": (0, 4.0, 4.0, 0.0),
    "subject-04": (1, 3.0, 3.0, 0.0),
    "subject-05": (2, 4.0, 4.0, 0.0),
    "subject-06": (2, 5.0, 5.0, 0.06),
    "subject-07": (2, 5.0, 5.0, np.nan),
}


def slab(truth, axis, thickness, spacing, noise):
    """Slices of a part of a sharp volume that shows the brain without the face."""
    normal = 0 if axis == 1 else 1
    start = 2 * truth.shape[normal] // 5
    sharp = truth.slicer[tuple(slice(start, start + SLAB) if a == normal else slice(None) for a in range(3))]
    values = torch.from_numpy(sharp.get_fdata(dtype=np.float32))
    acquisition = Acquisition.of_truth(axis, sharp.shape[axis], edge=1.0, thickness=thickness, spacing=spacing)
    thick = acquire(values, acquisition).numpy()
    thick += noise * thick.max() * np.random.default_rng(0).normal(size=thick.shape).astype(np.float32)
    affine = respaced_affine(sharp.affine, axis, sharp.shape[axis], acquisition.slice_count, spacing)
    return nib.Nifti1Image(thick, affine)


def make_scans(folder):
    """The sample, and the slabs with the facts of a sidecar, which the fifth is without."""
    folder.mkdir(parents=True)
    sample = built_in_sample(folder.with_name("sample"))
    for source in sample.files:
        shutil.copy(source, folder)
    for name, (axis, thickness, spacing, noise) in SLICES.items():
        nib.save(slab(nib.load(sample.truth), axis, thickness, spacing, noise), folder / f"{name}_T1w.nii.gz")
        if name != "subject-05":
            (folder / f"{name}_T1w.json").write_text(json.dumps({"SliceThickness": thickness}))


def run(folder):
    """A terminal's lines while the command is at the scan after those that are shown as done; and every `PAUSE`."""
    import pyte  # here, because nothing else needs it

    screen = pyte.Screen(COLUMNS, ROWS)
    stream = pyte.ByteStream(screen)
    stream.feed(f"$ drift-mri {' '.join(COMMAND)}\r\n".encode())
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (ROWS, COLUMNS))
    command = [sys.executable, "-c", "from drift_mri.command import main; main()", *COMMAND]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, cwd=folder, env=environment, stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown, film, at = "", [], -math.inf
    while True:
        try:
            stream.feed(os.read(ours, 65536))
        except OSError:  # closed at the other end
            break
        text = "\n".join(screen.display)
        bars = re.search(r"^scans: .*\nplanes: +(\d+)%", text, re.MULTILINE)
        if not shown and f" {SHOWN} of " in text and bars and int(bars[1]) >= 40:
            shown = text
        if time.monotonic() >= at + PAUSE:
            film, at = [*film, text], time.monotonic()
    process.wait()
    return shown, [*film, "\n".join(screen.display)]


def make_study(folder):
    """An examination as folders hold it: a thick FLAIR and T2w, a sharp T1w, and their results."""
    folder.mkdir(parents=True)
    (sample,) = built_in_sample(folder.with_name("sample")).files[:1]
    truth = nib.load(built_in_sample(folder.with_name("sample")).truth)
    thick = nib.load(sample)
    for name, image in {"anna_FLAIR": thick, "anna_T2": thick, "anna_T1_mprage": truth, "ben_T1": truth}.items():
        nib.save(image, folder / f"{name}.nii.gz")
        (folder / f"{name}.json").write_text(json.dumps({"SliceThickness": float(image.header.get_zooms()[2])}))
    spline = zoom(thick.get_fdata(), (1, 1, truth.shape[2] / thick.shape[2]), order=1)
    nib.save(nib.Nifti1Image(spline.astype(np.float32), truth.affine), folder / "anna_T2_iso.nii.gz")
    nib.save(nib.Nifti1Image((truth.get_fdata() > 0).astype(np.uint8), truth.affine), folder / "anna_T1_seg.nii.gz")


def dry_run(folder):
    """Lines of a terminal after a dry run of the study."""
    words = ["study", "-o", "out", "--guide", "--dry_run"]
    command = [sys.executable, "-c", "from drift_mri.command import main; main()", *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    return f"$ drift-mri {' '.join(words)}\n{done.stdout}"


def terminal(folder, name, text):
    """A page that shows a terminal's lines, without the folder in which somebody worked."""
    style = (
        "margin: 0; padding: 14px; width: max-content; background: #1b1e23; color: #e4e4e4; font: 13px/1.4 monospace"
    )
    lines = "\n".join(line.rstrip() for line in text.rstrip().split("\n")).replace(f"{folder}/", "")
    path = folder / f"{name}.html"
    path.write_text(f'<meta charset="utf-8"><body style="margin: 0"><pre style="{style}">{html.escape(lines)}')
    return path


def moving(path, frames, times):
    """Pictures one after the other, each for so many seconds, on a ground of one size."""
    from PIL import Image

    images = [Image.open(frame).convert("L") for frame in frames]
    size = SMALL, max(image.height * SMALL // image.width for image in images)
    grounds = []
    for image in images:
        ground = Image.new("L", size, 27)  # the terminal's
        ground.paste(image.resize((SMALL, image.height * SMALL // image.width), Image.Resampling.LANCZOS))
        grounds.append(ground.quantize(GREYS, dither=Image.Dither.NONE))  # dithered ones are twice as large
    first, *others = grounds
    first.save(
        path, save_all=True, append_images=others, duration=[int(1000 * t) for t in times], loop=0, optimize=True
    )


def main():
    """Makes the scans, rebuilds them and takes the pictures."""
    parser = parser_of(__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder.absolute()
    make_scans(folder / "scans")
    (folder / "film").mkdir()
    shown, film = run(folder)
    make_study(folder / "study")
    pages = [terminal(folder, "terminal", shown), terminal(folder, "dry_run", dry_run(folder))]
    pages += [terminal(folder, f"film/{k:03}", text) for k, text in enumerate(film)]
    with Browser(folder, WIDTH, 900) as browser:
        for page in pages:
            browser.open(page)
            box = browser.evaluate(
                "(({width, height}) => ({width, height}))(document.querySelector('pre').getBoundingClientRect())"
            )
            browser.picture(page.with_suffix(".png"), x=0, y=0, **box)
        browser.open(folder / "out" / "index.html")
        browser.picture(
            folder / "overview.png",
            x=0,
            y=0,
            width=WIDTH,
            height=browser.evaluate("document.documentElement.scrollHeight"),
        )
        browser.open(folder / "out" / "icbm152_sr.html", "document.getElementById('viewer')?.dataset.ready")
        browser.evaluate("document.querySelector('[name=volume][value=all]').click()")
        slide = "(b => { b.value = %d; b.oninput(); })(document.querySelectorAll('.panels input')[%d])"
        bottom = browser.evaluate("document.querySelectorAll('.panels input')[7].getBoundingClientRect().bottom")
        browser.evaluate(slide % (80, 0))
        browser.picture(folder / "page.png", x=0, y=0, width=WIDTH, height=bottom + 8)
        cuts = [folder / "film" / f"cut{cut:03}.png" for cut in CUTS]
        for cut, picture in zip(CUTS, cuts):
            browser.evaluate(slide % (cut, 4))
            browser.picture(picture, x=0, y=0, width=WIDTH, height=bottom + 8)
    said = [page.with_suffix(".png") for page in pages[2:]]
    moving(folder / "moving.gif", [*said, *cuts], [PAUSE / 20] * (len(said) - 1) + [2.0] + [0.6] * len(cuts))


if __name__ == "__main__":
    main()
