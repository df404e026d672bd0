"""Laws of the one value that says how slices were acquired, and of how it is settled."""

from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from monai.data import DataLoader, Dataset, MetaTensor, decollate_batch

from scripts.errors import InputError
from scripts.method.weights import Card
from scripts.stack import grid
from scripts.stack.acquisition import Acquisition, length
from scripts.stack.settle import Given, settle

CARD = Card("0", "tiny", (0.7, 1.3), (0.5, 1.3), 7.0, (0.8, 1.4), 1)
DICOM = "the DICOM header"


def settled(spacing, shape=(30, 30, 30), stated=None, name="the scan", **given) -> Acquisition:
    return settle(name, np.diag([*spacing, 1.0]), shape, stated or {}, Given(**given), CARD)


def stated(axis=None, thickness=None, source=DICOM):
    facts = {"slice_axis": axis, "slice_thickness": thickness}
    return {name: (value, source) for name, value in facts.items() if value is not None}


def nine(axis=2, **others):
    return Acquisition.stack(axis, 9, spacing=5.0, thickness=4.0, target=1.0, **others)


# --- the value ---


@pytest.mark.parametrize(
    ("spacing", "thickness", "target", "reached"),
    [(1.0, 1.0, 1.0, True), (0.5, 0.5, 0.7, True), (0.8, 1.1, 1.0, False), (1.1, 0.8, 1.0, False)],
)
def test_a_stack_is_at_the_target_where_slices_are_as_thin_and_as_near(spacing, thickness, target, reached):
    assert Acquisition.stack(2, 9, spacing=spacing, thickness=thickness, target=target).at_target is reached


@pytest.mark.parametrize("count", [3, 8, 52])
@pytest.mark.parametrize(("spacing", "target"), [(5.0, 1.0), (3.3, 0.9), (0.9, 1.0)])
def test_a_stack_and_its_truth_cover_one_field_of_view(count, spacing, target):
    stack = Acquisition.stack(1, count, spacing=spacing, thickness=2 * spacing, target=target)
    assert stack.fine_count == grid.fine_count(count, spacing, target)
    truth = Acquisition.of_truth(1, stack.fine_count, edge=target, thickness=2 * spacing, spacing=spacing)
    assert truth.slice_count == grid.thick_count(stack.fine_count, target, spacing)
    assert replace(truth, slice_count=count) == stack
    without = Acquisition.of_truth(1, 40, edge=target, thickness=spacing)
    assert without.slice_spacing == spacing  # no gap, where none is said


def test_people_are_told_what_computing_does_not_see():
    """Sources and warnings tell no two acquisitions apart: both have one matrix."""
    told = nine(sources={"slice_axis": "given"}, warnings=("beware",))
    assert told == nine() and hash(told) == hash(nine())
    for change in ({"profile": "gaussian"}, {"shift": 0.1}, {"slice_thickness": 4.1}, {"slice_count": 8}):
        assert replace(told, **change) != told


@pytest.mark.parametrize("value", [0.0, -2.5, float("nan")])
@pytest.mark.parametrize("name", ["slice_spacing", "slice_thickness", "target_spacing"])
def test_a_length_that_is_none_is_named(name, value):
    facts = {"slice_spacing": 5.0, "slice_thickness": 4.0, "target_spacing": 1.0, name: value}
    with pytest.raises(ValueError, match=rf"{name} is {value} mm: expected a positive length"):
        Acquisition(2, 9, fine_count=45, **facts)


def test_a_stack_moves_with_its_array():
    stack = nine(shift=0.3)
    moved = stack.moved((1, 2, 0))
    assert (moved.slice_axis, moved.shift) == (1, 0.3)  # array axis 2 is the new Y
    assert stack.moved((1, 2, 0), (1,)).shift == -0.3 and stack.moved((1, 2, 0), (0, 2)).shift == 0.3


# --- in meta data ---

FULL = Acquisition.stack(
    1,
    9,
    spacing=5.0,
    thickness=4.1,
    target=0.9,
    profile="gaussian",
    shift=-0.25,
    sources={"slice_axis": "given"},
    warnings=("one", "two"),
)


def carrying(acquisition):
    volume = MetaTensor(torch.zeros(1, 4, 9, 5), affine=torch.eye(4))
    acquisition.attach(volume)
    return volume


@pytest.mark.parametrize("acquisition", [FULL, replace(FULL, noise=None), nine()])
def test_meta_data_keep_every_fact_through_batches(acquisition):
    """MONAI's DataLoader makes tensors of numbers and lists of texts, and decollation takes them apart again."""
    alone = carrying(acquisition)
    batch = next(iter(DataLoader(Dataset([{"image": alone}]), batch_size=1)))["image"]
    (apart,) = decollate_batch(batch)
    for volume in (alone, alone[None], batch, apart, batch.clone(), MetaTensor(batch, meta=batch.meta)):
        found = Acquisition.of(volume)
        assert asdict(found) == asdict(acquisition)
        assert all(type(value) is type(asdict(acquisition)[name]) for name, value in asdict(found).items())


