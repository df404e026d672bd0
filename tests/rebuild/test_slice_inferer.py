"""Laws of the inferer with a stage 1 on the measured slices, with a plain loop over planes as oracle."""

from dataclasses import replace

import pytest
import torch
from monai.data import MetaTensor

from scripts.method.networks import Drift, VelocityNetwork
from scripts.method.slice_projection import SliceProjectionNetwork
from scripts.rebuild import windows
from scripts.rebuild.inferer import DriftInferer
from scripts.stack.acquisition import Acquisition
from scripts.stack.intensity import intensity_range
from scripts.stack.profile import acquire
from scripts.stack.slices import Slices
from scripts.stack.spectra import with_detail
from tests.loops import weighed_by_loop
from tests.method.test_networks import perturb
from tests.rebuild.test_inferer import OWN, arrays, close, of_box
from tests.volumes import head, noise_stack, scan_of

EDGES = torch.tensor([0.7, 1.2, 0.9, 1.0])  # mm, of the pixels of `stack`


def stack(shape, axis=2, spacing=4.0):
    """Of noise, with other pixels along either in-plane axis, and air at one end of it: the inferer adds none."""
    image, edges = noise_stack(shape, axis=axis, spacing=spacing), EDGES.double()
    for other in {0, 1, 2} - {axis}:
        image.as_tensor()[0, 0].movedim(other, 0)[:4] = 0
    edges[axis] = 1
    image.affine = image.affine @ edges.diag()
    return image


def fresh():
    torch.manual_seed(0)
    return Drift(SliceProjectionNetwork((6, 8), (1, 1), 4, 4, 3), VelocityNetwork((4, 8), width=8, noise=True)).eval()


@pytest.fixture(scope="module")
def drift():
    return perturb(fresh(), scale=0.03)


@torch.no_grad()
def by_loop(image, drift, others, steps=0, guide=None, factor=1.0, detail=1.0):
    """Plane by plane, in the scan's units: stage 1 of each family and, in one window, a step along either in turn."""
    measured, a = arrays(image)
    volumes = [] if guide is None else [guide.as_tensor()[0], acquire(guide.as_tensor()[0], a)]
    low, high, _ = intensity_range(measured)
    unit = 2 * (measured - low) / (high - low) - 1
    rows = torch.from_numpy(a.fine_rows)[None].float()
    families = []
    for other in others:
        normal, sharp = 3 - a.slice_axis - other, []
        last = unit.shape[normal] - 1
        before, after = [0, *range(last)], [*range(1, last + 1), last]
        seen = [unit.index_select(normal, torch.tensor(before)), unit, unit.index_select(normal, torch.tensor(after))]
        told = [a.slice_thickness, a.target_spacing, a.slice_spacing, EDGES[other], Slices.of(image).noise_share]
        lengths = torch.tensor([told])
        for parts in zip(*(volume.unbind(normal) for volume in (*seen, *volumes))):
            turned = [(part if a.slice_axis < other else part.T)[None, None] for part in parts]
            plane = drift.apn(torch.cat(turned[:3], dim=1), lengths, rows, *turned[3:])[0, 0]
            sharp.append(plane if a.slice_axis < other else plane.T)
        families.append(torch.stack(sharp, normal))
    volume = families[0]
    if len(families) == 2:
        volume = weighed_by_loop(families, others, [EDGES[other] for other in others], a.slice_spacing)
    if steps:
        volume = with_detail(volume, a.slice_axis, a.target_spacing, a.slice_thickness, detail)
    for n in range(steps):
        other = others[n % len(others)]
        t, told, normal = torch.tensor([n / steps]), lengths[:, [0, 1, 4]], 3 - a.slice_axis - other
        planes = [p if a.slice_axis < other else p.T for p in volume.unbind(normal)]
        moved = [plane + factor * drift.velocity(plane[None, None], told, t)[0, 0] / steps for plane in planes]
        volume = torch.stack([p if a.slice_axis < other else p.T for p in moved], normal)
    return ((volume + 1) / 2 * (high - low) + low).clamp(min=0)


