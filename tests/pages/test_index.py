"""The index of a cohort: its rows, links and pictures, who stands out, and how it sorts."""

import base64
import io
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from urllib.parse import unquote

import nibabel as nib
import numpy as np
import pytest
import torch
from monai.data import MetaTensor
from PIL import Image

from scripts.inputs.scan import Scan
from scripts.method.origin import Origin
from scripts.outputs.record import describe
from scripts.pages.index import glance, outliers, write_index
from scripts.rebuild.error_map import ErrorMaps
from scripts.rebuild.rebuilt import Rebuilt
from scripts.stack.acquisition import Acquisition
from scripts.stack.grid import voxel_spacing
from scripts.stack.interpolation import interpolate
from scripts.stack.noise import Noise
from scripts.stack.slices import Slices
from scripts.train.simulation import central_slab, scanned
from scripts.train.truth import read_volume
from tests.browser import Browser, chromium, needs_chromium
from tests.cohort_files import AXIAL, hidden, nan_scan, record, summary, texture
from tests.config_files import ROOT

ISOTROPIC = ROOT.parent / "shared" / "data" / "isotropic"


class Table(HTMLParser):
    """Rows of an index: the class of each, its links, pictures and text."""

    def __init__(self, page):
        super().__init__()
        self.rows, self.inside = [], False
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.inside = self.inside or tag == "tbody"
        if self.inside and tag == "tr":
            self.rows.append({"outcome": given["class"], "links": [], "pictures": [], "text": ""})
        elif self.inside and tag in ("a", "img"):
            self.rows[-1][{"a": "links", "img": "pictures"}[tag]].append(given.get("href") or given.get("src"))

    def handle_endtag(self, tag):
        self.inside = self.inside and tag != "tbody"

    def handle_data(self, text):
        if self.inside and self.rows:
            self.rows[-1]["text"] += f" {text.strip()}"


def page(folder):
    return (folder / "index.html").read_text(encoding="utf-8")


def picture(url):
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))))


def row(name, **values):
    return {"input": f"{name}.nii", "outcome": "rebuilt", "warnings": "", **values}


def test_an_index_has_every_scan_with_links_that_lead_there(write_nifti, bundle):
    """One fails, one is complete already, one has a name that addresses escape."""
    for seed, name in enumerate(("b", "sub/a #1 é?%20")):
        write_nifti(texture(seed=seed), AXIAL, f"scans/{name}.nii.gz")
    folder = write_nifti(nan_scan(), AXIAL, "scans/c.nii.gz").parent
    for _ in range(2):
        with pytest.raises(SystemExit):
            bundle(folder, report=True)
    assert "complete already" in page(bundle.out)
    rows = Table(page(bundle.out)).rows
    assert [row["outcome"] for row in rows] == [row["outcome"] for row in summary(bundle.out)]
    named = {row["text"].split("result")[0].strip(): row for row in rows}
    for name, stem in (("b.nii.gz", "b"), ("sub/a #1 é?%20.nii.gz", "sub/a #1 é?%20")):
        assert [unquote(link) for link in named[name]["links"]] == [f"{stem}_sr.html", f"{stem}_sr.nii.gz"]
        assert all((bundle.out / unquote(link)).is_file() for link in named[name]["links"])
        assert len(named[name]["pictures"]) == 2 and "6\u00d77\u00d720" in named[name]["text"]
    (failed,) = (row for row in rows if row["outcome"] == "failed")
    assert "c.nii.gz has 1 NaN" in failed["text"] and failed["links"] == failed["pictures"] == []
    assert str(bundle.out.parent) not in page(bundle.out), "no folder of this machine"
    assert hidden(bundle.out) == []


