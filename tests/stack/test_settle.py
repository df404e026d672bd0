"""The facts of a scan from its file, its sidecars and the user, through the deployed preprocessing; and its cubes."""

import json
import logging
import re
from dataclasses import replace

import numpy as np
import pytest

from scripts.rebuild.inferer import DriftInferer
from scripts.rebuild.rebuilder import Rebuilder
from scripts.stack import grid
from scripts.stack.acquisition import Acquisition
from scripts.stack.settle import Given, settle
from scripts.stack.slices import Slices
from tests.fixtures import CARD
from tests.volumes import indices, place, random_affine, scan_of, smooth_head, texture

AXIAL = np.diag([1.0, 1.0, 5.0, 1.0])


@pytest.fixture
def scan(write_nifti):
    """Five millimetres apart, one millimetre in plane."""
    return write_nifti(texture((6, 7, 5)), AXIAL)


def add_sidecar(path, text):
    sidecar = path.with_name(path.name.split(".")[0] + ".json")
    sidecar.write_text(text if isinstance(text, str) else json.dumps(text))
    return path


def warnings(log):
    return [record.message for record in log.records if record.levelno == logging.WARNING]


@pytest.mark.parametrize(
    ("given", "sidecar", "thickness", "source"),
    [("3.5", 4, 3.5, "given"), (None, 4.25, 4.25, "the sidecar"), (None, None, 5, "the slice spacing")],
)
def test_thickness_is_the_users_else_the_sidecars_else_the_spacing(given, sidecar, thickness, source, door, scan, log):
    add_sidecar(scan, {"EchoTime": 0.1, **({"SliceThickness": sidecar} if sidecar else {})})
    found = Acquisition.of(door(scan, slice_thickness=given))
    assert (found.slice_thickness, found.slice_spacing) == (pytest.approx(thickness), pytest.approx(5))
    line = log.messages[-1]
    assert f"thickness {thickness:.3g} mm ({source}" in line and str(scan) in line
    assert found.sources["slice_thickness"].startswith(source)


@pytest.mark.parametrize(("given", "warns"), [(3, True), (4.01, False), (4.1, True)])
def test_a_thickness_that_contradicts_the_sidecar_warns_and_wins(given, warns, door, scan, log):
    found = Acquisition.of(door(add_sidecar(scan, {"SliceThickness": 4}), slice_thickness=given))
    assert found.slice_thickness == pytest.approx(given)
    told = [text for text in found.warnings if "is given and used" in text]
    assert len(told) == warns and set(warnings(log)) == {f"{scan}: {text}" for text in found.warnings}
    assert all(f"{given:g} mm is given and used" in text and "scan.json says 4 mm" in text for text in told)


@pytest.mark.parametrize(("spacing", "warned"), [(6.5, True), (5.02, False), (5, False), (4.9, True)])
def test_a_spacing_of_the_sidecar_that_the_affine_denies_is_warned_of(spacing, warned, door, scan):
    found = Acquisition.of(door(add_sidecar(scan, {"SliceThickness": 5, "SpacingBetweenSlices": spacing})))
    told = [text for text in found.warnings if "SpacingBetweenSlices" in text]  # spacing-denied-by-sidecar
    assert len(told) == warned and found.slice_spacing == pytest.approx(5)
    assert all(f"is {spacing:.4g} mm, but slices lie 5 mm apart" in text for text in told)


@pytest.mark.parametrize("value", [0, "", "5 mm"])
def test_a_thickness_that_is_as_good_as_empty_is_not_used_and_is_said(value, door, scan):
    found = Acquisition.of(door(add_sidecar(scan, {"SliceThickness": value})))
    assert found.slice_thickness == pytest.approx(5) and found.sources["slice_thickness"].startswith(
        "the slice spacing"
    )
    assert (
        f"SliceThickness of the sidecar scan.json is {value!r}, which is no length. It is not used." in found.warnings
    )


