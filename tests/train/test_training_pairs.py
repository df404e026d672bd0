"""The training pairs as the whole preprocessing of `configs/train.yaml` makes them of files."""

from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import torch
from monai.data import CacheDataset, MetaTensor, get_track_meta
from monai.data.utils import set_rnd
from monai.transforms import Compose
from monai.utils import set_determinism

from scripts.stack.acquisition import Acquisition
from scripts.train.datasets import CachedVolumes
from tests import paper_values as paper
from tests.config_files import parser
from tests.volumes import degrade


def preprocessing(patch_size, seed=0, files=("train.yaml", "models/tiny.yaml"), section="preprocessing", **overrides):
    config = parser(*files, patch_size=patch_size, **overrides)
    transform = config.get_parsed_content(f"train#{section}")
    assert isinstance(transform, Compose)
    return transform.set_random_state(seed)


PAPER = ("train.yaml", "models/large.yaml", "paper/paper.yaml")
UNRESAMPLED = {"target_range": [0.7, 0.7], "pixel_range": [0.7, 0.7]}


@pytest.fixture(scope="module")
def cube(tmp_path_factory, phantom):
    """A sharp cube of 40 voxels of 0.7 mm without background: neither crop nor padding touches its planes."""
    path = tmp_path_factory.mktemp("cube") / "sub-00.nii.gz"
    nib.save(nib.Nifti1Image(phantom[:, :40, :40] + 1, np.diag([0.7, 0.7, 0.7, 1.0])), path)
    return {"label": str(path), "sharp_axes": (0, 1, 2)}


@pytest.fixture(scope="module")
def label_map(tmp_path_factory):
    """Boxes of labels inside each other: air, two tissues of the brain, and one label beyond those."""
    labels = np.zeros((40, 40, 40), np.int16)
    for margin, label in ((4, 502), (8, 3), (14, 2)):
        labels[margin:-margin, margin:-margin, margin:-margin] = label
    path = tmp_path_factory.mktemp("label_map") / "map-00.nii.gz"
    nib.save(nib.Nifti1Image(labels, np.eye(4)), path)
    return {"label": str(path), "sharp_axes": (0, 1, 2)}


@pytest.mark.parametrize("section", ["preprocessing", "label_preprocessing"])
def test_volumes_are_read_once(section, cube, label_map):
    """The cache holds the volume itself: a patch reads no file."""
    cached = CacheDataset(
        [cube if section == "preprocessing" else label_map], preprocessing(40, section=section), progress=False
    )
    Path(cached.data[0]["label"]).rename(moved := Path(cached.data[0]["label"] + ".moved"))
    try:
        assert cached[0]["image"].shape == (1, 40, 40)
    finally:
        moved.rename(cached.data[0]["label"])


def seeded(dataset, seed):
    set_determinism(seed)
    set_rnd(dataset, seed)
    return dataset


@pytest.mark.parametrize("section", ["preprocessing", "label_preprocessing"])
def test_patches_are_those_that_tensors_with_an_affine_give(section, cube, label_map):
    """MONAI's record of affines takes time and changes nothing. It is on again afterwards."""
    data = [cube if section == "preprocessing" else label_map]
    tracked, plain = (make(data, preprocessing(40, section=section)) for make in (CacheDataset, CachedVolumes))
    for seed in range(3):
        first, second = (seeded(dataset, seed)[0] for dataset in (tracked, plain))
        assert first.keys() == second.keys() and not any(isinstance(one, MetaTensor) for one in second.values())
        for name, values in first.items():
            np.testing.assert_array_equal(values, second[name], err_msg=name)
    assert get_track_meta()


def test_the_image_stays_the_degraded_label_through_flips_and_scales(cube):
    """Degradation is linear, keeps constants and commutes with flips: shared augmentation keeps the relation."""
    transform = preprocessing(40, files=PAPER, **UNRESAMPLED)
    pairs = 0
    for _ in range(8):
        item = transform(cube)
        for image, thickness in (("image", "thickness"), ("proximal", "proximal_thickness")):
            thick, target = item[thickness].tolist()
            assert target == pytest.approx(0.7, abs=1e-6)
            expected = degrade(item["label"], Acquisition.of_truth(1, 40, edge=target, thickness=thick))
            torch.testing.assert_close(item[image], expected, atol=2e-4, rtol=0)
        pairs += item["proximal_thickness"][0].item() < item["thickness"][0].item()
    assert pairs > 0


@pytest.mark.slow
def test_patches_are_the_labels_planes_flipped_and_dimmed_above_the_air(cube):
    """Air becomes -1; a factor on the way to 1 leaves it there."""
    transform = preprocessing(40, files=PAPER, shift_range=[0.0, 0.0], max_width=1.0, **UNRESAMPLED)
    steps = [type(one).__name__ for one in transform.transforms]
    volume = Compose(transform.transforms[: steps.index("RandPlaned")])(cube)["label"][0].numpy().astype(float)
    candidates = np.concatenate([np.moveaxis(volume, a, 0) for a in range(3)])  # every plane of the cube
    candidates = np.stack([candidates, candidates.transpose(0, 2, 1)])
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
    for _ in range(4):
        item = transform({"preprocessing": cube, "label_preprocessing": label_map}[section])
        for key in ("image", "label", "proximal"):
            assert type(item[key]) is torch.Tensor
            assert item[key].shape == (1, patch_size, patch_size)
            assert item[key].isfinite().all()
        assert item["thickness"].shape == item["proximal_thickness"].shape == (2,)
