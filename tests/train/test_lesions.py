"""Laws of lesions and vessels that are drawn into planes."""

import numpy as np
import pytest
import torch
from scipy import ndimage, stats

from scripts.train.lesions import RandLesiond, _squared_distance

GREY = 0.4


def drawn(seed, height=120, width=100, spacing=(1.0, 1.0), plane=None, planes=1, **options):
    """Grey planes, and the same with what is drawn into them."""
    plane = torch.full((planes, height, width), GREY) if plane is None else plane
    transform = RandLesiond("label", **{"prob": 1.0, **options})
    transform.set_random_state(seed)
    data = {"label": plane, "spacing": spacing, "plane_spacing": spacing[1], "other": seed}
    result = transform(data)
    assert (result["spacing"], result["other"]) == (spacing, seed)
    return plane, result["label"]


@pytest.mark.parametrize("seed", range(4))
def test_what_is_drawn_lies_in_the_range_and_the_plane_that_was_given_stays(seed):
    before, after = drawn(seed)
    assert (before == GREY).all()
    assert after.shape == before.shape and after.dtype == before.dtype
    assert 0 <= after.min() <= after.max() <= 1
    assert not torch.equal(before, after)
    assert torch.equal(after, drawn(seed)[1]), "a seed draws one thing"


def test_planes_without_a_draw_and_without_tissue_stay():
    assert torch.equal(*drawn(0, prob=0.0))
    assert torch.equal(*drawn(0, plane=torch.full((1, 50, 50), 0.05)))


def test_what_lesions_cover_is_said_from_draw_to_draw_and_vessels_are_none():
    plane, options = torch.full((1, 60, 60), GREY), {"prob": 1.0, "contrasts": (0.3, 0.3)}
    data = {"label": plane, "spacing": (1.0, 1.0), "plane_spacing": 1.0}
    transform = RandLesiond("label", **options)
    transform.set_random_state(0)
    once = transform(data)
    covered, changed = once["label_lesions"], (once["label"] - plane).abs() > 1e-6
    assert changed[covered > 0.01].all() and 0.5 < covered.max() <= 6**0.5
    twice = transform(once)
    assert (twice["label_lesions"] >= covered).all() and (twice["label_lesions"] > covered).any()
    vessels = RandLesiond("label", **options, diameters=(1e-3, 1e-3))
    vessels.set_random_state(1)
    alone = vessels(data)
    assert alone["label_lesions"].sum() < 1 < ((alone["label"] - plane).abs() > 0.1).sum()


def test_a_pixel_of_a_small_lesion_weighs_more_than_one_of_a_large_lesion():
    """By the root of the largest diameter over its own: from 1 for 12 mm to 2 for 3 mm."""
    areas, weights = [], []
    for seed in range(40):
        options = {"most": 1, "diameters": (3.0, 12.0), "contrasts": (0.3, 0.3), "widths": (0.0, 0.0)}
        transform = RandLesiond("label", prob=1.0, **options)
        transform.set_random_state(seed)
        plane = torch.full((1, 60, 60), GREY)
        result = transform({"label": plane, "spacing": (1.0, 1.0), "plane_spacing": 1.0})
        covered = (result["label"] - plane).abs() / 0.3
        if not (result["label_lesions"] > 0).any():  # a group's beyond the plane
            continue
        peak = result["label_lesions"].argmax()
        areas.append(float((covered > covered.max() / 2).sum()))
        weights.append((result["label_lesions"].flatten()[peak] / covered.flatten()[peak]).item())
    assert 1 <= min(weights) < 1.1 and 1.8 < max(weights) <= 2
    assert stats.spearmanr(areas, weights).statistic < -0.6  # areas of irregular outlines


def test_tissue_shines_through_a_lesion_by_half_at_most():
    peaks = []
    for seed in range(40):
        transform = RandLesiond("label", prob=1.0, most=1, diameters=(12.0, 12.0), spread=0.0)
        transform.set_random_state(seed)
        data = transform({"label": torch.full((1, 60, 60), GREY), "spacing": (1.0, 1.0), "plane_spacing": 1.0})
        peaks.append(data["label_lesions"].max().item())
    assert 0.5 <= min(peaks) < 0.6 and 0.9 < max(peaks) < 1


def test_some_are_brighter_and_some_darker():
    changes = [after - before for before, after in (drawn(seed) for seed in range(30))]
    assert any(change.max() > 0.2 for change in changes)
    assert any(change.min() < -0.2 for change in changes)


def single(seed, diameter, spacing):
    """How much of a plane's area one lesion fills, in square millimetres."""
    options = {"most": 1, "diameters": (diameter, diameter), "contrasts": (0.3, 0.3), "widths": (0.0, 0.0)}
    before, after = drawn(seed, spacing=spacing, **options)
    changed = (after - before).abs()
    return float((changed > changed.max() / 2).sum()) * spacing[0] * spacing[1]


def test_lesions_have_their_size_in_millimetres_whatever_the_pixels():
    """An outline that is an ellipse with waves fills half of the circle around it to all of it and a little more."""
    for spacing in ((1.0, 1.0), (0.5, 1.0), (0.7, 0.7)):
        areas = [single(seed, 10.0, spacing) for seed in range(40)]
        circle = np.pi * 5.0**2
        assert 0.4 * circle < np.median(areas) < 1.1 * circle


