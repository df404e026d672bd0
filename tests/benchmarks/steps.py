"""Quality against the number of Euler steps: the sweep of docs/benchmarks.md, its table and its plot.

python -m tests.benchmarks.steps DATASET_DIR OUTPUT_DIR [--steps 1 2 3 4 6] [--slab 64] [--volumes 0 6]

Whole planes of both families, as deployed; `one family`: the planes along the longer axis alone. `Heun` is the
second-order method of that name, of both families, two network evaluations for a step.
"""

from pathlib import Path

import torch

from scripts.evaluate.paired import evaluate
from scripts.evaluate.tables import group_means
from scripts.method.flow import euler_step
from scripts.method.networks import Drift
from scripts.rebuild.inferer import DriftInferer
from tests.benchmarks import CUBIC, deployed, held_out, method, panels, shipped_network, sweep_parser

BANDS = {"power_low": "1/2T to 1/T", "power_middle": "1/T to half Nyquist", "power_high": "half Nyquist to Nyquist"}


class HeunDrift(Drift):
    """Both stages, the flow by Heun's method: a step goes with the mean of the velocities at its two ends."""

    def modulations(self, thickness, times):
        """As `Drift`, the last time included."""
        return super().modulations(thickness, torch.cat([times, times[-1:]]))

    def refine(self, x, modulations, times):
        """As `Drift`."""
        for n in range(len(times) - 1):
            v = self.velocity.unet(x, modulations[n])
            ahead = euler_step(x, v, times[n], times[n + 1])
            x = euler_step(x, (v + self.velocity.unet(ahead, modulations[n + 1])) / 2, times[n], times[n + 1])
        return x


class HeunInferer(DriftInferer):
    """`DriftInferer` by Heun's method."""

    def __call__(self, inputs, network):
        """As `DriftInferer`."""
        return super().__call__(inputs, HeunDrift(network.apn, network.velocity))


def draw(table, path):
    """Power deficit against PSNR in the head: a panel for each contrast and thickness."""
    groups = dict(list(table.groupby(["contrast", "slice_thickness"], sort=False)))
    figure, axes = panels(groups, 4.4)
    for panel, ((contrast, thickness), rows) in zip(axes[0], groups.items()):
        band = "power_middle" if rows["power_middle", "n"].any() else "power_high"
        methods = rows.index.get_level_values("method")
        for name, style in (("both, N = ", "o-"), ("one family, N = ", "s-"), ("Heun, N = ", "x--"), ("AIS", "*")):
            found = rows[methods.str.startswith(name)]
            line = list(zip(found["psnr_head", "mean"], found[band, "mean"]))
            panel.plot(*zip(*line), style, ms=13 if name == "AIS" else 5, label=name.removesuffix(", N = "))
            for label, point in zip(found.index.get_level_values("method"), line):
                panel.annotate(label.removeprefix(name), point, xytext=(3, 4), textcoords="offset points")
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
    inferers = {f"both, N = {n}": deployed(steps=n) for n in [0, *options.steps]}
    inferers |= {f"one family, N = {n}": deployed(steps=n, both_planes=False) for n in [0, *options.steps]}
    inferers |= {
        f"Heun, N = {n}": deployed(_target_=HeunInferer, steps=n // 2) for n in options.steps if n > 0 and n % 2 == 0
    }
    inferers["AIS"] = deployed()
    network = shipped_network(options.ckpt_path)
    methods = CUBIC | {name: method(network, inferer) for name, inferer in inferers.items()}
    folder = Path(options.output_dir)
    table = group_means(evaluate(held_out(options), methods, folder, options.thicknesses, slab=options.slab))
    print("| contrast | T (mm) | method | N | over cubic (dB) | " + " | ".join(BANDS.values()) + " |")
    print("|---" * (5 + len(BANDS)) + "|")
    for (thickness, spacing, contrast, name), line in table.iterrows():
        cubic = table.loc[(thickness, spacing, contrast, "cubic spline")]
        gain = line["psnr_head", "mean"] - cubic["psnr_head", "mean"]
        bands = " | ".join(f"{line[band, 'mean']:.1f}" for band in BANDS)
        print(f"| {contrast} | {thickness:g} | {name} | {line['psnr', 'n']:.0f} | {gain:+.2f} | {bands} |")
    draw(table.drop("cubic spline", level="method"), folder / "steps.png")


if __name__ == "__main__":
    main()
