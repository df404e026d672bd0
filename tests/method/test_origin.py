"""Whose a network is: DRIFT's or somebody's own, and the weights that were loaded into it."""

from dataclasses import replace

import pytest
import torch

from scripts.files import sha256
from scripts.method.networks import Drift
from scripts.method.origin import Origin
from scripts.method.weights import card_path, deployed, load_weights, save_weights
from tests.fixtures import CARD, untrained


class Own(torch.nn.Module):
    """A network of one's own."""

    apn = error = None


@pytest.fixture
def weights(tmp_path, drift):
    path = tmp_path / "model.pt"
    save_weights(drift, path, CARD)
    return path


def test_drifts_network_is_named_by_the_weights_that_it_was_given(weights):
    origin = Origin.of(deployed(load_weights(untrained(), weights), "cpu"))
    assert origin.ours and origin.flows and not origin.file
    assert (origin.weights, origin.version) == (sha256([weights]), CARD.version)
    assert origin.said("1.2.3") == f"DRIFT 1.2.3, weights {CARD.version} ({sha256([weights])[:12]})"


def test_weights_without_a_card_have_a_hash_and_no_version(weights):
    card_path(weights).unlink()
    origin = Origin.of(load_weights(untrained(), weights))
    assert origin.said() == f"DRIFT, weights {sha256([weights])[:12]}"
    assert "WeightsVersion" not in origin.entry()


def test_weights_that_no_file_gave_are_said_to_be_none(weights):
    """However the file lies beside it."""
    origin = Origin.of(untrained())
    assert origin.weights is None and origin.flows, "it is DRIFT's: it takes Euler steps"
    assert origin.said() == "DRIFT, without a weights file"


def test_a_network_of_ones_own_is_named_by_its_class_and_file():
    origin = Origin.of(Own())
    assert not origin.ours and not origin.flows and origin.weights is None
    assert origin.said("1.2.3") == f"{__name__}.Own (test_origin.py), without a weights file, run by DRIFT 1.2.3"
    assert origin.file_hash == sha256([__file__])


def test_a_part_of_ones_own_makes_the_network_ones_own():
    class Mine(Drift):
        pass

    drift = untrained()
    assert Origin.of(drift).ours
    drift.velocity.unet.conv_out = Own()
    assert Origin.of(drift).name == f"{__name__}.Own"
    mine = Mine(drift.apn, drift.velocity)
    assert not Origin.of(mine).ours and Origin.of(mine).flows


def test_weights_of_ones_own_network_are_its_own(tmp_path):
    class Line(torch.nn.Linear):
        pass

    save_weights(Line(2, 2), tmp_path / "line.pt", replace(CARD, version="mine 2"))
    origin = Origin.of(load_weights(Line(2, 2), tmp_path / "line.pt"))
    assert not origin.ours and origin.flows, "its card says how many steps"
    assert origin.said().endswith(f"weights mine 2 ({sha256([tmp_path / 'line.pt'])[:12]})")
