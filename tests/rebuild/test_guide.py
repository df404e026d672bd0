"""Laws of a guide in the place of the scan that it guides."""

import re
from dataclasses import replace

import nibabel as nib
import numpy as np
import pytest
import torch
from monai.data import MetaTensor
from monai.transforms import Compose
from scipy import ndimage
from scipy.spatial.transform import Rotation

from scripts.errors import InputError, input_error
from scripts.inputs.transforms import LoadScand
from scripts.method.networks import Drift, VelocityNetwork
from scripts.method.slice_projection import SliceProjectionNetwork
from scripts.rebuild.guide import BORDER, PRECISE, GuideScan, NetworkGuide, PlacedGuide, on_grid
from scripts.rebuild.inferer import DriftInferer
from scripts.rebuild.preprocessing import SettleGuided
from scripts.rebuild.rebuilder import Rebuilder
from scripts.rebuild.registration import angle_and_shift, placed
from scripts.stack import grid
from scripts.stack.acquisition import Acquisition
from scripts.stack.intensity import intensity_range
from scripts.stack.profile import acquire
from scripts.stack.slices import Slices
from tests.fixtures import CARD
from tests.method.test_networks import perturb
from tests.stacks import AFFINE, CENTRE, motion, moved, person, stack_of

SMALL = motion((3, -2, 2.5), (2, -3, 1.5))


def head_at(world):
    """A head with soft edges in mm, `(..., 3)` -> intensities, 0 far out."""
    centres, widths = np.array([[0, 0, 0], [8, -6, 4], [-7, 5, -5]]), (16, 6, 5)
    distances = [np.linalg.norm(world - c, axis=-1) / w for c, w in zip(centres, widths)]
    values = sum(k / (1 + np.exp(6 * (d - 1))) for k, d in zip((200, 60, -50), distances))
    return np.where(values > 5, values, 0)


def volume(affine, shape):
    index = np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij"), -1)
    values = head_at(index @ affine[:3, :3].T + affine[:3, 3])
    return MetaTensor(torch.from_numpy(values)[None].float(), affine=torch.from_numpy(affine))


def other_contrast(head):
    """The same head, with what is bright dark, and a bright rim."""
    return MetaTensor(torch.where(head.as_tensor() > 5, 320 - head.as_tensor(), 0.0), affine=head.affine)


def centred(directions, shape):
    affine = np.eye(4)
    affine[:3, :3] = directions
    affine[:3, 3] = -affine[:3, :3] @ ((np.array(shape) - 1) / 2)
    return affine


def scan(shape=(40, 36, 9)):
    """5 mm slices, whose fine grid has 1 mm."""
    a = Acquisition.stack(2, shape[2], spacing=5.0, thickness=5.0, target=1.0)
    measured = volume(centred(np.diag([1.0, 1.0, 5.0]), shape), shape)
    a.attach(measured)
    return Slices.of(measured), a


def beside(guide, slices, motion):
    return on_grid(Slices.sharp(guide), slices, motion)


def unit(fine):
    """Back to the units of `head_at`, but for one factor."""
    return (fine + 1) / (fine + 1)[fine.isfinite()].max()


TURNS = {
    "the same": np.eye(3),
    "sagittal": np.array([[0, 0, 1.0], [1, 0, 0], [0, 1, 0]]),
    "flipped": np.diag([-1.0, 1, -1]),
}


@pytest.mark.parametrize(("turn", "edge"), zip(TURNS.values(), (1.5, 0.5, 1.0)), ids=TURNS)
def test_a_guide_lies_where_it_lies_in_the_world(turn, edge):
    measured, _ = scan()
    shape = (int(60 / edge),) * 3
    fine = beside(volume(centred(turn * edge, shape), shape), measured, np.eye(4))
    assert fine.shape == (1, 40, 36, 45)
    expected_affine = grid.respaced_affine(np.asarray(measured.affine), 2, 9, 45, 1.0)
    np.testing.assert_allclose(np.asarray(fine.affine), expected_affine, atol=1e-9)
    truth = volume(expected_affine, (40, 36, 45))[0]
    torch.testing.assert_close(unit(fine[0].as_tensor()), truth.as_tensor() / truth.max().item(), atol=0.03, rtol=0)


