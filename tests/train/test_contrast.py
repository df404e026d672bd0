"""Laws of the contrasts that training adds: intensity curves, and scans synthesised from label maps."""

import numpy as np
import pytest
import torch

from scripts.train.contrast import RandIntensityCurved, RandTissueContrastd

# Intensity curves

LEVELS = torch.linspace(0, 1, 101)[None, None]  # a (1, 1, 101) image of all intensities


def curved(image=LEVELS, seed=0, prob=1.0):
    transform = RandIntensityCurved("image", prob=prob)
    transform.set_random_state(seed)
    return transform({"image": image})["image"]


def test_air_stays_dark_and_the_brightest_is_one():
    for seed in range(50):
        values = curved(seed=seed)
        assert values[0, 0, 0] == 0
        assert ((values >= 0) & (values <= 1)).all()
        assert values.max().item() == pytest.approx(1, abs=0.01)  # between two of the levels


def test_curves_depend_on_intensity_alone_and_have_no_steps():
    """The steepest monotone cubic through points a quarter apart rises three times as fast as their line."""
    image = torch.rand(1, 9, 11, generator=torch.Generator().manual_seed(0))
    order = image.flatten().argsort()
    for seed in range(20):
        scrambled = curved(image.flatten()[order][None, None], seed)
        torch.testing.assert_close(curved(image, seed).flatten()[order], scrambled[0, 0])
        assert curved(seed=seed).diff().abs().max() <= 3 / 0.25 * 0.01 + 1e-6


def test_all_keys_get_one_curve_and_brighter_voxels_than_one_the_value_at_one():
    transform = RandIntensityCurved(["image", "proximal"], prob=1.0)
    beyond = torch.cat([LEVELS, LEVELS[..., -1:] * 5], 2)
    for _ in range(10):
        item = transform({"image": LEVELS, "proximal": beyond})
        assert torch.equal(item["image"], item["proximal"][..., :-1])
        assert item["proximal"][0, 0, -1] == item["image"][0, 0, -1]


def test_curves_may_swap_tissues_and_may_keep_them():
    dark, bright = zip(*(curved(torch.tensor([[[0.35, 0.7]]]), seed)[0, 0].tolist() for seed in range(100)))
    swapped = np.mean(np.array(dark) > np.array(bright))
    assert 0.25 < swapped < 0.75


def test_the_share_of_changed_images_is_the_probability():
    for seed in range(20):
        assert torch.equal(curved(seed=seed, prob=0.0), LEVELS)
    changed = np.mean([not torch.equal(curved(seed=seed, prob=0.3), LEVELS) for seed in range(300)])
    assert changed == pytest.approx(0.3, abs=0.1)


# Synthesis from label maps

BRAIN = 499
SETTINGS = {
    "brain_labels": BRAIN,
    "brain_only": 0.0,
    "max_deviation": 0.1,
    "texture_range": (0.4, 1.5),
    "blur_range": (0.4, 0.8),
}
BANDS = (0, 3, 42, 502)  # labels: air, two tissues of the brain, one label outside it


def bands(size=64):
    """A label map `(1, 64, 256)` of upright bands."""
    return torch.tensor(BANDS).repeat_interleave(size).expand(1, size, -1)


def inside(image, label, margin=6):
    """What a synthesised image shows in the middle of a band, away from its borders."""
    size, k = image.shape[1], BANDS.index(label)
    return image[0, margin:-margin, k * size + margin : (k + 1) * size - margin]


def synthesised(count=1, seed=0, labels=None, **settings):
    """Pairs of an image and the transform, which still holds what it drew for it."""
    transform = RandTissueContrastd("label", **{**SETTINGS, **settings})
    transform.set_random_state(seed)
    for _ in range(count):
        yield transform({"label": bands() if labels is None else labels})["label"], transform


