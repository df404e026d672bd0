"""Laws of the random acquisitions, which make training pairs."""

import numpy as np
import pytest
import torch

from scripts.errors import InputError
from scripts.stack import grid
from scripts.stack.acquisition import Acquisition
from scripts.train.random_acquisitions import RandAcquired
from tests import paper_values as paper
from tests.train.test_random_planes import texture
from tests.volumes import degrade

VARIED = {
    "profiles": [2.5, "gaussian", "rectangular"],
    "spacing_ratio": (0.8, 1.4),
    "max_shift": 0.5,
    "max_gain": 0.03,
    "max_noise": 0.03,
}
CLEAN = {**VARIED, "max_gain": 0.0, "max_noise": 0.0}
NATIVE = 0.7  # mm, the target where nothing else is said


def drawn(count=200, seed=0, spacing=(NATIVE, NATIVE), plane=None, **options):
    """Pairs of an acquired item and the transform, which still holds what it drew for it."""
    transform = RandAcquired("label", max_thickness=paper.MAX_THICKNESS, **options)
    transform.set_random_state(seed)
    plane = texture() if plane is None else plane
    for _ in range(count):
        yield transform({"label": plane, "spacing": spacing}), transform


def of_plane(plane, target, thickness, spacing=None, **others):
    """Slices along a plane's first axis: of a volume of one plane."""
    return Acquisition.of_truth(1, plane.shape[1], edge=target, thickness=thickness, spacing=spacing, **others)


def acquisitions(count=200, seed=0, **options):
    return [item for item, _ in drawn(count, seed, **options)]


