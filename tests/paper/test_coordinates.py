"""Methods asked at coordinates: their sizes, where they look, and that nothing moves."""

import numpy as np
import pytest
import torch
from monai.data import MetaTensor
from torch import nn

from scripts.errors import InputError
from scripts.paper.baselines import coordinates
from scripts.paper.baselines.arssr import ArSSR
from scripts.paper.baselines.coordinates import CoordinateInferer, RandQueried, VolumeCoordinateInferer
from scripts.paper.baselines.liif import LIIF
from scripts.paper.baselines.lte import LTE
from scripts.paper.baselines.sainr import SAINR
from scripts.stack.acquisition import Acquisition
from scripts.train.simulation import RandAcquired
from tests.volumes import noise_stack

COMPARED = {
    LIIF: ((64, 16, 256), 1_499_841),
    LTE: ((64, 16, 256), 1_712_577),
    ArSSR: ((64, 8, 3, 128, 256), 6_283_460),
    SAINR: ((64, 12, 256), 2_994_945),
}
TINY = {
    "LIIF": lambda: LIIF(4, 1, 8),
    "LTE": lambda: LTE(4, 1, 8),
    "ArSSR": lambda: ArSSR(4, 1, 2, 4, 8),
    "SAINR": lambda: SAINR(4, 1, 8, window=3),
}
INFERERS = {name: CoordinateInferer if name in ("LIIF", "LTE") else VolumeCoordinateInferer for name in TINY}


class Between(nn.Module):
    """Linear interpolation between slices, as a network that is asked."""

    def encode(self, image):
        return image[..., None]

    def decode(self, code, image, rows, pixels, ratio):
        return coordinates.between_slices(code, rows, pixels)[..., 0]


@pytest.fixture(params=TINY)
def name(request):
    return request.param


@pytest.fixture
def network(name):
    torch.manual_seed(0)
    return TINY[name]().eval()


def asked(name, count=50, shape=(2, 6, 7), seed=0):
    """An image and queries as `RandQueried` gives them."""
    generator = torch.Generator().manual_seed(seed)
    shape = (1, *shape[1:]) if INFERERS[name] is CoordinateInferer else shape
    image = torch.randn(2, *shape, generator=generator)
    rows = torch.rand(2, count, generator=generator) * shape[1] - 0.5
    pixels = torch.stack([torch.randint(n, (2, count), generator=generator) for n in (shape[0], shape[2])], -1)
    return image, rows, pixels, torch.tensor([0.2, 0.25])


@pytest.mark.parametrize("network", COMPARED, ids=lambda network: network.__name__)
def test_the_compared_sizes_have_the_papers_parameters(network):
    arguments, count = COMPARED[network]
    with torch.device("meta"):
        assert sum(p.numel() for p in network(*arguments).parameters()) == count


def test_a_query_does_not_depend_on_the_others(name, network):
    image, *queries, ratio = asked(name)
    with torch.no_grad():
        whole = network(image, *queries, ratio)
        part = network(image, *(q[:, 10:20] for q in queries), ratio)
    assert whole.shape == (2, 50)
    torch.testing.assert_close(part, whole[:, 10:20])


def test_every_parameter_gets_a_gradient(name, network):
    image, rows, pixels, ratio = asked(name, 500)
    network(image, rows, pixels, ratio).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in network.parameters())


def test_the_answer_moves_without_jumps_between_the_slices(name, network):
    """Members change over at the slices' centres, where they have no weight; SA-INR's windows jump there."""
    image, rows, pixels, ratio = asked(name)
    rows = torch.linspace(0.05 if name == "SAINR" else -0.5, 0.95 if name == "SAINR" else 5.4, 2000).expand(2, -1)
    pixels = pixels[:, :1].expand(-1, 2000, -1)
    with torch.no_grad():
        answer = network(image, rows, pixels, ratio)
    assert answer.diff().abs().max() < 0.02 * (answer.max() - answer.min()) + 1e-6
    assert answer.std() > 1e-4


@pytest.mark.parametrize("name", ["LTE", "SAINR"])
def test_an_idle_perceptron_leaves_the_measured_slices(name, network):
    """Linear interpolation between them."""
    nn.init.zeros_(network.perceptron[-1].weight)
    nn.init.zeros_(network.perceptron[-1].bias)
    queries = asked(name)
    with torch.no_grad():
        torch.testing.assert_close(network(*queries), Between().decode(queries[0][..., None], *queries))