def test_an_index_keeps_the_scans_of_earlier_runs_and_reads_no_volume_again(folder, bundle, monkeypatch):
    a, b, _ = sorted(folder.iterdir())
    bundle(a)
    first = Table(page(bundle.out)).rows
    bundle(b)
    assert Table(page(bundle.out)).rows[0] == first[0] and len(Table(page(bundle.out)).rows) == 2
    monkeypatch.chdir(bundle.out)  # and the folder may have another name by then
    bundle.out.rename(bundle.out.with_name("moved"))
    moved = bundle.out.with_name("moved")
    (moved / "scan_sr.nii.gz").write_bytes(b"no volume")
    write_index(moved, summary(moved))
    assert Table(page(moved)).rows[0] == first[0]


def test_another_programs_index_is_left_alone(scan, bundle, refusal):
    bundle.out.mkdir()
    (bundle.out / "index.html").write_text("<html>mine</html>")
    assert "index.html was not written by DRIFT" in refusal(bundle, scan)
    assert [p.name for p in bundle.out.iterdir()] == ["index.html"] and page(bundle.out) == "<html>mine</html>"


@pytest.mark.parametrize(("code", "axis"), [("LPI", 0), ("SLA", 1), ("LPI", 2)])
def test_thumbnails_hang_as_films_do_in_true_proportions(code, axis):
    """A head of 60 x 90 x 120 mm, bright at its right, front and top, stored in any order, thick along any axis."""
    edges = np.array([2.0, 2.0, 2.0])
    edges[axis] = 6.0
    shape = (np.array([60, 90, 120]) / edges).astype(int)
    array = np.zeros(shape, np.float32)
    for a in range(3):
        array[tuple(slice(n // 2, None) if a == b else slice(None) for b, n in enumerate(shape))] += 100 * 2**a
    image = nib.Nifti1Image(array, np.diag([*edges, 1]))
    to = nib.orientations.axcodes2ornt(code)
    image = image.as_reoriented(nib.orientations.ornt_transform(nib.orientations.axcodes2ornt("RAS"), to))
    stored = next(k for k, letter in enumerate(code) if letter in ("LR", "AP", "SI")[axis])
    measured = MetaTensor(torch.from_numpy(image.get_fdata(dtype=np.float32).copy()), affine=image.affine)
    Acquisition.stack(stored, measured.shape[stored], spacing=6.0, thickness=6.0, target=2.0).attach(measured)
    seen = glance(Slices.of(measured), measured)
    before = picture(seen["before"])
    assert seen["plane"] == ("sagittal" if axis == 1 else "coronal") and seen["voxels"] == list(measured.shape)
    assert before.shape == ((120, 90) if axis == 1 else (120, 60))
    left, right = (part.mean() for part in np.array_split(before.astype(float), 2, axis=1))
    top, bottom = (part.mean() for part in np.array_split(before.astype(float), 2, axis=0))
    assert left > right and top > bottom, "right or front on the left, head up"


def test_outliers_by_hand():
    """Median 3, absolute deviations 2 1 0 1 97, their median 1: the limit is 3.5 x 1.4826 x 1 = 5.1891."""
    assert outliers([1, 2, 3, 4, 100]) == (3, [False] * 4 + [True])
    assert outliers([1, 2, 3, 4, 3 + 5.18])[1] == [False] * 5
    assert outliers([1, 2, 3, 4, 3 + 5.20])[1] == [False] * 4 + [True]
    assert outliers([-100, 2, None, 3, 4, 5])[1] == [False] * 6, "less is better"
    assert outliers([1, 2, None, 4, 100])[1] == [False] * 5, "four numbers are too few"
    assert outliers([None, None])[1] == [False, False]


def test_an_outlier_is_marked_with_its_number_and_the_median(tmp_path):
    rows = [row(k, agreement=str(0.01 * k), step_ratio="1.0") for k in (1, 2, 3, 4, 100)] + [row("x")]
    write_index(tmp_path, rows)
    said = [row["text"] for row in Table(page(tmp_path)).rows]
    assert ["outlier" in text for text in said] == [False] * 4 + [True, False]
    assert "outlier: agreement 100.00 %, median 3.00 %; the result differs from the measured slices" in said[4]
    assert "3.5 &times; 1.4826" in page(tmp_path)


def test_every_cell_stands_under_its_heading(tmp_path):
    write_index(tmp_path, [row("a", error_bar="0.1", seconds="7")])
    heads = re.findall(r'data-sort="(.*?)"', page(tmp_path))
    (cells,) = re.findall(r"<tbody>.*?<tr[^>]*>(.*?)</tr>", page(tmp_path), re.DOTALL)
    labels = [label.split(" (")[0].replace(" ", "-") for label in re.findall(r'data-label="(.*?)"', cells)]
    assert cells.count("<td") == len(heads) + 1, "and one of pictures"
    assert labels == [name for name in heads if name not in ("scan", "outcome", "warnings")]


def test_a_poor_result_is_marked_in_words_whatever_the_others_are(tmp_path):
    poor = {"agreement": "0.051", "step_ratio": "1.26", "streak": "1.76", "streak_steps": "0.051"}
    good = {"agreement": "0.05", "step_ratio": "1.25", "streak": "1.76", "streak_steps": "0.05"}
    write_index(tmp_path, [row("a", **poor), row("b", **good), row("c", streak="1.75", streak_steps="0.1"), row("d")])
    a, *others = (" ".join(row["text"].split()) for row in Table(page(tmp_path)).rows)
    assert "the result differs from the measured slices: agreement 5.10 %, above 5.00 %" in a
    assert "slices can be seen in the result: step ratio 1.26, above 1.25" in a and "1 marked" in page(tmp_path)
    assert "drawn out along the slice axis: streak 1.76, above 1.75" in a
    assert all("above" not in text and "outlier" not in text for text in others)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "axis"),
    [
        ("ds002748-31_T1w", 1),
        ("ds002748-34_T1w", 0),
        ("lifespan-7_T1w", 2),
        ("uih-a_T1w", 2),
        ("arc-m2208_T2w", 2),
        ("ljubljana-19_FLAIR", 2),
        ("brats-gli-00000_T1wGd", 2),
    ],
)
@pytest.mark.skipif(not ISOTROPIC.exists(), reason="the shared data are not here")
def test_no_truth_is_marked_and_noise_that_is_drawn_out_and_stairs_are(name, axis, tmp_path):
    """A sharp scan in its result's place; the spline of slices with 8 % of noise, all streaks; a fifth of stairs."""
    truth = central_slab(read_volume(ISOTROPIC / f"{name}.nii.gz"), axis, 72)
    edge = float(voxel_spacing(truth.affine)[axis])
    stated = dict.fromkeys("slice_axis slice_spacing slice_thickness target_spacing".split(), "the test")
    made = Acquisition.of_truth(axis, truth.shape[1 + axis], edge=edge, thickness=5 * edge)
    acquisition, rows = replace(made, sources=stated), []
    for noise, stairs in ((0.0, 0.0), (0.08, 0.0), (0.0, 0.2)):
        slices = Slices.of(scanned(truth, acquisition, Noise(noise, (1.0, 1.0)), torch.Generator().manual_seed(1)))
        cubic, nearest = (interpolate(slices.array, slices.acquisition, one) for one in ("cubic", "nearest"))
        smooth = cubic + stairs * (nearest - cubic)
        result = MetaTensor(smooth if noise or stairs else truth.as_tensor()[0], affine=truth.affine)
        scan = Scan(name, tmp_path / name, (), tmp_path / name)
        said = describe(scan, Rebuilt(slices, result), ErrorMaps(), Origin.of(torch.nn.Identity()))["Summary"]
        rows.append(row(f"{noise:g}{stairs:g}", **{**said, "warnings": ""}))
    write_index(tmp_path, rows)
    sharp, drawn_out, stepped = (one["text"] for one in Table(page(tmp_path)).rows)
    assert "above" not in sharp, "agreement, step ratio and streak of the truth"
    assert "drawn out along the slice axis" in drawn_out
    assert "slices can be seen in the result" in stepped


@pytest.mark.parametrize("consistency", ["project", "measure"])
def test_a_methods_section_says_what_was_done_and_counts_what_was_rebuilt(consistency, scan, bundle, write_nifti):
    write_nifti(texture(), np.eye(4), "scans/thin.nii.gz")
    bundle([scan, scan.parent / "scans" / "thin.nii.gz"], consistency=consistency)
    assert [" axial " in row["text"] for row in Table(page(bundle.out)).rows] == [True, True]
    made, told = record(bundle.out), " ".join(re.sub("<.*?>", "", page(bundle.out)).split())
    assert "(1, slices 4 mm apart and 4 mm thick) were resampled to 1 mm" in told
    assert f"by {made['Network']['Description']} [1], with the software DRIFT {made['Version']}." in told
    assert made["WeightsSHA256"][:12] in told and "[1] Choi Y. et al." in told
    assert f"refined in {made['Summary']['steps']} Euler step" in told
    assert f"noise was {100 * made['Noise']['Share']:.3g} % of the range" in told
    assert ("Results were reconciled" in told) == (consistency == "project")
    (bundle.out / "scan_sr.json").write_text(json.dumps({**made, "Guide": {"Name": "t1"}}))
    write_index(bundle.out, summary(bundle.out))
    told = " ".join(page(bundle.out).split())
    assert "In 1 of them another contrast of the head, registered rigidly, guided the network." in told


@pytest.mark.parametrize("folder", ["/data/", ""])
def test_a_scan_of_several_stacks_is_named_by_all_of_them(folder, tmp_path):
    rows = [row("x", input=f"{folder}a.nii + {folder}b.nii"), row("y", input=f"{folder}sub/c.nii")]
    write_index(tmp_path, rows)
    first, second = (one["text"] for one in Table(page(tmp_path)).rows)
    assert " a.nii + b.nii " in first and " sub/c.nii " in second


def test_reasons_keep_file_names_and_lose_folders(tmp_path):
    rows = [
        row("x", input="/home/me/my scans/a.nii", warnings="/home/me/my scans/a.nii has 1 NaN | 3 mm / 4 mm at 1/2"),
        row("y", input="/home/me/b.nii", warnings="from /opt/some/where/b.json: no, /b.json; https://a.org/b/c"),
        row("z", input="<b>3_T2", outcome="skipped", warnings="not DICOM"),
    ]
    write_index(tmp_path, rows)
    one, two, three = (" ".join(row["text"].split()) for row in Table(page(tmp_path)).rows)
    assert one == "my scans/a.nii rebuilt a.nii has 1 NaN 3 mm / 4 mm at 1/2"
    assert two == "b.nii rebuilt from b.json: no, /b.json; https://a.org/b/c"
    assert three == "<b>3_T2 skipped not DICOM"


@pytest.mark.slow
@needs_chromium
def test_a_heading_sorts_numbers_names_and_what_is_empty_last(tmp_path):
    given = {"s10": 0.5, "s9": 12, "s1": None, "t": 3}
    write_index(tmp_path, [row(k, seconds=v, warnings="w" * (k == "t")) for k, v in given.items()])
    assert chromium(tmp_path, tmp_path / "index.html", "--dump-dom")[1] == [], "no complaint"
    names = "[...document.querySelectorAll('td.name')].map(cell => cell.dataset.key.replace('.nii', '')).join(' ')"
    with Browser(tmp_path, 1400, 900) as browser:
        for address, expected in (
            ("", "s10 s9 s1 t"),
            ("sort=time", "s10 t s9 s1"),
            ("sort=-time", "s9 t s10 s1"),
            ("sort=scan", "s1 s9 s10 t"),
            ("sort=warnings", "t s10 s9 s1"),
            ("sort=nothing", "s10 s9 s1 t"),
        ):
            browser.open(tmp_path / "index.html", fragment=address)
            assert browser.evaluate(names) == expected, address
        browser.evaluate(2 * "document.querySelector('[data-sort=time]').click(); sortAsAddressed();")
        assert browser.evaluate(names) == "s9 t s10 s1"
        assert browser.evaluate("document.querySelector('[data-sort=time]').parentElement.ariaSort") == "descending"
