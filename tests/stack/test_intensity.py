"""The range of tissue, and that neither padding nor undershoot nor hot spots change what becomes of the rest."""

import nibabel as nib
import numpy as np
import pytest
import torch
from monai.bundle import ConfigParser
from monai.data import MetaTensor
from scipy import ndimage
from scipy.signal import lfilter

from scripts.evaluate.metrics import psnr
from scripts.method.weights import load_weights
from scripts.rebuild.inferer import DriftInferer
from scripts.rebuild.rebuilder import Rebuilder
from scripts.stack.acquisition import Acquisition
from scripts.stack.intensity import intensity_range
from scripts.stack.interpolation import interpolate
from scripts.stack.slices import Slices
from scripts.stack.tissue import head_mask
from tests.config_files import ROOT
from tests.volumes import head, scan_of, smooth_head

ISOTROPIC = ROOT.parent / "shared" / "data" / "isotropic"

# --- the range ---


def test_zero_and_the_upper_percentile_of_the_head_become_minus_one_and_one():
    volume = torch.cat([torch.zeros(5000), torch.arange(5000.0, 10001.0)])
    scale = intensity_range(volume)
    assert scale[:2] == pytest.approx((0.0, 9985.0))  # the 99.7th percentile of 5000 to 10000
    unit = scale.to_unit(scale.tissue(volume))
    assert unit[0] == -1 and unit[9985].item() == pytest.approx(1, abs=1e-6)
    assert unit[-1].item() == pytest.approx(2 * 10000 / 9985 - 1, abs=1e-6)  # brighter tissue is not clipped
    np.testing.assert_allclose(np.diff(unit[5000:]), 2 / 9985, atol=1e-6)  # linear
    torch.testing.assert_close(scale.to_scan(unit), volume, rtol=0, atol=2e-3)


