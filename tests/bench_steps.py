"""Quality against the number of Euler steps: the sweep of docs/benchmarks.md, its table and its plot.

python -m tests.bench_steps DATASET_DIR OUTPUT_DIR [--thicknesses 3 5] [--steps 1 2 4 8 15] [--slab 8]

`Heun` is the second-order method of that name at the same number of network evaluations, two for a step.
"""

import argparse
from pathlib import Path

import matplotlib
import torch
from monai.bundle import ConfigParser

from scripts.datasets import sharp_volumes
from scripts.evaluation import evaluate
from scripts.flow import euler_step
from scripts.inference import DriftInferer
from scripts.networks import Drift, load_weights

BANDS = {"power_low": "1/2T to 1/T", "power_middle": "1/T to half Nyquist", "power_high": "half Nyquist to Nyquist"}


class HeunDrift(Drift):
    """Both stages, the flow by Heun's method: a step goes with the mean of the velocities at its two ends."""

    def modulations(self, thickness, times):
        """As `Drift`, the last time included."""
        return super().modulations(thickness, torch.cat([times, times[-1:]]))

    def integrate(self, image, apn_modulation, velocity_modulations, times):
        """As `Drift`."""
        x = self.apn.project(image, apn_modulation)
        for n in range(len(times) - 1):
            v = self.velocity.unet(x, velocity_modulations[n])
            ahead = euler_step(x, v, times[n], times[n + 1])
            x = euler_step(x, (v + self.velocity.unet(ahead, velocity_modulations[n + 1])) / 2, times[n], times[n + 1])
        return x


class HeunInferer(DriftInferer):
    """`DriftInferer` by Heun's method."""

    def __call__(self, inputs, network):
        """As `DriftInferer`."""
        return super().__call__(inputs, HeunDrift(network.apn, network.velocity))


def draw(summary, path):
    """Power deficit against PSNR in the head: a panel for each contrast and thickness, a line for each band."""
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    groups = sorted({(e["contrast"], e["slice_thickness"]) for e in summary}, reverse=True)
    figure, panels = plt.subplots(1, len(groups), figsize=(4.2 * len(groups), 4), squeeze=False)
    for panel, (contrast, thickness) in zip(panels[0], groups):
        rows = [e for e in summary if (e["contrast"], e["slice_thickness"]) == (contrast, thickness)]
        sweep = [e for e in rows if e["method"].startswith("N = ")]
        (ais,) = [e for e in rows if e["method"] == "AIS"]
        for band, name in BANDS.items():
            if not sweep[0][band]["n"]:
                continue
            line = [(e["psnr_head"]["mean"], e[band]["mean"]) for e in sweep]
            (drawn,) = panel.plot(*zip(*line), "o-", label=name)
            panel.plot(ais["psnr_head"]["mean"], ais[band]["mean"], "*", ms=13, color=drawn.get_color())
            heun = [e for e in rows if e["method"].startswith("Heun")]
            panel.plot(*zip(*((e["psnr_head"]["mean"], e[band]["mean"]) for e in heun)), "x--", color=drawn.get_color())
            for e, point in zip(sweep, line):
                panel.annotate(e["method"].removeprefix("N = "), point, xytext=(3, 4), textcoords="offset points")
        panel.set(title=f"{contrast}, {thickness:g} mm (star: AIS, cross: Heun)", xlabel="PSNR in head (dB)")
        panel.axhline(0, color="grey", lw=0.5)
    panels[0, 0].set_ylabel("power / true power (dB)")
    panels[0, 0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main():
    """Writes the tables of `evaluate` and `steps.png`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset_dir")
    parser.add_argument("output_dir")
    parser.add_argument("--ckpt_path", default="models/model.pt")
    parser.add_argument("--thicknesses", type=float, nargs="+", default=[3.0, 5.0])
    parser.add_argument("--steps", type=int, nargs="+", default=[1, 2, 4, 8, 15])
    parser.add_argument("--slab", type=int, default=8)
    parser.add_argument("--n_max", type=int, default=4, help="of AIS")
    parser.add_argument("--volumes", type=int)
    options = parser.parse_args()
    config = ConfigParser()
    config.read_config("configs/inference.yaml")
    network = load_weights(config.get_parsed_content("network_def"), options.ckpt_path)
    inferers = {f"N = {n}": DriftInferer(steps=n) for n in [0, *options.steps]}
    inferers |= {f"Heun, {n} evaluations": HeunInferer(steps=n // 2) for n in options.steps if n % 2 == 0}
    results = evaluate(
        sharp_volumes(options.dataset_dir, "validation")[: options.volumes],
        network.to(memory_format=torch.channels_last),
        inferers | {"AIS": DriftInferer(n_max=options.n_max)},
        options.output_dir,
        options.thicknesses,
        slab=options.slab,
    )
    draw(results["summary"], Path(options.output_dir) / "steps.png")


if __name__ == "__main__":
    main()
