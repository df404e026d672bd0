"""How sharp a volume is by the page's modules, and what follows: warnings, and guides that are left alone."""

import json

import nibabel as nib
import numpy as np
import pytest
import torch

from scripts.inputs.scans import scans
from scripts.inputs.selection import Selection
from scripts.stack.spectra import interpolated, sharpness, spacing_is_lost
from tests.bundle.test_web import exported, javascript, pytestmark
from tests.stack.test_sharpness import as_slices
from tests.volumes import head, scan_of

__all__ = ["exported", "pytestmark"]
TRUTH = head((64, 64, 80))
VOLUMES = {  # a volume, the edges of its voxels, an axis that is asked for
    "sharp": (TRUTH, (1.0, 1.0, 1.0), [0, 1, 2]),
    "interpolated, of other voxels, larger than the block": (
        torch.nn.functional.pad(as_slices(5.0), (60, 40)).permute(2, 0, 1),
        (0.9, 1.1, 1.0),
        [0, 1, 2],
    ),
    "interpolated in its first half alone, of which the block sees half": (
        torch.cat([as_slices(5.0)] * 4 + [TRUTH] * 4),
        (1.0, 1.0, 1.0),
        [0, 1, 2],
    ),
    "repeated slices": (scan_of(TRUTH, 5.0)[0].as_tensor().repeat_interleave(5, 2), (1.0, 1.0, 1.0), [0, 1, 2]),
    "a stack in cubes": (scan_of(TRUTH, 5.0)[0].as_tensor(), (1.0, 1.0, 1.0), [2]),
    "noise of long voxels, dense beside that of short ones": (
        torch.randn(150, 16, 16, generator=torch.Generator().manual_seed(0)),
        (0.5, 6.0, 6.0),
        [0, 1, 2],
    ),
}
SHARPNESS = """
    const [{ readNifti }, { voxelSpacing }, spectra] =
      await get("inputs/nifti.js", "stack/grid.js", "stack/spectra.js");
    const { volume, affine } = await readNifti({ name: "a.nii", bytes: new Uint8Array(await readFile(given[0])) });
    const edges = voxelSpacing(affine);
    const sharp = spectra.sharpness(volume, edges);
    const found = spectra.interpolated(sharp, edges, JSON.parse(given[1])) ?? null;
    say({ sharp, found, lost: spectra.spacingIsLost(volume, edges) });"""


@pytest.mark.parametrize("name", VOLUMES)
def test_a_volume_is_as_sharp_as_python_says(tmp_path, name):
    volume, edges, axes = VOLUMES[name]
    volume = volume.contiguous().float()
    nib.save(nib.Nifti1Image(volume.numpy(), np.diag([*edges, 1])), tmp_path / "a.nii")
    (own,), theirs = javascript(SHARPNESS, tmp_path / "a.nii", json.dumps(axes)), sharpness(volume, edges)
    assert own["sharp"] == pytest.approx(theirs, rel=1e-6)
    found = interpolated(theirs, edges, axes)
    assert own["found"] == (None if found is None else [found[0], pytest.approx(found[1], rel=1e-6)])
    assert own["lost"] == spacing_is_lost(volume, edges)


BESIDE = """
    const [{ findScans, thickOf }, { seen }] = await get("inputs/readers.js", "inputs/examination.js");
    const read = async (name) => ({ name, bytes: new Uint8Array(await readFile(`${given[0]}/${name}`)) });
    const found = await findScans(await Promise.all((await readdir(given[0])).map(read)));
    say(seen(thickOf(found)[0], found).map(({ other, role }) => [other.scan.name, role.rank.length > 0, role.why]));"""


def test_a_guide_whose_slices_were_interpolated_is_left_alone_as_by_the_command(tmp_path, caplog):
    blurred = as_slices(5.0).clamp(min=0).numpy().astype(np.float32)
    blurred[:2] = np.nan  # a background that is no number
    for name, voxels, edge in (
        ("anna_FLAIR", scan_of(TRUTH, 5.0)[0].numpy(), 5),
        ("anna_T1w", blurred, 1),
        ("anna_T2w", TRUTH.numpy(), 1),
    ):
        nib.save(nib.Nifti1Image(voxels.astype(np.float32), np.diag([1, 1, edge, 1])), tmp_path / f"{name}.nii")
    (((best, guides, _), (other, left, why)),) = javascript(BESIDE, tmp_path)
    assert (best, guides, other, left) == ("anna_T2w.nii", True, "anna_T1w.nii", False)
    assert why.startswith("its slices were interpolated: across the thick slices it shows no more than samples ")
    (scan,) = scans(tmp_path, tmp_path / "out", Selection(1.5), guide="auto")
    assert [one.scan.path.name for one in scan.guides] == ["anna_T2w.nii"]
    (tmp_path / "anna_T2w.nii").unlink()
    with caplog.at_level("INFO", "drift"):
        (scan,) = scans(tmp_path, tmp_path / "out", Selection(1.5), guide="auto")
    assert not scan.guides and f"anna_T1w.nii: {why}" in caplog.text


def test_a_doubtful_scan_guides_none_as_by_the_command(tmp_path, caplog):
    score = np.where(TRUTH > 0, TRUTH - TRUTH[TRUTH > 0].median(), 0)  # both signs around the background's
    for name, voxels, edge in (("anna_FLAIR", scan_of(TRUTH, 5.0)[0], 5), ("anna_T1w", score, 1)):
        nib.save(nib.Nifti1Image(np.asarray(voxels, np.float32), np.diag([1, 1, edge, 1])), tmp_path / f"{name}.nii")
    (((other, left, why),),) = javascript(BESIDE, tmp_path)
    assert (other, left) == ("anna_T1w.nii", False)
    with caplog.at_level("INFO", "drift"):
        (scan,) = scans(tmp_path, tmp_path / "out", Selection(1.5), guide="auto")
    assert not scan.guides and f"anna_T1w.nii: {why}" in caplog.text