def filling(head, share, noise=0.0):
    """A head in the middle of a field of which it fills a share, with the noise of a magnitude image."""
    edge = round((int((head > 0).sum()) / share) ** (1 / 3))
    field = np.zeros([max(edge, n) for n in head.shape])
    field[tuple(slice((m - n) // 2, (m - n) // 2 + n) for m, n in zip(field.shape, head.shape))] = head
    real, imaginary = noise * np.random.default_rng(0).standard_normal((2, *field.shape))
    return torch.from_numpy(np.hypot(field + real, imaginary))


@pytest.mark.parametrize(
    ("make", "noise"), [(head, 0.0), (smooth_head, 20.0), (head, 60.0)], ids=["no noise", "SNR 35", "SNR 12"]
)
def test_air_does_not_move_the_range(make, noise):
    """The same head in 2 % to 30 % of the field, and a piece of it that fills the field."""
    whole = make((40, 40, 40))
    expected = intensity_range(filling(whole, 0.3, noise))
    for share in (0.02, 0.1):
        assert intensity_range(filling(whole, share, noise)) == pytest.approx(expected, rel=0.02, abs=5)
    middle = whole[tuple(slice(n // 4, n - n // 4) for n in whole.shape)]
    assert intensity_range(filling(middle, 1, noise)) == pytest.approx(expected, rel=0.06, abs=5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ljubljana-19_FLAIR", "ds002748-31_T1w", "uih-a_T1w"])
@pytest.mark.skipif(not ISOTROPIC.exists(), reason="the shared data are not here")
def test_air_does_not_move_the_range_of_a_real_scan(name):
    """A piece without air as it is, in its whole head, and with zeros or noise around it."""
    volume = np.asarray(nib.load(ISOTROPIC / f"{name}.nii.gz").dataobj, dtype=np.float32)
    inside = head_mask(torch.from_numpy(volume)).nonzero().float().mean(0).int()
    piece = torch.from_numpy(volume[tuple(slice(n - 12, n + 12) for n in inside)])
    high = intensity_range(piece).high
    assert (piece > high / 10).float().mean() > 0.9  # fluid is dark in a FLAIR
    for noise in (0.0, 0.03 * high):
        expected = intensity_range(filling(piece, 0.3, noise))
        assert expected.high == pytest.approx(high, rel=0.03)
        for share in (0.02, 0.05, 0.1):
            assert intensity_range(filling(piece, share, noise)) == pytest.approx(expected, rel=0.02, abs=5)


def test_what_is_brighter_than_five_times_the_typical_intensity_is_no_tissue():
    volume = torch.full((20, 20, 20), 100.0)
    volume[:10] = 0
    for brightest, kept in ((480.0, True), (520.0, False)):
        volume[15, 15, 15] = brightest
        assert (intensity_range(volume).tissue(volume)[15, 15, 15] == brightest) == kept


@pytest.mark.parametrize("share", [0.001, 0.009])
def test_a_few_negative_voxels_are_no_tissue_and_many_are(share):
    """Padding and undershoot against scans that were standardised, with or without a mask of zeros."""
    volume = head((40, 40, 40))
    expected = intensity_range(volume)
    count = int(share * volume.numel())
    volume.view(-1)[:count] = -torch.linspace(1, 1000, count)  # a corner of air
    assert intensity_range(volume)[:2] == pytest.approx(expected[:2], rel=1e-3)
    standardised = (volume - volume.mean()) / volume.std()
    assert intensity_range(standardised).low == pytest.approx(np.percentile(standardised, 0.1))
    assert (standardised < 0).float().mean() > 0.3
    small = filling(head((40, 40, 40)), 0.02)
    masked = torch.where(small > 0, (small - 700) / 50, 0.0)
    assert intensity_range(masked).low == pytest.approx(np.percentile(masked[masked != 0], 0.1))


def cornered(volume, value):
    """The volume with one value outside a circle of its planes, which is a fifth of the voxels, and its inside."""
    row, column = (torch.linspace(-1, 1, n) for n in volume.shape[:2])
    inside = ((row[:, None] ** 2 + column**2) <= 1)[..., None].expand(volume.shape)
    return volume.where(inside, value), inside


@pytest.mark.parametrize(("value", "noise"), [(-3.0, 20.0), (-2000.0, 0.0), (-32768.0, 20.0), (32767.0, 0.0)])
def test_padding_is_no_floor_and_no_tissue_whatever_its_sign(value, noise):
    volume = filling(smooth_head(), 0.3, noise)
    expected, (padded, inside) = intensity_range(volume), cornered(volume, value)
    found = intensity_range(padded)
    assert tuple(found) == pytest.approx(tuple(expected), rel=0.01, abs=2)
    assert torch.equal(found.tissue(padded)[inside], padded[inside])
    assert (found.tissue(padded)[~inside] <= found.ceiling).all()


def test_padding_of_two_values_is_no_floor():
    volume = filling(smooth_head(), 0.3)
    padded = cornered(volume, -2000.0)[0]
    padded[:, :2] = -1000.0
    assert intensity_range(padded)[:2] == pytest.approx(intensity_range(volume)[:2], rel=0.01)


def test_padding_of_a_standardised_scan_and_of_a_brain_without_air_is_no_floor():
    volume = filling(smooth_head(), 0.3, 20.0)
    standardised = (volume - volume.mean()) / volume.std()
    expected = intensity_range(standardised)
    assert tuple(intensity_range(cornered(standardised, -10.0)[0])) == pytest.approx(tuple(expected), abs=0.02)
    brain = volume.where(volume > 300, 0)
    assert intensity_range(volume.where(volume > 300, -2000)) == intensity_range(brain)
    raised = brain - brain.mean()  # its air is one value, too, and no padding
    assert intensity_range(raised).low == pytest.approx(-float(brain.mean()))


def test_zeros_that_a_mask_left_in_a_standardised_scan_are_dark_to_the_networks():
    volume = filling(smooth_head(), 0.3)
    brain = volume > 300
    masked = ((volume - volume[brain].mean()) / volume[brain].std()).where(brain, 0)
    scale = intensity_range(masked)
    unit = scale.to_unit(scale.tissue(masked))
    assert (unit[~brain] == -1).all() and torch.equal(scale.masked(masked), ~brain)
    torch.testing.assert_close(scale.to_scan(unit)[brain & (masked > scale.low)], masked[brain & (masked > scale.low)])
    assert not intensity_range(volume).masked(volume).any()


@pytest.mark.parametrize("floor", [500.0, 30.0])
def test_a_raised_scan_begins_at_its_floor_and_a_crop_of_tissue_at_zero(floor):
    noisy = filling(smooth_head(), 0.3, 20.0)
    assert intensity_range(floor + noisy).low == pytest.approx(floor, abs=2)
    assert intensity_range(smooth_head()[10:-10, 10:-10, 10:-10]).low == 0


@pytest.mark.parametrize("dead", [0.0, -3.0, 100.0])
def test_dead_voxels_are_no_floor(dead):
    """Three voxels of a raised scan, and of a crop of tissue, which has no floor of its own either way."""
    raised, tissue = 500 + filling(smooth_head(), 0.3, 20.0), 500 + smooth_head()[10:-10, 10:-10, 10:-10]
    for volume, floor in ((raised, 500), (tissue, 0)):
        volume.view(-1)[:3] = dead
        assert intensity_range(volume).low == pytest.approx(floor, abs=3)


def ramp(low, high, share):
    return torch.linspace(low, high, round(10000 * share))


def dimmed(spread=0.0, correlation=0.0):
    """Air, voxels of about 100 that vary by a share and resemble each other, and a few of 2000."""
    chance = np.random.default_rng(0).uniform(-1, 1, 10000) * 3**0.5
    chance = lfilter([(1 - correlation**2) ** 0.5], [1, 0, -correlation], chance) if correlation else chance
    dim = torch.from_numpy(100 * (1 + spread * chance.clip(-2, 2))).float()
    return torch.cat([torch.zeros(5000), dim, torch.full((500,), 2000.0)])


BORDERS = {  # what is on either side: a volume below, one above, and what is true of the range of the second alone
    "a floor has a tenth of the voxels near it; fluid of a crop is fewer": (
        *(
            torch.cat([ramp(600, 1000, 1 - share), torch.full((round(10000 * share),), 500.0)])
            for share in (0.08, 0.12)
        ),
        lambda scale: scale.low == 500,
    ),
    "a standardised scan has a twentieth of its voxels below zero": (
        *(torch.cat([ramp(-50, -1, share), ramp(100, 1000, 1 - share)]) for share in (0.03, 0.1)),
        lambda scale: scale.low < 0,
    ),
    "noise varies by more than a fifth of its mean, and a head may be small": (
        dimmed(0.15),
        dimmed(0.3),
        lambda scale: scale.high == 2000,
    ),
    "noise is another two voxels farther, and tissue is not": (
        dimmed(0.3, 0.7),
        dimmed(0.3, 0.5),
        lambda scale: scale.high == 2000,
    ),
    "what fills more than a seventh of the head is no hot spot": (
        *(torch.cat([torch.zeros(10000), ramp(80, 120, 1 - s), ramp(1900, 2000, s)]) for s in (0.1, 0.2)),
        lambda scale: scale.high > 1900,
    ),
}


@pytest.mark.parametrize("border", BORDERS)
def test_a_border_lies_where_it_is_said_to_lie(border):
    below, above, there = BORDERS[border]
    assert not there(intensity_range(below)) and there(intensity_range(above))


@pytest.mark.parametrize(("share", "factor"), [(0.0005, 25), (0.003, 1000), (0.03, 25)])
def test_hot_voxels_do_not_move_the_range_and_are_no_tissue(factor, share):
    volume = head((40, 40, 40))
    expected, hot = intensity_range(volume), torch.zeros_like(volume, dtype=torch.bool)
    edge = round((share * volume.numel()) ** (1 / 3))
    hot[(slice(20 - edge // 2, 20 - edge // 2 + edge),) * 3] = True
    heated = torch.where(hot, factor * volume, volume)
    found = intensity_range(heated)
    assert found[:2] == pytest.approx(expected[:2], rel=0.02)
    tissue = found.tissue(heated)
    assert torch.equal(tissue[~hot], heated[~hot])
    assert tissue[hot].std() < 1e-3 and volume[hot].min() < tissue[hot][0] < volume[hot].max()  # typical


def rimmed(volume, times, skirt=1.5):
    """A rim about a void in the head, which fades within some voxels, as metal leaves it; and where it is none."""
    centre = np.reshape([n // 2 - 5 * (k == 0) for k, n in enumerate(volume.shape)], (3, 1, 1, 1))
    place = np.stack(np.meshgrid(*map(np.arange, volume.shape), indexing="ij")) - centre
    distance = torch.from_numpy(np.sqrt((place**2).sum(0)))
    rim = times * volume[volume > 100].median() * torch.exp(-(((distance - 5) / skirt) ** 2)) * (distance > 3)
    return (volume + rim).where(distance > 3, 0), distance > 14


@pytest.mark.parametrize(("times", "noise"), [(10, 0.0), (40, 20.0), (80, 20.0)])
def test_a_rim_beside_a_void_ends_no_range_and_nor_does_its_skirt(times, noise):
    volume = filling(smooth_head((40, 40, 40)), 0.4, noise)
    expected, (heated, far) = intensity_range(volume), rimmed(volume, times)
    found = intensity_range(heated)
    assert found[:2] == pytest.approx(expected[:2], rel=0.03, abs=1)
    assert 0.005 < (heated > found.ceiling).double().mean() < 0.03, "one voxel in a hundred"
    assert torch.equal(found.tissue(heated)[far], heated[far])


def test_few_bright_voxels_make_no_noise_of_tissue():
    """Most voxels below a third of the brightest are tissue and air; those between hide how tissue goes together."""
    volume = smooth_head((40, 40, 40)).flatten()
    skirt = torch.zeros_like(volume).bool()
    skirt[::150] = True
    dim = volume.where(~skirt, 8 * volume.max())
    spots = dim.clone()
    spots[7::1000] = 40 * volume.max()
    assert intensity_range(spots).high < 2 * intensity_range(volume).high


@pytest.mark.parametrize("value", [0.0, 7.0, -300.0])
def test_a_constant_volume_becomes_minus_one(value):
    scale = intensity_range(torch.full((6, 7, 5), value))
    unit = scale.to_unit(scale.tissue(torch.full((3,), value)))
    assert (unit == -1).all() and scale.low < scale.high <= scale.ceiling
    torch.testing.assert_close(scale.to_scan(unit), torch.full((3,), value))


def test_a_volume_that_is_background_but_for_a_few_voxels_keeps_them():
    """The 99.9th percentile is the background here, and no range."""
    volume = torch.zeros(20, 20, 5)
    volume[3, 3, 2] = 700
    scale = intensity_range(volume)
    assert scale[:2] == (0, 700) and torch.equal(scale.tissue(volume), volume)


# --- through the networks that ship ---


@pytest.fixture(scope="module")
def clean():
    """A smooth head in slices of 5 mm."""
    return scan_of(smooth_head((48, 56, 60)))


@pytest.fixture(scope="module")
def result_of(clean):
    """What the shipped networks make of other intensities on the grid of `clean`; each is computed once."""
    config = ConfigParser()
    config.read_config(str(ROOT / "configs" / "inference.yaml"))
    network = load_weights(config.get_parsed_content("network_def"), ROOT / "models" / "model.pt").eval()

    def run(array):
        scan = MetaTensor(array[None], affine=clean.affine, meta={"acquisition": clean.meta["acquisition"]})
        return Rebuilder(network, DriftInferer(512, steps=1), "cpu")(Slices.of(scan)).volume.as_tensor()

    run.of_clean = run(clean.as_tensor()[0])
    nearest = interpolate(clean.as_tensor()[0], Acquisition.of(clean), "nearest")
    assert psnr(run.of_clean, nearest, head_mask(nearest)) < 30, "the networks change what the laws compare"
    return run


def slices(clean):
    return clean.as_tensor()[0].clone()


def distance_from(stray, clean):
    """Of every fine voxel from the nearest one of the stray slices' own copies, in voxels."""
    copies = interpolate(stray.float(), Acquisition.of(clean), "nearest") > 0.5
    return torch.from_numpy(ndimage.distance_transform_edt(~copies.numpy()))


def test_a_voxel_of_padding_changes_nothing_else_and_keeps_its_value(clean, result_of):
    padded, value = slices(clean), -1e5
    padded[0, 0, 0] = value
    result, stray = result_of(padded), torch.zeros_like(padded, dtype=torch.bool)
    stray[0, 0, 0] = True
    away = distance_from(stray, clean) > 0
    extent = clean.max() - clean.min()
    assert (result - result_of.of_clean)[away].abs().max() < 0.005 * extent
    assert (result[~away] - value).abs().max() < 0.02 * extent
    assert psnr(result[away][None, None], result_of.of_clean[away][None, None]) > 60


@pytest.mark.slow
def test_what_a_mask_left_at_zero_stays_and_the_brain_is_rebuilt_as_beside_air(clean, result_of):
    scan = slices(clean)
    brain = scan > 0
    mean, sd = scan[brain].mean(), scan[brain].std()
    result = result_of(((scan - mean) / sd).where(brain, 0))
    inside = interpolate(brain.float(), Acquisition.of(clean), "nearest") > 0.5
    assert (result[~inside] == 0).all()
    assert psnr((result * sd + mean)[inside][None, None], result_of.of_clean[inside][None, None]) > 40


@pytest.mark.slow
def test_the_undershoot_of_splines_changes_nothing_else(clean, result_of):
    generator = torch.Generator().manual_seed(0)
    scan = slices(clean)
    stray = (torch.rand(scan.shape, generator=generator) < 0.015) & (scan == 0)
    assert 0.003 < stray.float().mean() < 0.008
    scan[stray] = -0.15 * scan.max() * torch.rand(int(stray.sum()), generator=generator)
    away = distance_from(stray, clean) > 0
    result = result_of(scan)
    assert (result - result_of.of_clean)[away].abs().max() < 0.005 * clean.max()
    assert (result[~away] < 0).any() and (result[away] >= 0).all()


def test_a_hot_spot_leaves_the_rest_of_the_head_as_it_comes_without(clean, result_of):
    """25 times brighter. The networks see that a piece is gone, so that its neighbourhood changes, by less and less."""
    hot = torch.zeros_like(slices(clean), dtype=torch.bool)
    hot[tuple(slice((n - edge) // 2, (n + edge) // 2) for n, edge in zip(hot.shape, (12, 12, 6)))] = True  # 3 %
    heated = torch.where(hot, 25 * slices(clean), slices(clean))
    result, distance = result_of(heated), distance_from(hot, clean)
    change, extent = (result - result_of.of_clean).abs() / clean.max(), distance > 10
    inside = head_mask(result_of.of_clean)
    assert (change[inside & extent] < 0.01).float().mean() > 0.99
    assert change[inside & extent].square().mean().sqrt() < 0.005
    assert change[inside & (distance > 0)].square().mean().sqrt() < 0.01
    nearest = interpolate(heated, Acquisition.of(clean), "nearest")
    torch.testing.assert_close(result[distance == 0], nearest[distance == 0], rtol=0.05, atol=0)


def test_what_is_not_negative_stays_so(result_of):
    assert (result_of.of_clean >= 0).all() and (result_of.of_clean == 0).any()
