"""Quality and time against window size, overlap, planes and precision: the table of docs/benchmarks.md and its plot.

python -m tests.benchmarks.windows DATASET_DIR OUTPUT_DIR [--thicknesses 3 5] [--slab 24] [--volumes 0 6]

One family of planes; the time is that of this process, so run nothing else.
"""

import time
from pathlib import Path

from scripts.evaluate.paired import evaluate
from scripts.evaluate.tables import group_means, markdown
from scripts.rebuild.inferer import DriftInferer
from tests.benchmarks import deployed, held_out, method, panels, shipped_network, sweep_parser

PAPER = {"roi_size": 128, "both_planes": False, "bfloat16": False}
WINDOWS = {  # name -> how it differs from the paper's windows
    "128, overlap 64": {"overlap": 0.5},
    "128, overlap 32": {},
    "128, overlap 16": {"overlap": 0.125},
    "128, overlap 0": {"overlap": 0.0},
    "96, overlap 24": {"roi_size": 96},
    "192, overlap 48": {"roi_size": 192},
    "whole planes": {"roi_size": 512},
    "128, overlap 32, bfloat16": {"bfloat16": True},
    "whole planes, bfloat16": {"roi_size": 512, "bfloat16": True},
}


class TimedInferer(DriftInferer):
    """Adds up its own seconds."""

    seconds = 0.0

    def __call__(self, inputs, network):
        """As `DriftInferer`."""
        start = time.perf_counter()
        result = super().__call__(inputs, network)
        self.seconds += time.perf_counter() - start
        return result


def draw(rows, path):
    """Seconds against PSNR in the head: a panel for each contrast and thickness."""
    groups = list(dict.fromkeys(row[:2] for row in rows))
    figure, axes = panels(groups, 5)
    for panel, group in zip(axes[0], groups):
        for (_, _, name, seconds, line), marker in zip((row for row in rows if row[:2] == group), "o^vs<>*DP"):
            panel.plot(seconds, line["psnr_head", "mean"], marker, ms=8, alpha=0.7, label=name)
        panel.set(title=f"{group[0]}, {group[1]:g} mm", xlabel="time over that of 128, overlap 32")
    axes[0, 0].set_ylabel("PSNR in head (dB)")
    axes[0, -1].legend(fontsize=8, loc="center left", bbox_to_anchor=(1.02, 0.5))
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main():
    """Writes the tables of `evaluate` and `windows.png`, and prints a table."""
    options = sweep_parser(__doc__, slab=24).parse_args()
    network, volumes = shipped_network(options.ckpt_path), held_out(options)
    rows = []
    for thickness in options.thicknesses:
        inferers = {
            name: deployed(**{"_target_": TimedInferer, **PAPER, **settings}) for name, settings in WINDOWS.items()
        }
        methods = {name: method(network, inferer) for name, inferer in inferers.items()}
        folder = Path(options.output_dir) / f"{thickness:g}"
        table = group_means(evaluate(volumes, methods, folder, [thickness], slab=options.slab))
        unit = inferers["128, overlap 32"].seconds
        rows += [
            (contrast, thickness, name, inferers[name].seconds / unit, line)
            for (_, _, contrast, name), line in table.iterrows()
        ]
    columns = {"psnr_head": 2, "ssim": 4, "grad_rmse": 4, "power_low": 1, "power_middle": 1, "power_high": 1}
    table = [
        (contrast, f"{thickness:g}", name, f"{seconds:.2f}", *(f"{line[k, 'mean']:.{n}f}" for k, n in columns.items()))
        for contrast, thickness, name, seconds, line in rows
    ]
    print(markdown(dict(zip(("contrast", "T (mm)", "windows", "time", *columns), zip(*table)))))
    draw(rows, Path(options.output_dir) / "windows.png")


if __name__ == "__main__":
    main()