def test_a_guide_follows_the_motion():
    measured, _ = scan()
    motion = np.eye(4)
    motion[:3, 3] = 3.0, -2.0, 5.0
    shape = (70, 70, 70)
    moved = centred(np.eye(3), shape)
    moved[:3, 3] += motion[:3, 3]
    guide = volume(centred(np.eye(3), shape), shape)
    there = MetaTensor(guide.as_tensor(), affine=torch.from_numpy(moved))
    torch.testing.assert_close(
        beside(there, measured, motion).as_tensor(), beside(guide, measured, np.eye(4)).as_tensor(), atol=1e-3, rtol=0
    )


def test_beyond_its_field_of_view_nothing_is_known():
    measured, _ = scan()
    shape = (20, 60, 60)  # 20 mm along x
    fine = beside(volume(centred(np.eye(3), shape), shape), measured, np.eye(4))[0]
    known = fine.isfinite()
    assert known[10:30].all() and not known[:9].any() and not known[31:].any()


@pytest.mark.parametrize(("shift", "first", "last"), [(0.3, -9.5, 9.5), (0.7, -8.5, 10.5)])
def test_a_voxel_is_known_where_its_middle_lies_within_the_guides_voxels(shift, first, last):
    measured, _ = scan()
    affine = centred(np.eye(3), (20, 60, 60))  # from -10 to 10 mm along x
    affine[0, 3] += shift
    known = beside(volume(affine, (20, 60, 60)), measured, np.eye(4))[0, :, 18, 22].isfinite()
    x = np.arange(40) - 19.5
    assert x[known.numpy()].tolist() == x[(x >= first) & (x <= last)].tolist()


def turned_by(axis, degrees):
    matrix = np.eye(4)
    matrix[:3, :3] = Rotation.from_rotvec(np.radians(degrees) * np.eye(3)[axis]).as_matrix()
    return matrix


@pytest.mark.parametrize(
    ("motion", "axis", "edge"),
    [(np.eye(4), 0, 0.5), (turned_by(1, 90), 2, 1.0), (np.eye(4)[[1, 2, 0, 3]], 2, 1.0)],
    ids=["still", "about y", "cyclic"],
)
def test_a_finer_guide_is_averaged_over_the_voxels_of_the_grid_along_each_axis(axis, edge, motion):
    """A wave that is hardly shorter than they hold keeps what a box as wide as the voxel leaves of it."""
    acquisition = Acquisition.stack(2, 4, spacing=5.0, thickness=5.0, target=1.0)
    thick = torch.from_numpy(centred(np.diag([0.5, 0.5, 5]), (40, 40, 4)))
    measured = Slices(torch.zeros(40, 40, 4), acquisition, thick)
    own, shape, frequency = 0.25, (90, 90, 90), 0.7
    affine = centred(np.eye(3) * own, shape)
    index = np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij"), -1)
    there = (index @ affine[:3, :3].T + affine[:3, 3]) @ motion[:3, :3]  # of the scan's world
    wave = torch.from_numpy(500 + 300 * np.sin(2 * np.pi * frequency * there[..., axis]))[None].float()
    guide = MetaTensor(wave, affine=torch.from_numpy(affine))
    scale = intensity_range(guide)
    before = scale.to_unit(scale.tissue(wave[0])).std()
    after = beside(guide, measured, motion)[0].as_tensor()[8:-8, 8:-8, 3:-3]
    box = np.sinc(frequency * edge) / np.sinc(frequency * own)
    assert (after.std() / before).item() == pytest.approx(box, abs=0.1)


@pytest.mark.parametrize("edge", [1.0, 2.0])
def test_a_guide_of_voxels_as_coarse_is_not_smoothed(edge):
    measured, _ = scan()
    shape = (61, 61, 61)  # voxels lie between those of the grid
    guide = volume(centred(np.eye(3) * edge, shape), shape)
    scale = intensity_range(guide)
    plain = MetaTensor(scale.to_unit(scale.tissue(guide[0].as_tensor())), affine=guide.affine)
    place = MetaTensor(torch.empty(40, 36, 45), affine=measured.fine_affine)
    expected, _ = placed(plain, place, np.eye(4))
    found = beside(guide, measured, np.eye(4))[0].as_tensor()
    torch.testing.assert_close(found, expected.clamp(min=-1), rtol=0, atol=1e-5)


