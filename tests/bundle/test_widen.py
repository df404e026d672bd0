"""`bundle/widen.py`: a network of twice the channels that computes what the trained one computes."""

import pytest
import torch

from bundle.widen import grow
from scripts.errors import InputError
from scripts.method.networks import AnatomicalProjectionNetwork, Drift, VelocityNetwork
from tests.processes import ROOT, run

NARROW, WIDE = (32, 32), (64, 64)  # 32 groups become twice as large


def trained(channels, seed=0):
    """A network whose every weight matters, zero-initialised ones too."""
    torch.manual_seed(seed)
    network = Drift(AnatomicalProjectionNetwork(channels, residual=True), VelocityNetwork(channels))
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.05)
    return network


def results(network):
    generator = torch.Generator().manual_seed(1)
    image = torch.rand(2, 1, 32, 32, generator=generator) * 2 - 1
    thickness = torch.tensor([[5.0, 1.0], [3.0, 0.7]])
    with torch.no_grad():
        first, both = network(image, thickness), network(image, thickness, torch.linspace(0, 1, 4))
    assert (first - image).std() > 0.01 and (both - first).std() > 0.01
    return first, both


@pytest.mark.parametrize("channels", [(WIDE, WIDE), (WIDE, NARROW), (NARROW, NARROW)])
def test_the_wide_network_computes_what_the_narrow_one_does(channels):
    old = trained(NARROW)
    new = Drift(AnatomicalProjectionNetwork(channels[0], residual=True), VelocityNetwork(channels[1]))
    grow(old, new)
    torch.testing.assert_close(results(new), results(old), rtol=0, atol=1e-4)


def test_copies_part():
    """Both copies of a channel get gradients of their own, or the wide network could not learn more."""
    old, new = trained(NARROW), trained(WIDE)
    grow(old, new)
    new.apn(torch.rand(1, 1, 16, 16), torch.tensor([[5.0, 1.0]])).square().mean().backward()
    gradient = new.apn.unet.mid_block1.conv1.weight.grad
    assert (gradient[0::2] - gradient[1::2]).abs().max() > 0.1 * gradient.abs().max()


def test_another_width_is_refused():
    with pytest.raises(InputError, match="apn is neither as wide as the trained one nor twice"):
        grow(trained(NARROW), trained((48, 48)))


def test_the_command_starts_a_training(tmp_path):
    """What it writes is read as the weights that a training starts from."""
    yaml = "network_def:\n  _target_: scripts.method.networks.Drift\n"
    yaml += "  apn: {{_target_: scripts.method.networks.AnatomicalProjectionNetwork, channels: {0}}}\n"
    yaml += "  velocity: {{_target_: scripts.method.networks.VelocityNetwork, channels: {0}}}\n"
    for name, channels in (("old", NARROW), ("new", WIDE)):
        (tmp_path / f"{name}.yaml").write_text(yaml.format(list(channels)))
    old = Drift(AnatomicalProjectionNetwork(NARROW), VelocityNetwork(NARROW))
    torch.save(old.state_dict(), tmp_path / "old.pt")
    words = ("old.pt", "old.yaml", "new.yaml", "--output", "new.pt")
    assert run(ROOT / "bundle" / "widen.py", *words, cwd=tmp_path).returncode == 0
    new = Drift(AnatomicalProjectionNetwork(WIDE), VelocityNetwork(WIDE))
    new.load_state_dict(torch.load(tmp_path / "new.pt"))
