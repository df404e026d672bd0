"""Intensities of a derived series, and that it is complete or absent."""

import itertools
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from pydicom import Dataset

from scripts.errors import InputError
from scripts.inputs.dicom import find_series, read_series
from scripts.outputs.dicom import write_series
from tests.dicom_files import SHAPE, derived, images_of, mr_slices, rebuilt, save, taken

# --- intensities ---


@pytest.mark.parametrize(
    "factor, slope, intercept, overshoot, step, signed",
    [
        (1, None, None, 0, 1, False),
        (1, None, None, 40, 1, True),
        (90, None, None, 0, 1, False),  # up to 64710: only unsigned integers reach it
        (90, None, None, 40, 1, False),  # -40 to 64710: shifted
        (1, 0.5, -100, 20, 0.5, True),
        (1, 1e-6, 0, 0, 1e-6, False),
        (1, 1e-6, 0, 1.0, 1e-6 * 719 / 65534 + 1 / 65534, False),  # too wide for the step: all 65536 values
    ],
)
def test_intensities_come_back_within_half_a_step(tmp_path, voxels, factor, slope, intercept, overshoot, step, signed):
    rescale = {} if slope is None else {"RescaleSlope": slope, "RescaleIntercept": intercept}
    array, _, images = derived(tmp_path, mr_slices(voxels * factor, **rescale), overshoot=overshoot)
    slopes = [float(image.get("RescaleSlope", 1)) for image in images]
    np.testing.assert_allclose(slopes, step, rtol=1e-3)
    assert {image.PixelRepresentation for image in images} == {int(signed)}
    back = np.stack([i.pixel_array.T * slopes[0] + float(i.get("RescaleIntercept", 0)) for i in images], axis=-1)
    assert abs(back - array).max() <= 0.5 * slopes[0] * (1 + 1e-6)
    assert back.min() < 0 or not overshoot


def test_the_finest_slope_of_the_slices_is_the_step(tmp_path, voxels):
    source = mr_slices(voxels, RescaleSlope=lambda k: 0.25 * (1 + k), RescaleIntercept=0)
    assert {float(image.RescaleSlope) for image in derived(tmp_path, source)[2]} == {0.25}


def test_the_slope_of_real_world_values_is_the_step_where_no_other_is_there(tmp_path, voxels):
    """In steps of 1 all 720 values would be 0 or 1."""
    mapping = Dataset()
    mapping.RealWorldValueSlope, mapping.RealWorldValueIntercept = 0.001, -0.1
    source = mr_slices(voxels, RealWorldValueMappingSequence=[mapping])
    array, _, images = derived(tmp_path, source)
    assert {(float(one.RescaleSlope), float(one.RescaleIntercept)) for one in images} == {(0.001, -0.1)}
    assert len(np.unique([one.pixel_array for one in images])) > 500 and array.max() < 1


def test_a_plain_series_stays_without_rescaling(tmp_path, voxels):
    assert "RescaleSlope" not in derived(tmp_path, mr_slices(voxels))[2][0]


def test_a_constant_volume_is_written(tmp_path, voxels):
    source = mr_slices(np.full_like(voxels, 7), RescaleSlope=1e-3, RescaleIntercept=1e6)
    array, _, images = derived(tmp_path, source)
    assert float(images[0].pixel_array[0, 0] * images[0].RescaleSlope + images[0].RescaleIntercept) == array[0, 0, 0]


def test_warnings_in_any_script_are_kept_within_a_long_text(tmp_path, voxels):
    (source,) = taken(save(tmp_path / "source", mr_slices(voxels, SpecificCharacterSet="ISO_IR 100")))
    array, affine = rebuilt(read_series(source))
    write_series(tmp_path / "sr", array, affine, source, "1.2.3", "key", warnings=["Köpfe → moved.", "b" * 11_000])
    comments = images_of(tmp_path / "sr")[0].ImageComments
    assert comments.startswith("Warning: Köpfe → moved. Warning: bbb") and len(comments) == 5_000


# --- complete or absent ---
def test_an_earlier_result_is_replaced_and_anything_else_is_refused(tmp_path, voxels):
    (source,) = taken(save(tmp_path / "source", mr_slices(voxels)))
    volume = read_series(source)
    sr = tmp_path / "new" / "sr"
    for count in (6, 4):
        write_series(sr, volume.dataobj[:, :, :count], volume.affine, source, "1", "key")
        assert [path.name for path in sorted(sr.iterdir())] == [f"{k:04d}.dcm" for k in range(1, count + 1)]
    assert [path.name for path in sr.parent.iterdir()] == ["sr"]
    (sr / "thesis.doc").touch()
    with pytest.raises(InputError, match="was not written by DRIFT"):
        write_series(sr, volume.dataobj, volume.affine, source, "1", "key")
    assert len(list(sr.iterdir())) == 5


def killed(step, *given):
    """Writes in a process that dies before one step of putting the result in its place."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    steps = itertools.count()

    def deadly(call):
        return lambda *arguments, **options: os._exit(9) if next(steps) == step else call(*arguments, **options)

    Path.rename, shutil.rmtree = deadly(Path.rename), deadly(shutil.rmtree)
    write_series(*given)
    os._exit(0)


@pytest.mark.parametrize("step", [0, 1, 2])
def test_after_a_kill_there_is_a_whole_result_and_nothing_hidden(tmp_path, voxels, step):
    """The steps: the old result goes aside, the new one takes its place, the old one is removed."""
    (source,) = taken(save(tmp_path / "source", mr_slices(voxels)))
    volume = read_series(source)
    sr, new = tmp_path / "out" / "sr", volume.dataobj[::-1].copy()
    rest = (volume.affine, source, "1", "key")

    def found():
        assert [path.name for path in sr.parent.iterdir()] == ["sr"]
        return np.stack([image.pixel_array.T for image in images_of(sr)], axis=-1)

    write_series(sr, volume.dataobj, *rest)
    assert killed(step, sr, new, *rest) == 9
    assert any(path.name.startswith(".") for path in sr.parent.iterdir())
    with pytest.raises(InputError, match="NaN"):
        write_series(sr, np.full(SHAPE, np.nan), *rest)
    np.testing.assert_array_equal(found(), new if step == 2 else volume.dataobj)
    killed(step, sr, new, *rest)
    write_series(sr, new, *rest)
    np.testing.assert_array_equal(found(), new)


def test_what_cannot_be_written_leaves_nothing(tmp_path, voxels):
    (source,) = taken(save(tmp_path / "source", mr_slices(voxels)))
    volume = read_series(source)
    hole = volume.dataobj.copy()
    hole[0, 0, 0] = np.nan
    with pytest.raises(InputError, match="NaN or infinite"):
        write_series(tmp_path / "sr", hole, volume.affine, source, "1", "key")
    (odd,) = find_series(save(tmp_path / "odd", mr_slices(voxels, PhotometricInterpretation="NONSENSE")))
    with pytest.raises(ValueError):
        write_series(tmp_path / "sr", volume.dataobj, volume.affine, odd, "1", "key")
    shutil.rmtree(tmp_path / "source")
    with pytest.raises(InputError, match=r"source/000 cannot be read .*No such file"):
        write_series(tmp_path / "sr", volume.dataobj, volume.affine, source, "1", "key")
    assert [path.name for path in tmp_path.iterdir()] == ["odd"]
