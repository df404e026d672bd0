"""The numbers are those of the files, and the picture is the right way up."""

import base64
import io
import re
from itertools import permutations, product

import numpy as np
import pytest
import torch
from markupsafe import escape
from monai.data import MetaTensor
from PIL import Image

from scripts.pages.page import write_page
from scripts.rebuild.guide import PlacedGuide
from scripts.rebuild.rebuilt import Rebuilt
from scripts.stack.acquisition import Acquisition
from scripts.stack.grid import respaced_affine, voxel_spacing
from scripts.stack.profile import acquire
from scripts.stack.settle import GUESS
from scripts.stack.slices import Slices

RECORD = {
    "Description": "Super-resolved.",
    "Facts": {"slice axis": ("2", "the largest spacing"), "slice thickness": ("4 mm", "given")},
    "Warnings": [],
    "Agreement": 0.0123,
    "Network": {"Description": "DRIFT, weights 0.1.0 (0123abcd)", "Class": "scripts.method.networks.Drift"},
    "WeightsSHA256": "0123abcd",
    "Version": "0.1.0",
    "Settings": {"slice_thickness": None},
    "Sources": ["/data/in/case.nii.gz", "/data/case.json"],
}


def volume_at(array, affine):
    return MetaTensor(torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32)), affine=torch.from_numpy(affine))


def page(path, measured, result, difference=0.0, error=None, guide=None, **record):
    """Writes the page of two volumes, whose slices lie along the last axis, and returns its text."""
    spacing, target = voxel_spacing(measured.affine)[2], voxel_spacing(result.affine)[2]
    a = Acquisition.stack(2, measured.shape[2], spacing=spacing, thickness=max(spacing, target), target=target)
    a.attach(measured)
    placed = None if guide is None else PlacedGuide(guide[None], np.eye(4), 1.0, 0.0, 0.0, 0.0, "the guide")
    rebuilt = Rebuilt(Slices.of(measured), result, guide=placed)
    vars(rebuilt)["difference"] = difference + 0 * measured.as_tensor()
    write_page(path, rebuilt, {**RECORD, **record}, error)
    return path.read_text(encoding="utf-8")


def slices_and_truth(phantom):
    """4 mm slices of the phantom, and the phantom, which stands in for the result."""
    fine = np.diag([1.0, 1.0, 1.0, 1.0])
    fine[:3, 3] = -20, -22, 5
    thick = acquire(torch.from_numpy(phantom), Acquisition.of_truth(2, 48, edge=1.0, thickness=4.0)).numpy()
    return volume_at(thick, respaced_affine(fine, 2, 48, 12, 4.0)), volume_at(phantom, fine)


@pytest.fixture
def pair(phantom):
    return slices_and_truth(phantom)


LINKS = re.compile(r"""\b(?:src|srcset|href|xlink:href|action|poster|data)\s*=\s*["']([^"']*)|url\(\s*["']?([^)"']*)""")


def loads(text):
    """What a browser would fetch for a page."""
    found = [first or second for first, second in LINKS.findall(text)]
    return [link for link in found if not link.startswith(("data:", "#"))]


def test_a_page_needs_no_other_file_and_no_network(pair, tmp_path):
    text = page(tmp_path / "a.html", *pair)
    assert loads(text) == [] and "@import" not in text and "fetch(" not in text
    assert not re.search(r"(https?|file|ftp|wss?)://", text) and text.count("http") == text.count("http-equiv") == 1
    assert "default-src 'none'" in text, "a browser would refuse what is not in the page"
    assert [p.name for p in tmp_path.iterdir()] == ["a.html"]
    assert loads('<img src="a.png"><a href="http://x">') == ["a.png", "http://x"], "a link would be found"


def test_a_page_says_what_came_in_and_out_and_what_was_assumed(pair, tmp_path):
    text = page(tmp_path / "case_sr.html", *pair)
    assert "<title>case_sr</title>" in text and 'name="viewport"' in text
    cells = ("40 x 44 x 12", "1 x 1 x 4", "40 x 44 x 48", "1 x 1 x 1", "2", "the largest spacing", "4 mm", "given")
    for cell in (*cells, "0123abcd", "0.1.0", "not set"):
        assert f"<td>{cell}</td>" in text
    assert "None" not in text
    assert "1 x 1 x 4 mm voxels in, 1 x 1 x 1 mm out" in text
    assert text.count("<td>-0.50, -0.50, 28.50</td>") == 2, "both grids have one centre"
    assert "<b>1.23 %</b>" in text and "estimated by a network, not measured" in text and "not for diagnosis" in text
    assert "file: case.nii.gz" in text
    assert "<svg" in text and text.count("<img") == 2 * 3 + 3  # before and after, the map
    assert 'class="warning"' not in text


