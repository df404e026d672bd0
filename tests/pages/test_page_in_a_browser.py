"""The page as a browser shows it: no complaint, volumes to scroll through by hand, and paper."""

import html
import json
import re

import numpy as np
import pytest
from PIL import Image

from scripts.pages import viewer
from scripts.pages.page import write_page
from scripts.rebuild.rebuilt import Rebuilt
from scripts.stack.slices import Slices
from tests.browser import chromium, needs_chromium
from tests.pages.test_page import RECORD, page, slices_and_truth, volume_at
from tests.pages.test_viewer import AXES, scan, turned, unpack

pytestmark = [needs_chromium, pytest.mark.slow]


@pytest.fixture
def pair(phantom):
    return slices_and_truth(phantom)


# What a person does and sees. `sums` are of the pixels of each canvas; `done` ends with what the test gets.
HANDS = """<script>(async () => {
const viewer = document.getElementById('viewer'), told = {}, all = s => [...document.querySelectorAll(s)];
for (let n = 0; n < 500 && !viewer.dataset.ready; n++) await new Promise(done => setTimeout(done, 20));
const pixels = canvas => {
  const copy = Object.assign(document.createElement('canvas'), {width: canvas.width, height: canvas.height});
  const pen = copy.getContext('2d', {willReadFrequently: true});
  pen.drawImage(canvas, 0, 0);
  return pen.getImageData(0, 0, canvas.width, canvas.height).data;
};
const sums = () => all('.panels canvas').map(c => pixels(c).reduce((sum, p, i) => (sum * 31 + p) % 1000003, 7));
const place = () => document.querySelector('.place').textContent;
const pick = (name, value) => document.querySelector(`[name=${name}][value=${value}]`).click();
const wheel = (k, by) => !all('.panels canvas')[k].dispatchEvent(
  new WheelEvent('wheel', {deltaY: by, bubbles: true, cancelable: true}));
const key = (key, k = 0) => all('.panels canvas')[k].dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true}));
const mouse = (kind, x, y, more) => all('.panels canvas')[0].dispatchEvent(new PointerEvent('pointer' + kind,
  {clientX: x, clientY: y, pointerId: 1, pointerType: 'mouse', bubbles: true, ...more}));
const click = (k, x, y) => { const b = all('.panels canvas')[k].getBoundingClientRect();
  all('.panels canvas')[k].dispatchEvent(new MouseEvent('click', {clientX: b.left + x * b.width,
    clientY: b.top + y * b.height, bubbles: true})); };
DO
document.title = JSON.stringify(told);
})();</script></body>"""


def by_hand(tmp_path, text, actions, *options):
    """What `actions`, which may use `HANDS`, left in `told`."""
    (tmp_path / "hand.html").write_text(text.replace("</body>", HANDS.replace("DO", actions)), encoding="utf-8")
    dom, console = chromium(tmp_path, tmp_path / "hand.html", "--dump-dom", *options)
    assert console == []
    return json.loads(html.unescape(re.search("<title>(.*?)</title>", dom)[1]))


def test_a_click_says_the_value_with_its_error_bar_and_a_layer_fades_what_is_not_certain(pair, tmp_path):
    measured, result = pair
    said = {"ErrorMap": {"Confidence": 0.9}}
    actions = """told.place = place();
const seen = sums();
pick('volume', 'certain');
told.other = sums().some((sum, k) => sum !== seen[k]);
pick('volume', 'error'); key('c');
const canvas = all('.panels canvas')[0], data = pixels(canvas);
told.middle = [...data.slice(4 * ((canvas.height >> 1) * canvas.width + (canvas.width >> 1))).slice(0, 3)];
const lines = all('.tools > *').filter(e => !e.hidden).map(e => Math.round(e.getBoundingClientRect().bottom / 20));
told.rows = new Set(lines).size;"""
    found = []
    for half in (0.0, 1e6):
        width = volume_at(np.full(result.shape, half), np.asarray(result.affine))
        text = page(tmp_path / "a.html", measured, result, error=width, **said)
        found.append(by_hand(tmp_path, text, actions))
    sure, unsure = found
    assert sure["place"].endswith("\N{PLUS-MINUS SIGN} 0") and unsure["other"]
    assert sure["middle"] == [0, 0, 0] and unsure["middle"] == [255, 255, 255], "the map is a picture, too"
    assert unsure["rows"] == 1, "the tools stand in one line"


