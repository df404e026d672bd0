"""The page that rebuilds a scan, in Chromium: files are dropped, rebuilt, saved and refused; nothing is sent."""

import functools
import http.server
import json
import subprocess
import threading
import time
from itertools import pairwise

import nibabel as nib
import numpy as np
import pytest

import drift_mri
from tests.browser import FLAGS, Browser, needs_chromium
from tests.bundle.test_web import FLOAT32, HEAD, NODE, WEB, assert_same, axial, exported, head, pytestmark, series

__all__ = ["exported"]  # a fixture
pytestmark = [*pytestmark, needs_chromium]
DRAWN_BY_THE_PROCESSOR = "--use-gl=angle --use-angle=swiftshader --enable-unsafe-swiftshader".split()


class Server(http.server.ThreadingHTTPServer):
    """A folder at an address; what was asked of it, in `asked`."""

    daemon_threads = False  # closing waits for what is being answered

    def __init__(self, folder):
        self.asked = asked = []

        class Handler(http.server.SimpleHTTPRequestHandler):
            timeout = 5  # s; browsers open connections that they do not use

            def log_message(self, form, *values):
                asked.append(str(values[0]))

            def log_error(self, form, *values):
                if not isinstance(values[0], TimeoutError):  # nothing was asked
                    self.log_message(form, *values)

        super().__init__(("127.0.0.1", 0), functools.partial(Handler, directory=folder))
        self.address = f"http://127.0.0.1:{self.server_port}/"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def __exit__(self, *given):
        self.shutdown()  # else the thread asks the closed socket again and again
        super().__exit__(*given)


@pytest.fixture(scope="module")
def server(exported):
    """The built page, served as it is by Python's own server."""
    subprocess.run([NODE, WEB / "build.mjs"], check=True)
    with Server(WEB / "dist") as server:
        yield server