def test_each_tissue_has_its_drawn_mean_and_air_is_dark():
    for image, drawn in synthesised(20):
        for label in BANDS[1:]:
            mean, deviation = drawn._mean[label], drawn._deviation[label]
            if mean > 3 * deviation:  # otherwise some of its texture is cut off at 0
                assert inside(image, label).mean().item() == pytest.approx(mean, abs=0.03)
        assert inside(image, 0).mean() < 0.01 and 0 <= image.min() and image.max() < 1 + 5 * SETTINGS["max_deviation"]


def test_means_are_uniform_and_independent_of_their_order():
    means = np.array([drawn._mean[[3, 42]] for _, drawn in synthesised(200, labels=bands(2))])
    counts, _ = np.histogram(means, 4, (0, 1))
    np.testing.assert_allclose(counts / means.size, 0.25, atol=0.08)
    assert np.mean(means[:, 0] > means[:, 1]) == pytest.approx(0.5, abs=0.1)
    assert abs(np.corrcoef(means.T)[0, 1]) < 0.15


def test_each_tissue_has_its_drawn_deviation_before_the_blur():
    for image, drawn in synthesised(20, blur_range=(0.05, 0.05)):
        for label in BANDS[1:]:
            mean, deviation = drawn._mean[label], drawn._deviation[label]
            if mean > 3 * deviation:
                assert inside(image, label).std().item() == pytest.approx(deviation, rel=0.25)
            assert deviation <= SETTINGS["max_deviation"]


def test_texture_is_correlated_over_its_width():
    """White noise under a Gaussian of width s has correlation exp(-d^2 / 4 s^2) at distance d."""
    for width in (0.8, 1.5):
        (image, _), *_ = synthesised(texture_range=(width, width), blur_range=(0.05, 0.05), seed=5)
        texture = inside(image, 3)
        for distance in (1, 2):
            pairs = torch.stack([texture[:, distance:].flatten(), texture[:, :-distance].flatten()])
            expected = np.exp(-(distance**2) / (4 * width**2))
            assert torch.corrcoef(pairs)[0, 1].item() == pytest.approx(expected, abs=0.12)


def test_texture_goes_on_in_neighbouring_planes():
    (image, _), *_ = synthesised(labels=bands().repeat(9, 1, 1), texture_range=(1.5, 1.5), seed=5)
    near, far = (
        torch.corrcoef(torch.stack([image[4, 6:-6, 70:122].flatten(), image[k, 6:-6, 70:122].flatten()]))
        for k in (5, 8)
    )
    assert near[0, 1] > 0.7 > 0.3 > abs(far[0, 1])


def test_borders_are_blurred_between_their_tissues():
    """Without texture the image crosses from one mean to the other and passes neither."""
    for image, drawn in synthesised(10, max_deviation=0.0, blur_range=(0.8, 0.8)):
        row, (dark, bright) = image[0, 32, 64 : 3 * 64], sorted(drawn._mean[[3, 42]])
        crossing = row[32:96]
        assert (crossing >= dark - 1e-4).all() and (crossing <= bright + 1e-4).all()
        part = (crossing > dark + 0.05 * (bright - dark)) & (crossing < bright - 0.05 * (bright - dark))
        assert 1 <= part.sum() <= 4


def test_what_is_no_brain_is_removed_where_asked_for():
    for share in (0.0, 1.0):
        for image, drawn in synthesised(10, brain_only=share):
            assert inside(image, 502).mean() < 0.01 if share else inside(image, 502).mean() > 0.5 * drawn._mean[502]
            assert all(inside(image, label).mean() > 0.5 * drawn._mean[label] for label in (3, 42))


def test_the_same_seed_synthesises_the_same_and_another_does_not():
    first, same, other = ([image for image, _ in synthesised(3, seed)] for seed in (1, 1, 2))
    assert all(torch.equal(a, b) for a, b in zip(first, same))
    assert not any(torch.equal(a, b) for a, b in zip(first, other))
