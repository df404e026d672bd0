"""ST-LPIPS: laws with random parameters, and the package's own implementation with the published ones."""

import math
import sys
import types

import pytest
import torch
from scipy import ndimage

from scripts.files import installed_file
from scripts.paper import st_lpips
from scripts.paper.st_lpips import ShiftTolerantLPIPS, mean_distance

PUBLISHED = installed_file(*st_lpips.PARAMETERS)
needs_parameters = pytest.mark.skipif(PUBLISHED is None, reason="the package stlpips_pytorch carries them")


def images(seed, shape=(2, 48, 40)):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def metric(tmp_path_factory):
    """With random parameters, from a file."""
    torch.manual_seed(0)
    metric = ShiftTolerantLPIPS()
    for parameter in metric.state_dict().values():
        torch.nn.init.uniform_(parameter, 0, 0.05)
    path = tmp_path_factory.mktemp("parameters") / "alex.pth"
    torch.save(metric.state_dict(), path)
    return ShiftTolerantLPIPS.load(path)


def test_it_is_no_distance_to_itself_symmetric_and_a_mean(metric):
    a, b = images(0), images(1)
    assert mean_distance(metric, a, a) == 0 < mean_distance(metric, a, b)
    assert mean_distance(metric, a, b) == pytest.approx(mean_distance(metric, b, a))
    assert mean_distance(metric, b, a) == mean_distance(metric, b, a), "whatever was seen before"
    alone = [mean_distance(metric, a[k : k + 1], b[k : k + 1]) for k in range(2)]
    assert mean_distance(metric, a, b) == pytest.approx(sum(alone) / 2)
    many = [x[torch.arange(20) % 2] for x in (a, b)]  # more than a batch
    assert mean_distance(metric, *many) == pytest.approx(sum(alone) / 2)


def test_small_images_have_none(metric):
    assert math.isnan(mean_distance(metric, images(0)[:, :31], images(1)[:, :31]))
    assert mean_distance(metric, images(0)[:, :32, :32], images(1)[:, :32, :32]) > 0


def test_features_by_hand(metric):
    """The first stage at one pixel: an 11 x 11 filter, a 3 x 3 filter at every second pixel, no negative ones."""
    state, x = metric.state_dict(), 2 * images(0)[:1, None].expand(-1, 3, -1, -1) - 1
    scaled = (x - state["scaling_layer.shift"]) / state["scaling_layer.scale"]
    padded = torch.nn.functional.pad(scaled, (2, 2, 2, 2))
    activation = torch.zeros(64)
    for row in range(3):
        for column in range(3):  # output (4, 5) is centred on input (2 * 4 - 2 + 1, 2 * 5 - 2 + 1)
            top, left = 2 * 4 - 2 + row, 2 * 5 - 2 + column
            patch = padded[0, :, top : top + 11, left : left + 11]
            value = (state["net.slice1.0.weight"] * patch).sum((1, 2, 3)) + state["net.slice1.0.bias"]
            activation += state["net.slice1.1.filt"][:, 0, row, column] * value
    activation = activation.relu()
    found = metric.features(x)[0][0, :, 4, 5]
    assert torch.allclose(found, activation / activation.norm(), atol=1e-5)


@needs_parameters
def test_it_is_what_the_package_computes(monkeypatch):
    """What the package imports and does not need for this network is stood in for by empty modules."""
    for name, attribute in {"torchvision": "models", "IPython": "embed", "torchsummary": "summary"}.items():
        module = types.ModuleType(name)
        setattr(module, attribute, None)
        monkeypatch.setitem(sys.modules, name, module)
    package = pytest.importorskip("stlpips_pytorch.stlpips")
    theirs = package.LPIPS(net="alex", variant="shift_tolerant", verbose=False)
    a, b = (2 * images(seed, (2, 3, 61, 80)) - 1 for seed in (0, 1))
    with torch.no_grad():
        expected = theirs(a, b).flatten()
    assert torch.allclose(ShiftTolerantLPIPS.load(PUBLISHED)(a, b), expected, atol=1e-5)


@needs_parameters
def test_more_blur_is_further_away():
    metric, sharp = ShiftTolerantLPIPS.load(PUBLISHED), images(0, (1, 64, 64)).numpy()
    sharp = ndimage.gaussian_filter(sharp, 1)
    blurred = [torch.from_numpy(ndimage.gaussian_filter(sharp, (0, 0, s))) for s in (0, 1, 2, 4)]
    distances = [mean_distance(metric, b, torch.from_numpy(sharp)) for b in blurred]
    assert distances == sorted(distances) and distances[0] == 0 < distances[1]


def test_lpips_is_not_downloaded(monkeypatch, tmp_path):
    monkeypatch.setattr(torch.hub, "_hub_dir", str(tmp_path))
    assert st_lpips.lpips() is None and not list(tmp_path.iterdir())
