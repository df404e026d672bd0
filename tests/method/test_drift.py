"""Laws of the two stages together, as one network."""

from itertools import pairwise

import torch

from scripts.method import networks, schedule
from tests.method.test_networks import CHANNELS, drift, image, thickness


def test_an_image_alone_is_at_the_target_thickness_and_takes_no_step():
    network = drift()
    times = schedule.euler_times(schedule.ais_steps(1.0, 1.0))
    assert torch.equal(network(image()), network(image(), thickness([1.0, 1.0]), times))


def test_no_steps_give_stage_one():
    network = drift()
    x, c = image(), thickness([4.0, 1.0])
    for times in (None, schedule.euler_times(0)):
        assert torch.equal(network(x, c, times), network.apn(x, c))


def test_steps_are_eulers_method():
    network = drift()
    x, c, times = image(), thickness([4.0, 1.0]), (0.0, 0.2, 0.5, 1.0)
    state = network.apn(x, c)
    for t, following in pairwise(times):
        state = state + (following - t) * network.velocity(state, c, torch.tensor([t]))
    torch.testing.assert_close(network(x, c, torch.tensor(times)), state, rtol=1e-4, atol=1e-5)


def test_a_new_flow_is_at_rest():
    network = networks.Drift(networks.AnatomicalProjectionNetwork(CHANNELS), networks.VelocityNetwork(CHANNELS))
    x, c = image(), thickness([4.0, 1.0])
    assert torch.equal(network(x, c, schedule.euler_times(13)), network.apn(x, c))


def test_a_new_residual_apn_is_the_identity():
    network = networks.AnatomicalProjectionNetwork(CHANNELS, residual=True)
    assert torch.equal(network(image(), thickness([4.0, 1.0])), image())


def test_residual_adds_the_input_and_no_parameter():
    plain, residual = drift().apn, drift(residual=True).apn
    residual.load_state_dict(plain.state_dict())
    x, c = image(), thickness([4.0, 1.0])
    torch.testing.assert_close(residual(x, c), x + plain(x, c))