SETTINGS = {
    "isotropic": {},
    "anisotropic": {"spacing": (1.2, 0.7)},
    "coarse": {"spacing": (1.6, 1.0)},
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_images_are_the_label_degraded_and_the_proximal_is_thinner_by_the_gap_or_repeats_the_image(setting):
    """The defaults are the paper's acquisition and nothing more."""
    kinds, expected_target = set(), SETTINGS[setting].get("spacing", (NATIVE,))[0]
    for item, transform in drawn(30, **SETTINGS[setting]):
        (thick, target), (near, near_target) = item["thickness"].tolist(), item["proximal_thickness"].tolist()
        assert thick == pytest.approx(transform._thickness)
        assert target == near_target == pytest.approx(expected_target)
        paired = thick - paper.CETA_GAP > target
        assert near == (pytest.approx(thick - paper.CETA_GAP, abs=1e-6) if paired else thick)
        for image, length in (("image", thick), ("proximal", near)):
            expected = degrade(item["label"], of_plane(item["label"], expected_target, length))
            torch.testing.assert_close(item[image], expected, atol=1e-4, rtol=0)
        kinds.add(paired)
    assert kinds == {True, False}


@pytest.mark.parametrize("gap", [0.5, 2.0])
def test_share_of_ceta_pairs_is_the_papers_coverage(gap):
    """Table 3: the share of (T_hr, 6] whose neighbour at the gap still exceeds T_hr, whole percents."""
    count = 400
    draws = acquisitions(count, ceta_gap=gap, plane=texture((4, 4)), spacing=(paper.TARGET_HCP, paper.TARGET_HCP))
    share = np.mean([item["proximal_thickness"][0].item() < item["thickness"][0].item() for item in draws])
    expected = paper.CETA_COVERAGE[gap] / 100
    assert abs(share - expected) < 3 * np.sqrt(expected * (1 - expected) / count) + 0.005


def test_random_pairs_are_of_two_thicknesses_drawn_alike_and_leave_their_mean_distance_uncovered():
    draws = acquisitions(500, ceta_gap="random", plane=texture((4, 4)))
    extent = paper.MAX_THICKNESS - NATIVE
    first, second = (torch.stack([d[k][0] for d in draws]) for k in ("thickness", "proximal_thickness"))
    assert abs((first < second).float().mean() - 0.5) < 0.05
    for thickness in (first, second):
        counts = torch.histogram((thickness - NATIVE) / extent, 4, range=(0.0, 1.0)).hist / len(draws)
        torch.testing.assert_close(counts, torch.full((4,), 0.25), atol=0.06, rtol=0)
    uncovered = (first - second).abs().mean().item() / extent
    assert 1 - uncovered == pytest.approx(2 / 3, abs=0.03)


@pytest.mark.parametrize("gap", ["null", None, -1.0, float("nan")])
def test_a_gap_that_is_no_length_is_told(gap):
    """`--ceta_gap null` arrives as text."""
    with pytest.raises(InputError, match=rf"ceta_gap is {gap!r}: expected millimetres, 0 for no pairs, or random"):
        RandAcquired("label", paper.MAX_THICKNESS, ceta_gap=gap)


def test_both_members_of_a_pair_are_of_one_kind_of_stack():
    """Profile, shift and the ratio of spacing to thickness are drawn once; slices never lie nearer than the target."""
    for item, stack in drawn(60, **CLEAN):
        for image, thickness in (("image", "thickness"), ("proximal", "proximal_thickness")):
            thick = item[thickness][0].item()
            spacing = max(stack._ratio * thick, NATIVE)
            kind = {"profile": stack._profile, "shift": stack._shift}
            expected = degrade(item["label"], of_plane(item["label"], NATIVE, thick, spacing, **kind))
            torch.testing.assert_close(item[image], expected, atol=1e-4, rtol=0)


def test_stacks_vary_within_what_was_asked_for():
    low, high = CLEAN["spacing_ratio"]
    stacks = [
        ((item["thickness"][0] - NATIVE) / (paper.MAX_THICKNESS - NATIVE), s._profile, s._ratio, s._shift)
        for item, s in drawn(500, plane=texture((4, 4)), **CLEAN)
    ]
    thicknesses, profiles, ratios, shifts = zip(*stacks)
    for profile in CLEAN["profiles"]:
        assert profiles.count(profile) / len(profiles) == pytest.approx(1 / 3, abs=0.1)
    assert ratios.count(1.0) / len(ratios) == pytest.approx(0.5, abs=0.06)
    assert min(ratios) >= low and max(ratios) <= high
    uneven = [ratio for ratio in ratios if ratio != 1.0]
    for values, bounds in ((thicknesses, (0, 1)), (uneven, (low, high)), (shifts, (-0.5 * NATIVE, 0.5 * NATIVE))):
        counts, _ = np.histogram(values, 4, bounds)
        np.testing.assert_allclose(counts / len(values), 0.25, atol=0.09)


def gains(item):
    """Factor of each thick slice: rows of one slice share it, and columns do."""
    thick = item["thickness"][0].item()
    acquisition = of_plane(item["label"], NATIVE, thick)
    factors = (item["image"] / degrade(item["label"], acquisition))[0]
    torch.testing.assert_close(factors, factors[:, :1].expand_as(factors), atol=1e-3, rtol=0)
    slices = acquisition.nearest_slices
    of_slice = [factors[slices == k].mean(1) for k in range(acquisition.slice_count)]
    assert all(rows.max() - rows.min() < 1e-3 for rows in of_slice)
    return np.array([rows.mean().item() for rows in of_slice])


def test_each_slice_has_one_gain_which_alternates_where_acquisitions_interleave():
    largest, count = 0.1, 300
    independent, interleaved = [], []
    for item in acquisitions(count, plane=texture() + 0.5, max_gain=largest):
        factors = gains(item) - 1
        if np.abs(factors).max() < 1e-3:
            continue
        sums = np.abs(factors[1:] + factors[:-1])
        (interleaved if sums.max() < 1e-3 else independent).append(factors)
    assert len(independent) / count == pytest.approx(0.25, abs=0.08)
    assert len(interleaved) / count == pytest.approx(0.25, abs=0.08)
    for kind in (independent, interleaved):
        # standard deviations uniform up to the largest have this root mean square
        rms = np.sqrt(np.mean([np.mean(factors**2) for factors in kind]))
        assert rms == pytest.approx(largest / np.sqrt(3), rel=0.25)


def test_noise_in_air_has_rayleighs_mean_and_is_never_negative():
    silent = pairs = 0
    for item, stack in drawn(30, plane=torch.zeros(1, 40, 2000), max_noise=0.05):
        silent += stack.noise.deviation == 0
        if stack.noise.deviation and item["proximal_thickness"][0] < item["thickness"][0]:
            pairs += 1
            rows = torch.stack([item["image"][0, 20], item["proximal"][0, 20]])
            assert abs(torch.corrcoef(rows)[0, 1]) < 0.1, "each member of a pair has its own"
        assert stack.noise.deviation <= 0.05
        for image in (item["image"], item["proximal"]):
            assert (image >= 0).all()
            assert image.mean().item() == pytest.approx(stack.noise.deviation * np.sqrt(np.pi / 2), rel=0.03, abs=1e-9)
    assert 8 <= silent <= 22 and pairs > 3, "half of the stacks have none"


def test_noise_is_drawn_evenly_by_its_logarithm_from_the_least_that_counts():
    """Noise of 0.2 % of the range is none to a network. Twice as much is learnt, and not above that alone."""
    transform, deviations = RandAcquired("label", max_thickness=paper.MAX_THICKNESS, max_noise=0.06), []
    transform.set_random_state(0)
    for _ in range(600):
        transform.randomize(NATIVE, NATIVE)
        deviations.append(transform.noise.deviation)
    counts, _ = np.histogram(np.log([one for one in deviations if one]), np.log([0.002, 0.004, 0.0134, 0.0449, 0.06]))
    assert counts.sum() == np.count_nonzero(deviations)
    np.testing.assert_allclose(counts / counts.sum(), np.array([0.096, 0.404, 0.404, 0.097]), atol=0.06)


def test_noise_in_bright_tissue_is_nearly_gaussian_and_the_same_within_a_slice():
    for item, stack in drawn(20, plane=torch.ones(1, 40, 2000), max_noise=0.05):
        image, thick = item["image"][0], item["thickness"][0].item()
        assert len(torch.unique_consecutive(image, dim=0)) <= grid.thick_count(len(image), NATIVE, thick)
        if stack.noise.deviation > 1e-3:
            noise = torch.unique_consecutive(image, dim=0) - 1
            assert noise.std().item() == pytest.approx(stack.noise.deviation, rel=0.05)
            assert noise.mean().item() == pytest.approx(stack.noise.deviation**2 / 2, abs=0.05 * stack.noise.deviation)


@pytest.mark.parametrize("options", [{}, VARIED], ids=["paper", "varied"])
def test_the_same_seed_draws_the_same_acquisitions_and_another_does_not(options):
    first, same, other = (acquisitions(5, seed, **options) for seed in (3, 3, 4))
    for a, b in zip(first, same):
        assert all(torch.equal(a[key], b[key]) for key in a)
    assert not any(torch.equal(a["thickness"], b["thickness"]) for a, b in zip(first, other))


def test_one_scale_is_one_thickness_and_a_least_one_is_the_least():
    plane = torch.rand(1, 40, 8, generator=torch.Generator().manual_seed(0))
    for least, most in ((5.0, 5.0), (4.0, 6.0)):
        transform = RandAcquired("label", most, min_thickness=least).set_random_state(0)
        drawn = [transform({"label": plane, "spacing": (1.0, 1.0)})["thickness"][0].item() for _ in range(50)]
        assert least <= min(drawn) <= max(drawn) <= most
        assert len(set(drawn)) == (1 if least == most else 50)
    for wrong in ("null", 8, 0, -1.0):
        with pytest.raises(InputError, match=r"min_thickness is .*at most max_thickness, 7"):
            RandAcquired("label", 7, min_thickness=wrong)


def test_the_truth_is_as_band_limited_within_the_slices_as_its_noise_and_not_across_them():
    """Stripes of two pixels, which a matrix 2.2 pixels wide cannot show."""
    across = (torch.arange(40) % 2).float()[None, :, None].expand(1, 40, 60).clone()
    within = (torch.arange(60) % 2).float().expand(1, 40, 60).clone()
    kept = {"across": [], "within": []}
    for name, plane in (("across", across), ("within", within)):
        for item, transform in drawn(20, plane=plane, max_width=2.2):
            kept[name].append((item["label"].std().item() / plane.std().item(), transform.noise.widths[1]))
    assert all(share == pytest.approx(1, abs=1e-4) for share, _ in kept["across"])
    assert all((share < 0.9) == (width > 1.1) for share, width in kept["within"] if not 1 < width < 1.2)
    assert 4 < sum(width > 1 for _, width in kept["within"]) < 16, "half of the stacks"