@pytest.mark.parametrize("content", [b"\xef\xbb\xbf%s", b"%s"])
def test_a_sidecar_with_a_byte_order_mark_or_in_latin_1_is_read(content, door, scan):  # sidecar-of-another-code
    text = '{"SliceThickness": 4, "InstitutionName": "Universit\u00e4tsklinik"}'
    sidecar = scan.with_name(scan.name.split(".")[0] + ".json")
    sidecar.write_bytes(content % text.encode("utf-8" if len(content) > 2 else "latin-1"))
    assert Acquisition.of(door(scan)).slice_thickness == pytest.approx(4)


def test_slices_in_the_order_of_their_times_are_refused_and_dim_ones_are_evened_out(door, write_nifti, refusal):
    slices = scan_of(smooth_head((48, 56, 100))).as_tensor()[0].numpy()
    mixed = write_nifti(slices[..., [*range(0, 20, 2), *range(1, 20, 2)]], AXIAL, "mixed.nii")
    assert "the odd ones, then the even ones. Put them in the order of their places" in refusal(door, mixed)
    dim = slices * np.where(np.arange(20) % 2, 1, 0.7)
    even = door(write_nifti(dim.astype(np.float32), AXIAL, "dim.nii"))
    assert any("every other slice, slice 1 first, is 0.7" in one for one in Acquisition.of(even).warnings)
    np.testing.assert_allclose(even.as_tensor()[0].numpy()[slices > 300], slices[slices > 300], rtol=0.05)


@pytest.mark.parametrize(("source", "spacing"), [("given", 1.1), ("sidecar", 0.7), ("sidecar", 1.1)])
def test_the_last_bit_of_a_header_decides_nothing(source, spacing, door, write_nifti, log):
    """1.1 mm in the float32 of a header is a little more than the 1.1 mm of a sidecar."""
    for last, copied in ((spacing, True), (5.0, False)):  # isotropic; thin slices far apart
        path = write_nifti(texture((6, 7, 5)), np.diag([spacing, spacing, last, 1.0]), f"{last}.nii")
        path.with_suffix(".json").write_text(json.dumps({"SliceThickness": spacing} if source == "sidecar" else {}))
        found = Acquisition.of(door(path, slice_thickness=spacing if source == "given" else None))
        assert found.at_target is copied and ("it is taken as it is" in log.messages[-1]) is copied
        assert found.slice_thickness >= found.target_spacing or copied


@pytest.mark.parametrize(
    ("edges", "thickness", "axis"),
    [
        ((4.6, 1.0, 5.0), None, 0),  # nearly the largest: the header knows better
        ((4.4, 1.0, 5.0), None, 2),
        ((2.6, 1.0, 5.0), 6.0, 0),  # slices that overlap
        ((2.0, 1.0, 5.0), 6.0, 2),
    ],
)
def test_a_header_knows_the_axis_where_its_spacing_may_be_that_of_slices(edges, thickness, axis):
    stated = {"slice_axis": (0, "the header"), **({} if thickness is None else {"slice_thickness": (thickness, "it")})}
    found = settle("the scan", np.diag([*edges, 1.0]), (20, 100, 20), stated, Given(), CARD)
    assert found.slice_axis == axis and any("names axis 0" in text for text in found.warnings) == (axis != 0)


@pytest.mark.parametrize(
    ("shape", "warns"), [((19, 82, 56), True), ((55, 82, 56), True), ((70, 82, 56), False), ((19, 82, 50), False)]
)
def test_slices_that_stand_first_in_an_array_are_named(shape, warns, door, write_nifti):
    found = Acquisition.of(door(write_nifti(texture(shape), np.diag([1.0, 1.0, 5.0, 1.0]))))
    assert any("axis 0 of the array may be that of the slices" in text for text in found.warnings) == warns


# --- bad input ---


@pytest.mark.parametrize("value", [3, "2", True, 1.5])
def test_an_axis_that_is_none_is_refused(value, door, refusal, scan):
    text = refusal(door, scan, slice_axis=value)
    assert text.startswith(f"slice_axis is {value!r}") and "0, 1 or 2" in text


