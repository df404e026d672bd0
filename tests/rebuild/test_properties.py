"""Geometry for any affine, shape, spacing, gap and dtype: hypothesis looks for one that breaks a law."""

import tempfile
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from scripts.method.networks import AnatomicalProjectionNetwork, Drift, VelocityNetwork
from scripts.rebuild.rebuilder import Rebuilder
from scripts.stack import grid
from scripts.stack.acquisition import Acquisition
from tests.config_files import parser
from tests.corpus.examine import wrong

DTYPES = ("u1", "i1", "u2", "i2", "i4", "f4", "f8")
# without shrinking, so that a failure is as quick as success
quick = settings(max_examples=12, deadline=None, derandomize=True, phases=[Phase.generate])

lengths = st.floats(0.4, 2.0).map(lambda x: round(x, 3))  # mm, within the slices
thick_lengths = st.floats(2.2, 8.0).map(lambda x: round(x, 3))  # mm, between the slices
targets = st.floats(0.7, 1.3).map(lambda x: round(x, 3))  # mm
orders = st.permutations(range(3))
signs = st.tuples(*[st.sampled_from([1, -1])] * 3)


@st.composite
def affines(draw, edges):
    """Any orthogonal affine with these voxel edges: axes in any order and of any sign, turned, anywhere."""
    turn = Rotation.from_euler("xyz", draw(st.tuples(*[st.floats(-180, 180)] * 3)), degrees=True).as_matrix()
    affine = np.eye(4)
    affine[:3, :3] = turn[:, draw(orders)] * np.array(draw(signs)) * edges
    affine[:3, 3] = draw(st.tuples(*[st.floats(-300, 300)] * 3))
    return affine


@st.composite
def stacks(draw):
    """Voxels and affine of a stack of thick slices along any axis."""
    axis = draw(st.integers(0, 2))
    shape, edges = [draw(st.integers(1, 9)) for _ in range(3)], [draw(lengths) for _ in range(3)]
    shape[axis], edges[axis] = draw(st.integers(3, 12)), draw(thick_lengths)
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    values = np.random.default_rng(draw(st.integers(0, 99))).random(shape)
    top = min(np.iinfo(dtype).max, 4000) if dtype.kind in "iu" else draw(st.sampled_from([1e-6, 1.0, 4000.0, 1e9]))
    return (top * values).astype(dtype), draw(affines(edges)), axis


def tiny_network(std):
    """Untrained, hence the identity; then with random weights, unless `std` is 0."""
    torch.manual_seed(0)
    network = Drift(AnatomicalProjectionNetwork((4, 8), residual=True), VelocityNetwork((4, 8), width=8))
    for parameter in network.parameters() if std else ():
        torch.nn.init.normal_(parameter, std=std)
    return network.eval()


IDENTITY, RANDOM = tiny_network(0), tiny_network(0.05)


def rebuilt(array, affine, network=IDENTITY, **options):
    """A file of these the whole way of configs/inference.yaml, less the file of the result; and its acquisition."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scan.nii"
        nib.save(nib.Nifti1Image(array, affine), path)
        own = {"bfloat16": False, "consistency": "measure", "inferer::deblocked": False, "inferer::progress": False}
        own |= {"inferer::n_max": 1}
        config = parser("inference.yaml", **{**own, **options})
        preprocessing, inferer = (config.get_parsed_content(name) for name in ("preprocessing", "inferer"))
        rebuilder = Rebuilder(network, inferer, "cpu", preprocessing)
        result = rebuilder(rebuilder.measure(str(path))).volume[None]
    return nib.Nifti1Image(result.numpy()[0], result.affine.numpy()), Acquisition.of(result)


@given(stacks(), st.none() | targets)
@quick
def test_a_scan_lies_where_it_lay_and_holds_its_own_values(stack, target):
    array, affine, axis = stack
    result, acquisition = rebuilt(array, affine, target_thickness=target)
    assert acquisition.slice_axis == axis
    assert wrong(result, array, affine) is None
    if target is not None:
        assert grid.voxel_spacing(result.affine)[axis] == pytest.approx(target)


@given(stacks(), orders, signs)
@quick
def test_permuting_and_flipping_the_axes_does_the_same_to_the_result(stack, order, flips):
    """Of any network: the same scan gives the same image however it is stored."""
    array, affine, axis = stack  # which is said, since overlapping slices do not tell it where voxels are nearly cubes
    orientation = np.array([[order.index(a), flips[a]] for a in range(3)])
    turned = nib.Nifti1Image(array, affine).as_reoriented(orientation)
    options = {"network": RANDOM, "consistency": "project", "slice_thickness": 8.0}
    expected = rebuilt(array, affine, **options, slice_axis=axis)[0].as_reoriented(orientation)
    result, _ = rebuilt(np.asarray(turned.dataobj), turned.affine, **options, slice_axis=order.index(axis))
    assert result.shape == expected.shape
    np.testing.assert_allclose(result.affine, expected.affine, atol=1e-3)
    values = expected.get_fdata()
    np.testing.assert_allclose(result.get_fdata(), values, atol=1e-4 * np.abs(values).max())