@pytest.mark.parametrize(("axis", "steps"), [(0, 3), (1, 0), (2, 2)])
def test_agreement_with_a_plain_loop(axis, steps, drift):
    """Planes of 16 x 16 and 16 x 24 pixels on the fine grid, which one window holds."""
    shape = [16, 24, 16]
    shape[axis] = 4
    image = stack(shape, axis, 4.0 if axis != 1 else 6.0)
    others = sorted((a for a in range(3) if a != axis), key=lambda a: -shape[a])
    one = of_box(DriftInferer(24, steps=steps, **OWN)(image, drift))
    close(one, by_loop(image, drift, others[:1], steps))
    both = of_box(DriftInferer(24, steps=steps, both_planes=True, **OWN)(image, drift))
    close(both, by_loop(image, drift, others, steps))
    assert (one - both).abs().max() > 1
    factors = {"sharp_velocity": 2.5, "sharp_detail": 1.5}
    sharp = DriftInferer(24, steps=steps or None, n_max=0, both_planes=True, sharp=True, **factors, **OWN)
    close(of_box(sharp(image, drift)), by_loop(image, drift, others, steps, factor=2.5, detail=1.5))
    mean = DriftInferer(24, steps=steps, both_planes=True, **factors, **OWN)
    close(of_box(mean(image, drift)), both, 0)


def test_planes_in_calls_of_any_size_give_one_result(drift, monkeypatch):
    image = noise_stack((5, 18, 4))
    whole = DriftInferer(steps=0, **OWN)(image, drift)
    monkeypatch.setattr(windows, "PIXELS_PER_CALL", 1)
    close(DriftInferer(steps=0, **OWN)(image, drift), whole)


def test_the_slices_beyond_the_box_are_seen_and_its_rows_are_placed():
    """A head in the middle of much air along the slice axis comes out as without that air."""
    drift, truth = perturb(fresh(), scale=0.03), torch.zeros(24, 26, 200)
    truth[..., 80:120] = head()
    scan = scan_of(truth, 5.0)[None]
    cut = scan_of(truth[..., 30:170], 5.0)[None]
    whole, part = (of_box(DriftInferer(steps=0, **OWN)(volume, drift)) for volume in (scan, cut))
    close(whole[..., 80:120], part[..., 50:90], 0.1)


# A guide


def guide_of(image, missing=None):
    """A guide on the fine grid of a stack, in its stored order; it saw nothing in `missing`."""
    a = Acquisition.of(image)
    shape = [a.fine_count if axis == a.slice_axis else n for axis, n in enumerate(image.shape[2:])]
    fine = torch.rand(shape, generator=torch.Generator().manual_seed(3)) * 2 - 1
    if missing is not None:
        fine[missing] = torch.nan
    return MetaTensor(fine[None])


def test_a_guided_result_is_a_loop_over_guided_planes(drift):
    image = stack((16, 24, 4))
    replace(Acquisition.of(image), shift=0.4).attach(image)
    guide = guide_of(image)
    result = of_box(DriftInferer(24, steps=0, both_planes=True, **OWN)(image, drift, guide))
    close(result, by_loop(image, drift, (1, 0), guide=guide))


def test_beyond_the_field_of_a_guide_the_result_is_that_without_one(drift):
    """Beyond half of the columns and the reach of the network in a plane."""
    image = stack((64, 20, 7))
    guide = guide_of(image, (slice(24, None),))
    inferer = DriftInferer(roi_size=64, steps=0, consistency="measure")
    alone, part, whole = inferer(image, drift), inferer(image, drift, guide), inferer(image, drift, guide_of(image))
    assert torch.equal(inferer(image, drift, guide_of(image, slice(None))), alone), "a guide that saw nothing"
    close(part[0, 0, 44:], alone[0, 0, 44:])
    assert (part - alone)[0, 0, :12].abs().max() > 1e-3
    assert (part - whole)[0, 0, 44:].abs().max() > 1e-3