@pytest.mark.parametrize("content", ["{", '{"SliceThickness": "thick"}', '{"SliceThickness": NaN}'])
def test_a_broken_sidecar_is_refused_unless_the_user_knows_better(content, door, refusal, scan):
    text = refusal(door, add_sidecar(scan, content))
    assert (
        re.search(r"(SliceThickness of the sidecar scan\.json is|scan\.json cannot be read)", text)
        and "remove it" in text
    )
    assert Acquisition.of(door(scan, slice_thickness=4)).slice_thickness == 4


# --- cubes ---


@pytest.mark.parametrize(
    ("spacing", "edge", "axis"),
    [((0.43, 0.43, 5), 0.7, 0), ((0.43, 0.43, 0.7), 0.7, 1), ((0.9, 1.2, 4), 0.9, 2), ((4, 4, 4), 1.3, 0)],
)
def test_an_isotropic_result_is_one_of_cubes_in_its_place(spacing, edge, axis, door, write_nifti, identity, log):
    """A blob's centre of mass and the field of view stay; the log says which voxels come out, with and without."""
    spacing = np.roll(spacing, axis + 1)
    shape = np.maximum(np.round(38 / spacing).astype(int), 3)
    affine, middle = random_affine(spacing, axis), (shape - 1) / 2
    distance = (indices(shape) - middle) * spacing - [1.3, -2.1, 0.8]
    blob = np.exp(-0.5 * (distance**2).sum(1) / 4**2).reshape(shape).astype(np.float32)
    path = write_nifti(blob, affine)

    rebuilder = Rebuilder(identity, DriftInferer(steps=0, consistency="measure"), "cpu")
    result = rebuilder(Slices.of(door(path, isotropic=True))).volume[None]
    fine_affine, fine = result.affine.numpy(), result.numpy()[0]
    np.testing.assert_allclose(grid.voxel_spacing(fine_affine), edge, atol=1e-6)
    before = (place(affine, indices(shape)) * blob.reshape(-1, 1)).sum(0) / blob.sum()
    after = (place(fine_affine, indices(fine.shape)) * fine.reshape(-1, 1)).sum(0) / fine.sum()
    shift = (after - before) @ affine[:3, :3] / spacing  # mm, along each axis of the array
    slices = 2 if spacing.min() == 4 else axis  # the last of equals
    assert (np.abs(shift) < 0.02 * np.maximum(spacing, edge)).all()
    centres = (place(a, (np.array(n) - 1) / 2) for a, n in ((affine, shape), (fine_affine, fine.shape)))
    assert np.linalg.norm(np.subtract(*centres)) < 1e-4
    assert np.abs(fine.shape * np.full(3, edge) - shape * spacing).max() <= edge + 1e-3
    assert fine.min() >= 0

    told = log.messages[-1]
    edges = " x ".join(f"{edge:.3g}" for _ in range(3))
    assert "resampled in plane" in told if max(spacing) == 0.7 else told.endswith(f"result voxels {edges} mm")
    known = ("nothing states the slice thickness", "missing slice")  # a blob fades faster than a head
    assert not [text for text in warnings(log) if not any(one in text for one in known)]
    log.clear()
    door(path)
    without = np.where(np.arange(3) == slices, edge, spacing)
    if max(spacing) > 0.7:
        told = " x ".join(f"{length:.3g}" for length in without) + " mm (--isotropic makes cubes of them)"
        assert log.messages[-1].endswith(told)


def test_cubes_are_as_negative_as_the_scan(door, write_nifti):
    """Splines undershoot beside edges. Only scans with negative intensities may."""
    block = np.zeros((20, 20, 5), np.float32)
    block[7:13, 7:13] = 100
    for offset in (0, 500, -50):
        result = door(write_nifti(block + offset, np.diag([2.0, 2.0, 5.0, 1.0])), isotropic=True)
        assert (result.min() < offset) == (offset < 0)


def test_the_card_is_what_the_weights_were_trained_for(door, scan):
    coarse = replace(CARD, target_range=(1.5, 2.0), pixel_range=(0.1, 0.9), max_thickness=4.0, spacing_ratio=(0.5, 0.9))
    found = Acquisition.of(door(scan, card=coarse))
    assert found.target_spacing == 1.5 and len(found.warnings) == 4