@pytest.mark.parametrize("inferer", [CoordinateInferer, VolumeCoordinateInferer])
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize(("spacing", "target"), [(4.0, 1.0), (5.3, 0.9), (3.0, 1.25)])
def test_a_ramp_stays_in_its_place(inferer, axis, spacing, target):
    """In mm and to a thousandth of a voxel, but beyond the outermost centres, where nothing was measured."""
    shape = np.array([12, 9, 11])
    shape[axis] = 6
    stack = noise_stack(shape, axis=axis, spacing=spacing, thickness=spacing, target=target)
    line = stack.affine.numpy()[:3, axis] / spacing

    def ramp(volume):
        affine = np.asarray(volume.affine)
        index = np.stack(np.meshgrid(*map(np.arange, volume.shape[-3:]), indexing="ij"), -1)
        return (index @ affine[:3, :3].T + affine[:3, 3]) @ line + 1000

    stack.as_tensor()[:] = torch.from_numpy(ramp(stack)).float()
    result = inferer(queries=100, consistency="measure")(stack, Between())
    error = np.moveaxis(result.as_tensor()[0, 0].numpy() - ramp(result), axis, 0)
    rows = Acquisition.of(stack).fine_rows
    inside = (rows >= 0) & (rows <= 5)
    assert inside.sum() > 5 and np.abs(error[inside]).max() < 2e-3


@pytest.mark.parametrize("queries", [1, 37, 10**6])
def test_queries_per_call_change_nothing(name, network, queries):
    stack = noise_stack((7, 8, 4))
    results = [INFERERS[name](queries=count, consistency="measure")(stack, network) for count in (queries, 500)]
    torch.testing.assert_close(*(result.as_tensor() for result in results), atol=0.01, rtol=0)


def test_both_planes_are_the_mean_of_either():
    """On a network that looks along columns."""

    class Columns(Between):
        def decode(self, code, image, rows, pixels, ratio):
            return super().decode(code.cumsum(3) / 10, image, rows, pixels, ratio)

    stack = noise_stack((6, 6, 4))
    turned = MetaTensor(stack.as_tensor().transpose(2, 3), affine=stack.affine, meta=stack.meta)
    one, other, both = (
        CoordinateInferer(both_planes, consistency="measure")(volume, Columns()).as_tensor()
        for volume, both_planes in ((stack, False), (turned, False), (stack, True))
    )
    torch.testing.assert_close(both, (one + other.transpose(2, 3)) / 2)
    assert (one - other.transpose(2, 3)).abs().max() > 1


def drawn(planes, seed, sizes=(6, 8), **others):
    acquired = RandAcquired("label", 7.0, ceta_gap=0, **others)
    transform = RandQueried("label", acquired, sizes, 200).set_random_state(seed)
    return transform({"label": planes, "spacing": (1.0, 1.0)})


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("shape", [(3, 60, 20), (1, 9, 5)])
def test_queries_are_where_their_voxels_are(seed, shape):
    """On a ramp in each direction, which slices keep within a stack."""
    n, r, c = torch.meshgrid(*(torch.arange(n, dtype=torch.float32) for n in shape), indexing="ij")
    scale = 1000.0
    found = [drawn(part / scale, seed, spacing_ratio=(0.8, 1.4), max_shift=0.5) for part in (n, r, c)]
    rows, pixels = found[0]["rows"], found[0]["pixels"]
    assert found[0]["image"].shape == (shape[0], 6, 8) and found[0]["label"].shape == (200,)
    assert torch.equal(rows, found[1]["rows"]), "one seed, one draw"
    assert torch.equal(found[0]["label"] * scale, pixels[:, 0].float())
    first = found[2]["image"][0, 0, 0]
    torch.testing.assert_close(found[2]["label"], first + pixels[:, 1] / scale)
    measured = coordinates.between_slices(found[1]["image"][None, ..., None], rows[None], pixels[None])[0, :, 0]
    if shape[1] > 20:  # the ends of a stack, continued by their mirror image, bend the ramp
        inside = (found[1]["label"] * scale > 12) & (found[1]["label"] * scale < shape[1] - 13)
        inside &= (rows >= 0) & (rows <= 5)
        assert inside.sum() > 20
        torch.testing.assert_close(measured[inside], found[1]["label"][inside], atol=0.05 / scale, rtol=0)


def test_patches_that_are_none_are_refused_by_name():
    for wrong in (64, [8], [8, 0], "ab"):
        with pytest.raises(InputError, match="expected slices and columns"):
            RandQueried("label", RandAcquired("label", 7.0), wrong, 10)
