"""Noise by the page's modules beside Python's: its estimate, its power, and what it adds to magnitudes."""

import json

import numpy as np
import pytest
import torch

from scripts.stack.noise import Noise, band_limited, cosine_frequencies, magnitude, noise_of, with_noise
from tests.bundle.test_web import exported, javascript, pytestmark
from tests.stack.test_noise import drawn, tissue
from tests.volumes import head

__all__ = ["exported", "pytestmark"]
FOUND = """
    const [folder, shape, axis] = [given[0], JSON.parse(given[1]), Number(given[2])];
    const bytes = async (name) => (await readFile(`${folder}/${name}`)).buffer.slice(0);
    const read = async (name) => ({ data: new Float32Array(await bytes(name)), shape });
    const [{ noiseOf }] = await get("stack/noise.js");
    say(noiseOf(await read("slices"), axis, await read("head")));"""
CASES = {  # noise of the slices, slice axis, whether they have texture
    "white": (Noise(20.0), 2, False),
    "of wider pixels along one axis, in sagittal slices": (Noise(10.0, (1.0, 1.6)), 0, False),
    "interpolated, with texture, in coronal slices": (Noise(30.0, (1.9, 1.4)), 1, True),
    "of a round and tapered band": (Noise(30.0, (2.2, 2.0), True, 0.5), 2, False),
    "texture alone": (Noise(0.0), 2, True),
    "nothing": (Noise(0.0), 2, False),
}


@pytest.mark.parametrize("case", CASES)
def test_noise_is_found_as_by_python(tmp_path, case):
    noise, axis, textured = CASES[case]
    truth, inside = (head((64, 71, 9)), head((64, 71, 9)) > 0) if textured else tissue((64, 71, 9))
    noisy = with_noise(band_limited(truth, (0, 1), noise), (0, 1), noise, drawn(truth.shape))
    noisy, inside = (one.movedim(2, axis).contiguous() for one in (noisy.float(), inside))
    noisy.numpy().tofile(tmp_path / "slices")
    inside.float().numpy().tofile(tmp_path / "head")
    (own,), theirs = javascript(FOUND, tmp_path, json.dumps(noisy.shape), axis), noise_of(noisy, axis, inside)
    assert own["deviation"] == pytest.approx(theirs.deviation, rel=1e-9, abs=1e-9)
    band = [own[name] for name in ("round", "taper")], own["widths"]
    assert band == ([theirs.round, theirs.taper], list(theirs.widths)) or theirs.deviation < 1e-9, "none has no band"
    assert (theirs.deviation > 1) == (noise.deviation > 0 or textured)


def test_magnitudes_and_powers_are_pythons():
    signal = np.concatenate([np.linspace(0, 60, 241), np.geomspace(60, 1e6, 60)])
    code = """
        const [{ magnitude, powerOf, cosineFrequencies }] = await get("stack/noise.js");
        const signal = JSON.parse(given[0]);
        for (const deviation of [0, 3]) say(signal.map((x) => magnitude(x, deviation)));
        for (const round of [false, true]) {
          const noise = { deviation: 3, widths: [1.6, 1], round, taper: 0.75 };
          say(powerOf(noise, cosineFrequencies(50), cosineFrequencies(40)));
        }"""
    none, raised, *powers = javascript(code, json.dumps(signal.tolist()))
    assert none == signal.tolist()
    np.testing.assert_allclose(raised, magnitude(torch.from_numpy(signal), 3.0), rtol=1e-10, atol=1e-10)
    for power, shape in zip(powers, (False, True)):
        expected = Noise(3.0, (1.6, 1.0), shape).power(cosine_frequencies(50), cosine_frequencies(40))
        np.testing.assert_allclose(power, expected.ravel(), rtol=1e-10, atol=1e-12)
