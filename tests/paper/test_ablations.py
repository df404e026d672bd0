"""Networks without one of the method's parts."""

import torch

from scripts.method.networks import VelocityNetwork
from scripts.paper.ablations import UnconditionedVelocityNetwork


def test_without_thickness_the_velocity_is_the_same_for_all_of_them_and_still_one_of_time():
    torch.manual_seed(0)
    network = UnconditionedVelocityNetwork((4, 8))
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    plane, t = torch.rand(1, 1, 16, 16), torch.tensor([0.3])
    thin, thick = torch.tensor([[2.0, 1.0]]), torch.tensor([[6.0, 0.7]])
    assert torch.equal(network(plane, thin, t), network(plane, thick, t))
    assert not torch.equal(network(plane, thin, t), network(plane, thin, t + 0.5))
    other = VelocityNetwork((4, 8))
    other.load_state_dict(network.state_dict())  # either one builds on the same stage 1
    assert not torch.equal(other(plane, thin, t), other(plane, thick, t))
    assert torch.equal(other(plane, torch.ones(1, 2), t), network(plane, thick, t))
