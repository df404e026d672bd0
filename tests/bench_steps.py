"""Quality against the number of Euler steps: the sweep of docs/benchmarks.md, its table and its plot.

python -m tests.bench_steps DATASET_DIR OUTPUT_DIR [--thicknesses 3 5] [--steps 1 2 3 4 6] [--slab 64] [--volumes 0 6]

Whole planes of both families, as deployed; `one family`: the planes along the longer axis alone. `Heun` is the
second-order method of that name, of both families, two network evaluations for a step.
"""

from pathlib import Path

import torch

from scripts.evaluation import evaluate
from scripts.flow import euler_step
from scripts.inference import DriftInferer, window_size
from scripts.networks import Drift
from scripts.training import fast_bfloat16
from tests.bench_common import held_out, panels, shipped_network, sweep_parser

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
    """Power deficit against PSNR in the head: a panel for each contrast and thickness."""
    groups = list(dict.fromkeys((e["contrast"], e["slice_thickness"]) for e in summary))
    figure, axes = panels(groups, 4.4)
    for panel, (contrast, thickness) in zip(axes[0], groups):
        rows = [e for e in summary if (e["contrast"], e["slice_thickness"]) == (contrast, thickness)]
        band = "power_middle" if rows[0]["power_middle"]["n"] else "power_high"
        for name, style in (("both, N = ", "o-"), ("one family, N = ", "s-"), ("Heun, N = ", "x--"), ("AIS", "*")):
            found = [e for e in rows if e["method"].startswith(name)]
            line = [(e["psnr_head"]["mean"], e[band]["mean"]) for e in found]
            panel.plot(*zip(*line), style, ms=13 if name == "AIS" else 5, label=name.removesuffix(", N = "))
            for e, point in zip(found, line):
                panel.annotate(e["method"].removeprefix(name), point, xytext=(3, 4), textcoords="offset points")
        panel.set(title=f"{contrast}, {thickness:g} mm: {BANDS[band]}", xlabel="PSNR in head (dB)")
    axes[0, 0].set_ylabel("power / true power (dB)")
    axes[0, 0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main():
    """Writes the tables of `evaluate` and `steps.png`, and prints a table."""
    parser = sweep_parser(__doc__, slab=64)
    parser.add_argument("--steps", type=int, nargs="+", default=[1, 2, 3, 4, 6])
    options = parser.parse_args()
    deployed = {"roi_size": window_size("fast"), "both_planes": True, "bfloat16": fast_bfloat16("cpu")}
    inferers = {f"both, N = {n}": DriftInferer(steps=n, **deployed) for n in [0, *options.steps]}
    inferers |= {
        f"one family, N = {n}": DriftInferer(steps=n, **{**deployed, "both_planes": False}) for n in [0, *options.steps]
    }
    inferers |= {f"Heun, N = {n}": HeunInferer(steps=n // 2, **deployed) for n in options.steps if n % 2 == 0}
    inferers["AIS"] = DriftInferer(n_max=options.n_max, **deployed)
    network = shipped_network(options.ckpt_path)
    folder = Path(options.output_dir)
    summary = evaluate(held_out(options), network, inferers, folder, options.thicknesses, slab=options.slab)["summary"]
    print("| contrast | T (mm) | method | N | over cubic (dB) | " + " | ".join(BANDS.values()) + " |")
    print("|---" * (5 + len(BANDS)) + "|")
    for e in summary:
        group = [o for o in summary if all(o[key] == e[key] for key in ("contrast", "slice_thickness"))]
        (cubic,) = (o["psnr_head"]["mean"] for o in group if o["method"] == "cubic spline")
        bands = " | ".join(f"{e[band]['mean']:.1f}" for band in BANDS)
        gain = e["psnr_head"]["mean"] - cubic
        print(f"| {e['contrast']} | {e['slice_thickness']:g} | {e['method']} | {e['n']} | {gain:+.2f} | {bands} |")
    draw([e for e in summary if e["method"] in inferers], folder / "steps.png")


if __name__ == "__main__":
    main()
