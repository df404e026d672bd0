"""Laws of the drawn planes and acquisitions, alone and through the preprocessing of `configs/train.yaml`."""

from pathlib import Path

import numpy as np
import pytest
import torch
from monai.bundle import ConfigParser
from monai.data import MetaTensor
from monai.transforms import Compose

from scripts.errors import InputError, input_error
from scripts.grid import nearest_index
from scripts.slice_profile import degrade, thick_count
from scripts.transforms import Acquired, RandAcquired, RandPlaned, RandResampled
from tests import paper_values as paper

ROOT = Path(__file__).parents[1]
SHAPE = (10, 12, 14)
SPACING = (0.8, 0.9, 1.1)


def coded(shape=SHAPE, spacing=SPACING):
    """A volume whose value at (i, j, k) is 10000 i + 100 j + k, so that each value tells its place."""
    i, j, k = np.meshgrid(*(np.arange(n) for n in shape), indexing="ij")
    volume = torch.from_numpy((10000 * i + 100 * j + k)[None].astype(np.float32))
    return MetaTensor(volume, affine=torch.from_numpy(np.diag([*spacing, 1.0])))


def place(plane):
    """The index (i, j, k) of each pixel of a coded plane, `(3, H, W)`."""
    code = plane[0].numpy().astype(int)
    return np.stack([code // 10000, code // 100 % 100, code % 100])


def axis_of(places, direction):
    """The one array axis along which a coded plane moves in this direction, 0 for rows and 1 for columns."""
    step = np.take(places, 1, axis=1 + direction) - np.take(places, 0, axis=1 + direction)
    (axis,) = np.flatnonzero(step[:, 0])
    assert (step[axis] == 1).all(), "one voxel at a time, in the volume's own direction"
    return int(axis)


def planes(sharp_axes, count=60, seed=0):
    transform = RandPlaned("label")
    transform.set_random_state(seed)
    return [transform({"label": coded(), "sharp_axes": sharp_axes}) for _ in range(count)]


# Planes


@pytest.mark.parametrize("sharp_axes", [(0, 1, 2), (0, 1), (2, 0), (1, 2)])
def test_planes_are_planes_of_the_volume_along_sharp_axes_alone(sharp_axes):
    for item in planes(sharp_axes):
        places = place(item["label"])
        axis, other = axis_of(places, 0), axis_of(places, 1)
        assert axis != other
        assert {axis, other} <= set(sharp_axes)
        assert item["label"].shape == (1, SHAPE[axis], SHAPE[other])
        volume = coded().as_tensor()[0].numpy()
        np.testing.assert_array_equal(volume[tuple(places)], item["label"][0].numpy())
        normal = 3 - axis - other
        assert len(np.unique(places[normal])) == 1


@pytest.mark.parametrize("sharp_axes", [(0, 1, 2), (0, 2)])
def test_rows_are_the_slice_axis_and_the_spacing_follows_them(sharp_axes):
    for item in planes(sharp_axes):
        places = place(item["label"])
        assert item["spacing"] == pytest.approx((SPACING[axis_of(places, 0)], SPACING[axis_of(places, 1)]), abs=1e-6)


def test_every_axis_every_plane_and_every_index_is_drawn():
    drawn = [place(item["label"]) for item in planes((0, 1, 2), count=600)]
    orders = {(axis_of(p, 0), axis_of(p, 1)) for p in drawn}
    assert orders == {(a, b) for a in range(3) for b in range(3) if a != b}
    for normal, length in enumerate(SHAPE):
        seen = {int(p[normal, 0, 0]) for p in drawn if {axis_of(p, 0), axis_of(p, 1)} == {0, 1, 2} - {normal}}
        assert seen == set(range(length))


def test_the_same_seed_draws_the_same_planes_and_another_does_not():
    first, same, other = (planes((0, 1, 2), 20, seed) for seed in (3, 3, 4))
    assert all(torch.equal(a["label"], b["label"]) for a, b in zip(first, same))
    assert not all(
        a["label"].shape == b["label"].shape and torch.equal(a["label"], b["label"]) for a, b in zip(first, other)
    )


# Voxel sizes


def texture(shape=(40, 36), seed=0):
    return torch.rand(1, *shape, generator=torch.Generator().manual_seed(seed))


RANGES = {"target_range": (0.7, 1.3), "pixel_range": (0.5, 1.3), "size_range": (0.85, 1.15)}


def resampled(count=60, seed=0, spacing=(0.7, 0.7), plane=None, **ranges):
    transform = RandResampled("label", **{**RANGES, **ranges})
    transform.set_random_state(seed)
    plane = texture() if plane is None else plane
    return [transform({"label": plane, "spacing": spacing}) for _ in range(count)]


@pytest.mark.parametrize("spacing", [(0.7, 0.7), (1.2, 0.6), (1.6, 1.0)])
def test_the_new_spacing_is_that_of_the_new_size(spacing):
    """Size times spacing is the head's extent, to half a pixel."""
    for item in resampled(spacing=spacing, size_range=(1.0, 1.0)):
        for direction in (0, 1):
            new, before = item["spacing"][direction], texture().shape[1 + direction] * spacing[direction]
            assert abs(item["label"].shape[1 + direction] * new - before) <= new / 2 + 1e-6


def test_the_head_grows_by_one_factor_in_both_directions_within_its_range():
    plane, spacing = texture((200, 160)), (0.7, 0.9)
    factors = []
    for item in resampled(spacing=spacing, plane=plane):
        sizes = zip(item["label"].shape[1:], item["spacing"], plane.shape[1:], spacing)
        rows, columns = (new * edge / (old * before) for new, edge, old, before in sizes)
        assert rows == pytest.approx(columns, abs=0.012)  # half a pixel each
        factors.append(rows)
    low, high = RANGES["size_range"]
    assert low - 0.006 <= min(factors) < low + 0.03
    assert high - 0.03 < max(factors) <= high + 0.006


@pytest.mark.parametrize("target_range", [(0.7, 1.3), (0.9, 0.9)])
@pytest.mark.parametrize("native", [0.5, 0.8, 1.25, 1.3, 1.6])
@pytest.mark.parametrize("size_range", [(1.0, 1.0), (0.85, 1.15)])
def test_the_target_is_never_finer_than_the_plane(native, target_range, size_range):
    plane = texture((64, 48))
    low, high = target_range
    for item in resampled(spacing=(native, 0.7), target_range=target_range, size_range=size_range, plane=plane):
        target = item["spacing"][0]
        assert item["label"].shape[1] <= plane.shape[1]
        assert target >= max(low, native * size_range[0]) - 1e-6
        assert target <= max(high, native * size_range[1]) + 1e-6


def test_targets_fill_the_range_evenly():
    draws = resampled(600, plane=texture((8, 8)), size_range=(1.0, 1.0))
    targets = torch.tensor([item["spacing"][0] for item in draws])
    counts = torch.histogram(targets, torch.linspace(0.7, 1.3, 5)).hist / len(targets)
    torch.testing.assert_close(counts, torch.full((4,), 0.25), atol=0.06, rtol=0)


def test_half_of_the_pixels_are_square_and_the_others_fill_their_range():
    edges = np.array([item["spacing"] for item in resampled(600, plane=texture((8, 8)))])
    square = edges[:, 0] == edges[:, 1]
    assert square.mean() == pytest.approx(0.5, abs=0.07)
    counts, _ = np.histogram(edges[~square, 1], 4, RANGES["pixel_range"])
    np.testing.assert_allclose(counts / (~square).sum(), 0.25, atol=0.08)


def test_tissue_stays_in_its_place():
    """A plane that holds its pixels' distance from the middle, in mm, holds it on the new grid as well."""
    rows, columns = (torch.arange(n) - (n - 1) / 2 for n in (60, 50))
    plane = 100 + 0.8 * rows[:, None] + 0.6 * columns  # planes are not negative
    for item in resampled(20, spacing=(0.8, 0.6), plane=plane[None], size_range=(1.0, 1.0)):
        height, width = item["label"].shape[1:]
        y, x = (np.arange(n) - (n - 1) / 2 for n in (height, width))
        expected = 100 + item["spacing"][0] * y[:, None] + item["spacing"][1] * x
        inside = np.s_[5:-5, 5:-5]  # bicubic weights reach over the border
        half_a_pixel_each = sum(item["spacing"]) / 2
        assert np.abs(item["label"][0].numpy() - expected)[inside].max() <= half_a_pixel_each


def test_at_its_own_spacing_a_plane_stays_as_it_is():
    same = {"target_range": (0.7, 0.7), "pixel_range": (0.7, 0.7), "size_range": (1.0, 1.0)}
    for item in resampled(4, **same):
        torch.testing.assert_close(item["label"], texture())
        assert item["spacing"] == pytest.approx((0.7, 0.7))


def test_the_edge_of_a_masked_head_stays_hard():
    """No pixel of a new size lies between the brain's intensity and the empty ones around it."""
    brain = torch.zeros(1, 60, 50)
    brain[:, 15:45, 10:40] = 0.5
    for item in resampled(40, plane=brain):
        label = item["label"]
        assert torch.equal(label > 0, label > 0.45)
        assert label.max() < 0.6  # a filter's overshoot at most
        height, width = ((label[0] > 0).any(side).sum().item() for side in (1, 0))
        assert abs(height - 0.5 * label.shape[1]) <= 1 and abs(width - 0.6 * label.shape[2]) <= 1


def test_resampling_leaves_the_other_data_alone():
    plane = texture()
    item = RandResampled("label", **RANGES)({"label": plane, "spacing": (0.7, 0.7), "subject": "s1"})
    assert item["subject"] == "s1"
    assert torch.equal(plane, texture())


def test_the_same_seed_resamples_alike_and_another_does_not():
    first, same, other = (resampled(5, seed) for seed in (3, 3, 4))
    assert all(torch.equal(a["label"], b["label"]) and a["spacing"] == b["spacing"] for a, b in zip(first, same))
    assert not any(a["spacing"] == b["spacing"] for a, b in zip(first, other))


# Acquisitions

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


def acquisitions(count=200, seed=0, **options):
    return [item for item, _ in drawn(count, seed, **options)]


SETTINGS = {
    "isotropic": {},
    "anisotropic": {"spacing": (1.2, 0.7)},
    "coarse": {"spacing": (1.6, 1.0)},
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_image_is_the_label_degraded(setting):
    """The defaults are the paper's acquisition and nothing more."""
    for item, transform in drawn(20, **SETTINGS[setting]):
        thick, target = transform._thickness, SETTINGS[setting].get("spacing", (NATIVE,))[0]
        assert item["thickness"].tolist() == pytest.approx([thick, target])
        assert torch.equal(item["image"], degrade(item["label"], 1, target, thick, thick))


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_proximal_image_is_thinner_by_the_gap_or_repeats_the_image(setting):
    kinds = set()
    for item in acquisitions(60, **SETTINGS[setting]):
        (thick, target), (near, near_target) = item["thickness"].tolist(), item["proximal_thickness"].tolist()
        assert near_target == target
        if thick - paper.CETA_GAP > target:
            assert near == pytest.approx(thick - paper.CETA_GAP, abs=1e-6)
            torch.testing.assert_close(
                item["proximal"], degrade(item["label"], 1, target, near, near), atol=1e-4, rtol=0
            )
        else:
            assert near == thick
            assert torch.equal(item["proximal"], item["image"])
        kinds.add(near < thick)
    assert kinds == {True, False}


@pytest.mark.parametrize("setting", SETTINGS)
def test_input_thickness_lies_above_the_target_and_within_the_largest(setting):
    for item in acquisitions(400, **SETTINGS[setting], plane=texture((12, 12))):
        thick, target = item["thickness"].tolist()
        assert target < thick <= paper.MAX_THICKNESS


@pytest.mark.parametrize("options", [{}, VARIED], ids=["paper", "varied"])
def test_the_label_and_its_spacing_are_left_alone(options):
    plane = texture()
    for item in acquisitions(10, spacing=(0.7, 0.9), plane=plane, **options):
        assert torch.equal(item["label"], texture())
        assert item["thickness"][1].item() == pytest.approx(0.7, abs=1e-6)


def test_input_thicknesses_are_uniform_above_the_target():
    draws = acquisitions(600, plane=texture((8, 8)))
    place_in_range = torch.tensor([(t - r) / (paper.MAX_THICKNESS - r) for t, r in (d["thickness"] for d in draws)])
    counts = torch.histogram(place_in_range, 4, range=(0.0, 1.0)).hist / len(draws)
    torch.testing.assert_close(counts, torch.full((4,), 0.25), atol=0.06, rtol=0)


@pytest.mark.parametrize("gap", paper.CETA_COVERAGE)
def test_share_of_ceta_pairs_is_the_papers_coverage(gap):
    """Table 3: the share of (T_hr, 6] whose neighbour at the gap still exceeds T_hr, whole percents."""
    count = 600
    draws = acquisitions(count, ceta_gap=gap, plane=texture((4, 4)), spacing=(paper.TARGET_HCP, paper.TARGET_HCP))
    share = np.mean([item["proximal_thickness"][0].item() < item["thickness"][0].item() for item in draws])
    expected = paper.CETA_COVERAGE[gap] / 100
    assert abs(share - expected) < 3 * np.sqrt(expected * (1 - expected) / count) + 0.005


def test_no_gap_no_pairs():
    for item in acquisitions(40, ceta_gap=0, plane=texture((8, 8))):
        assert torch.equal(item["proximal_thickness"], item["thickness"])
        assert torch.equal(item["proximal"], item["image"])


@pytest.mark.parametrize("gap", ["null", None, -1.0, float("nan")])
def test_a_gap_that_is_no_length_is_told(gap):
    """`--ceta_gap null` arrives as text."""
    with pytest.raises(InputError, match=rf"ceta_gap is {gap!r}: expected millimetres, or 0 for no pairs"):
        RandAcquired("label", paper.MAX_THICKNESS, ceta_gap=gap)


def test_both_members_of_a_pair_are_of_one_kind_of_stack():
    """Profile, shift and the ratio of spacing to thickness are drawn once; slices never lie nearer than the target."""
    for item, stack in drawn(60, **CLEAN):
        for image, thickness in (("image", "thickness"), ("proximal", "proximal_thickness")):
            thick = item[thickness][0].item()
            spacing = max(stack._ratio * thick, NATIVE)
            expected = degrade(item["label"], 1, NATIVE, thick, spacing, stack._profile, stack._shift)
            torch.testing.assert_close(item[image], expected, atol=1e-4, rtol=0)


def test_stacks_vary_within_what_was_asked_for():
    low, high = CLEAN["spacing_ratio"]
    stacks = [(s._profile, s._ratio, s._shift) for _, s in drawn(600, plane=texture((4, 4)), **CLEAN)]
    profiles, ratios, shifts = ([stack[k] for stack in stacks] for k in range(3))
    for profile in CLEAN["profiles"]:
        assert profiles.count(profile) / len(profiles) == pytest.approx(1 / 3, abs=0.06)
    assert ratios.count(1.0) / len(ratios) == pytest.approx(0.5, abs=0.06)
    counts, _ = np.histogram([ratio for ratio in ratios if ratio != 1.0], 4, (low, high))
    np.testing.assert_allclose(counts / sum(counts), 0.25, atol=0.08)
    assert min(ratios) >= low and max(ratios) <= high
    counts, _ = np.histogram(shifts, 4, (-0.5 * NATIVE, 0.5 * NATIVE))
    np.testing.assert_allclose(counts / len(shifts), 0.25, atol=0.06)


def gains(item):
    """Factor of each thick slice: rows of one slice share it, and columns do."""
    thick = item["thickness"][0].item()
    factors = (item["image"] / degrade(item["label"], 1, NATIVE, thick, thick))[0]
    torch.testing.assert_close(factors, factors[:, :1].expand_as(factors), atol=1e-3, rtol=0)
    count = thick_count(len(factors), NATIVE, thick)
    slices = nearest_index(len(factors), NATIVE, count, thick)
    of_slice = [factors[slices == k].mean(1) for k in range(count)]
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
    silent = 0
    for item, stack in drawn(30, plane=torch.zeros(1, 40, 2000), max_noise=0.05):
        silent += stack._noise == 0
        assert stack._noise <= 0.05
        for image in (item["image"], item["proximal"]):
            assert (image >= 0).all()
            assert image.mean().item() == pytest.approx(stack._noise * np.sqrt(np.pi / 2), rel=0.03, abs=1e-9)
    assert 8 <= silent <= 22, "half of the stacks have none"


def test_noise_in_bright_tissue_is_nearly_gaussian_and_the_same_within_a_slice():
    for item, stack in drawn(20, plane=torch.ones(1, 40, 2000), max_noise=0.05):
        image, thick = item["image"][0], item["thickness"][0].item()
        assert len(torch.unique_consecutive(image, dim=0)) <= thick_count(len(image), NATIVE, thick)
        if stack._noise > 1e-3:
            noise = torch.unique_consecutive(image, dim=0) - 1
            assert noise.std().item() == pytest.approx(stack._noise, rel=0.05)
            assert noise.mean().item() == pytest.approx(stack._noise**2 / 2, abs=0.05 * stack._noise)


def test_members_of_a_pair_have_their_own_noise():
    pairs = 0
    for item, stack in drawn(30, plane=torch.zeros(1, 40, 2000), max_noise=0.05):
        if stack._noise and item["proximal_thickness"][0] < item["thickness"][0]:
            pairs += 1
            rows = torch.stack([item["image"][0, 20], item["proximal"][0, 20]])
            assert abs(torch.corrcoef(rows)[0, 1]) < 0.1
    assert pairs > 3


@pytest.mark.parametrize("options", [{}, VARIED], ids=["paper", "varied"])
def test_the_same_seed_draws_the_same_acquisitions_and_another_does_not(options):
    first, same, other = (acquisitions(5, seed, **options) for seed in (3, 3, 4))
    for a, b in zip(first, same):
        assert all(torch.equal(a[key], b[key]) for key in a)
    assert not any(torch.equal(a["thickness"], b["thickness"]) for a, b in zip(first, other))


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize(("slice_spacing", "options"), [(None, {}), (5.0, {"profile": "gaussian"})])
def test_the_validation_input_is_the_volume_degraded_along_its_sharp_axis(axis, slice_spacing, options):
    volume = MetaTensor(
        texture((24, 20)).expand(22, 24, 20).clone()[None],
        affine=torch.diag(torch.tensor([0.8, 0.9, 1.1, 1.0], dtype=torch.float64)),
    )
    volume += torch.linspace(-1, 1, 22)[None, :, None, None] * torch.linspace(1, -1, 20)
    before = volume.clone()
    item = Acquired("label", 4.0, slice_spacing=slice_spacing, **options)({"label": volume, "sharp_axes": (axis,)})
    expected = degrade(volume.as_tensor(), 1 + axis, SPACING[axis], 4.0, slice_spacing or 4.0, **options)
    torch.testing.assert_close(item["image"].as_tensor(), expected)
    assert torch.equal(item["label"], before), "the truth is left alone"
    torch.testing.assert_close(item["image"].affine, volume.affine)
    meta = item["image"].meta
    facts = [meta[key] for key in ("slice_axis", "slice_spacing", "slice_thickness", "target_thickness")]
    assert facts == pytest.approx([axis, slice_spacing or 4.0, 4.0, SPACING[axis]])


# The whole preprocessing of train.yaml


def preprocessing(patch_size, seed=0, files=("train.yaml",), section="preprocessing", **overrides):
    parser = ConfigParser()
    parser.read_config([str(ROOT / "configs" / file) for file in files])
    parser.update({"patch_size": patch_size, "bundle_root": str(ROOT), **overrides})
    transform = parser.get_parsed_content(f"train#{section}")
    assert isinstance(transform, Compose)
    return transform.set_random_state(seed)


PAPER = ("train.yaml", "paper.yaml")
UNRESAMPLED = {"target_range": [0.7, 0.7], "pixel_range": [0.7, 0.7]}


@pytest.fixture(scope="module")
def cube(tmp_path_factory, phantom):
    """A sharp cube of 40 voxels of 0.7 mm without background: neither crop nor padding touches its planes."""
    import nibabel as nib

    path = tmp_path_factory.mktemp("cube") / "sub-00.nii.gz"
    nib.save(nib.Nifti1Image(phantom[:, :40, :40] + 1, np.diag([0.7, 0.7, 0.7, 1.0])), path)
    return {"label": str(path), "sharp_axes": (0, 1, 2)}


@pytest.fixture(scope="module")
def label_map(tmp_path_factory):
    """Boxes of labels inside each other: air, two tissues of the brain, and one label beyond those."""
    import nibabel as nib

    labels = np.zeros((40, 40, 40), np.int16)
    for margin, label in ((4, 502), (8, 3), (14, 2)):
        labels[margin:-margin, margin:-margin, margin:-margin] = label
    path = tmp_path_factory.mktemp("label_map") / "map-00.nii.gz"
    nib.save(nib.Nifti1Image(labels, np.eye(4)), path)
    return {"label": str(path), "sharp_axes": (0, 1, 2)}


def test_the_image_stays_the_degraded_label_through_flips_and_scales(cube):
    """Degradation is linear, keeps constants and commutes with flips: shared augmentation keeps the relation."""
    transform = preprocessing(40, files=PAPER, **UNRESAMPLED)
    pairs = 0
    for _ in range(20):
        item = transform(cube)
        for image, thickness in (("image", "thickness"), ("proximal", "proximal_thickness")):
            thick, target = item[thickness].tolist()
            assert target == pytest.approx(0.7, abs=1e-6)
            expected = degrade(item["label"], 1, target, thick, thick)
            torch.testing.assert_close(item[image], expected, atol=2e-4, rtol=0)
        pairs += item["proximal_thickness"][0].item() < item["thickness"][0].item()
    assert pairs > 0


def test_patches_are_the_labels_planes_flipped_and_dimmed_above_the_air(cube):
    """The volume's minimum is air and becomes -1; a factor on the way to 1 leaves it there."""
    import nibabel as nib

    volume = np.asarray(nib.load(cube["label"]).dataobj)
    low, high = volume.min(), np.percentile(volume, 99.9)
    volume = (volume - low) / (high - low)
    candidates = np.concatenate([np.moveaxis(volume, a, 0) for a in range(3)])  # every plane of the cube
    candidates = np.stack([candidates, candidates.transpose(0, 2, 1)])
    transform = preprocessing(40, files=PAPER, shift_range=[0.0, 0.0], **UNRESAMPLED)
    low, high = (bound - 1 for bound in paper.INTENSITY_SCALE)
    flips, factors = set(), []
    for _ in range(60):
        label = (transform(cube)["label"][0].numpy() + 1) / 2
        found = False
        for flip in [(), (0,), (1,), (0, 1)]:
            planes = np.flip(candidates, tuple(2 + f for f in flip))
            factor = label.mean() / planes.mean((2, 3))
            residual = np.abs(label - factor[..., None, None] * planes).max((2, 3))
            best = np.unravel_index(residual.argmin(), residual.shape)
            if residual[best] < 2e-3:  # volumes are kept in half precision
                found = True
                flips.add(flip)
                factors.append(factor[best])
        assert found
    assert flips == {(), (0,), (1,), (0, 1)}
    factors = np.array(factors)
    kept = np.abs(factors - 1) < 1e-3
    assert kept.mean() == pytest.approx(0.5, abs=0.2)
    assert (factors >= 1 + low - 1e-3).all() and (factors <= 1 + high + 1e-3).all()
    assert np.ptp(factors[~kept]) > 0.5 * (high - low), "the bounds are used"


@pytest.mark.parametrize("section", ["preprocessing", "label_preprocessing"])
@pytest.mark.parametrize("patch_size", [24, 64])
def test_patches_have_their_size_and_are_plain_tensors(cube, label_map, patch_size, section):
    transform = preprocessing(patch_size, section=section)
    for _ in range(10):
        item = transform({"preprocessing": cube, "label_preprocessing": label_map}[section])
        for key in ("image", "label", "proximal"):
            assert type(item[key]) is torch.Tensor
            assert item[key].shape == (1, patch_size, patch_size)
            assert item[key].isfinite().all()
        assert item["thickness"].shape == item["proximal_thickness"].shape == (2,)


@pytest.mark.parametrize("section", ["preprocessing", "label_preprocessing"])
def test_the_same_seed_gives_the_same_patches(cube, label_map, section):
    item = {"preprocessing": cube, "label_preprocessing": label_map}[section]
    first, same, other = (preprocessing(32, seed, section=section) for seed in (1, 1, 2))
    for _ in range(3):
        a, b, c = first(item), same(item), other(item)
        assert all(torch.equal(a[key], b[key]) for key in ("image", "label", "proximal", "thickness"))
        assert not torch.equal(a["label"], c["label"])


def test_a_volume_with_nan_is_refused_by_name(tmp_path, phantom):
    """One such volume would spoil the weights in silence."""
    import nibabel as nib

    volume = phantom[:16, :16, :16].copy()
    volume[3, 4, 5] = np.nan
    nib.save(nib.Nifti1Image(volume, np.eye(4)), tmp_path / "sub-07.nii.gz")
    with pytest.raises(Exception) as caught:
        preprocessing(16)({"label": str(tmp_path / "sub-07.nii.gz"), "sharp_axes": (0, 1, 2)})
    assert "sub-07.nii.gz has 1 NaN" in str(input_error(caught.value))
