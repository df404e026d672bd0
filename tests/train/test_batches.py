"""Laws of both stages' batches, and of the precision in which the networks see them."""

import pytest
import torch

from scripts.method.losses import FlowLoss
from scripts.train.batches import FlowBatch, PrecisionInferer, ProjectionBatch
from tests import paper_values as paper

THICK = [3.0, 1.5, 5.0, 1.9, 2.1, 6.0]  # mm; at a target of 1 mm and a gap of 1 mm, the second and fourth have no pair
PAIRED = [0, 2, 4, 5]


def batch(size=16, thick=THICK, seed=0):
    """What the preprocessing hands over, on random planes."""
    generator = torch.Generator().manual_seed(seed)

    def planes():
        return torch.rand(len(thick), 1, size, size, generator=generator) * 2 - 1

    near = [t - paper.CETA_GAP if t - paper.CETA_GAP > 1 else t for t in thick]
    image, proximal = planes(), planes()
    for k, (t, n) in enumerate(zip(thick, near)):
        if t == n:
            proximal[k] = image[k]
    return {
        "image": image,
        "label": planes(),
        "thickness": torch.tensor([[t, 1.0] for t in thick]),
        "proximal": proximal,
        "proximal_thickness": torch.tensor([[n, 1.0] for n in near]),
    }


def flow_batch(apn, alpha=paper.ENDPOINT_ALPHA):
    return FlowBatch(apn, PrecisionInferer(bfloat16=False), alpha)


# Batches


def test_stage_one_maps_the_image_at_its_thickness_to_the_label():
    data = batch()
    image, label, (thickness,), keywords = ProjectionBatch()(data, "cpu")
    assert keywords == {} and torch.equal(image, data["image"])
    assert torch.equal(label, data["label"]) and torch.equal(thickness, data["thickness"])


@pytest.fixture
def made(drift):
    """Data, and what becomes of them: states, path, thickness and times."""
    data = batch()
    xt, path, (thickness, t), _ = flow_batch(drift.apn)(data, "cpu")
    return data, xt, path, thickness, t


def test_pairs_are_those_whose_neighbour_is_thinner(made):
    assert made[2].partner.tolist() == PAIRED


def test_states_lie_on_the_path_from_the_estimate_to_the_truth(made):
    _, xt, path, _, t = made
    assert torch.equal(path.xt, xt) and torch.equal(path.t, t) and not xt.requires_grad
    assert ((t >= 0) & (t <= 1)).all() and len(xt) == len(THICK) + len(PAIRED)
    t = t[:, None, None, None]
    torch.testing.assert_close(xt, (1 - t) * path.x0 + t * path.x1)


def test_estimates_are_the_apns_at_either_thickness(made, drift):
    data, _, path, thickness, _ = made
    with torch.no_grad():
        first = drift.apn(data["image"], data["thickness"])
        second = drift.apn(data["proximal"], data["proximal_thickness"])
    torch.testing.assert_close(path.x0, torch.cat([first, second[PAIRED]]))
    assert torch.equal(thickness, torch.cat([data["thickness"], data["proximal_thickness"][PAIRED]]))


def test_pairs_share_time_and_target(made):
    data, _, path, _, _ = made
    assert torch.equal(path.t[len(THICK) :], path.t[path.partner])
    assert torch.equal(path.x1[len(THICK) :], path.x1[path.partner])
    assert torch.equal(path.x1[: len(THICK)], data["label"])
    assert len(set(path.t[: len(THICK)].tolist())) == len(THICK), "each sample draws its own time"


def test_a_patch_teaches_several_times(drift):
    """Members of a pair share them; estimates, targets and thicknesses are those of one time."""
    data, count, pairs = batch(), len(THICK), len(PAIRED)
    _, one, (lengths, _), _ = flow_batch(drift.apn)(data, "cpu")
    several = FlowBatch(drift.apn, PrecisionInferer(False), paper.ENDPOINT_ALPHA, times=3)
    _, path, (thickness, t), _ = several(data, "cpu")
    assert path.partner.tolist() == [place + count * k for k in range(3) for place in PAIRED]
    again = [*range(count)] * 3 + [*range(count, count + pairs)] * 3
    for whole, single in ((path.x0, one.x0), (path.x1, one.x1), (thickness, lengths)):
        torch.testing.assert_close(whole, single[again])
    assert torch.equal(t[3 * count :], t[path.partner]) and len(set(t[: 3 * count].tolist())) == 3 * count


def test_without_pairs_the_batch_is_the_samples_alone(drift):
    xt, path, (thickness, t), _ = flow_batch(drift.apn)(batch(thick=[1.5, 1.9]), "cpu")
    assert len(xt) == len(thickness) == len(t) == 2
    assert path.partner.numel() == 0
    assert FlowLoss(0.1, 1.0)(torch.zeros_like(xt), path).isfinite()


def test_times_are_dense_at_both_ends(drift):
    """At alpha = 2, |2t - 1| has the distribution function u^2: three quarters of the times lie in the outer half."""
    torch.manual_seed(0)
    _, path, _, _ = flow_batch(drift.apn)(batch(2, [1.5] * 4000), "cpu")
    outer = ((2 * path.t - 1).abs() > 0.5).float().mean().item()
    assert outer == pytest.approx(0.75, abs=0.03)
    assert path.t.mean().item() == pytest.approx(0.5, abs=0.03)


# Precision


def called(network, bfloat16, *arguments):
    with torch.no_grad():
        return PrecisionInferer(bfloat16)(arguments[0], network, *arguments[1:])


@pytest.mark.parametrize("stage", ["apn", "velocity"])
def test_half_the_bits_give_nearly_the_same_and_float32_what_the_network_gives(drift, stage):
    data, network = batch(), getattr(drift, stage)
    arguments = (data["image"], data["thickness"], *([torch.linspace(0, 1, len(THICK))] if stage == "velocity" else []))
    with torch.no_grad():
        plain = network(*arguments)
    exact, rough = called(network, False, *arguments), called(network, True, *arguments)
    assert torch.equal(exact, plain)
    assert exact.dtype == rough.dtype == torch.float32
    assert not torch.equal(rough, plain)
    assert (rough - plain).norm() < 1e-2 * plain.norm()


def test_the_frozen_apn_is_called_in_the_precision_of_the_inferer(drift):
    data = batch()
    _, exact, _, _ = FlowBatch(drift.apn, PrecisionInferer(False), 2.0)(data, "cpu")
    xt, rough, _, _ = FlowBatch(drift.apn, PrecisionInferer(True), 2.0)(data, "cpu")
    partner = exact.partner
    image, thickness = (
        torch.cat([data[key], data[f"proximal{suffix}"][partner]])
        for key, suffix in (("image", ""), ("thickness", "_thickness"))
    )
    for path, bfloat16 in ((exact, False), (rough, True)):
        assert torch.equal(path.x0, called(drift.apn, bfloat16, image, thickness))
    assert xt.dtype == rough.x0.dtype == torch.float32
    assert not torch.equal(rough.x0, exact.x0)
