"""Coverage of error maps against their confidence: a line for each volume and the mean of each contrast.

python -m benchmarks.coverage EVALUATION.csv PICTURE.png

The table is made by `configs/evaluate.yaml --error_map true`.
"""

import pandas as pd

from benchmarks import panels, parser_of


def draw(table, path):
    """A panel for each thickness and slice spacing."""
    columns = [name for name in table if name.startswith("coverage_")]
    nominal = [float(name.removeprefix("coverage_")) for name in columns]
    rows = table[table["statistic"].eq("value") & table[columns[0]].notna()]
    groups = dict(list(rows.groupby(["slice_thickness", "slice_spacing"])))
    figure, axes = panels(groups, 4.4)
    for panel, ((thickness, spacing), cases) in zip(axes[0], groups.items()):
        panel.plot([50, 99], [50, 99], "k:", lw=1)
        for number, (contrast, of_one) in enumerate(cases.groupby("contrast")):
            panel.plot(nominal, 100 * of_one[columns].to_numpy(float).T, f"C{number}-", lw=0.5, alpha=0.5)
            panel.plot(nominal, 100 * of_one[columns].mean(), f"C{number}o-", label=contrast)
        panel.set(title=f"{thickness:g} mm, {spacing:g} mm apart", xlabel="confidence (%)", ylabel="coverage (%)")
        panel.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=100)


def main():
    """The command."""
    parser = parser_of(__doc__)
    parser.add_argument("evaluation")
    parser.add_argument("picture")
    options = parser.parse_args()
    draw(pd.read_csv(options.evaluation), options.picture)


if __name__ == "__main__":
    main()
