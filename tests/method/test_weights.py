"""Weights files and their cards: what is written is read, and what cannot be right is refused and named."""

import json
import os
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from torch import nn

from scripts.errors import InputError
from scripts.files import sha256
from scripts.method import weights
from scripts.method.calibration import Foretelling
from scripts.method.networks import AnatomicalProjectionNetwork, Drift, VelocityNetwork
from tests.fixtures import CARD
from tests.method.test_error_pattern import CALIBRATION

ROOT = Path(__file__).parents[2]


def drift(channels=(8, 16), seed=0):
    torch.manual_seed(seed)
    network = Drift(AnatomicalProjectionNetwork(channels), VelocityNetwork(channels, 8))
    for parameter in network.parameters():
        nn.init.normal_(parameter, std=0.05)
    return network.eval()


def saved(tmp_path, content):
    path = tmp_path / "model.pt"
    torch.save(content, path)
    return path


# The network's state


def test_shipped_weights_are_half_as_large_and_load_as_single(tmp_path):
    source, target = drift(seed=1), drift(seed=2)
    weights.save_weights(source, tmp_path / "model.pt", CARD)
    assert all(value.dtype == torch.float16 for value in torch.load(tmp_path / "model.pt").values())
    weights.load_weights(target, tmp_path / "model.pt")
    assert all(value.dtype == torch.float32 for value in target.state_dict().values())
    torch.testing.assert_close(target.state_dict(), source.half().float().state_dict(), rtol=0, atol=0)


def test_indices_among_the_weights_stay_whole_numbers(tmp_path):
    network = nn.Conv2d(1, 1, 1)
    network.register_buffer("places", torch.arange(70_000))  # more than half precision can count
    weights.save_weights(network, tmp_path / "model.pt", CARD)
    assert torch.equal(weights.load_weights(network, tmp_path / "model.pt").places, torch.arange(70_000))


@pytest.mark.parametrize(
    "content", [b"", b"not a checkpoint", b"PK\x03\x04" + bytes(100), {"state_dict": {}}, [1, 2], {}]
)
def test_a_file_that_is_broken_or_holds_something_else_is_named(tmp_path, content):
    path = tmp_path / "model.pt"
    path.write_bytes(content) if isinstance(content, bytes) else torch.save(content, path)
    with pytest.raises(InputError, match=r"model\.pt"):
        weights.load_weights(drift(), path)


class Trap:
    """Unpickling it makes a folder."""

    def __init__(self, folder):
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (str(self.folder),)


def test_a_file_that_would_run_code_is_refused_and_runs_none(tmp_path):
    path = saved(tmp_path, {**drift().state_dict(), "velocity.extra": Trap(tmp_path / "sprung")})
    with pytest.raises(InputError, match=r"model\.pt is not a DRIFT checkpoint"):
        weights.load_weights(drift(), path)
    assert not (tmp_path / "sprung").exists()


BIAS = "velocity.unet.conv_in.bias"
UNFIT = {  # what becomes of a state, and what is said
    "another size": (lambda state: drift((16, 16)).state_dict(), r"apn\.unet\.\S+ is \("),
    "one is missing": (lambda state: {n: v for n, v in state.items() if n != BIAS}, rf"{BIAS} is missing"),
    "one too many": (lambda state: {**state, "velocity.extra": torch.zeros(1)}, r"velocity\.extra.*absent"),
    "whole numbers": (lambda state: {**state, BIAS: state[BIAS].to(torch.int8)}, rf"{BIAS} holds torch.int8"),
    "complex numbers": (lambda state: {**state, BIAS: state[BIAS] + 0j}, rf"{BIAS} holds torch.complex64"),
}


@pytest.mark.parametrize("what", UNFIT)
def test_weights_that_do_not_fit_are_refused_the_key_is_named_and_the_network_stays(tmp_path, what):
    network, (change, said) = drift(), UNFIT[what]
    before = {name: value.clone() for name, value in network.state_dict().items()}
    with pytest.raises(InputError, match=said):
        weights.load_weights(network, saved(tmp_path, change(drift(seed=1).state_dict())))
    torch.testing.assert_close(network.state_dict(), before, rtol=0, atol=0)