def test_warnings_stand_on_top_and_a_guessed_thickness_is_one(pair, tmp_path):
    guessed = {"slice axis": ("2", "given"), "slice thickness": ("4 mm", GUESS)}
    warnings = ["thicker than trained", "nothing states the slice thickness"]  # the one of `settle.settle`
    text = page(tmp_path / "a.html", *pair, Warnings=warnings, Facts=guessed)
    top = text[: text.index("<h2>")]
    assert re.findall('<p class="warning">(.*?)</p>', top) == warnings, "each once"
    assert '<tr class="guess"><td>slice thickness</td>' in text
    copied = page(tmp_path / "b.html", pair[1], pair[1], Facts=guessed)
    assert 'class="warning"' not in copied, "where nothing is rebuilt nothing hangs on it"


def test_what_the_user_gave_is_text_and_never_markup(pair, tmp_path):
    evil = '<script>alert("1")</script><img src=x onerror=alert(1)>&amp;'
    plain = page(tmp_path / "a.html", *pair)
    facts = {evil: (evil, evil), "slice thickness": ("4 mm", "given")}
    text = page(tmp_path / "<b>a&b.html", *pair, Facts=facts, Warnings=[evil], Settings={evil: evil, "b": evil})
    assert "<script>alert" not in text and "<img src=x" not in text and "<b>a&b" not in text
    assert text.count(str(escape(evil))) == 7 and "<title>&lt;b&gt;a&amp;b</title>" in text
    assert text.count("<script") == plain.count("<script") == 3  # facts, volumes and what draws them


def test_a_page_names_files_without_their_folders_and_date_and_series_where_they_are_known(pair, tmp_path):
    facts = {**RECORD["Facts"], "slice spacing": ("4 mm", "the sidecar case.json")}
    plain = page(tmp_path / "a.html", *pair, Facts=facts)
    assert "/data" not in plain and str(tmp_path) not in plain and "date:" not in plain and "series:" not in plain
    pair[0].meta["series"] = {"series": "t2_tse <sag>", "date": "20220407"}
    text = page(tmp_path / "a.html", *pair, Facts=facts)
    assert "series: t2_tse &lt;sag&gt;. date: 2022-04-07. " in text
    assert "the sidecar case.json" in text


def stack(name, warning):
    return {"Name": name, **dict.fromkeys(("Degrees", "Millimetres", "Likeness", "Share"), 1.0), "Agreement": 0.1} | {
        **{"Gain": [1, 1], "Warnings": [f"{name} {warning}"]}
    }


def test_a_page_of_stacks_and_a_guide_names_no_folder(pair, tmp_path):
    folder = "/data/Anna_Smith/"
    stacks = [stack(f"{folder}case.nii.gz", "is fine"), stack(f"{folder}other.nii.gz", "is left out")]
    told = {"Stacks": stacks, "Warnings": stacks[1]["Warnings"], "Guide": {"Name": f"{folder}t1.nii.gz"}}
    told["Facts"] = {**RECORD["Facts"], "guide": (f"{folder}t1.nii.gz", "registered")}
    guide = volume_at(np.full(pair[1].shape, -1.0), np.asarray(pair[1].affine))
    text = page(tmp_path / "case_sr.html", *pair, guide=guide, **told)
    shown = re.sub(r'<script.*?</script>|base64,[^"]*', "", text, flags=re.S)
    assert "Anna" not in shown and all(name in shown for name in ("other.nii.gz", "t1.nii.gz"))
    assert shown.count("axial, guide") == page(tmp_path / "a.html", *pair).count("axial, rebuilt") > 0


def pictures(text):
    """(alternative text, pixels) of each picture of a page."""
    for encoded, alt in re.findall(r'<img src="data:image/png;base64,([^"]+)" alt="([^"]*)"', text):
        yield alt, np.asarray(Image.open(io.BytesIO(base64.b64decode(encoded))))


def octant(shape, affine):
    """Bright where the patient is right, front and top of the volume's centre; the middle itself is bright too."""
    index = np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij"), -1)
    place = (index - (np.array(shape) - 1) / 2) @ affine[:3, :3].T
    return 1000.0 * (place > -0.6).all(-1)


def assert_bright_at_upper_left(pixels):
    rows, columns = np.array_split(pixels > 127, 2), np.array_split(pixels > 127, 2, axis=1)
    assert rows[0].mean() > 0.3 and columns[0].mean() > 0.3
    assert rows[1].mean() < 0.2 and columns[1].mean() < 0.2


AXES = [
    np.diag([*signs, 1.0]) @ np.eye(4)[:, [*order, 3]]
    for order in permutations(range(3))
    for signs in product([1, -1], repeat=3)
]


