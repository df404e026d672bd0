"""The run `error` of `configs/error_map.yaml`: what it learns, leaves alone and writes."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from monai.data import MetaTensor

from scripts.method.calibration import LEVELS, TYPICAL, scan_scale
from scripts.method.error_pattern import ErrorPatternNetwork
from scripts.method.losses import ErrorLoss
from scripts.method.networks import Drift, VelocityNetwork
from scripts.method.slice_projection import SliceProjectionNetwork
from scripts.method.weights import load_weights, read_card, write_card
from scripts.rebuild.inferer import DriftInferer
from scripts.rebuild.rebuilder import Rebuilder
from scripts.stack.acquisition import SLR, Acquisition
from scripts.stack.slices import Slices
from scripts.train.error_calibration import KINDS, Case, calibrate, fit_scale, fitted, in_place, left_out
from scripts.train.error_pairs import RandSlabd, one_family
from scripts.train.random_acquisitions import RandAcquired
from tests import nano
from tests.config_files import ERROR, ROOT, on_planes, parser, raw
from tests.fixtures import CARD
from tests.method.test_networks import perturb
from tests.nano import content, load, random_weights

SETTINGS = {
    "network_def": on_planes(8, 16, error=ERROR),
    "error_epochs": 4,
    "patches_per_epoch": 6,
    "planes": 4,
    "slab_size": [40, 24],
    "error_thicknesses": [3.0, 5.0],
    "error_learning_rate": 0.01,
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory, dataset_dir):
    """A run of `error` on both stages with weights of chance; its folder."""
    folder = tmp_path_factory.mktemp("error")
    start = random_weights(folder / "given.pt", channels=(8, 16))
    given = {**raw("error_map.yaml"), **SETTINGS, "error_start": str(start)}
    bundle = nano.workflow(folder / "out", dataset_dir, "error", **given)
    bundle.run()
    return bundle, folder


def test_the_slices_of_a_slab_lie_in_mm_by_the_distance_of_its_planes():
    slab = RandSlabd("label", RandAcquired("label", max_thickness=5.0, ceta_gap=0), size=(40, 24), alone=0.0)
    planes = torch.rand(6, 60, 30, generator=torch.Generator().manual_seed(0))
    image = slab.set_random_state(0)({"label": planes, "spacing": (1.0, 0.7), "plane_spacing": 1.6})["image"]
    spacing = Acquisition.of(image).slice_spacing
    assert image.pixdim.tolist() == pytest.approx([1.6, spacing, 0.7])


@pytest.mark.parametrize("given", [True, False])
def test_the_error_network_learns_in_float32_in_whatever_precision_slabs_are_rebuilt(given):
    config = parser("train.yaml", "error_map.yaml", bfloat16=given, shipped=str(ROOT / "models" / "model.pt"))
    assert config.get_parsed_content("inferer").bfloat16 is given
    network = perturb(ErrorPatternNetwork())
    inputs = torch.rand(2, 3, 16, 12), torch.arange(16) / 4, torch.tensor([4.0, 1.0, 4.0, 0.02])
    with torch.no_grad():
        assert torch.equal(
            config.get_parsed_content("train::inferer")(inputs[0], network, *inputs[1:]), network(*inputs)
        )


@pytest.mark.slow
def test_it_learns_and_both_stages_stay_bit_for_bit(trained):
    """On slabs of its own kind its loss is below that of the best single number's start."""
    bundle, folder = trained
    given, made = load(folder / "given.pt"), load(folder / "out" / "error.pt")
    assert nano.same(given, made) and {name.split(".")[0] for name in made.keys() - given.keys()} == {"error"}
    batches = content(bundle, "train#trainer").data_loader
    prepare = content(bundle, "prepare_batch")
    network, start = content(bundle, "averaged").error, ErrorPatternNetwork()
    losses = []
    with torch.no_grad():
        for batch in batches:
            planes, error, facts, _ = prepare(batch, "cpu")
            losses.append([ErrorLoss()(net(planes, *facts), error).item() for net in (network, start)])
    after, before = np.mean(losses, axis=0)
    assert after < before


