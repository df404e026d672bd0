"""Which part of a stack the networks see, in which windows, and how many at once."""

import numpy as np
import pytest
import torch

from scripts.errors import InputError
from scripts.rebuild.inferer import DriftInferer
from scripts.rebuild.windows import air_margin, in_parts, signal_box
from scripts.stack.slices import Slices
from tests.loops import in_unit
from tests.rebuild.test_inferer import OWN, Pointwise, arrays, close, doubled, of_box
from tests.volumes import noise_stack

BOX = (slice(30, 71), slice(3, 40), slice(4, 10))  # of the thick grid
FINE = (*BOX[:2], slice(20, 50))


def head_in_air(shape, box, noise=0.0):
    """Texture in a box, with air around it: 0, or noise of this share of the head's range."""
    image = noise_stack(shape)
    head = 500 + 0.5 * image.as_tensor()[0, 0][box].clone()
    image.as_tensor()[:] = 500 * noise * torch.rand(image.shape, generator=torch.Generator().manual_seed(3))
    image.as_tensor()[0, 0][box] = head
    return image


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_the_box_holds_the_head_with_air_around_it_and_no_more(noise):
    unit, _, _ = in_unit(*arrays(head_in_air((90, 64, 14), BOX, noise)))
    for found, true, size in zip(signal_box(unit), FINE, (90, 64, 70)):
        assert found.start <= max(true.start - 8, 0) and found.start >= max(true.start - 16, 0)
        assert found.stop >= min(true.stop + 8, size) and found.stop <= min(true.stop + 16, size)


@pytest.mark.parametrize(("level", "kept"), [(-0.97, False), (-0.92, False), (-0.88, True), (-0.8, True)])
def test_tissue_is_what_is_brighter_than_a_twentieth_of_the_range(level, kept):
    """-0.9 of [-1, 1], in the mean over a block of 8 voxels."""
    volume = torch.full((48, 48, 48), -1.0)
    volume[16:24, 16:24, 16:24] = level
    assert bool(volume[signal_box(volume)].numel()) is kept
    volume[:] = -1
    volume[16, 16, 16] = 5  # a lone bright voxel in air
    assert not volume[signal_box(volume)].numel()


def test_air_keeps_its_input_and_costs_nothing():
    image, network = head_in_air((90, 64, 14), BOX, 0.1), Pointwise()
    unit, low, high = in_unit(*arrays(image))
    expected = (unit + 1) / 2 * (high - low) + low
    box = signal_box(unit)
    expected[box] = doubled(image)[box]
    close(of_box(DriftInferer(16, **OWN)(image, network)), expected)
    assert sum(call[0].numel() for call in network.calls) < unit.numel()


@pytest.mark.parametrize("value", [0.0, 300.0, -7.0])
def test_a_constant_scan_is_untouched_takes_no_steps_and_says_so(value):
    image, network = noise_stack((9, 18, 4)), Pointwise()
    image.as_tensor()[:] = value
    rebuilt = DriftInferer(8).rebuilt(Slices.of(image), network)
    close(rebuilt.volume.as_tensor(), torch.full((9, 18, 20), value), 1e-4)
    assert not network.calls
    assert (rebuilt.steps, rebuilt.steps_source) == (0, "none: the scan is constant")


def test_a_volume_without_air_is_its_own_box():
    unit, _, _ = in_unit(*arrays(noise_stack((19, 33, 14))))
    assert signal_box(unit) == (slice(0, 19), slice(0, 33), slice(0, 70))


@pytest.mark.parametrize(("dark", "pixels"), [(0.0, 16), (0.04, 16), (0.06, 0), (1.0, 0)])
def test_planes_with_less_than_a_twentieth_of_air_are_given_16_pixels(dark, pixels):
    planes = torch.zeros(100, 1, 4, 4)
    planes[: round(100 * dark)] = -0.95
    assert air_margin(planes) == pixels


# --- windows ---


def test_windows_per_call_change_nothing(drift):
    image = noise_stack((3, 22, 4))
    expected, *results = (DriftInferer(16, 0.25, count, steps=1)(image, drift) for count in (5, 1, 100))
    for result in results:
        close(result, expected)


@pytest.mark.parametrize(("holds", "calls"), [(6, [11, 6, 5]), (3, [11, 6, 3, 3, 5, 3, 2])])
def test_calls_that_exceed_a_gpus_memory_are_repeated_in_halves(holds, calls, caplog):
    sizes = []

    def small_gpu(windows):
        sizes.append(len(windows))
        if len(windows) > holds:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return 2 * windows

    windows = torch.randn(11, 1, 4, 4)
    assert torch.equal(in_parts(small_gpu, windows), 2 * windows)
    assert sizes == calls
    assert "does not hold 11 windows" in caplog.text


def test_a_window_that_exceeds_a_gpus_memory_is_an_error_that_says_what_to_do():
    def full_gpu(windows):
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(InputError, match=r"does not hold one plane or window.*CUDA_VISIBLE_DEVICES"):
        in_parts(full_gpu, torch.zeros(4, 1, 4, 4))


def test_windows_take_as_many_pixels_as_eight_of_the_papers():
    """8 windows of 128 pixels, 128 of 32."""
    for roi, edge, count in ((128, 128, 8), (32, 32, 128)):
        network = Pointwise()
        DriftInferer(roi, **OWN)(noise_stack((130, edge, edge // 4), spacing=4.0), network)
        assert len(network.calls[0][0]) == min(count, 130) and np.prod(network.calls[0][0].shape[2:]) == edge**2