class Page(Browser):
    """The page in a browser."""

    def __init__(self, folder, address, threads=2, flags=()):
        flags = [flag for flag in FLAGS if flag != "--disable-gpu"] + DRAWN_BY_THE_PROCESSOR + list(flags)
        super().__init__(folder, 1400, 900, flags=flags)
        self.address, self.threads = address, threads

    def __enter__(self):
        super().__enter__()
        self("Emulation.setHardwareConcurrencyOverride", hardwareConcurrency=self.threads)
        self.load()
        self("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(self.folder))
        return self

    def load(self):
        self("Page.navigate", url=self.address)
        self.wait("document.documentElement.dataset.ready && navigator.serviceWorker.controller !== null", 120)

    def wait(self, expression, seconds=300):
        """Until an expression is true; the page may be on its way to another."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                if value := self.evaluate(expression):
                    return value
            except AssertionError:  # between two documents
                pass
            time.sleep(0.2)
        raise TimeoutError(f"{expression}: {self.evaluate('document.body.innerText')}")

    def drop(self, *paths):
        """Files or folders from a desktop; the page's mistake, None where the scan is taken."""
        self.evaluate("document.querySelector('#status').innerText = 'dropped'")
        self.drop_on("#drop", *paths)
        self.wait("document.querySelector('#status').innerText === ''")
        return self.mistake()

    def drop_on(self, selector, *paths):
        """Files or folders on the middle of an element."""
        self.evaluate(f"document.querySelector('{selector}').scrollIntoView({{block: 'center'}})")
        box = self.evaluate(f"document.querySelector('{selector}').getBoundingClientRect().toJSON()")
        place = {"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] / 2}
        data = {"items": [], "files": [str(path) for path in paths], "dragOperationsMask": 1}
        for kind in ("dragEnter", "dragOver", "drop"):
            self("Input.dispatchDragEvent", type=kind, **place, data=data)

    def mistake(self):
        return self.evaluate(
            "document.querySelector('#mistake').hidden ? null : document.querySelector('#mistake').innerText"
        )

    def click(self, selector):
        self.evaluate(f"document.querySelector('{selector}').click()")

    def fill(self, name, value):
        field = f"document.querySelector('[name={name}]')"
        self.evaluate(f"{field}.value = {value}; {field}.dispatchEvent(new Event('change', {{bubbles: true}}))")

    def facts(self):
        return self.evaluate("document.querySelector('tbody').innerText")

    def rebuild(self):
        self.click("[type=submit]")
        self.done()

    def done(self):
        self.wait("!document.querySelector('#result').hidden && document.querySelector('#status').innerText === ''")

    def canvases(self):
        """Pictures of the three."""
        boxes = self.evaluate(
            "[...document.querySelectorAll('canvas')].map((canvas) => canvas.getBoundingClientRect())"
            ".map(({x, y, width, height}) => ({x: x + scrollX, y: y + scrollY, width, height, scale: 1}))"
        )
        return [self("Page.captureScreenshot", clip=box, captureBeyondViewport=True)["data"] for box in boxes]

    def wait_for(self, *paths):
        """Until files were downloaded."""
        end = time.monotonic() + 60
        while not all(path.is_file() for path in paths) and time.monotonic() < end:
            time.sleep(0.2)

    def save(self, name):
        for path in self.folder.glob(f"{name}_sr*"):
            path.unlink()
        self.click("#save")
        paths = [self.folder / f"{name}_sr.nii.gz", self.folder / f"{name}_sr.json"]
        self.wait_for(*paths)
        return nib.load(paths[0]), json.loads(paths[1].read_text())


@pytest.fixture(scope="module")
def page(server, tmp_path_factory):
    with Page(tmp_path_factory.mktemp("page"), server.address) as page:
        yield page


def written(folder, voxels=HEAD, affine=None, name="scan.nii.gz"):
    nib.save(nib.Nifti1Image(voxels, axial() if affine is None else affine), folder / name)
    return folder / name


def test_a_dropped_file_is_corrected_stopped_rebuilt_and_saved(page, tmp_path):
    path = written(tmp_path)
    page.evaluate("addEventListener('securitypolicyviolation', (event) => (window.broke = event.blockedURI))")
    assert page.drop(path) is None
    assert "slice thickness\t4 mm\tthe slice spacing" in page.facts()
    page.fill("slice_thickness", 3.5)
    page.wait("document.querySelector('tbody').innerText.includes('3.5 mm\\tgiven')")
    page.click("[type=submit]")
    page.wait("document.querySelector('#status').innerText.includes('%')")
    page.click("#stop")
    assert page.evaluate(
        "document.querySelector('progress').hidden && document.querySelector('#status').innerText === ''"
    )
    page.evaluate(  # Enter in a field is a change and a submission at once
        "(() => { const stop = document.querySelector('#stop'); window.hidden = 0;"
        "document.querySelector('#correct').dispatchEvent(new Event('change'));"
        "document.querySelector('[type=submit]').click();"
        "new MutationObserver(() => (hidden += stop.hidden)).observe(stop, {attributes: true}); })()"
    )
    page.done()
    assert page.mistake() is None
    assert page.evaluate("hidden") == 1, "at the end alone"
    assert page.evaluate("window.broke ?? null") is None
    result, record = page.save("scan")
    expected = drift_mri.rebuild(path, slice_thickness=3.5, config=FLOAT32)
    assert_same(result, expected, HEAD)
    assert record["Facts"] == json.loads(json.dumps(expected.record["Facts"]))
    assert "2 threads" in record["Device"]


def said(page, selector):
    """The text of what is shown, None of what is not."""
    return page.evaluate(
        f"(({{hidden, textContent}}) => hidden ? null : textContent)(document.querySelector('{selector}'))"
    )


def test_a_result_stays_until_another_one_is_there(page, tmp_path):
    """With what it was made with, whatever is corrected, dropped by mistake, or stopped."""
    made = "slice thickness 3.5 mm"
    assert said(page, "#made") == "Result of scan.nii.gz" and made in said(page, "#made_with")
    assert said(page, "#changed") is None
    page.fill("slice_thickness", 3)
    page.wait("!document.querySelector('#changed').hidden")
    assert said(page, "#changed") == ("Changed: slice thickness 3 mm, gap 1 mm. Rebuild for a new result.")
    page.fill("slice_thickness", 3000)
    page.wait("!document.querySelector('#mistake').hidden")
    (tmp_path / "photo.jpg").write_bytes(b"\xff\xd8" + bytes(2000))
    assert page.drop(tmp_path / "photo.jpg").startswith("photo.jpg is no scan")
    assert "scan.nii.gz" in page.evaluate("document.querySelector('h2').textContent") and said(page, "#scan")
    page.fill("slice_thickness", 3)
    page.wait("document.querySelector('#mistake').hidden")
    page.click("[type=submit]")
    page.wait("document.querySelector('#status').innerText.includes('%')")
    page.drop_on("#drop", tmp_path / "photo.jpg")
    page.wait("!document.querySelector('#mistake').hidden")
    assert page.mistake().startswith("a scan is being rebuilt") and said(page, "#stop")
    page.click("#stop")
    assert page.mistake() is None, "it is at work no longer"
    assert said(page, "#made") == "Result of scan.nii.gz" and made in said(page, "#made_with")
    assert page.save("scan")[1]["Facts"]["slice thickness"] == ["3.5 mm", "given"]
    page.rebuild()
    assert "slice thickness 3 mm" in said(page, "#made_with") and said(page, "#changed") is None
    assert page.drop(written(tmp_path, name="other.nii.gz")) is None
    assert said(page, "#changed") == "This is the result of scan.nii.gz. Rebuild for that of other.nii.gz."


PLANES = """[...document.querySelectorAll('figure:not([data-behind])')].map((figure) => ({
    wide: figure.clientWidth, high: figure.clientHeight,
    sides: [...figure.querySelectorAll('.side')]
        .map(({textContent, style}) => [textContent, parseFloat(style.left) / 100 * figure.clientWidth,
            parseFloat(style.top) / 100 * figure.clientHeight])}))"""


def test_planes_have_letters_on_both_sides_a_gap_and_one_scale_and_fill_their_field(page, tmp_path):
    """As films hang: the patient's right and front on the left. The scan has 28 x 32 x 28 mm."""
    assert page.drop(written(tmp_path)) is None
    page.rebuild()
    edges = {"axial": (28, 32), "coronal": (28, 28), "sagittal": (32, 28)}
    for shown, count in (("all", 3), ("rebuilt", 1)):
        page.click(f"[name=shown][value={shown}]")
        page.wait(f"{PLANES}.every(({{sides}}) => sides.length === 12) && {PLANES}.length === {count}")
        time.sleep(1)
        for figure in page.evaluate(PLANES):
            planes = [figure["sides"][4 * k : 4 * k + 4] for k in range(3)]
            assert ["".join(side[0] for side in plane) for plane in planes] == ["RLAP", "RLSI", "APSI"]
            boxes = [(left[1], top[2], right[1], bottom[2]) for left, right, top, bottom in planes]
            scales = [(x1 - x0) / mm[0] for (x0, _, x1, _), mm in zip(boxes, edges.values())]
            scales += [(y1 - y0) / mm[1] for (_, y0, _, y1), mm in zip(boxes, edges.values())]
            np.testing.assert_allclose(scales, scales[0], rtol=0.03)
            for (_, _, x1, y1), (x2, y2, _, _) in pairwise(boxes):  # the next lies below, or beside
                assert y2 > y1 + 5 or x2 > x1 + 5
            left, top, right, bottom = (f(one) for f, one in zip((min, min, max, max), zip(*boxes)))
            assert -1 <= left and right <= figure["wide"] + 1 and -1 <= top and bottom <= figure["high"] + 1
            assert bottom - top > 0.95 * figure["high"], "no field is left black"
            assert count == 1 or right - left > 0.95 * figure["wide"]
    page.click("[name=shown][value=all]")


def test_the_sample_opens_with_one_click(server, tmp_path):
    with Page(tmp_path, server.address) as page:
        assert not any("sample.nii" in line for line in server.asked), "a visit does not load it"
        page.click("#sample")
        page.wait("!document.querySelector('#scan').hidden")
        assert page.mistake() is None
        assert "slice thickness\t5 mm\tthe sidecar sample.json" in page.facts()


def test_a_preview_is_shown_until_the_result_is_there_and_cannot_be_saved(server, tmp_path):
    """Where there is no result; Stop takes it away, and a former result stays in the place of a preview."""
    seen = "!document.querySelector('#early').hidden && !document.querySelector('#result').hidden"
    path = written(tmp_path, head((128, 128, 6)), axial(5.0))
    with Page(tmp_path, server.address, threads=1) as page:
        assert page.drop(path) is None
        page.click("[type=submit]")
        page.wait(seen)
        assert said(page, "#made") == "Preview of scan.nii.gz" and "slice thickness 5 mm" in said(page, "#made_with")
        assert said(page, "#save") is said(page, "#save_dicom") is None and said(page, "#stop")
        assert "It cannot be saved" in said(page, "#early") and said(page, "#latest") == "Preview"
        page.click("#stop")
        assert said(page, "#result") is None
        page.click("[type=submit]")
        page.wait(seen)
        page.wait("document.querySelector('#window').textContent !== ''")
        early = page.canvases()[2]
        page.done()
        assert said(page, "#made") == "Result of scan.nii.gz" and said(page, "#early") is None
        assert said(page, "#latest") == "Rebuilt"
        assert page.canvases()[2] != early
        assert page.save("scan")[1]["Facts"]["slice thickness"][0] == "5 mm"
        page.fill("slice_thickness", 4)
        page.click("[type=submit]")
        page.wait("document.querySelector('#status').innerText.startsWith('4')")  # %
        assert said(page, "#made") == "Result of scan.nii.gz" and said(page, "#save")


def test_cross_window_and_zoom_hold_for_all_three_views(page):
    def pressed(key, code, number):
        for kind in ("keyDown", "keyUp"):
            page("Input.dispatchKeyEvent", type=kind, key=key, code=code, windowsVirtualKeyCode=number)
        time.sleep(1)
        return page.canvases()

    def differ(one, other):
        return [a != b for a, b in zip(one, other)] == [True, True, True]

    page.evaluate("document.querySelector('#views').scrollIntoView(), document.querySelector('#views').focus()")
    before, level = page.canvases(), said(page, "#window")
    assert differ(before, moved := pressed("PageUp", "PageUp", 33))
    box = page.evaluate("document.querySelector('#measured').getBoundingClientRect().toJSON()")
    place = {"x": box["x"] + box["width"] / 2, "y": box["y"] + 100}
    mouse = functools.partial(page, "Input.dispatchMouseEvent", button="right")
    mouse(type="mousePressed", buttons=2, clickCount=1, **place)
    for _ in range(5):
        place["x"] += 15
        mouse(type="mouseMoved", buttons=2, **place)
    mouse(type="mouseReleased", buttons=0, clickCount=1, **place)
    time.sleep(1)
    narrow, wide = (float(one.split()[-1]) for one in (level, said(page, "#window")))
    assert wide > 1.1 * narrow and differ(moved, windowed := page.canvases())
    page.evaluate("document.querySelector('#views').focus()")
    assert differ(windowed, pressed("+", "Equal", 187))
    pressed("0", "Digit0", 48)
    assert said(page, "#window") == level


def test_a_study_lets_one_choose_among_its_scans(page, tmp_path):
    for number in (1, 2):
        series(tmp_path / "study", number, SliceThickness=2.5 + number)
    assert page.drop(tmp_path / "study") is None
    series_field = "document.querySelector('[name=series]')"
    assert page.evaluate(f"[...{series_field}.options].map((one) => one.text)") == ["1_t2_tse", "2_t2_tse"]
    assert "slice thickness\t3.5 mm" in page.facts()
    page.fill("target_thickness", 1.2)
    page.wait("document.querySelector('tbody').innerText.includes('1.2 mm')")
    page.fill("series", 1)
    page.wait("document.querySelector('h2').innerText.startsWith('2_t2_tse')")
    assert "slice thickness\t4.5 mm" in page.facts() and "0.8 mm\tthe finer in-plane spacing" in page.facts()
    page.click("[type=submit]")
    page.wait("document.querySelector('#status').innerText.includes('%')")
    page.click("#stop")
    page.rebuild()
    assert page.save("2_t2_tse")[1]["Facts"]["slice thickness"] == ["4.5 mm", "the DICOM header"]
    page.drop(written(tmp_path))
    assert page.evaluate(f"{series_field}.closest('#which').hidden")


def test_a_scan_is_checked_on_its_own_slices(page, tmp_path):
    """Without a result; in the words of the command; until something is corrected on which it depends."""
    path, ends = written(tmp_path, head((48, 52, 8))), "document.querySelector('#status').innerText === ''"
    assert page.drop(path) is None
    page.fill("noise", 0)
    page.click("#check")
    page.wait("!document.querySelector('#stop').hidden")
    page.click("#stop")
    assert page.evaluate(ends) and said(page, "#checked") is None
    page.click("#check")
    page.wait(f"!document.querySelector('#checked').hidden && {ends}")
    expected = drift_mri.rebuild(path, noise=0, check=True, config=FLOAT32).record["Check"]
    assert said(page, "#checked") == expected["Description"] and "the cubic spline" in expected["Description"]
    assert page.evaluate("document.querySelector('#checked').className === 'doubtful'") == (
        expected["Gain"] < 0 or expected["Foretold"] < 0.5
    )
    for thickness, shown in ((3.5, False), (4, True)):
        page.fill("slice_thickness", thickness)
        page.wait(f"document.querySelector('#checked').hidden !== {str(shown).lower()}")


def test_what_cannot_be_rebuilt_has_no_button(page, tmp_path):
    """A lone mask is refused; of a lone isotropic scan the facts can be corrected."""
    button = "document.querySelector('[type=submit]').hidden"
    page.drop(written(tmp_path))
    assert not page.evaluate(button)
    mask = written(tmp_path, (HEAD > 150).astype(np.float32), name="mask.nii.gz")
    assert page.drop(mask) == "mask.nii.gz is a mask or a label map: it holds 2 values. Give a scan of thick slices."
    assert page.evaluate("document.querySelector('h2').innerText").startswith("scan.nii.gz"), "the former stays"
    assert page.drop(written(tmp_path, affine=axial(1.0), name="thin.nii.gz")) is None
    assert page.evaluate(f"{button} && {button.replace('[type=submit]', '#check')}")
    assert "nothing to rebuild" in page.evaluate("document.body.innerText")
    page.fill("slice_thickness", 4)
    page.fill("slice_axis", 2)  # voxels are cubes
    page.wait(f"!{button}")


def test_a_guide_that_is_named_is_chosen(page, tmp_path):
    for kind, spacing, count in (("FLAIR", 4.0, 7), ("T1w", 1.0, 28)):
        written(tmp_path, head((28, 32, count), seed=count), axial(spacing), f"sub-01_{kind}.nii.gz")
    assert page.drop(tmp_path) is None
    chosen = "document.querySelector('[name=guided_by]').selectedOptions[0].text"
    assert page.evaluate(chosen) == "sub-01_T1w.nii.gz"
    page.drop(written(tmp_path))
    assert page.evaluate(chosen) == "none"


def test_the_last_of_two_choices_is_rebuilt_and_a_broken_one_leaves_the_former(page, tmp_path):
    """Whoever asks while a scan is read gets that scan."""
    folder = tmp_path / "study"
    folder.mkdir()
    sheared = np.array([[1, 0.1, 0, 0], [0, 1, 0, 0], [0, 0, 4, 0], [0, 0, 0, 1.0]])
    for name, affine in (("a", None), ("b", None), ("c", None), ("d", sheared)):
        written(folder, HEAD, affine, name=f"{name}.nii")
    assert page.drop(folder) is None
    page.evaluate(
        "window.choose = (name) => { const field = document.querySelector('[name=series]');"
        "field.selectedIndex = [...field.options].findIndex(({text}) => text === name);"
        "field.dispatchEvent(new Event('change', {bubbles: true})); }"
    )
    page.evaluate("choose('b.nii'), choose('c.nii'), document.querySelector('[type=submit]').click()")
    page.done()
    assert said(page, "#made") == "Result of c.nii" and said(page, "h2").startswith("c.nii")
    assert page.save("c")[1]["Sources"] == ["study/c.nii"]
    page.evaluate("choose('d.nii')")
    page.wait("!document.querySelector('#mistake').hidden")
    assert page.mistake().startswith("d.nii: affine is sheared")
    assert page.evaluate("document.querySelector('[name=series]').selectedOptions[0].text") == "c.nii"


def test_an_address_with_a_question_is_the_page(page, server):
    """As links in messages have them; nothing is asked of the server."""
    page("Page.navigate", url=f"{server.address}?from=mail")
    page.wait("document.documentElement.dataset.ready", 30)
    page.load()


def test_a_scan_that_is_too_large_is_refused_before_it_fills_the_memory(page, tmp_path):
    large = np.zeros((1024, 1024, 20), np.uint8)
    large[300:700, 300:700] = np.random.default_rng(0).integers(50, 250, (400, 400, 20))
    assert page.drop(written(tmp_path, large, np.diag([0.25, 0.25, 5.0, 1.0]), "large.nii.gz")) is None
    page.click("[type=submit]")
    page.wait("!document.querySelector('#mistake').hidden")
    assert page.mistake().startswith("large.nii.gz: the result has 150 million voxels, at most 64 million")


def test_webgpu_makes_the_volume_that_python_makes(server, tmp_path):
    """On a processor, which draws as a graphics card would."""
    path = written(tmp_path, np.random.default_rng(0).random((12, 13, 5)).astype(np.float32))
    flags = "--enable-unsafe-webgpu --use-webgpu-adapter=swiftshader --enable-features=Vulkan".split()
    with Page(tmp_path, server.address, flags=flags) as page:
        assert page.drop(path) is None
        page.evaluate("document.querySelector('[name=gpu]').checked = true")
        page.rebuild()
        result, record = page.save("scan")
    assert "WebGPU" in record["Device"]
    assert_same(result, drift_mri.rebuild(path, config=FLOAT32), nib.load(path).get_fdata())


def test_nothing_is_sent_anywhere(page, server, tmp_path):
    """Neither to another address, which the policy forbids, nor to the page's own, which the service worker does."""
    with Server(tmp_path) as other:
        tries = f"""Promise.allSettled([
            fetch('{other.address}a', {{mode: 'no-cors'}}),
            fetch('{server.address}b', {{method: 'POST', body: 'voxels'}}),
            fetch('{server.address}c?voxels'),
            new Promise((onload, onerror) => Object.assign(new Image(), {{onload, onerror, src: '{other.address}d'}})),
            new Promise((done, failed) => {{
                const send = "fetch('{other.address}e', {{mode: 'no-cors'}})";
                const code = send + ".then(() => postMessage(1), () => postMessage(0))";
                const worker = new Worker(URL.createObjectURL(new Blob([code])));
                worker.onmessage = ({{data}}) => data ? done() : failed();
                worker.onerror = failed;
            }}),
        ]).then(all => all.map(one => one.status))"""
        assert page.evaluate(tries) == ["rejected"] * 5
        page.evaluate(f"navigator.sendBeacon('{other.address}f', 'voxels')")
        time.sleep(0.5)
        assert other.asked == []
    assert [line for line in server.asked if not line.startswith("GET /") or "?" in line.split()[1]] == []


def test_it_works_without_a_network_once_it_was_loaded(page, server, tmp_path):
    server.shutdown()
    server.server_close()
    asked = len(server.asked)
    page.load()
    path = written(tmp_path, name="offline.nii.gz")
    assert page.drop(path) is None
    page.rebuild()
    result, _ = page.save("offline")
    assert_same(result, drift_mri.rebuild(path, config=FLOAT32), HEAD)
    assert len(server.asked) == asked