def test_hot_spots_of_a_guide_are_no_brighter_than_tissue_and_its_undershoot_no_darker_than_air():
    measured, _ = scan()
    shape = (60, 60, 60)
    guide = volume(centred(np.eye(3), shape), shape)
    hot = guide.as_tensor().clone()
    hot[0, 30:32, 30:32, 30:32] *= 200
    plain, found = (
        beside(MetaTensor(v, affine=guide.affine), measured, np.eye(4))[0] for v in (guide.as_tensor(), hot)
    )
    assert plain.max() < 2 and found.max() < 3
    box = torch.zeros(1, *shape)
    box[:, 20:40, 20:40, 20:40] = 300
    turn = turned_by(2, 20)  # between its voxels a spline falls below air beside the edges
    assert beside(MetaTensor(box, affine=guide.affine), measured, turn).as_tensor().min() == -1


@pytest.mark.parametrize("of_the_guide", [True, False])
def test_a_few_voxels_far_below_the_floor_do_not_move_a_guide(of_the_guide):
    """Filters leave them. A histogram over their range would know tissue in few bins."""
    measured = stack_of(person(), 0).measured
    guide = Slices.sharp(MetaTensor(moved(person(), SMALL), affine=torch.from_numpy(AFFINE)))
    alone = GuideScan(guide).place(measured).motion
    odd = (guide if of_the_guide else measured).array.clone()
    odd[2:-2:4, 24:28, 18:22] = -50_000
    guide = replace(guide, array=odd) if of_the_guide else guide
    measured = measured if of_the_guide else replace(measured, array=odd)
    degrees, millimetres = angle_and_shift(np.linalg.inv(alone) @ GuideScan(guide).place(measured).motion, CENTRE)
    assert degrees < 0.5 and millimetres < 0.5


def two_contrasts(degrees, mm):
    """A textured head in slices of 4.8 mm, inverted in voxels of 1.6 mm where it has moved, and the motion between."""
    shape, random = (72, 84, 75), np.random.default_rng(2)
    place_of = np.stack(np.meshgrid(*(np.linspace(-1, 1, n) for n in shape), indexing="ij"))
    inside = ((place_of / np.array([0.8, 0.9, 0.85])[:, None, None, None]) ** 2).sum(0) < 1
    texture = sum(ndimage.gaussian_filter(random.random(shape), sigma) * sigma**1.5 for sigma in (1.5, 4.0))
    texture = (texture - texture.min()) / np.ptp(texture)
    affine = centred(np.diag([1.6, 1.6, 1.6]), shape)
    by = motion(degrees * np.array([2, -1, 2]) / 3, mm * np.array([1, 2, -2]) / 3)
    index = np.linalg.inv(affine) @ np.linalg.inv(by) @ affine
    inverted = np.where(inside, 900 - 700 * texture, 0)
    guide = ndimage.affine_transform(inverted, index[:3, :3], index[:3, 3], order=3).clip(0)
    thick = np.where(inside, 200 + 800 * texture, 0).reshape(*shape[:2], -1, 3).mean(-1)
    pairs = (thick, centred(np.diag([1.6, 1.6, 4.8]), thick.shape)), (guide, affine)
    noisy = ((voxels + np.hypot(*random.normal(0, 6, (2, *voxels.shape))), own) for voxels, own in pairs)
    return *((voxels.astype(np.float32), own) for voxels, own in noisy), by


@pytest.mark.slow
@pytest.mark.parametrize("moved_by", [0, 0.3])
def test_a_guide_that_lies_in_its_place_stays_there(moved_by):
    """As far as registration can tell; one that has moved by more, in mm, is moved back."""
    (thick, affine), (guide, own), by = two_contrasts(0, moved_by)
    measured = MetaTensor(torch.from_numpy(thick)[None], affine=torch.from_numpy(affine))
    Acquisition.stack(2, thick.shape[2], spacing=4.8, thickness=4.8, target=1.2).attach(measured)
    guide = Slices.sharp(MetaTensor(torch.from_numpy(guide)[None], affine=torch.from_numpy(own)))
    found = GuideScan(guide).place(Slices.of(measured))
    assert found.fits
    if moved_by:
        assert max(angle_and_shift(np.linalg.inv(by) @ found.motion, CENTRE)) < 0.15 and found.millimetres > PRECISE
    else:
        np.testing.assert_array_equal(found.motion, np.eye(4))
        assert (found.degrees, found.millimetres) == (0, 0)