def test_a_lesion_is_compact():
    """The waves of its outline are small beside its radius."""
    reach = []
    for seed in range(30):
        before, after = drawn(seed, most=1, diameters=(20.0, 20.0), contrasts=(0.3, 0.3), widths=(0.0, 0.0))
        changed = (after - before)[0].abs().numpy()
        places = np.argwhere(ndimage.binary_opening(changed > 0.07, iterations=2))  # without the vessel
        if len(places):  # else it lies beyond the border
            reach.append(np.linalg.norm(places - places.mean(0), axis=1).max() / 10)
    assert np.median(reach) < 1.3, reach


def test_a_lesions_edge_is_one_to_three_pixels_wide():
    edge, widths = 0.25, []
    for seed in range(20):
        before, after = drawn(seed, 160, 160, (edge, edge), most=1, diameters=(10.0, 10.0), widths=(0.0, 0.0))
        weight = (after - before)[0].abs() / (after - before).abs().max()
        around = 2 * np.sqrt(np.pi * float((weight > 0.5).sum()))  # of a circle of that area, in pixels
        widths.append(float(((weight > 0.01) & (weight < 0.99)).sum()) / around)
    assert 1.2 < np.median(widths) < 3.3, "an irregular outline is a little longer than a circle's"


def test_a_lesion_reaches_into_neighbouring_planes_as_a_ball_does_and_a_vessel_leaves_its_plane():
    """A lesion of 10 mm, in planes 2 mm from each other: beyond 6 mm there is none."""
    areas = []
    for seed in range(20):
        before, after = drawn(
            seed, spacing=(2.0, 2.0), planes=9, most=1, diameters=(10.0, 10.0), contrasts=(0.3, 0.3), widths=(0.0, 0.0)
        )
        areas.append(((after - before).abs() > 0.1).sum((1, 2)))
    areas = torch.stack(areas).float().mean(0)
    assert (areas[:5].diff() >= 0).all() and (areas[4:].diff() <= 0).all() and areas[4] > 1.2 * areas[3] > 0
    assert (areas[[0, 8]] == 0).all()
    across = [vessel(seed, (1.0, 1.0), tilt=0.5, planes=5)[0] for seed in range(20)]
    assert any(not torch.equal(change[0] > 0.1, change[4] > 0.1) and change[[0, 4]].amax() > 0.1 for change in across)


def test_no_lesion_of_a_group_lies_in_the_air():
    plane = torch.zeros(1, 120, 200)
    plane[:, :, :30] = GREY
    for seed in range(20):
        _, after = drawn(seed, plane=plane, spread=60.0, widths=(0.0, 0.0))
        assert (after[:, :, 65:] == 0).all(), "farther than the largest lesion and the longest vessel reach"


def test_nothing_is_drawn_far_from_tissue():
    plane = torch.zeros(1, 120, 100)
    plane[:, :30, :30] = GREY
    for seed in range(20):
        _, after = drawn(seed, plane=plane, spread=0.0, widths=(0.5, 1.0))
        assert (after[:, 80:, 80:] == 0).all()


def vessel(seed, spacing, **options):
    """What a vessel of 2 mm changes in a plane, and its level; lesions of no contrast change nothing."""
    before, after = drawn(seed, spacing=spacing, contrasts=(0.0, 0.0), widths=(2.0, 2.0), **options)
    change = (after - before).squeeze(0)
    return change.abs(), float(after.flatten()[change.abs().argmax()])


def test_vessels_are_bright_or_dark():
    levels = np.array([vessel(seed, (0.5, 0.5))[1] for seed in range(40)])
    bright = levels > GREY
    assert (levels[bright] >= 0.6).all() and (levels[~bright] <= 0.1).all()
    assert 0.5 < bright.mean() < 0.9


@pytest.mark.parametrize("edge", [0.4, 0.8])
def test_a_vessels_edge_is_one_pixel_wide(edge):
    """Half of a pixel beyond the width to either side is touched, so that an area grows by a pixel over 2 mm."""
    shares = []
    for seed in range(20):
        change, _ = vessel(seed, (edge, edge), tilt=0.0)
        shares.append(float((change > 1e-4).sum() / (change > change.max() / 2).sum()))
    assert np.median(shares) == pytest.approx(1 + edge / 2, rel=0.12)


def test_vessels_lie_about_their_pixel_of_tissue():
    """Their middle is anywhere within it: nowhere on the mean is not its own middle."""
    plane = torch.zeros(1, 121, 101)
    plane[0, 60, 50] = GREY
    middles = []
    for seed in range(300):
        _, result = drawn(seed, plane=plane, most=1)
        if (weight := (result - plane)[0].clamp(min=0)).sum() > 0.5:
            middles.append(ndimage.center_of_mass(weight.numpy()))
    assert len(middles) > 150
    np.testing.assert_allclose(np.mean(middles, axis=0), [60, 50], atol=0.4)


def test_the_distance_to_a_line_is_that_to_its_end_beyond_it():
    y, x = np.ogrid[0:1, -4:16]
    line = np.array([[3.0, 0.0], [3.0, 5.0], [3.0, 10.0]])
    beyond = np.clip(np.arange(-4, 16) - 10, 0, None) + np.clip(-np.arange(-4, 16), 0, None)
    np.testing.assert_allclose(_squared_distance((y, x), line)[0], 9 + beyond**2)
