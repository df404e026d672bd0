"""SwinIR: its size, and laws of its forward pass."""

import torch

from scripts.paper.baselines.swinir import SwinIR


def test_the_compared_size_has_the_papers_parameters():
    with torch.device("meta"):
        network = SwinIR(96, (6, 6, 6, 6), 6)
    assert sum(p.numel() for p in network.parameters()) == 3_133_969


def test_it_adds_to_its_input_what_it_sees_within_reach_of_its_windows():
    torch.manual_seed(0)
    network = SwinIR(8, (2,), 2).eval()
    image = torch.randn(1, 1, 64, 64)
    changed = image.clone()
    changed[0, 0, 32, 32] += 1
    with torch.no_grad():
        difference = (network(changed) - network(image))[0, 0].abs()
        torch.nn.init.zeros_(network.conv_out.weight)
        torch.nn.init.zeros_(network.conv_out.bias)
        assert torch.equal(network(image), image)
    assert difference[32, 32] > 0.1
    assert difference[:8].max() == difference[:, -8:].max() == 0
