"""Laws of the error network, and of the weights that may hold it."""

import json
from dataclasses import replace

import pytest
import torch

from scripts.errors import InputError
from scripts.method.calibration import LEVELS, Calibration
from scripts.method.error_pattern import ErrorPatternNetwork
from scripts.method.losses import ErrorLoss
from scripts.method.weights import load_weights, read_card, save_weights
from tests.fixtures import CARD, untrained
from tests.method.test_networks import image, perturb

LENGTHS = torch.tensor([5.0, 1.0, 5.0, 0.02])
CALIBRATION = Calibration([3.0, 5.0], [[list(LEVELS), list(LEVELS)]], (0.7, 0.1))


def network():
    torch.manual_seed(0)
    return perturb(ErrorPatternNetwork().eval())


def planes(height=24, width=31):
    first, second = image(2, height, width), image(2, height, width).flip(0)
    return torch.cat([first, second, 0.1 * (first - second).abs()], dim=1)


def rows(count, step=0.2):
    return step * torch.arange(count, dtype=torch.float32) - 0.4


def with_error():
    """Both stages and an error network with weights of chance."""
    drift = untrained()
    drift.error = perturb(ErrorPatternNetwork())
    return drift


def test_it_is_told_each_length_and_how_far_the_families_are_apart():
    net, told = network(), []
    net.layers[0].register_forward_pre_hook(lambda _, given: told.append(given[0][0]))
    x = planes()
    net(x, rows(24), torch.tensor([4.0, 0.8, 5.0, 0.08]))
    result, slices, apart = x[0]
    expected = [result + 1, 4 * (result - slices), 8 * apart, (1 + 300 * apart).log(), torch.ones_like(apart)]
    torch.testing.assert_close(told[0][:5], torch.stack(expected))
    place = 2 * (rows(24) - rows(24).round()).abs()
    torch.testing.assert_close(told[0][5:7, :, 0], torch.stack([place, place**2]))
    torch.testing.assert_close(told[0][7:, 0, 0], torch.tensor([4 / 0.8, 5 / 4, 0.8, 2.0]).log())


def test_without_a_second_family_it_tells_something_else_and_finite():
    net, alone = network(), planes()
    alone[:, 2] = torch.nan
    said = net(alone, rows(24), LENGTHS)
    assert said.isfinite().all() and not torch.allclose(said, net(planes(), rows(24), LENGTHS), atol=1e-3)


def test_the_loss_is_least_at_the_errors_own_size_and_hardly_minds_a_factor():
    error = torch.rand(1, 1, 50, 50) + 0.1
    loss, size = ErrorLoss(), error.log()
    constant = torch.full_like(error, error.mean().item()).log()
    assert loss(size, error) < loss(constant, error) < loss(-size, error)
    assert loss(size, error) < loss(size + 0.5, error) < loss(constant, error)


# Weights


def test_weights_that_hold_it_load_into_a_network_that_has_one_alone(tmp_path):
    trained, other = with_error(), untrained()
    save_weights(trained, tmp_path / "model.pt", replace(CARD, error_map=CALIBRATION), torch.float32)
    with pytest.raises(InputError, match=r"error\.layers\.0\.bias is \(24,\) in the file, absent in the network"):
        load_weights(other, tmp_path / "model.pt")
    other.error = ErrorPatternNetwork()
    loaded = load_weights(other, tmp_path / "model.pt")
    assert all(torch.equal(a, b) for a, b in zip(trained.state_dict().values(), loaded.state_dict().values()))
    assert read_card(tmp_path / "model.pt").error_map.factor(4.0, 0.9) == CALIBRATION.factor(4.0, 0.9)


def test_weights_without_it_load_into_a_network_with_or_without(tmp_path):
    save_weights(untrained(), tmp_path / "model.pt", CARD, torch.float32)
    assert load_weights(untrained(), tmp_path / "model.pt").error is None
    has_one = with_error()
    before = has_one.error.layers[0].weight.clone()
    assert torch.equal(load_weights(has_one, tmp_path / "model.pt").error.layers[0].weight, before)
    assert "error_map" not in (tmp_path / "model.json").read_text()


def test_the_calibration_of_another_version_is_named(tmp_path):
    save_weights(with_error(), tmp_path / "model.pt", replace(CARD, error_map=CALIBRATION), torch.float32)
    card = json.loads((tmp_path / "model.json").read_text())
    card["error_map"]["standing_in"] = card["error_map"].pop("exponents")
    (tmp_path / "model.json").write_text(json.dumps(card))
    with pytest.raises(InputError, match=r"people, guided, standing_in: that is .* another version"):
        read_card(tmp_path / "model.pt")
