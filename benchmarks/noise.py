"""PSNR, streaks and lesions by contrast, noise and in-plane interpolation, for docs/benchmarks.md.

python -m benchmarks.noise DATALIST [--slab 48] [--contrasts FLAIR] [--folder FOLDER]

The first held-out volume of each contrast becomes slices with Rician noise, white in the acquired matrix, whose pixels
are 1 or 1.6 times as wide as the image's. Gains count over the cubic spline, beside the raw truth and the denoised one.
With FOLDER the slices are saved in FOLDER/slices; results of other versions or methods, FOLDER/NAME/..._sr.nii.gz, are
measured as well:

    drift-mri FOLDER/slices -o FOLDER/0.20.0
"""

from pathlib import Path

import nibabel as nib
import numpy as np
import torch

from benchmarks import deployed, parser_of_volumes, shipped_network
from scripts.evaluate.paired import Truth, by_networks, read_lesion_sizes, volume_of
from scripts.evaluate.tables import markdown
from scripts.rebuild.device import default_device
from scripts.stack.acquisition import Acquisition
from scripts.stack.grid import voxel_spacing
from scripts.stack.interpolation import interpolate
from scripts.stack.noise import Noise
from scripts.stack.slices import Slices
from scripts.train.datasets import sharp_volumes
from scripts.train.denoising import denoised
from scripts.train.simulation import acquired_truth, central_slab, scanned
from scripts.train.truth import read_volume

NOISE = (0.0, 0.02, 0.04, 0.08)  # of the range of tissue
WIDTHS = (1.0, 1.6)  # pixels


def simulated(item, width, thickness, slab):
    """The truth of a volume as a matrix of that width shows it, and the acquisition of its slices."""
    volume = read_volume(item["label"])
    axis, sizes = item["sharp_axes"][-1], read_lesion_sizes(item, volume)
    whole = acquired_truth(volume, axis, Noise(0.0, (width, width)))
    sharp, clean = (central_slab(one, axis, slab) for one in (whole, denoised(whole, item["sharp_axes"])))
    kept = None if sizes is None else central_slab(sizes, axis, slab)
    edge = float(voxel_spacing(volume.affine)[axis])
    truth = Truth(Path(item["label"]).name, sharp, axis, kept, denoised=clean.as_tensor()[0])
    return truth, Acquisition.of_truth(axis, sharp.shape[1 + axis], edge=edge, thickness=thickness * edge)


def saved_results(folder, name, thick, sharp):
    """Saves slices below a folder, and reads others' results on them: name -> volume on the grid of the truth."""
    place = folder / "slices" / f"{name}.nii.gz"
    place.parent.mkdir(parents=True, exist_ok=True)
    nib.save(nib.Nifti1Image(thick.as_tensor()[0].numpy(), thick.affine.numpy()), place)
    found = {}
    for path in sorted(folder.glob(f"*/{name}_sr.nii.gz")):
        result = nib.load(path)  # as long as its slices, of which the outermost reach beyond the truth
        first = np.linalg.solve(result.affine, sharp.affine.numpy())[:3, 3].round().astype(int)
        part = tuple(slice(start, start + size) for start, size in zip(first, sharp.shape[1:]))
        found[path.parent.name] = torch.from_numpy(np.array(result.dataobj[part], np.float32))
    return found


def main():
    """Prints the table."""
    parser = parser_of_volumes(__doc__)
    parser.add_argument("--slab", type=int, default=48, help="planes of a volume (default: 48)")
    parser.add_argument("--thickness", type=float, default=5.0, help="voxels that a slice spans (default: 5)")
    parser.add_argument("--contrasts", nargs="+", help="those alone (default: all)")
    parser.add_argument("--folder", type=Path, help="slices are saved there, and results of others are read")
    options = parser.parse_args()
    network, device = shipped_network(options.ckpt_path), default_device()
    methods = {"stage 1": deployed(options.ckpt_path, steps=0), "DRIFT": deployed(options.ckpt_path)}
    items = {item["contrast"]: item for item in reversed(sharp_volumes(options.datalist, "validation"))}
    rows = []
    for contrast in sorted(options.contrasts or items):
        item = items[contrast]
        for width in WIDTHS:
            truth, acquisition = simulated(item, width, options.thickness, options.slab)
            for noise in NOISE:
                generator = torch.Generator().manual_seed(1)
                thick = scanned(truth.sharp, acquisition, Noise(noise, (width, width)), generator)
                slices = Slices.of(thick)
                volumes = {"spline": interpolate(slices.array, slices.acquisition, "cubic")}
                for name, inferer in methods.items():
                    made = by_networks(thick.clone(), acquisition, network=network, inferer=inferer, device=device)
                    volumes[name] = volume_of(made)[0]
                if options.folder is not None:
                    name = f"{contrast}_{width:g}_{noise:g}".replace(".", "p")
                    volumes |= saved_results(options.folder, name, thick, truth.sharp)
                found = {name: truth.measure(volume, slices.acquisition) for name, volume in volumes.items()}
                spline = found["spline"]
                for name, row in found.items():
                    gains = [row[key] - spline[key] for key in ("psnr_head", "psnr_denoised")]
                    rows.append(
                        {
                            "contrast": contrast,
                            "width": f"{width:g}",
                            "noise (%)": f"{100 * noise:g}",
                            "found (%)": f"{100 * slices.noise_share:.1f}",
                            "method": name,
                            "gain (dB)": f"{gains[0]:+.2f}",
                            "beside the denoised truth": f"{gains[1]:+.2f}",
                            "streak": f"{row['streak']:.2f}",
                            "steps within slices (%)": f"{row['streak_steps']:.2f}",
                            "lesions": f"{row['lesions']:.2f}",
                            "small ones": f"{row['small_lesions']:.2f}",
                        }
                    )
                    print(*rows[-1].values(), flush=True)
    print(markdown({name: [row[name] for row in rows] for name in rows[0]}))


if __name__ == "__main__":
    main()