def test_right_front_and_top_hang_where_the_letters_say_for_any_order_and_sign_of_the_axes(tmp_path):
    """The patient's right at the left, the front at the top or, from the side, at the left."""
    for k, axes in enumerate(AXES[::5]):
        affine = axes @ np.diag([1.0, 1.0, 3.0, 1.0])
        thick_shape, fine_shape = (13, 15, 7), (13, 15, 21)
        fine = respaced_affine(affine, 2, 7, 21, 1.0)
        text = page(
            tmp_path / f"{k}.html",
            volume_at(octant(thick_shape, affine), affine),
            volume_at(octant(fine_shape, fine), fine),
        )
        shown = dict(list(pictures(text))[:6])
        assert list(shown) == [f"{v}, {w}" for w in ("measured", "rebuilt") for v in ("axial", "coronal", "sagittal")]
        for pixels in shown.values():
            assert_bright_at_upper_left(pixels)


def test_letters_name_the_sides_of_each_plane(pair, tmp_path):
    text = page(tmp_path / "a.html", *pair)
    sides = ("left:4px", "right:4px", "top:2px", "bottom:2px")
    figures = text.split('<div class="plane"')[1:]
    for figure, letters in zip(figures, 3 * ("RLAP", "RLSI", "APSI"), strict=True):
        found = {
            re.search("|".join(sides), style)[0]: letter
            for style, letter in re.findall(r'<span style="([^"]*)">(\w)', figure)
        }
        assert "".join(found[side] for side in sides) == letters


def test_pictures_have_the_proportions_of_the_patient(tmp_path):
    """Width and height in mm, whatever the voxel edges: 60 x 40 x 24 mm."""
    affine = np.diag([-1.5, 0.5, 3.0, 1.0])
    measured = volume_at(octant((40, 80, 8), affine), affine)
    fine = respaced_affine(affine, 2, 8, 24, 1.0)
    text = page(tmp_path / "a.html", measured, volume_at(octant((40, 80, 24), fine), fine))
    sizes = re.findall(r'class="plane" style="aspect-ratio:([\d.]+)/([\d.]+)"', text)
    assert [tuple(map(float, size)) for size in sizes] == 3 * [(60, 40), (60, 24), (40, 24)]


def test_before_and_after_have_one_window_and_the_map_is_grey_where_nothing_differs(tmp_path):
    """A result half as bright shows half as bright; where it has more than the slices, the map is bright."""
    ramp = np.tile(np.linspace(0, 1000, 16)[:, None, None], (1, 16, 16))
    difference = torch.zeros(16, 16, 16)
    difference[8:] = 50.0  # half of a tenth of the window; x grows to the patient's right, at the left
    volumes = volume_at(ramp, np.eye(4)), volume_at(ramp / 2, np.eye(4))
    shown = dict(pictures(page(tmp_path / "a.html", *volumes, difference)))
    before, after, axial = (shown[f"axial, {what}"].astype(float) for what in ("measured", "rebuilt", "difference"))
    np.testing.assert_allclose(after, before / 2, atol=2)
    assert before.max() > 250
    assert np.abs(axial[:, 8:] - 127).max() <= 1 and np.abs(axial[:, :8] - 191).max() <= 2


def test_the_spectrum_of_noise_is_a_level_line_at_its_density(tmp_path):
    """A deviation of 100 in voxels of 2 mm is 20000 squared units x mm, 43 dB; curves stand in 620 x 228 pixels."""
    noise = volume_at(100 * np.random.default_rng(0).standard_normal((32, 32, 32)), np.diag([2.0, 2.0, 2.0, 1.0]))
    svg = re.search('<svg class="curves".*?</svg>', page(tmp_path / "a.html", noise, noise), re.DOTALL)[0]
    levels = [float(level) for level in re.findall(r'text-anchor="end">(-?\d+)<', svg)]
    ends = [float(cycles) for cycles in re.findall(r'text-anchor="middle">([\d.]+)<', svg)]
    assert (levels[-1], levels[0], ends[0], ends[-1]) == (40, 50, 0, 0.25)
    curves = [[float(p.split(",")[1]) for p in points.split()] for points in re.findall(r'points="([^"]*)"', svg)]
    assert len(curves) == 4
    for heights in curves:
        assert 50 - 10 * np.mean(heights) == pytest.approx(43, abs=0.5)


@pytest.mark.parametrize(("spacing", "count"), [(3.0, 7), (8.0, 8)])
def test_before_and_after_show_the_same_place(spacing, count, tmp_path):
    """Intensity tells the height: both axial planes lie within half a fine voxel of each other."""
    affine = np.diag([1.0, 1.0, spacing, 1.0])
    fine_count = round(count * spacing)
    fine = respaced_affine(affine, 2, count, fine_count, 1.0)
    volumes = []
    for n, a in ((count, affine), (fine_count, fine)):
        height = a[2, 3] + a[2, 2] * np.arange(n)
        volumes.append(volume_at(np.broadcast_to(height, (16, 16, n)), a))
    low, high = np.percentile(volumes[0].numpy(), (0.5, 99))
    shown = dict(pictures(page(tmp_path / "a.html", *volumes)))
    first, second = (low + (high - low) * shown[f"axial, {what}"].mean() / 255 for what in ("measured", "rebuilt"))
    assert abs(first - second) <= 0.5 + (high - low) / 128
