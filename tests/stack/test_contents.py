"""Voxels say what a volume shows, whatever its units, background, grey values, part and order of storage."""

from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

from scripts.stack import contents
from tests.corpus import situations

SHARED = Path(__file__).parents[3] / "shared" / "data"
SHAPE = (40, 44, 36)
RADIUS = np.linalg.norm((np.indices(SHAPE).T - np.array(SHAPE) / 2).T, axis=0)
NOISE = np.random.default_rng(0).normal(size=SHAPE)
INSIDE, TISSUE = RADIUS < 16, gaussian_filter(NOISE, 2)
LABELS = INSIDE * (1 + np.indices(SHAPE)[0] // 10 + 4 * (np.indices(SHAPE)[1] // 11))
SOFT = np.where(RADIUS < 15, 40 + 8 * NOISE, np.where(RADIUS < 17, 900 + 200 * NOISE, -1000 + 5 * NOISE))
SCANS = {"phantom": np.where(INSIDE, 500 + 900 * TISSUE + 20 * NOISE, 0), "head": situations.head((48, 48, 24))}
SCANS["in noise"] = abs(SCANS["phantom"] + 15 * NOISE)
OTHERS = {  # name -> voxels, and the verdict
    "mask": (INSIDE, "none", "few"),
    "three tissues": (INSIDE * (2 + np.rint(8 * TISSUE).clip(-1, 2)), "none", "few"),
    "labels": (LABELS, "none", "labels"),
    "lesions": (np.where(RADIUS < 4, 1 + TISSUE, 0), "none", "sparse"),
    "field": (gaussian_filter(NOISE, 12), "none", "field"),
    "statistic": (np.where(INSIDE, gaussian_filter(NOISE, 1), 0), "doubtful", "statistic"),
    "tissue": (gaussian_filter(np.float32((RADIUS > 7) & (RADIUS < 11)), 1), "doubtful", "probabilities"),
    "CT": (SOFT, "doubtful", "ct"),
}


def levels(voxels, count):
    return np.rint((voxels - voxels.min()) / np.ptp(voxels) * (count - 1))


VARIANTS = {
    "as it is": lambda v, m: v,
    "of 1e-4": lambda v, m: v / v.max() * 1e-4,
    "shifted": lambda v, m: 7 * v - 3000,
    "16 values": lambda v, m: levels(v, 16),
    "64 values": lambda v, m: levels(v, 64).astype(np.uint8),
    "clipped": lambda v, m: np.minimum(v, np.percentile(v, 90)),
    "clipped, 16 values": lambda v, m: levels(np.minimum(v, np.percentile(v, 90)), 16),
    "masked": lambda v, m: np.where(m, v, 0),
    "masked, 16 values": lambda v, m: levels(np.where(m, v, 0), 16),
    **{f"background {b}": lambda v, m, b=b: np.where(m, v, b) for b in (-1, -1000, 32768, np.nan)},
    "a part": lambda v, m: v[8:-8, 10:-10, 4:-4],
    "other axes": lambda v, m: np.asfortranarray(v.transpose(2, 0, 1)[::-1]).astype(">f8"),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_no_variant_of_a_scan_is_anything_else(variant):
    for name, voxels in SCANS.items():
        changed = VARIANTS[variant](voxels, voxels > 0.3 * np.percentile(voxels, 95))
        assert contents.verdict(changed) == contents.SCAN, name


@pytest.mark.parametrize("name", OTHERS)
def test_units_and_storage_change_no_verdict(name):
    voxels, answer, why = OTHERS[name]
    voxels = np.float32(voxels)
    for one in (voxels, voxels * 1e-4 - 3e-4, (voxels * 7 + 100).astype(np.float64), voxels.transpose(2, 0, 1)[::-1]):
        found = contents.verdict(one)
        assert (found.answer, found.why[:20]) == (answer, contents.SHOWS[why].format(len(np.unique(voxels)))[:20])


@pytest.mark.parametrize(("middle", "crowd"), [(0.1, 0.4), (0.2, 0.8), (0.4, 1.0)])
def test_few_values_between_both_ends_are_no_crowd_however_near_each_other(middle, crowd):
    """A quarter of all counts, where fewer lie between the ends: 0.49 are crowded in CT."""
    random = np.random.default_rng(0)
    values = random.uniform(0, 0.1, 40000) + random.choice([0.1, 0.9], 40000)
    values[: int(40000 * middle)] = random.uniform(0.54, 0.56, int(40000 * middle))
    volume = np.zeros(80000)
    volume[::2] = random.permutation(values)
    assert contents.statistics(volume.reshape(40, 40, 50)).crowd == pytest.approx(crowd, abs=0.01)


def test_smooth_tissue_in_few_grey_values_is_a_scan_and_regions_are_labels_though_numbers_follow():
    """Most neighbours are equal in both. The others have next values in tissue, and about half of them in regions."""
    smooth = gaussian_filter(NOISE, 3)
    assert contents.verdict(np.where(INSIDE, 1 + levels(500 + 100 * smooth / smooth.std(), 9), 0)) == contents.SCAN
    regions = np.indices(SHAPE) // 5  # of eight each, in pairs along each axis
    labels = INSIDE * (1 + (regions % 2).sum(0) + 4 * np.tensordot([1, 5, 25], regions // 2, 1))
    assert contents.verdict(labels).why == contents.SHOWS["labels"]


@pytest.mark.parametrize(("faint", "answer"), [((0.027, 0.048), "doubtful"), ((0.055, 0.095), "a scan")])
def test_many_values_below_a_twentieth_of_the_range_are_those_of_probabilities(faint, answer):
    """A third of what stands out of an empty background lies between these shares of the range."""
    random = np.random.default_rng(0)
    fading = np.where(random.random(30000) < 1 / 3, random.uniform(*faint, 30000), random.uniform(0.1, 1, 30000))
    fading[:300] = random.uniform(0, 0.002, 300)  # the range begins here
    volume = np.zeros(100000)
    volume[::2][:30000] = random.permutation(fading)
    assert contents.verdict(volume.reshape(40, 50, 50)).answer == answer


@pytest.mark.parametrize("times", [20, 1000, -1000])
@pytest.mark.parametrize("name", [*SCANS, *OTHERS])
def test_no_voxel_decides(name, times):
    """A spike in the head of a scan or a map, in air, and beside another."""
    voxels = np.float32(SCANS.get(name, OTHERS.get(name, [None])[0]))
    answer = contents.verdict(voxels).answer
    for place in (np.unravel_index(voxels.argmax(), voxels.shape), (1, 1, 1), (slice(20, 22), 20, 15)):
        spoilt = voxels.copy()
        spoilt[place] = times * voxels.max()
        assert contents.verdict(spoilt).answer == answer


@pytest.mark.parametrize("times", [20, 1000])
def test_no_voxel_of_a_real_scan_decides(times):
    paths = sorted((SHARED / "isotropic").glob("*ljubljana*")) + sorted((SHARED / "thick").glob("*.nii.gz"))[::4]
    for path in paths or [pytest.skip("the shared data are not here")]:
        voxels = np.asarray(nib.load(path).dataobj, np.float32)
        voxels[tuple(n // 2 for n in voxels.shape)] = times * voxels.max()
        assert contents.verdict(voxels) == contents.SCAN, path.name


PLAIN = contents.Statistics(500, 500, 0.1, 0.1, 0.5, 0.1, 0.4, 0.0, 0.7, 0.2, 0.1)  # of a masked scan
NEAREST = [  # statistic, others that its rule asks for; its value on the side of scans, and on the side of maps
    ("crowd", {}, 0.43, 0.55),
    ("greys", {"crowd": 0.6}, 100, 200),
    ("foot", {}, 0.21, 0.3),
    ("background", {"foot": 0.4}, 0.42, 0.68),
    ("even", {"beside": 0.0}, 0.2, 0.6),
    ("beside", {"even": 0.6}, 0.5, 0.2),
    ("background", {"beside": 0.0, "even": 0.6}, 0.15, 0.3),
]


@pytest.mark.parametrize(("name", "others", "scan", "other"), NEAREST)
def test_each_limit_lies_between_scans_and_maps(name, others, scan, other):
    assert contents.verdict_of(PLAIN) == contents.SCAN
    assert contents.verdict_of(PLAIN._replace(**others, **{name: scan})) == contents.SCAN
    assert contents.verdict_of(PLAIN._replace(**{**others, name: other})).answer == "doubtful"


def test_a_volume_without_any_number_is_a_broken_scan_and_no_mask():
    assert contents.verdict(np.full(SHAPE, np.nan)) == contents.SCAN
    assert contents.verdict(np.zeros(SHAPE)).answer == "none"
