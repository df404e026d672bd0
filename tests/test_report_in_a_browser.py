"""The page as a browser shows it: no complaint, a slider that uncovers, and paper."""

import html
import json
import re
import shutil
import subprocess
import tempfile

import numpy as np
import pytest
from PIL import Image

from tests.test_report import page, slices_and_truth, volume_at

FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --hide-scrollbars --enable-logging=stderr --window-size=1400,2600"
).split()
CHROMIUM = shutil.which("chromium")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")


@pytest.fixture
def pair(phantom):
    return slices_and_truth(phantom)


def chromium(tmp_path, file, *options, fragment=""):
    """Output and console messages of a headless run; no profile of an earlier one."""
    profile = tempfile.mkdtemp(dir=tmp_path)
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", *options, f"{file.as_uri()}#{fragment}"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=90, check=True, cwd=tmp_path)
    return result.stdout, [line for line in result.stderr.splitlines() if "CONSOLE" in line]


@needs_chromium
def test_a_browser_shows_the_page_without_a_complaint(pair, tmp_path):
    page(tmp_path / "a.html", *pair, Warnings=["thicker than trained"])
    _, console = chromium(tmp_path, tmp_path / "a.html", f"--screenshot={tmp_path / 'a.png'}")
    assert console == []
    shot = np.asarray(Image.open(tmp_path / "a.png").convert("L"))
    assert shot.shape == (2600, 1400)
    counts = np.bincount(shot.ravel(), minlength=256)
    assert counts[:64].sum() > 0.005 * shot.size and (counts > 0).sum() > 100, "text, and pictures with many greys"
    (tmp_path / "bad.html").write_text("<script>console.error('x'); nothing()</script>")
    assert len(chromium(tmp_path, tmp_path / "bad.html", "--dump-dom")[1]) == 2, "a complaint would be noticed"


MEASURE = """<script>
for (const slider of document.querySelectorAll('input[type=range]')) { slider.value = CUT; slider.oninput(); }
const boxes = [...document.querySelectorAll('.pair')].map(p => p.getBoundingClientRect());
document.title = JSON.stringify(boxes.map(b => [b.left, b.top, b.width, b.height]));
</script></body>"""


@needs_chromium
@pytest.mark.parametrize("cut", [25, 80])
def test_the_slider_uncovers_measured_slices_at_its_left_and_the_result_at_its_right(cut, tmp_path):
    """A dark measurement under a bright result, as a person sees them."""
    dark = np.zeros((24, 24, 24))
    dark[1::2, 1::2, 1::2] = 1000.0  # sets the window, and misses the middle planes, whose index is 12
    bright = np.full((24, 24, 24), 1000.0)
    text = page(tmp_path / "a.html", volume_at(dark, np.eye(4)), volume_at(bright, np.eye(4)))
    (tmp_path / "a.html").write_text(text.replace("</body>", MEASURE.replace("CUT", str(cut))), encoding="utf-8")
    dom, console = chromium(tmp_path, tmp_path / "a.html", "--dump-dom")
    assert console == []
    boxes = json.loads(html.unescape(re.search("<title>(.*?)</title>", dom)[1]))
    chromium(tmp_path, tmp_path / "a.html", f"--screenshot={tmp_path / 'a.png'}")
    shot = np.asarray(Image.open(tmp_path / "a.png").convert("L"))
    assert len(boxes) == 3
    for left, top, width, height in boxes:
        row = shot[int(top + 0.75 * height), int(left) + 1 : int(left + width) - 1] > 127
        edge = int(cut / 100 * len(row))
        assert row[: edge - 3].mean() < 0.1 and row[edge + 3 :].mean() > 0.9


@needs_chromium
def test_on_paper_both_pictures_stand_side_by_side(pair, tmp_path):
    page(tmp_path / "a.html", *pair)
    _, console = chromium(
        tmp_path, tmp_path / "a.html", f"--print-to-pdf={tmp_path / 'a.pdf'}", "--no-pdf-header-footer"
    )
    content = (tmp_path / "a.pdf").read_bytes()
    assert console == [] and content.startswith(b"%PDF")
    assert 1 <= len(re.findall(rb"/Type\s*/Page\b", content)) <= 5
    assert len(re.findall(rb"/Subtype\s*/Image", content)) >= 9, "measured and rebuilt in three planes, and the map"