def test_a_mark_is_a_circle_on_the_planes_through_it_and_a_button_leads_there(pair, tmp_path):
    place = (np.asarray(pair[0].affine) @ [10, 30, *(np.array(pair[0].shape[2:]) // 2), 1])[:3].round(1).tolist()
    stack = {"Name": "a", "Degrees": 0.0, "Millimetres": 0.0, "Gain": [1, 1], "Likeness": 1.0, "Share": 1.0}
    stack |= {"Agreement": None, "Disputes": [{"Place": place, "Volume": 200, "Difference": 0.3}]}
    actions = """
    const pink = () => all('.panels canvas').map(c => { const p = pixels(c); let n = 0;
      for (let i = 0; i < p.length; i += 4) n += p[i] > 200 && p[i + 1] < 120 && p[i + 2] > 160; return n; });
    told.before = pink(); document.querySelector('[name=mark]').click(); told.after = pink(); told.place = place();
    told.rows = new Set(all('.tools > *').map(e => Math.round(e.getBoundingClientRect().bottom / 20))).size;
    """
    told = by_hand(tmp_path, page(tmp_path / "a.html", *pair, Stacks=[stack]), actions)
    assert all(count > 50 for count in told["after"]) and told["before"] != told["after"] and told["rows"] == 1
    there = [float(mm) * (1 if side in "RAS" else -1) for side, mm in re.findall(r"(\w) ([\d.]+)", told["place"])[:3]]
    assert np.allclose(there, place, atol=1)


def test_a_dashed_line_marks_where_the_guides_field_of_view_ends(pair, tmp_path):
    """In the two planes that it crosses, at its place; none for a guide that saw all."""
    place = (np.asarray(pair[1].affine) @ [25, 20, 20, 1])[:3].tolist()
    actions = """told.lines = all('.panels canvas').map(c => { const p = pixels(c), found = [];
      for (let i = 0; i < p.length; i += 4) if (p[i] > 200 && p[i + 1] < 120 && p[i + 2] > 160) found.push(i / 4);
      const [xs, ys] = [found.map(i => i % c.width), found.map(i => Math.floor(i / c.width))];
      const span = some => some.length ? Math.max(...some) - Math.min(...some) : -1;
      return [found.length, span(xs), span(ys), c.width, c.height]; });"""
    guide = {"Name": "t1", "Share": 0.6, "Borders": {"R": place}}
    told = by_hand(tmp_path, page(tmp_path / "a.html", *pair, Guide=guide), actions)
    for count, wide, long, _, height in told["lines"][:2]:  # axial and coronal
        assert count > 0.4 * height and wide <= 3 and long > 0.9 * height, "dashes from top to bottom"
    assert told["lines"][2][0] == 0, "the sagittal planes lie along it"
    whole = by_hand(tmp_path, page(tmp_path / "b.html", *pair, Guide={**guide, "Borders": {}}), actions)
    assert [one[0] for one in whole["lines"]] == [0, 0, 0]


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


def test_all_ways_to_scroll_move_one_crosshair_and_change_the_picture(pair, tmp_path):
    actions = """
    told.places = [place()]; told.sums = [sums()];
    const note = () => { told.places.push(place()); told.sums.push(sums()); };
    told.kept = wheel(0, -120); note();
    key('ArrowUp', 0); note();
    key('PageDown', 1); note();
    const slider = all('.panels input')[2]; slider.value = 3; slider.oninput(); note();
    click(0, 0.3, 0.4); note();
    key('0'); note();
    """
    told = by_hand(tmp_path, page(tmp_path / "a.html", *pair), actions)
    places = [[float(n) for n in re.findall(r" ([\d.]+)(?:,| mm)", text)[:3]] for text in told["places"]]
    letters = [re.findall(r"\b([RLAPIS]) \d", text) for text in told["places"]]
    signed = [[n if letter in "RAS" else -n for n, letter in zip(*both)] for both in zip(places, letters, strict=True)]
    moved = np.diff(signed, axis=0)
    np.testing.assert_allclose(moved[:3], [[0, 0, 1], [0, 0, 1], [0, -10, 0]], atol=1e-6)
    assert (moved[3] != 0).tolist() == [True, False, False]
    at_click = np.subtract(signed[5], [0.0, 0.0, signed[4][2]])  # of the widest and the highest plane, from the middle
    np.testing.assert_allclose(at_click, [0.2 * 44 - 0.5, 0.1 * 48 - 0.5, 0], atol=0.51)
    assert signed[6] == signed[0] and told["kept"], "the wheel moves the planes, not the page"
    sums = np.array(told["sums"])
    assert (sums[1:6] != sums[:5]).all(axis=1)[[0, 1, 2, 3]].all(), "the crosshair moves in every plane"
    assert (sums[6] == sums[0]).all()


def test_each_volume_is_shown_and_space_blinks(pair, tmp_path):
    actions = """
    key('c');
    for (const k of '1234') { key(k); told[k] = sums(); }
    key('3'); key(' '); told.blink = sums(); key(' '); told.back = sums();
    pick('volume', 'all'); told.all = sums();
    pick('plane', 'coronal'); told.coronal = sums().length; told.titles = all('.panels canvas').map(c => c.ariaLabel);
    """
    told = by_hand(tmp_path, page(tmp_path / "a.html", *pair), actions)
    for k in range(3):
        assert len({told[volume][k] for volume in "1234"}) == 4
    assert told["blink"] == told["1"] and told["back"] == told["3"]
    assert len(told["all"]) == 12 and told["coronal"] == 4
    volumes = ("measured", "cubic", "rebuilt", "difference")
    assert all(
        title.startswith(f"coronal plane, {volume},") for title, volume in zip(told["titles"], volumes, strict=True)
    )


def test_level_and_window_follow_the_right_button_and_the_sliders(pair, tmp_path):
    actions = """
    const values = () => ['level', 'width'].map(name => +document.querySelector(`[name=${name}]`).value);
    told.values = [values()]; told.sums = [sums()];
    const note = () => { told.values.push(values()); told.sums.push(sums()); };
    mouse('down', 100, 100, {button: 2, buttons: 2}); mouse('move', 60, 70, {buttons: 2}); mouse('up', 60, 70); note();
    const level = document.querySelector('[name=level]'); level.value = 300; level.oninput(); note();
    key('+'); key('+'); told.zoomed = sums();
    mouse('down', 100, 100, {buttons: 1, shiftKey: true}); mouse('move', 140, 90, {buttons: 1, shiftKey: true});
    mouse('up', 140, 90); told.panned = sums();
    document.querySelector('[name=reset]').click(); note();
    """
    told = by_hand(tmp_path, page(tmp_path / "a.html", *pair), actions)
    (level, width), (brighter, narrower), (set_level, _), last = told["values"]
    assert brighter > level and narrower < width and abs(set_level - 300) < 5 and last == [level, width]
    assert told["sums"][0] == told["sums"][3]
    seen = [*told["sums"][:3], told["zoomed"], told["panned"]]
    assert all(a[0] != b[0] for n, a in enumerate(seen) for b in seen[:n])


@pytest.mark.parametrize(("k", "axis"), [(13, 0), (29, 1)])
def test_the_script_unpacks_what_was_packed(k, axis, tmp_path):
    """What it says of a place are the intensities there."""
    shape, spacing = np.roll((24, 20, 13), axis - 2), np.roll((3.0, 4.0, 8.0), axis - 2)
    measured, result = scan(turned(AXES[k], 10, -10, 5), tuple(shape), tuple(spacing), axis=axis)
    slices = Slices.of(measured)
    facts, packed = viewer.pack(slices, result)
    write_page(tmp_path / "a.html", Rebuilt(slices, result), RECORD)
    generator = np.random.default_rng(k)
    places = [generator.integers(0, facts["shape"]).tolist() for _ in range(12)]
    actions = f"""
    told.texts = {json.dumps(places)}.map(([x, y, z]) => {{
      [z, y, x].forEach((at, k) => {{ const s = all('.panels input')[k]; s.value = at; s.oninput(); }});
      return place();
    }});
    """
    told = by_hand(tmp_path, (tmp_path / "a.html").read_text(encoding="utf-8"), actions)
    volumes = unpack(facts, packed)
    for index, text in zip(places, told["texts"], strict=True):
        mm = np.array(facts["affine"]) @ [*index, 1]
        sides = zip(mm, ("LR", "PA", "IS"), strict=True)
        where = ", ".join(f"{letters[int(n >= 0)]} {abs(n):.1f}" for n, letters in sides)
        assert text.split(" mm: ")[0] == where
        shown = [float(number) for number in re.findall(r"(?:measured|cubic|rebuilt) ([\d.e+-]+)", text)]
        greys = [facts["low"] + (facts["high"] - facts["low"]) * int(v[tuple(index)]) / 255 for v in volumes]
        assert shown == pytest.approx(greys, rel=0.006, abs=0.01)


@pytest.mark.parametrize("k", [21])
def test_the_patients_left_front_and_top_are_drawn_at_the_right_the_top_or_left_and_the_top(k, tmp_path):
    """A ball on the patient's left, in front and above, in an oblique scan of any order of axes."""
    measured, _ = scan(turned(AXES[k], 15, -12, 18), (40, 40, 40), (2.0, 2.0, 2.0), 2.0)
    grid = np.stack(np.meshgrid(*map(np.arange, measured.shape), indexing="ij"), -1)
    affine = measured.affine.numpy()
    place = grid @ affine[:3, :3].T + affine[:3, 3]
    ball = 300.0 * (np.square(place - [-14.0, 11.0, 12.0]).sum(-1) < 144) + 200 * (np.square(place).sum(-1) < 900)
    actions = """
    key('c');
    told.halves = all('.panels canvas').map((canvas, n) => {
      const slider = all('.panels input')[n]; let best = [0, 0, 0, 0];
      for (let i = 0; i <= +slider.max; i++) {
        slider.value = i; slider.oninput();
        const data = pixels(canvas), [w, h] = [canvas.width, canvas.height]; let sums = [0, 0, 0, 0];
        for (let y = 30; y < h - 45; y += 3) for (let x = 30; x < w - 30; x += 3) {  // without letters and bar
          const bright = data[4 * (y * w + x)] > 200;
          sums[x < w / 2 ? 0 : 1] += bright; sums[y < h / 2 ? 2 : 3] += bright;
        }
        if (sums[0] + sums[1] > best[0] + best[1]) best = sums;
      }
      return best;
    });
    """
    text = page(tmp_path / "a.html", volume_at(ball, affine), volume_at(ball, affine))
    (axial, coronal, sagittal) = by_hand(tmp_path, text, actions)["halves"]
    for left, right, top, bottom in (axial, coronal):
        assert right > 5 * left and top > 2 * bottom
    left, right, top, bottom = sagittal
    assert left > 2 * right and top > 2 * bottom


SPY = """<head><script>const drawn = new Map();  // what is written and filled in white on each canvas, and where
for (const name of ['fillText', 'fillRect']) {
  const original = CanvasRenderingContext2D.prototype[name];
  CanvasRenderingContext2D.prototype[name] = function (...given) {
    if (this.fillStyle === '#000000' && name === 'fillRect') drawn.set(this.canvas, []);  // the background
    if (name === 'fillText' || this.fillStyle === '#ffffff') drawn.get(this.canvas).push([name, ...given]);
    return original.apply(this, given);
  };
}</script>"""


def test_letters_stand_at_the_sides_that_they_name_and_the_bar_is_as_long_as_it_says(tmp_path):
    """In an oblique scan; how long a millimetre is on the canvas tells a click."""
    measured, result = scan(turned(AXES[21], 0, 0, 25), (40, 40, 40), (2.0, 2.0, 2.0), 2.0)
    actions = """
    told.drawn = all('.panels canvas').map(c => [c.width, c.height, drawn.get(c)]);
    click(2, 0.2, 0.5); told.from = place(); click(2, 0.7, 0.5); told.to = place();
    for (let n = 0; n < 14; n++) key('+');
    told.near = all('.panels canvas').map(c => [c.width, c.height, drawn.get(c)]);
    """
    text = page(tmp_path / "a.html", measured, result).replace("<head>", SPY)
    told = by_hand(tmp_path, text, actions)
    expected = (("RA", "LP", "AL", "PR"), ("RA", "LP", "S", "I"), ("AL", "PR", "S", "I"))  # left, right, top, bottom
    for (width, height, calls), letters in zip(told["drawn"], expected, strict=True):
        texts = {text: (x / width, y / height) for name, text, x, y, *_ in calls if name == "fillText"}
        for letter, (x, y) in zip(letters, ((0, 0.5), (1, 0.5), (0.5, 0), (0.5, 1)), strict=True):
            assert texts[letter] == pytest.approx((x, y), abs=0.03)
    places = [[float(n) * (1 if s in "RAS" else -1) for s, n in re.findall(r"(\w) ([\d.]+)", told[k])[:3]]
              for k in ("from", "to")]  # fmt: skip
    width, _, calls = told["drawn"][2]
    pixels_per_mm = 0.5 * width / np.linalg.norm(np.subtract(*places))

    def bar(width, _, calls):
        """Its length and what it says, mm."""
        length = max(length for name, _, _, length, *_ in calls if name == "fillRect")
        (said,) = (text for name, text, *_ in calls if name == "fillText" and re.fullmatch(r"\d+ mm", text))
        assert 0.05 * width < length < 0.45 * width
        return length, int(said[:-3])

    length, said = bar(*told["drawn"][2])
    assert said % 10 == 0 and length / pixels_per_mm == pytest.approx(said, rel=0.08)
    near, fewer = bar(*told["near"][2])
    assert near / fewer == pytest.approx(20 * length / said, rel=0.01), "at the largest zoom"


def test_without_a_way_to_unpack_a_sentence_says_so_and_the_middle_planes_are_there(pair, tmp_path):
    text = page(tmp_path / "a.html", *pair)
    old = text.replace("<head>", "<head><script>delete window.DecompressionStream</script>")
    broken = text.replace('id="volumes">', 'id="volumes">AAAA')
    for content, told in ((old, "has no DecompressionStream"), (broken, "are broken")):
        (tmp_path / "a.html").write_text(content, encoding="utf-8")
        dom, console = chromium(tmp_path, tmp_path / "a.html", "--dump-dom")
        assert console == [] and "<canvas" not in dom and dom.count("<img") == 9
        assert told in re.search('class="status">(.*?)</p>', dom, re.S)[1]


def test_on_paper_the_middle_planes_stand_and_nothing_to_scroll(pair, tmp_path):
    page(tmp_path / "a.html", *pair)
    _, console = chromium(
        tmp_path, tmp_path / "a.html", f"--print-to-pdf={tmp_path / 'a.pdf'}", "--no-pdf-header-footer"
    )
    content = (tmp_path / "a.pdf").read_bytes()
    assert console == [] and content.startswith(b"%PDF")
    assert 1 <= len(re.findall(rb"/Type\s*/Page\b", content)) <= 4
    assert len(re.findall(rb"/Subtype\s*/Image", content)) == 9, "before and after in three planes, and the map"
