"""The picture of gains on the README, from the tables of docs/benchmarks.md and its appendix.

python -m benchmarks.gains docs/gains.png
"""

import re
from pathlib import Path

from benchmarks import panels, parser_of

ROOT = Path(__file__).parents[1]
GAINS = ("docs/benchmarks.md", "T (mm) | T1w")  # page, beginning of the table's heading
GUIDED = ("docs/benchmarks_appendix.md", "T (mm) | scan | guide | cubic")
COLORS = {"3": "#7fb2d9", "5": "#1f5f99"}  # by thickness
WIDTH = 0.38  # of a bar


def table(page, heading):
    """Rows of the table that begins so, each by the names of its columns."""
    text = (ROOT / page).read_text(encoding="utf-8")
    block = text[text.index(f"| {heading}") :].split("\n\n")[0]
    names, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines())
    return [dict(zip(names, row)) for row in rows]


def bars(axes, rows, labels, values, smallest=None):
    """A pair of bars for each label, one for each thickness; a line marks the smallest of several scans."""
    for side, (thickness, color) in zip((-0.5, 0.5), COLORS.items()):
        heights = [values(rows, thickness, label) for label in labels]
        places = [k + side * WIDTH for k in range(len(labels))]
        axes.bar(places, heights, WIDTH, color=color, label=f"{thickness} mm slices")
        for place, height in zip(places, heights):
            axes.text(place, height + 0.06, f"{height + 1e-9:.1f}", ha="center", fontsize=9)
        if smallest:
            lows = [smallest(rows, thickness, label) for label in labels]
            axes.hlines(lows, [p - WIDTH / 2 for p in places], [p + WIDTH / 2 for p in places], "black", lw=1.2)
    axes.set_xticks(range(len(labels)), labels)
    axes.spines[["top", "right"]].set_visible(False)


def gain(rows, thickness, contrast):
    """Mean of all scans of a contrast."""
    (row,) = (row for row in rows if row["T (mm)"] == thickness)
    return float(row[contrast].split("±")[0])


def least(rows, thickness, contrast):
    """The scan that gains least."""
    (row,) = (row for row in rows if row["T (mm)"] == thickness)
    return float(re.search(r"\((.*)\)", row[contrast])[1])


def brought(rows, thickness, pair):
    """dB of the guided result over that without a guide."""
    scan, guide = pair.split(" by ")
    (row,) = (r for r in rows if (r["T (mm)"], r["scan"], r["guide"]) == (thickness, scan, guide))
    return float(row["DRIFT, guided"]) - float(row["DRIFT"])


def main():
    """Draws both panels."""
    parser = parser_of(__doc__)
    parser.add_argument("picture", type=Path)
    options = parser.parse_args()
    gains, guided = table(*GAINS), table(*GUIDED)
    figure, ((left, right),) = panels(("gain", "guide"), 4.8)
    bars(left, gains, [name for name in gains[0] if name != "T (mm)"], gain, least)
    left.set_title("DRIFT over the cubic spline\nten scans of seven people; lines: smallest", fontsize=10)
    left.set_ylabel("PSNR in the head (dB)")
    left.legend(frameon=False, fontsize=9, loc="upper right", ncols=2)
    left.set_ylim(0, 4.6)
    bars(right, guided, [f"{r['scan']} by {r['guide']}" for r in guided if r["T (mm)"] == "3"], brought)
    right.set_title("A guide adds\none person, four contrasts", fontsize=10)
    right.tick_params(axis="x", labelsize=8, rotation=90)
    right.set_ylim(0, 4.6)
    figure.tight_layout()
    figure.savefig(options.picture, dpi=110)


if __name__ == "__main__":
    main()