# The card


def test_a_card_survives_a_round_trip_and_holds_the_hash_of_its_weights(tmp_path):
    path = saved(tmp_path, drift().state_dict())
    weights.write_card(path, CARD)
    assert weights.read_card(path) == replace(CARD, sha256=sha256([path]))


def test_with_sharp_a_run_goes_by_its_own_calibration(tmp_path):
    wider = replace(CALIBRATION, thicknesses=[2 * one for one in CALIBRATION.thicknesses])
    card = replace(CARD, sharp_velocity=2.0, error_map=CALIBRATION, foretelling=Foretelling(1.0, 0.5, 0.0, 0.0, 0.2))
    both = replace(card, sharp_error_map=wider)
    weights.write_card(path := saved(tmp_path, drift().state_dict()), both)
    both = replace(both, sha256=sha256([path]))
    assert json.dumps(asdict(weights.read_card(path))) == json.dumps(asdict(both)), "a card holds two calibrations"
    assert weights.card_of_run(both, "false") is both
    for one, error_map in ((card, None), (both, wider)):
        sharp = weights.card_of_run(one, True)
        assert (sharp.error_map, sharp.foretelling) == (error_map, None)
    with pytest.raises(InputError, match="no sharp_velocity"):
        weights.card_of_run(CARD, True)


def test_weights_that_are_not_their_cards_are_refused(tmp_path):
    path = saved(tmp_path, drift(seed=1).state_dict())
    weights.write_card(path, CARD)
    saved(tmp_path, drift(seed=2).state_dict())
    with pytest.raises(InputError, match=r"model\.pt differs from its card.*model\.json.*sha256"):
        weights.load_weights(drift(), path)


WRONG = {  # field of a card -> what it cannot hold
    "target_range": (None, [1.3, 0.7]),
    "pixel_range": ([0.5], [0.0, 1.0]),
    "max_thickness": ("7", -7),
    "n_max": (True, 101, 0, 2.5),
    "sharp_velocity": (True, 11, 0.5, "2"),
    "sharp_detail": (None, 11, 0.5, "2"),
    "sharp_error_map": (3, {"people": []}),
    "version": (0.5,),
}


@pytest.mark.parametrize("field", WRONG)
def test_a_card_with_a_wrong_value_is_refused_and_the_field_is_named(tmp_path, field):
    path = saved(tmp_path, {})
    weights.write_card(path, CARD)
    fields = json.loads((tmp_path / "model.json").read_text())
    for value in WRONG[field]:
        (tmp_path / "model.json").write_text(json.dumps({**fields, field: value}))
        with pytest.raises(InputError, match=rf"model\.json is not the card of weights: {field} (is|has)"):
            weights.read_card(path)


@pytest.mark.parametrize("change", [lambda card: {}, lambda card: [], lambda card: card | {"max_thicknes": 6.0}])
def test_a_file_that_is_no_card_is_refused(tmp_path, change):
    path = saved(tmp_path, {})
    weights.write_card(path, CARD)
    card = tmp_path / "model.json"
    card.write_text(json.dumps(change(json.loads(card.read_text()))))
    with pytest.raises(InputError, match=r"model\.json is not the card of weights"):
        weights.read_card(path)


def test_a_card_of_an_earlier_version_says_what_to_take_out(tmp_path, refusal):
    weights.write_card(path := saved(tmp_path, {}), CARD)
    card = tmp_path / "model.json"
    card.write_text(json.dumps({**json.loads(card.read_text()), "sharp_n_max": 10}))
    said = refusal(weights.read_card, path)
    assert "it has sharp_n_max, which this version does not know. Take that out" in said and "Copy it" not in said


def test_the_checkpoint_of_a_training_is_no_weights_and_says_where_those_are(tmp_path, refusal):
    (tmp_path / "stage1_checkpoint.pt").write_bytes(b"")
    told = refusal(weights.read_card, tmp_path / "stage1_checkpoint.pt")
    assert "stage1.pt after stage 1" in told and "model.pt after both" in told
    assert refusal(weights.read_card, tmp_path / "model.pt").startswith("weights not found")
    assert "model.json is missing" in refusal(weights.read_card, saved(tmp_path, {}))