@pytest.mark.parametrize("image", [torch.zeros(1, 4, 9, 5), MetaTensor(torch.zeros(1, 4, 9, 5))])
def test_an_image_without_facts_is_refused(image):
    with pytest.raises(ValueError, match=r"carries no acquisition.*preprocessing"):
        Acquisition.of(image)


# --- settling ---


@pytest.mark.parametrize("value", [0.01, 100, "abc", float("nan"), True, [5]])
def test_lengths_that_no_slice_has_are_refused(value):
    with pytest.raises(InputError) as caught:
        length("slice_thickness", value, "Set it as in --slice_thickness 5.")
    assert str(caught.value).startswith(f"slice_thickness is {value!r}: expected 0.2 to 20 mm. Set it")


OVERLAP = (1.0, 1.0, 0.9)  # mm; slices 1.8 mm thick


@pytest.mark.parametrize("source", [DICOM, "the NIfTI header (dim_info)"])
def test_overlapping_slices_nearer_than_the_pixels_are_found_where_the_file_names_them(source):
    found = settled(OVERLAP, stated=stated(2, 1.8, source))
    assert (found.slice_axis, found.slice_spacing, found.slice_thickness) == (2, 0.9, 1.8)
    assert found.sources["slice_axis"] == source and not found.at_target
    assert not any("axis" in text for text in found.warnings)


@pytest.mark.parametrize(("spacing", "refused"), [(OVERLAP, True), ((1.0, 1.0, 1.2), True), ((1.0, 1.0, 1.3), False)])
def test_without_a_word_of_the_file_the_axis_of_overlapping_slices_is_asked_for(spacing, refused):
    """Where the largest spacing hardly differs from the pixels, it may be any axis."""
    if refused:
        with pytest.raises(InputError, match=r"the scan: slices of 1\.8 mm overlap.*nearly cubes.*Set --slice_axis"):
            settled(spacing, stated=stated(thickness=1.8))
    else:
        assert settled(spacing, stated=stated(thickness=1.8)).slice_axis == 2
    given = settled(spacing, stated=stated(thickness=1.8), slice_axis=2)
    assert given.slice_axis == 2 and given.sources["slice_axis"] == "given"
    assert not any("axis" in text for text in given.warnings)


@pytest.mark.parametrize(
    ("spacing", "thickness", "right"),
    [
        ((2.5, 1.25, 1.25), None, 0),  # reordered by a tool that left dim_info
        ((2.5, 1.25, 1.25), 2.5, 0),
        ((2.2, 1.0, 2.0), None, 2),  # nearly cubes
        ((2.4, 1.0, 2.0), 2.0, 2),  # the thickness speaks for it
        ((1.25, 1.25, 0.9), 1.8, 2),  # overlap
        ((1.25, 5.0, 1.25), 1.25, 1),  # a reformat
    ],
)
@pytest.mark.parametrize("given", [False, True])
def test_spacings_win_over_the_header_unless_the_thickness_supports_it(spacing, thickness, right, given):
    facts = {"slice_thickness": thickness} if given and thickness != 1.25 else {}
    found = settled(spacing, stated=stated(2, None if facts else thickness), **facts)
    assert found.slice_axis == right and not found.at_target
    assert any("names axis 2" in text for text in found.warnings) == (right != 2)


@pytest.mark.parametrize("axis", [2, None])
def test_a_thickness_of_another_axis_is_not_that_of_the_slices(axis):
    """The sidecar of a reformat speaks of its fine slices."""
    found = settled((1.25, 5.0, 1.25), stated=stated(axis, 1.25))
    assert (found.slice_axis, found.slice_thickness, found.gap) == (1, 5.0, 0)
    assert any("speaks of another axis" in text for text in found.warnings)
    assert settled((1.25, 5.0, 1.25), stated=stated(axis, 4.0)).slice_thickness == 4.0


@pytest.mark.parametrize(
    ("pixels", "target", "told"),
    [
        ((1.0, 1.1), 1.0, "the finer in-plane spacing"),
        ((0.43, 0.5), 0.7, "the finer in-plane spacing, 0.43 mm, brought into the trained 0.7 to 1.3 mm"),
        ((2.0, 1.9), 1.3, "the finer in-plane spacing, 1.9 mm, brought into the trained 0.7 to 1.3 mm"),
        ((0.7, 0.7), 0.7, "the finer in-plane spacing"),
    ],
)
def test_the_target_says_when_it_was_brought_into_the_trained_range(pixels, target, told):
    found = settled((*pixels, 5.0))
    assert found.target_spacing == pytest.approx(target)
    assert found.sources["target_spacing"] == told
    given = settled((*pixels, 5.0), target_thickness=1.2)
    assert given.target_spacing == 1.2 and given.sources["target_spacing"] == "given"


def but_the_guess(warnings):
    return [text for text in warnings if not text.startswith("nothing states the slice thickness")]


