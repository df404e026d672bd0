"""The test on a scan's own slices by the page's modules beside Python's: what is tested, found and said."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from scipy import fft

from scripts.method.calibration import Foretelling
from scripts.rebuild.reduced_resolution import Check, check
from scripts.stack.acquisition import Acquisition
from scripts.stack.interpolation import interpolate
from scripts.stack.noise import Noise, band_limited, with_noise
from scripts.stack.slices import Slices
from tests.bundle.test_web import exported, javascript, pytestmark
from tests.bundle.test_web_guide import python
from tests.stack.test_noise import drawn
from tests.volumes import smooth_head

__all__ = ["exported", "pytestmark", "python"]
FOUND = """
    const [file, text, by, line] = given;
    const { shape, affine, missing, ...facts } = JSON.parse(text);
    const scan = { volume: { data: new Float32Array((await readFile(file)).buffer.slice(0)), shape }, affine };
    const a = { ...facts, noise: facts.noise ?? undefined, missing: new Map(missing.map((k) => [k, "a copy"])) };
    const [{ check }, { nearest }] = await get("rebuild/reduced_resolution.js", "stack/interpolation.js");
    const told = []; // of the slices that are rebuilt
    const method = async ({ volume, a, edges, noise: { deviation, widths } }) => {
      told.push([deviation, ...widths, ...edges, ...volume.shape]);
      return nearest(volume, a);
    };
    if (by === "nearest") return say({ ...(await check(scan, a, [method], undefined, JSON.parse(line))), told });
    const [{ oneFamily }, { loadNetworks }] = await get("rebuild/inferer.js", "rebuild/networks.js");
    const runtime = import(`${web}/node_modules/onnxruntime-web/dist/ort.node.min.mjs`);
    const networks = [0, 1].map(() => loadNetworks(runtime, (name) => readFile(`${web}/model/${name}`)));
    say(await check(scan, a, networks.map((one) => oneFamily(one, by === "sharp"))));"""
LINE = Foretelling(2.5, 0.5, -1.2, 0.25, 0.4)
WHITE, INTERPOLATED = Noise(10.0), Noise(15.0, (1.9, 1.4))


def scan_of(shape=(64, 72, 12), thickness=4.0, spacing=4.0, edges=(1.0, 1.0), share=0.0, noise=WHITE):
    """Axial slices of a head with a noise that is taken for texture, unless its `share` is None."""
    slices = with_noise(band_limited(smooth_head(shape), (0, 1), noise), (0, 1), noise, drawn(shape)).float()
    a = Acquisition.stack(2, shape[2], spacing=spacing, thickness=thickness, target=1.0, noise=share)
    return Slices(slices, a, torch.diag(torch.tensor([*edges, spacing, 1.0], dtype=torch.float64)))


def turned(scan):
    """Coronal slices in the other order, one of which is a copy."""
    array = scan.array.clone()
    array[..., 3] = array[..., 2]
    affine = scan.affine[:, [0, 2, 1, 3]]
    affine[:, 3] += affine[:, 1] * (array.shape[2] - 1)
    affine[:, 1] *= -1
    return Slices(array.movedim(2, 1).flip(1).contiguous(), replace(scan.acquisition, slice_axis=1), affine)


def cut(scan):
    return replace(scan, array=scan.array[14:50, 16:56].contiguous())


def found(folder, scan, by="nearest"):
    scan.array.numpy().tofile(folder / "slices.f32")
    a = scan.acquisition
    facts = {"sliceAxis": a.slice_axis, "sliceCount": a.slice_count, "fineCount": a.fine_count, "noise": a.noise}
    facts |= {"sliceSpacing": a.slice_spacing, "sliceThickness": a.slice_thickness, "targetSpacing": a.target_spacing}
    facts |= {"shape": scan.shape, "affine": scan.affine[:3].tolist(), "missing": list(scan.missing)}
    (own,) = javascript(FOUND, folder / "slices.f32", json.dumps(facts), by, json.dumps(asdict(LINE)))
    return own


def assert_alike(folder, scan, decibels):
    """What is tested, what is told of it, and the errors of the nearest slice."""
    told = list[list[float]]()

    def nearest(slices):
        told.append([slices.noise.deviation, *slices.noise.widths, *slices.edges, *slices.shape])
        return interpolate(slices.array, slices.acquisition, "nearest")

    own, theirs = found(folder, scan), check(scan, nearest, LINE, spots=False)
    np.testing.assert_allclose(own["told"], told, rtol=1e-6)
    assert_near(own, theirs, decibels)
    assert own["foretold"] == pytest.approx(theirs.foretold, abs=decibels)


def assert_near(own, theirs, decibels):
    assert (tuple(own["slices"]), own["directions"]) == (theirs.slices, theirs.directions)
    both = [own[name] for name in ("spline", "rebuilt")], [theirs.spline, theirs.rebuilt]
    assert both[0] == pytest.approx(both[1], abs=decibels)
    assert own["gain"] == pytest.approx(own["rebuilt"] - own["spline"])


QUIET = {
    "plain": scan_of,
    "slices with gaps, flipped, one missing": lambda: turned(scan_of(thickness=4.0, spacing=5.0)),
    "overlapping slices, pixels finer than the target": lambda: scan_of((80, 100, 12), 5.0, 4.0, (0.7, 0.6)),
    "pixels that a scanner interpolated": lambda: scan_of((96, 90, 12), edges=(0.6, 0.9), noise=INTERPOLATED),
    "a head that fills the field of view": lambda: cut(scan_of()),
    "too few slices along an axis": lambda: scan_of((20, 80, 12), 5.0, 5.0),
}


@pytest.mark.parametrize("case", QUIET)
def test_without_noise_slices_and_errors_are_pythons(tmp_path, case):
    scan = QUIET[case]()
    assert (max(scan.noise.widths) > 1.2) == ("interpolated" in case) and len(scan.missing) == ("missing" in case)
    assert_alike(tmp_path, scan, 1e-3)


@pytest.mark.parametrize("noise", [Noise(30.0), INTERPOLATED], ids=["white", "interpolated"])
def test_with_noise_errors_are_near_pythons_which_draws_other_numbers(tmp_path, noise):
    scan = scan_of((96, 90, 12), share=None, noise=noise)
    assert scan.noise.deviation == pytest.approx(noise.deviation, rel=0.3)
    assert_alike(tmp_path, scan, 0.15)


@pytest.mark.parametrize("by", ["networks", "sharp"])
def test_networks_gain_what_they_gain_in_python(tmp_path, python, by):
    network, inferer, _ = python
    scan, method = scan_of((56, 60, 8), 5.0, 5.0), replace(inferer.one_family, sharp=by == "sharp")
    theirs = check(scan, lambda one: method.rebuilt(one, network).volume.as_tensor(), spots=False)
    assert_near(found(tmp_path, scan, by), theirs, 0.02)


def by_nobody(slices):
    raise AssertionError("nothing is rebuilt")


def test_what_python_does_not_test_is_not_tested(tmp_path):
    small, thin = scan_of((14, 14, 8)), scan_of((40, 40, 12), 1.0, 1.0)
    for scan in (small, thin, replace(small, array=torch.full(small.shape, 5.0))):
        assert found(tmp_path, scan) == {"told": []} and check(scan, by_nobody, spots=False) is None


def test_it_is_said_in_the_words_of_python():
    measured = [Check((3,), 2, *levels) for levels in ((27.9, 30.04), (30.0, 29.96), (28.0, 28.45))]
    foretold = [Check((3,), 2, 25.0, 27.0, (0.44, 0.25)), Check((3,), 2, 25.0, 25.2, (2.25, 0.2))]
    checks = [*measured, *foretold]
    given = [{"spline": one.spline, "rebuilt": one.rebuilt, "gain": one.gain} for one in checks]
    given[3:] = [entry | {"foretold": one.foretold} for entry, one in zip(given[3:], foretold)]
    code = """
        const [{ inWords }] = await get("rebuild/reduced_resolution.js");
        for (const one of JSON.parse(given[0])) say(inWords(one));"""
    for one, own in zip(checks, javascript(code, json.dumps(given))):
        assert own == {"said": f"O{str(one)[1:]}.", "isWorth": one.expected >= 0.5}


def test_noise_is_drawn_at_its_level_within_its_band():
    code = """
        const [{ withNoise }, { map, zeros }] = await get("stack/noise.js", "stack/volume.js");
        const flat = map(zeros([40, 60, 50]), () => 1000);
        const noise = { deviation: 10, widths: [1.6, 1], taper: 0.75 };
        for (const round of [false, true]) say([...withNoise(flat, [1, 2], { ...noise, round }, 3).data]);"""
    for voxels, shape in zip(javascript(code), (False, True)):
        noise = np.reshape(voxels, (40, 60, 50)) - 1000
        assert (noise.mean(), noise.std()) == pytest.approx((0.05, 10), abs=0.15)
        power = np.square(fft.dctn(noise, axes=(1, 2), norm="ortho")).mean(0)
        expected = 100 * Noise(10.0, (1.6, 1.0), shape).power(np.arange(60) / 120, np.arange(50) / 100)
        assert power[expected < 1e-9].max() < 0.1 and np.corrcoef(power.ravel(), expected.ravel())[0, 1] > 0.9
