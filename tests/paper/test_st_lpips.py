"""ST-LPIPS: laws with random parameters, and the package's own implementation with the published ones."""

import sys
import types

import pytest
import torch

from scripts.paper import st_lpips
from scripts.paper.image_quality import installed_file
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


def test_lpips_is_not_downloaded(monkeypatch, tmp_path):
    monkeypatch.setattr(torch.hub, "_hub_dir", str(tmp_path))
    assert st_lpips.lpips() is None and not list(tmp_path.iterdir())