def test_nothing_depends_on_where_the_floors_of_scan_and_guide_lie():
    """Standardised scans have one below 0."""
    floor, other = -300.0, -500.0
    measured, guide = stack_of(person(), 0).measured, Slices.sharp(stack_of(person(), 2).rebuilt)
    raised, level = (replace(one, array=one.array + floor) for one, floor in ((measured, floor), (guide, other)))
    alone, again = GuideScan(guide).place(measured), GuideScan(level).place(raised)
    np.testing.assert_allclose(again.motion, alone.motion, atol=0.05)
    assert alone.fits and again.likeness == pytest.approx(alone.likeness, abs=0.02)


def test_its_slices_are_the_models_and_it_fades_in_from_its_border():
    _, a = scan()
    fine = torch.rand(40, 36, 45) * 2 - 1

    def of(fine, x, z):
        affine = torch.diag(torch.tensor([x, 1.0, z, 1.0], dtype=torch.float64))
        return NetworkGuide.of(fine, Slices(torch.zeros(40, 36, 9), a, affine))

    whole = of(fine, 1.0, 5.0)
    assert (whole.share == 1).all() and torch.equal(whole.slices, acquire(fine, a))
    part = fine.clone()
    part[:20] = torch.nan
    guide = of(part, 2.0, 5.0)
    assert (guide.fine[:20] == -1).all() and torch.equal(guide.fine[20:], fine[20:])
    assert torch.equal(guide.slices, acquire(guide.fine, a))
    ramp = (2.0 * torch.arange(1, 21) / BORDER).clamp(max=1)
    torch.testing.assert_close(guide.share[20:], ramp[:, None, None].expand(20, 36, 45))
    assert not guide.share[:20].any()
    assert guide.share[21, 0, 0] == 0.5 and guide.share[23, 0, 0] == 1, "4 and 8 mm within its border"
    above = fine.clone()
    above[..., :20] = torch.nan
    along = of(above, 1.0, 5.0).share[0, 0, 20:30]  # slices of 5 mm, fine rows of 1 mm
    torch.testing.assert_close(along, (torch.arange(1, 11) / BORDER).clamp(max=1))


# By a rebuilder


def rebuilder(guide_share=0.7):
    """Tiny, with a guide branch that is not zero."""
    return Rebuilder(
        perturb(Drift(SliceProjectionNetwork((6, 8), (1, 1), 4, 4), VelocityNetwork((4, 8), 8)).eval(), scale=0.03),
        DriftInferer(steps=0),
        torch.device("cpu"),
        guide_preprocessing=Compose([LoadScand("image"), SettleGuided("image", CARD)]),
        guide_share=guide_share,
    )


def written(path, volume):
    nib.save(nib.Nifti1Image(volume.as_tensor()[0].numpy(), np.asarray(volume.affine)), path)
    return path


def test_a_rebuilder_places_a_guide_and_takes_it(tmp_path):
    measured, _ = scan((48, 48, 11))
    shape = (64, 64, 64)
    guide = written(tmp_path / "guide.nii.gz", other_contrast(volume(centred(np.eye(3), shape), shape)))
    by = rebuilder()
    placed = by.place(by.read_guide(guide), measured)
    placed.check(measured)
    assert placed.fits and placed.millimetres < 1 and placed.name.endswith("guide.nii.gz")
    rebuilt = by(measured, placed)
    assert rebuilt.guide is placed
    assert (rebuilt.volume - by(measured).volume).abs().max() > 1


@pytest.mark.parametrize(("spacing", "is_rebuilt"), [(2.5, False), (2.6, True)])
def test_a_guide_is_rebuilt_first_where_its_slices_are_more_than_two_and_a_half_millimetres_apart(spacing, is_rebuilt):
    shape = (32, 32, 13)
    guide = volume(centred(np.diag([1.0, 1.0, spacing]), shape), shape)
    Acquisition.stack(2, 13, spacing=spacing, thickness=spacing, target=1.0).attach(guide)
    guide, by = Slices.of(guide), rebuilder()
    sharp, stack = by.guide_scan(guide)
    assert (stack is guide) == is_rebuilt and (sharp is guide) != is_rebuilt
    if is_rebuilt:
        assert torch.equal(sharp.array, by(guide).volume.as_tensor())