@pytest.mark.slow
def test_a_pair_is_the_deployed_result_and_its_error(trained):
    bundle, _ = trained
    batch = next(iter(content(bundle, "train#trainer").data_loader))
    planes, error, (rows, lengths), _ = content(bundle, "prepare_batch")(batch, "cpu")
    inferer = content(bundle, "inferer")
    inferer = one_family(inferer) if batch["alone"] else inferer
    result = Rebuilder(content(bundle, "network"), inferer, "cpu")(Slices.of(batch["image"])).volume[None]
    truth = batch["label"][0]
    assert planes.shape == (4, 3, *truth.shape[2:]) and error.shape == (4, 1, *truth.shape[2:])
    assert rows.shape == truth.shape[2:3] and lengths.shape == (4,)
    scale = error[:, 0].sum() / (result - truth)[0].abs().sum()
    torch.testing.assert_close(error[:, 0], scale * (result - truth)[0].abs().as_tensor(), rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_some_slabs_are_rebuilt_in_one_family_of_planes_and_the_others_tell_their_spread(trained):
    bundle, _ = trained
    batches, prepare = content(bundle, "train#trainer").data_loader, content(bundle, "prepare_batch")
    known = [(bool(batch["alone"]), prepare(batch, "cpu")[0][:, 2].isfinite()) for _ in range(3) for batch in batches]
    assert {alone for alone, _ in known} == {True, False}
    assert all(one.all() != alone and one.any() != alone for alone, one in known)


@pytest.mark.slow
def test_the_card_holds_the_calibration_of_people_who_were_held_out(trained):
    bundle, folder = trained
    found = read_card(folder / "out" / "error.pt").error_map
    assert list(found.thicknesses) == [3.0, 5.0]
    card = (folder / "out" / "error.json").read_text()
    assert len(found.people) == 1, "and no name tells who"
    assert str(folder.parent) not in card and content(bundle, "validate#volumes")[0]["subject"] not in card
    assert found.factor(4.0, 0.95) > found.factor(4.0, 0.9) > 0
    assert all(np.isfinite(found.exponents))
    network = nano.network()
    network.error = ErrorPatternNetwork()
    load_weights(network, folder / "out" / "error.pt")


def test_the_exponents_of_gaps_and_noise_are_found_and_scans_of_all_kinds_are_covered_alike():
    chance, exponents, cases = np.random.default_rng(0), (0.7, 0.12), []
    for name in "abc":
        for group, level in enumerate((1.0, 1.5)):
            for ratio, noise in ((1.0, TYPICAL), (1.25, TYPICAL), (1.0, 6 * TYPICAL), (1.25, 2 * TYPICAL)):
                errors = np.abs(chance.laplace(size=20_000)) * level * scan_scale(exponents, ratio, noise)
                cases.append(Case(name, "", group, ratio, noise, errors))
    found = fitted(cases, [3.0, 5.0])
    assert found.exponents == pytest.approx(exponents, abs=0.03)
    for case in cases:
        bound = found.factor((3.0, 5.0)[case.group], 0.9) * scan_scale(found.exponents, case.spacing_ratio, case.noise)
        assert np.mean(case.scores <= bound) == pytest.approx(0.9, abs=0.01)
    assert {len(row) for rows in found.people for row in rows} == {len(LEVELS)}


def test_a_person_left_out_is_covered_by_the_others_alone():
    """One has errors twice as large: the others' intervals hold fewer of them; with a guide errors are half."""
    chance, cases = np.random.default_rng(0), []
    for name, level in (("a", 1.0), ("b", 1.0), ("c", 2.0)):
        errors = np.abs(chance.laplace(size=20_000)) * level
        cases += [
            Case(name, "plain", 0, ratio, noise, errors, [errors / 2])
            for ratio, noise in ((1.0, TYPICAL), (1.25, TYPICAL), (1.0, 6 * TYPICAL))
        ]
    shares = left_out(cases, [3.0])
    assert sorted(shares) == [("guided", 0), ("plain", 0)] and len(shares["plain", 0]) == 9
    assert min(shares["plain", 0]) < 0.8 and max(shares["plain", 0]) > 0.95
    assert fitted(cases, [3.0]).guided == pytest.approx([0.5])


def test_a_person_of_the_training_tells_only_how_much_narrower_guided_intervals_are():
    """Guided errors are 0.8 of those without a guide in a held-out person, 0.2 in two scans of one of the training."""
    errors = np.abs(np.random.default_rng(0).laplace(size=20_000))

    def case(name: str, guided: list, trained: bool = False, level: float = 1.0) -> Case:
        return Case(name, "plain", 0, 1.0, TYPICAL, level * errors, guided, trained)

    known = [case("known", [0.02 * errors], trained=True, level=0.1)] * 2
    held_out = [case("a", [0.8 * errors]), case("b", [])]
    found = fitted([*held_out, *known], [3.0])
    assert len(found.people) == 2 and found.people == fitted(held_out, [3.0]).people
    assert found.guided == pytest.approx([0.4]), "the geometric mean over people, not over scans"
    shares = left_out([*held_out, *known], [3.0])
    assert len(shares["plain", 0]) == 2, "of held-out people alone"
    assert shares["guided", 0] == pytest.approx([np.mean(0.8 * errors <= 0.2 * np.quantile(errors, 0.9))], abs=0.01)


def test_a_person_with_many_scans_says_no_more_of_gaps_and_noise_than_another():
    errors = np.abs(np.random.default_rng(0).normal(size=2000))

    def scans(name: str, gap: float, noisy: float) -> list[Case]:
        kinds = [(ratio, noise) for ratio in (0.8, 1.0, 1.25) for noise in (TYPICAL, 4 * TYPICAL)]
        return [Case(name, "", 0, *k, scan_scale((gap, noisy), *k) * errors) for k in kinds]

    one, other = scans("one", 0.2, 0.05), scans("other", 0.8, 0.25)
    assert fit_scale([*one, *other]) == pytest.approx((0.5, 0.15), abs=1e-3)
    assert fit_scale([*one, *one, *one, *other]) == pytest.approx((0.5, 0.15), abs=1e-3)


@pytest.mark.slow
def test_sharp_guided_volumes_of_the_training_calibrate_beside_held_out_people(write_nifti, phantom, tmp_path, log):
    """One person is held out, without a guide; of three of the training one has none, and one lies in thick slices."""
    network = Drift(SliceProjectionNetwork((6, 8), (1, 1), 4, 4), VelocityNetwork((4, 8), 8), ErrorPatternNetwork())
    network, path = perturb(network, scale=0.03), tmp_path / "weights.pt"
    torch.save(network.state_dict(), path)
    write_card(path, replace(CARD, guide_share=0.7))
    sharp, thick = (str(write_nifti(phantom, np.diag([1, 1, n, 1.0]), f"{n}.nii.gz")) for n in (1, 2))
    plain = {"label": sharp, "sharp_axes": (0, 1), "subject": "plain"}
    learnt = [plain, *({**plain, "label": one, "subject": one, "guides": [sharp]} for one in (sharp, thick))]
    inferer = DriftInferer(64, both_planes=True, spread=True, steps=1, deblocked=True)
    rebuilt, stated = inferer.rebuilt, set()
    inferer.rebuilt = lambda inputs, *given: stated.add(Acquisition.of(inputs).profile) or rebuilt(inputs, *given)
    calibrate(network, str(path), inferer, "cpu", [{**plain, "subject": "held out"}], learnt, [3.0, 5.0], 0)
    assert stated == {SLR}, "no header states the profile by which slices were acquired"
    found = read_card(path).error_map
    assert len(found.people) == 1 and len(found.guided) == 2 and all(one > 0 for one in found.guided)
    scans = [line for line in log.messages if "of scores" in line]
    assert [", guided " in line for line in scans] == [False] * 2 * len(KINDS) + [True] * 2


@pytest.mark.slow
def test_sharp_results_have_a_calibration_of_their_own_if_the_weights_are_made_for_them(write_nifti, phantom, tmp_path):
    network = Drift(SliceProjectionNetwork((6, 8), (1, 1), 4, 4), VelocityNetwork((4, 8), 8), ErrorPatternNetwork())
    network, path = perturb(network, scale=0.03), tmp_path / "weights.pt"
    torch.save(network.state_dict(), path)
    volume = {"label": str(write_nifti(phantom, np.eye(4))), "sharp_axes": (0, 1), "subject": "held out"}
    found = []
    for velocity in (None, 3.0):
        write_card(path, replace(CARD, sharp_velocity=velocity))
        inferer = DriftInferer(64, both_planes=True, spread=True, n_max=4, sharp_velocity=velocity)
        calibrate(network, str(path), inferer, "cpu", [volume], [], [4.0], 0)
        found.append(read_card(path))
    without, both = found
    assert replace(both, sharp_error_map=None, sharp_velocity=None) == without and without.sharp_error_map is None
    assert both.sharp_error_map.people != both.error_map.people


def test_a_guide_on_another_grid_is_put_on_that_of_the_truth():
    def ramp(count: int, edge: float) -> MetaTensor:
        values = torch.arange(count).float()[None, :, None, None].expand(1, count, 20, 20) * edge
        return MetaTensor(values, affine=torch.diag(torch.tensor([edge, 1.0, 1.0, 1.0], dtype=torch.float64)))

    truth = ramp(20, 1.0)
    placed, same = in_place(ramp(25, 0.8), truth), in_place(truth, truth)
    torch.testing.assert_close(placed.volume[:, :19], same.volume[:, :19], atol=1e-5, rtol=0)
    assert placed.volume.shape == truth.shape and torch.equal(placed.volume.affine, truth.affine)


def test_beyond_a_guide_of_the_calibration_is_air_as_in_the_training():
    affine = torch.eye(4, dtype=torch.float64)
    truth = MetaTensor(torch.full((1, 20, 12, 12), 300.0), affine=affine)
    half = MetaTensor(200 + 100 * torch.rand(1, 10, 12, 12, generator=torch.Generator().manual_seed(0)), affine=affine)
    fine = in_place(half, truth).volume.as_tensor()[0]
    assert fine.shape == (20, 12, 12) and (fine[:10] > -1).all() and (fine[10:] == -1).all()