@pytest.mark.parametrize(
    ("spacing", "facts", "told"),
    [
        ((0.25, 0.25, 5), {}, "pixels of 0.25 x 0.25 mm are outside the 0.5 to 1.3 mm"),
        ((3, 3, 5), {}, "pixels of 3 x 3 mm are outside the 0.5 to 1.3 mm"),
        ((0.9, 1.5, 5), {}, "pixels of 0.9 x 1.5 mm"),
        ((1, 1, 6), {"slice_thickness": 2.0}, "lie 6 mm apart, 3.00 times their thickness"),  # gaps of 200 %
        ((1, 1, 3), {"slice_thickness": 6.0}, "lie 3 mm apart, 0.50 times their thickness"),
        ((1, 1, 8), {}, "slices of 8 mm are thicker than the 7 mm"),
        ((1, 1, 5), {"target_thickness": 0.5}, "target 0.5 mm is outside the 0.7 to 1.3 mm"),
        ((1, 1, 5), {"target_thickness": 2.0}, "target 2 mm is outside the 0.7 to 1.3 mm"),
        ((0.5, 1.3, 5), {}, None),
        ((0.499, 1.305, 5), {}, None),  # headers round
        ((1, 1, 7), {}, None),
        ((1, 1, 7), {"slice_thickness": 5.0}, None),
        ((1, 1, 4), {"slice_thickness": 5.0}, None),
        ((1, 1, 5), {"target_thickness": 0.7}, None),
        ((0.3, 0.3, 0.3), {}, None),  # nothing is rebuilt
        ((1, 1, 4), {"stated": stated(thickness=4.0), "target_thickness": 5.0}, None),  # slices are copied
    ],
)
def test_what_the_weights_have_not_seen_draws_one_warning_and_what_they_have_none(spacing, facts, told):
    warnings = but_the_guess(settled(spacing, **facts).warnings)
    assert len(warnings) == (told is not None) and all(told in warning for warning in warnings)


@pytest.mark.parametrize(
    ("spacing", "facts", "guessed"),
    [
        ((1, 1, 5), {}, True),
        ((1, 1, 5), {"slice_thickness": 5.0}, False),
        ((1, 1, 5), {"stated": stated(thickness=5.0)}, False),
        ((1, 1, 1), {}, False),  # nothing is rebuilt
    ],
)
def test_a_thickness_that_nobody_stated_is_a_warning(spacing, facts, guessed):
    """Taken for the spacing, it is wrong wherever slices have gaps."""
    warnings = settled(spacing, **facts).warnings
    assert [text for text in warnings if "5 mm, is taken for it. Set --slice_thickness" in text] == list(
        warnings[:1] * guessed
    )


@pytest.mark.parametrize(("given", "thickness"), [({}, 5.0), ({"slice_thickness": 1.0}, None)])
def test_an_axis_along_which_voxels_are_thin_is_refused(given, thickness):
    """`slice_axis` 0 on an axial scan, whatever its header says of the thickness."""
    with pytest.raises(InputError, match=r"the scan: slice_axis is 0.*1 mm.*such as 2\. Leave out --slice_axis"):
        settled((1, 1, 5), stated=stated(2, thickness), slice_axis=0, **given)


@pytest.mark.parametrize(("thickness", "target"), [(0.5, None), (0.95, 1.0), (2, 3)])
def test_slices_thinner_than_the_target_are_refused(thickness, target):
    told = rf"scan-7: slice thickness {thickness:g} mm \(the DICOM header\).*target, {target or 1:g} mm"
    with pytest.raises(InputError, match=told + ".*--slice_thickness.*--target_thickness"):
        settled((1, 1, 5), stated=stated(2, thickness), target_thickness=target, name="scan-7")


@pytest.mark.parametrize(("axis", "count"), [(0, 2), (1, 1), (2, 3)])
def test_three_slices_are_enough_and_fewer_are_refused(axis, count):
    shape, spacing = [6, 6, 6], [1.0, 1.0, 1.0]
    shape[axis], spacing[axis] = count, 5.0
    if count == 3:
        assert settled(spacing, tuple(shape)).fine_count == 15
        return
    with pytest.raises(InputError, match=rf"scan has {count} slices along axis {axis}: expected 3 or.*--slice_axis"):
        settled(spacing, tuple(shape))


@pytest.mark.parametrize(("spacing", "thickness"), [(0.3, None), (1.0, None), (1.1, 1.105), (0.5, 0.7)])
def test_a_scan_whose_slices_are_as_thin_as_the_target_is_at_it(spacing, thickness):
    """Headers round; slices nearer than they are thick are at the target too, if they are as thin."""
    found = settled((spacing, max(spacing, 0.55), spacing), stated=stated(2, thickness))
    assert found.at_target and found.fine_count == found.slice_count == 30
    assert "nothing is to be rebuilt" in found.sources["target_spacing"]
    taken = thickness is not None and found.slice_thickness == pytest.approx(thickness, rel=0.01)
    assert ("header" in found.sources["slice_thickness"]) == taken  # no header is named for what it does not say