def test_a_sharp_result_is_guided_by_no_drawn_detail():
    shape = (32, 32, 13)
    guide = volume(centred(np.diag([1.0, 1.0, 4.0]), shape), shape)
    Acquisition.stack(2, 13, spacing=4.0, thickness=4.0, target=1.0).attach(guide)
    guide, by = Slices.of(guide), rebuilder()
    sharp, mean = (replace(by, inferer=DriftInferer(64, sharp=one, sharp_velocity=3.0)) for one in (True, False))
    assert torch.equal(sharp.guide_scan(guide)[0].array, mean(guide).volume.as_tensor())
    assert not torch.equal(sharp(guide).volume, mean(guide).volume)


def test_a_guide_of_something_else_and_a_copy_of_the_scan_are_refused(tmp_path):
    (measured, _), affine, by = scan((48, 48, 11)), centred(np.eye(3), (64, 64, 64)), rebuilder()
    noise = torch.rand(1, 64, 64, 64, generator=torch.Generator().manual_seed(0)) * 200
    other = MetaTensor(smoothed(noise), affine=torch.from_numpy(affine))
    copy = r"copy.nii.gz has the contrast of .*A copy of the scan brings nothing"
    for name, shown, told in (("noise", other, "does not fit"), ("copy", volume(affine, (64, 64, 64)), copy)):
        placed = by.place(by.read_guide(written(tmp_path / f"{name}.nii.gz", shown)), measured)
        with pytest.raises(InputError, match=told):
            placed.check(measured)


def test_a_copy_explains_95_percent_of_the_scan():
    one = PlacedGuide(MetaTensor(torch.zeros(1, 2, 2, 2)), np.eye(4), 1.0, 0.94, 0.0, 0.0, "the guide")
    assert not one.copies and replace(one, relation=0.96).copies


@pytest.mark.parametrize(("mm", "still"), [(0.1, True), (0.2, False)])
def test_a_guide_that_lies_less_than_registration_knows_away_stays_in_its_place(mm, still):
    head, affine = person(), AFFINE.copy()
    affine[0, 3] += mm
    other = MetaTensor(torch.where(head > 60, 900 - head, head)[None], affine=torch.from_numpy(affine))
    found = GuideScan(Slices.sharp(other)).place(stack_of(head, 2, 4.0, noise=3.0).measured)
    assert (found.millimetres == 0 and np.array_equal(found.motion, np.eye(4))) == still
    assert still or found.millimetres == pytest.approx(mm, abs=0.03)


THICK = centred(np.diag([0.3, 0.3, 6.0]), (24, 24, 12))
NEARLY_CUBES = centred(np.diag([1.0, 1.0, 1.1]), (24, 24, 12))
ABOUT_A_GUIDE = {  # affine, slice axis and thickness of the header -> what is said
    "a header that names another axis": (THICK, 0, None, "names axis 0, whose spacing of 0.3 mm is no slice spacing"),
    "no thickness": (THICK, None, None, "nothing states the slice thickness"),
    "fine pixels": (THICK, 2, 6.0, "are outside the .* that the weights were trained for.$"),
    "slices thinner than the target": (THICK, 2, 0.25, "is smaller than the target, .* Mend its header, or leave"),
    "overlap that hides the axis": (NEARLY_CUBES, None, 4.0, "along which axis the slices lie. Mend its header, or"),
}


@pytest.mark.parametrize("case", ABOUT_A_GUIDE)
def test_what_is_said_of_a_guide_names_no_option_which_would_hit_the_scan(tmp_path, case, caplog):
    affine, axis, thickness, told = ABOUT_A_GUIDE[case]
    image = nib.Nifti1Image(head_at(np.indices((24, 24, 12)).T * 2 - 24).T.astype(np.float32), affine)
    image.header.set_dim_info(slice=axis)
    nib.save(image, tmp_path / "guide.nii.gz")
    if thickness is not None:
        (tmp_path / "guide.json").write_text(f'{{"SliceThickness": {thickness}}}')
    caplog.set_level("INFO")
    said = ""
    try:
        replace(rebuilder(), preprocessing=rebuilder().guide_preprocessing).measure(tmp_path / "guide.nii.gz")
    except Exception as error:  # noqa: BLE001  # MONAI wraps it
        said = str(input_error(error))
    said = f"{said}{caplog.text}".strip()
    assert re.search(told, said, re.MULTILINE) and "--" not in said, said


def smoothed(volume):
    return torch.from_numpy(ndimage.gaussian_filter(volume[0].numpy(), 2))[None]
