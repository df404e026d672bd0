"""Laws of the drawn planes and acquisitions, alone and through the preprocessing of `configs/train.yaml`."""

from pathlib import Path

import numpy as np
import pytest
import torch
from monai.bundle import ConfigParser
from monai.data import MetaTensor
from monai.transforms import Compose

from scripts.slice_profile import degrade
from scripts.transforms import Acquired, RandAcquired, RandPlaned
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


# Acquisitions


def texture(shape=(40, 36), seed=0):
    return torch.rand(1, *shape, generator=torch.Generator().manual_seed(seed)) * 2 - 1


def acquisitions(count=200, seed=0, spacing=(0.7, 0.7), plane=None, **options):
    transform = RandAcquired("label", max_thickness=paper.MAX_THICKNESS, **options)
    transform.set_random_state(seed)
    plane = texture() if plane is None else plane
    return [transform({"label": plane, "spacing": spacing}) for _ in range(count)]


SETTINGS = {
    "paper": {},
    "paper, anisotropic": {"spacing": (1.2, 0.7)},
    "range": {"target_range": (0.7, 1.3)},
    "range and size": {"target_range": (0.7, 1.3), "size_range": (0.85, 1.15)},
    "coarser than the range": {"target_range": (0.7, 1.3), "spacing": (1.6, 1.0)},
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_image_is_the_label_degraded(setting):
    for item in acquisitions(20, **SETTINGS[setting]):
        thick, target = item["thickness"].tolist()
        expected = degrade(item["label"], 1, target, thick, thick)
        torch.testing.assert_close(item["image"], expected, atol=1e-4, rtol=0)


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


@pytest.mark.parametrize("target_range", [(0.7, 1.3), (0.9, 0.9)])
@pytest.mark.parametrize("native", [0.5, 0.8, 1.25, 1.3, 1.6])
@pytest.mark.parametrize("size_range", [(1.0, 1.0), (0.85, 1.15)])
def test_the_label_is_never_finer_than_it_was_measured(native, target_range, size_range):
    plane = texture((64, 48))
    low, high = target_range
    for item in acquisitions(
        60, spacing=(native, native), target_range=target_range, size_range=size_range, plane=plane
    ):
        target = item["thickness"][1].item()
        assert all(new <= old for new, old in zip(item["label"].shape, plane.shape))
        assert target >= native * size_range[0] - 1e-6
        assert target >= low - 1e-6
        assert target <= max(high, native * size_range[1]) + 1e-6
        # the head's size in mm over its size before is the drawn factor: its rows cover it to half a voxel
        factor = item["label"].shape[1] * target / (plane.shape[1] * native)
        slack = 0.5 * target / (plane.shape[1] * native) + 1e-6
        assert size_range[0] - slack <= factor <= size_range[1] + slack


def test_without_a_range_the_label_is_the_plane_at_its_native_spacing():
    plane = texture()
    for item in acquisitions(10, spacing=(0.7, 0.9), plane=plane):
        assert torch.equal(item["label"], plane)
        assert item["thickness"][1].item() == pytest.approx(0.7, abs=1e-6)


def test_targets_fill_the_range_evenly():
    draws = acquisitions(600, spacing=(0.7, 0.7), target_range=(0.7, 1.3), plane=texture((8, 8)))
    targets = torch.tensor([item["thickness"][1].item() for item in draws])
    edges = torch.linspace(0.7, 1.3, 5)
    counts = torch.histogram(targets, edges).hist / len(targets)
    torch.testing.assert_close(counts, torch.full((4,), 0.25), atol=0.06, rtol=0)


def test_input_thicknesses_are_uniform_above_the_target():
    draws = acquisitions(600, plane=texture((8, 8)))
    place_in_range = torch.tensor([(t - r) / (paper.MAX_THICKNESS - r) for t, r in (d["thickness"] for d in draws)])
    counts = torch.histogram(place_in_range, 4, range=(0.0, 1.0)).hist / len(draws)
    torch.testing.assert_close(counts, torch.full((4,), 0.25), atol=0.06, rtol=0)


@pytest.mark.parametrize("gap", paper.CETA_COVERAGE)
def test_share_of_ceta_pairs_is_the_papers_coverage(gap):
    """Table 3: the share of (T_hr, 6] whose neighbour at the gap still exceeds T_hr, whole percents."""
    count = 600
    draws = acquisitions(count, gap=gap, plane=texture((4, 4)), spacing=(paper.TARGET_HCP, paper.TARGET_HCP))
    share = np.mean([item["proximal_thickness"][0].item() < item["thickness"][0].item() for item in draws])
    expected = paper.CETA_COVERAGE[gap] / 100
    assert abs(share - expected) < 3 * np.sqrt(expected * (1 - expected) / count) + 0.005


def test_the_same_seed_draws_the_same_acquisitions_and_another_does_not():
    options = {"target_range": (0.7, 1.3), "size_range": (0.85, 1.15)}
    first, same, other = (acquisitions(5, seed, **options) for seed in (3, 3, 4))
    for a, b in zip(first, same):
        assert all(torch.equal(a[key], b[key]) for key in a)
    assert not any(torch.equal(a["thickness"], b["thickness"]) for a, b in zip(first, other))


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("slice_spacing", [None, 5.0])
def test_the_validation_input_is_the_volume_degraded_along_its_sharp_axis(axis, slice_spacing):
    volume = MetaTensor(
        texture((24, 20)).expand(22, 24, 20).clone()[None],
        affine=torch.diag(torch.tensor([0.8, 0.9, 1.1, 1.0], dtype=torch.float64)),
    )
    volume += torch.linspace(-1, 1, 22)[None, :, None, None] * torch.linspace(1, -1, 20)
    before = volume.clone()
    item = Acquired("label", 4.0, slice_spacing=slice_spacing)({"label": volume, "sharp_axes": (axis,)})
    expected = degrade(volume.as_tensor(), 1 + axis, SPACING[axis], 4.0, slice_spacing or 4.0)
    torch.testing.assert_close(item["image"].as_tensor(), expected)
    assert torch.equal(item["label"], before), "the truth is left alone"
    torch.testing.assert_close(item["image"].affine, volume.affine)
    meta = item["image"].meta
    facts = [meta[key] for key in ("slice_axis", "slice_spacing", "slice_thickness", "target_thickness")]
    assert facts == pytest.approx([axis, slice_spacing or 4.0, 4.0, SPACING[axis]])


# The whole preprocessing of train.yaml


def preprocessing(patch_size, seed=0, **overrides):
    parser = ConfigParser()
    parser.read_config(str(ROOT / "configs" / "train.yaml"))
    parser.update({"patch_size": patch_size, "bundle_root": str(ROOT), **overrides})
    transform = parser.get_parsed_content("train#preprocessing")
    assert isinstance(transform, Compose)
    return transform.set_random_state(seed)


AS_IN_THE_PAPER = {"target_range": None, "size_range": [1.0, 1.0]}


@pytest.fixture(scope="module")
def cube(tmp_path_factory, phantom):
    """A sharp cube of 40 voxels of 0.7 mm without background: neither crop nor padding touches its planes."""
    import nibabel as nib

    path = tmp_path_factory.mktemp("cube") / "sub-00.nii.gz"
    nib.save(nib.Nifti1Image(phantom[:, :40, :40] + 1, np.diag([0.7, 0.7, 0.7, 1.0])), path)
    return {"label": str(path), "sharp_axes": (0, 1, 2)}


def test_the_image_stays_the_degraded_label_through_flips_scales_and_shifts(cube):
    """Degradation is linear, keeps constants and commutes with flips: shared augmentation keeps the relation."""
    transform = preprocessing(40, **AS_IN_THE_PAPER)
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


def test_patches_are_the_labels_planes_flipped_scaled_and_shifted_within_the_papers_bounds(cube):
    import nibabel as nib

    volume = np.asarray(nib.load(cube["label"]).dataobj)
    low, high = volume.min(), np.percentile(volume, 99.9)
    volume = (volume - low) * (2 / (high - low)) - 1
    candidates = np.concatenate([np.moveaxis(volume, a, 0) for a in range(3)])  # every plane of the cube
    candidates = np.stack([candidates, candidates.transpose(0, 2, 1)])
    transform = preprocessing(40, **AS_IN_THE_PAPER)
    flips, factors, offsets = set(), [], []
    for _ in range(40):
        label = transform(cube)["label"][0].numpy()
        found = False
        for flip in [(), (0,), (1,), (0, 1)]:
            planes = np.flip(candidates, tuple(2 + f for f in flip))
            factor = label.std() / planes.std((2, 3))
            residual = label - factor[..., None, None] * planes
            residual = residual.std((2, 3))
            best = np.unravel_index(residual.argmin(), residual.shape)
            if residual[best] < 1e-4:
                found = True
                flips.add(flip)
                factors.append(factor[best])
                offsets.append((label - factor[best] * planes[best]).mean())
        assert found
    assert flips == {(), (0,), (1,), (0, 1)}
    bounds = np.array([factors, offsets]), np.array([paper.INTENSITY_SCALE, paper.INTENSITY_SHIFT])
    assert (bounds[0].min(1) >= bounds[1][:, 0] - 1e-3).all()
    assert (bounds[0].max(1) <= bounds[1][:, 1] + 1e-3).all()
    assert (np.ptp(bounds[0], axis=1) > 0.5 * np.ptp(bounds[1], axis=1)).all(), "the bounds are used"


@pytest.mark.parametrize("patch_size", [24, 64])
def test_patches_have_their_size_and_are_plain_tensors(cube, patch_size):
    transform = preprocessing(patch_size)
    for _ in range(5):
        item = transform(cube)
        for key in ("image", "label", "proximal"):
            assert type(item[key]) is torch.Tensor
            assert item[key].shape == (1, patch_size, patch_size)
            assert item[key].isfinite().all()
        assert item["thickness"].shape == item["proximal_thickness"].shape == (2,)


def test_the_same_seed_gives_the_same_patches(cube):
    first, same, other = (preprocessing(32, seed) for seed in (1, 1, 2))
    for _ in range(3):
        a, b, c = first(cube), same(cube), other(cube)
        assert all(torch.equal(a[key], b[key]) for key in ("image", "label", "proximal", "thickness"))
        assert not torch.equal(a["label"], c["label"])
