"""What a person looks at: the page of a rebuilt scan."""

from __future__ import annotations

import base64
import html
import io
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from monai.data import MetaTensor
from nibabel.orientations import apply_orientation, io_orientation
from PIL import Image
from torch import Tensor

from . import spectra
from .files import whole_file
from .grid import voxel_spacing

logger = logging.getLogger("drift")

WIDTH = 420  # pixels on the screen of the widest view

# What each plane of a volume in RAS+ order shows: normal axis, its name, letters at left, right, top and bottom. The
# patient's right is on the left, as radiologists hang films.
VIEWS = ((2, "axial", "RLAP"), (1, "coronal", "RLSI"), (0, "sagittal", "APSI"))

STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; color: #1c1c1c; max-width: 1320px; margin: 2em auto; padding: 0 1.5em }
h1 { font-size: 1.5em } h2 { font-size: 1.15em; margin-top: 2em }
table { border-collapse: collapse } td, th { padding: .25em .9em .25em 0; text-align: left; vertical-align: top }
tr { border-bottom: 1px solid #ddd }
.note { color: #555; max-width: 60em } .warning { color: #a33 }
.views { display: flex; flex-wrap: wrap; gap: 1.2em }
figure { margin: 0; width: min-content } figcaption { font-size: .85em; color: #555 }
.pair { position: relative; background: #000; overflow: hidden }
.pair img { position: absolute; inset: 0; width: 100%; height: 100%; image-rendering: pixelated }
.pair img + img { clip-path: inset(0 0 0 var(--cut, 50%)) }
.pair span { position: absolute; color: #fc6; font-size: .8em; text-shadow: 0 0 3px #000 }
input[type=range] { width: 100%; margin: .3em 0 0 }
.print { display: none }
@media print { .screen { display: none } .print { display: flex; flex-wrap: wrap; gap: .6em } body { font-size: 10pt }
  .print img { image-rendering: pixelated } h2 { break-after: avoid } figure { break-inside: avoid } }
"""
SCRIPT = """
for (const slider of document.querySelectorAll('input[type=range]'))
  slider.oninput = () => slider.previousElementSibling.style.setProperty('--cut', slider.value + '%');
"""


def _ras(volume: MetaTensor) -> tuple[np.ndarray, np.ndarray]:
    """The volume `(X, Y, Z)` in the array order closest to RAS+, and its voxel edges in mm."""
    orientation = io_orientation(np.asarray(volume.affine))
    array = apply_orientation(np.asarray(volume.as_tensor()), orientation)
    spacing = voxel_spacing(volume.affine)
    return array, spacing[np.argsort(orientation[:, 0])]


def _plane(
    array: np.ndarray, spacing: np.ndarray, normal: int, offset: float = 0.0
) -> tuple[np.ndarray, tuple[float, float]]:
    """The plane nearest to `offset` mm from the centre, as it hangs, first row on top; its height and width in mm."""
    index = round((array.shape[normal] - 1) / 2 + offset / spacing[normal])
    plane = array.take(min(max(index, 0), array.shape[normal] - 1), axis=normal).T[::-1]
    height, width = (n * s for n, s in zip(plane.shape, np.delete(spacing, normal)[::-1]))
    return plane[:, ::-1], (height, width)  # right and front come to the left


def _png(plane: np.ndarray, low: float, high: float) -> str:
    """A grey picture as a data URL."""
    grey = np.clip((plane - low) / max(high - low, 1e-12), 0, 1) * 255
    stream = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(grey.astype(np.uint8))).save(stream, "PNG")
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode()


def _views(measured: MetaTensor, result: MetaTensor, window: tuple[float, float]) -> str:
    """Three planes through the centre, which both grids share: before under after, with a slider, and for paper."""
    before, after = _ras(measured), _ras(result)
    screen, paper = [], []
    scale = WIDTH / max(n * s for n, s in zip(after[0].shape, after[1]))
    for normal, name, letters in VIEWS:
        count = before[0].shape[normal]
        offset = (count // 2 - (count - 1) / 2) * before[1][normal]  # where a measured slice lies: both show one place
        (old, _), (new, (height, width)) = (_plane(*volume, normal, offset) for volume in (before, after))
        pictures = [_png(plane, *window) for plane in (old, new)]
        size = f"width:{width * scale:.0f}px;height:{height * scale:.0f}px"
        places = ("left:4px;top:48%", "right:4px;top:48%", "left:50%;top:2px", "left:50%;bottom:2px")
        marks = "".join(f'<span style="{place}">{letter}</span>' for place, letter in zip(places, letters))
        screen.append(
            f'<figure><div class="pair" style="{size}"><img src="{pictures[0]}" alt="{name}, measured">'
            f'<img src="{pictures[1]}" alt="{name}, rebuilt">{marks}</div>'
            f'<input type="range" min="0" max="100" value="50" aria-label="measured to rebuilt, {name}">'
            f"<figcaption>{name}: measured left of the slider, rebuilt right of it</figcaption></figure>"
        )
        for picture, what in zip(pictures, ("measured", "rebuilt")):
            paper.append(
                f'<figure><img src="{picture}" alt="" style="width:{width * scale / 1.6:.0f}px;'
                f'height:{height * scale / 1.6:.0f}px"><figcaption>{name}, {what}</figcaption></figure>'
            )
    return f'<div class="views screen">{"".join(screen)}</div><div class="print">{"".join(paper)}</div>'


def _spectrum(measured: MetaTensor, result: MetaTensor, axis: int) -> str:
    """Power through the slices before and after, and within them, as an inline SVG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    edges = [voxel_spacing(volume.affine) for volume in (measured, result)]
    curves = {
        "through the slices, measured": spectra.power_density(measured.as_tensor(), axis, edges[0][axis]),
        "through the slices, rebuilt": spectra.power_density(result.as_tensor(), axis, edges[1][axis]),
    }
    for other in (a for a in range(3) if a != axis):
        curves[f"within the slices, axis {other}"] = spectra.power_density(result.as_tensor(), other, edges[1][other])
    figure, panel = plt.subplots(figsize=(7, 3.2))
    for (name, (frequencies, power)), style in zip(curves.items(), ("k--", "C1-", "C0-", "C2-")):
        panel.plot(frequencies[1:], 10 * np.log10(power[1:].clamp(min=1e-12)), style, lw=1.2, label=name)
    panel.set(xlabel="cycles / mm", ylabel="power density (dB)", xlim=(0, 1 / (2 * min(edges[1]))))
    panel.legend(fontsize=8)
    figure.tight_layout()
    stream = io.StringIO()
    figure.savefig(stream, format="svg")
    plt.close(figure)
    return stream.getvalue()[stream.getvalue().index("<svg") :]


def _difference(difference: MetaTensor, window: tuple[float, float]) -> str:
    """The map of what the rebuilt scan, acquired again, has more or less than the measurement."""
    array, spacing = _ras(difference)
    largest = (window[1] - window[0]) / 10
    figures = []
    scale = WIDTH / 1.6 / max(n * s for n, s in zip(array.shape, spacing))
    for normal, name, _ in VIEWS:
        plane, (height, width) = _plane(array, spacing, normal)
        size = f"width:{width * scale:.0f}px;height:{height * scale:.0f}px;image-rendering:pixelated"
        figures.append(
            f'<figure><img src="{_png(plane, -largest, largest)}" alt="" style="{size}">'
            f"<figcaption>{name}</figcaption></figure>"
        )
    return f'<div class="views">{"".join(figures)}</div>'


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["".join(f"<th>{html.escape(cell)}</th>" for cell in header)]
    lines += ["".join(f"<td>{html.escape(str(cell))}</td>" for cell in row) for row in rows]
    return "<table>" + "".join(f"<tr>{line}</tr>" for line in lines) + "</table>"


def _geometry(measured: MetaTensor, result: MetaTensor) -> str:
    rows = []
    for name, volume in (("measured", measured), ("rebuilt", result)):
        spacing = voxel_spacing(volume.affine)
        centre = np.asarray(volume.affine) @ [*(np.array(volume.shape) - 1) / 2, 1]
        shape, edges, middle = (
            " x ".join(str(n) for n in volume.shape),
            " x ".join(f"{s:.4g}" for s in spacing),
            ", ".join(f"{c:.2f}" for c in centre[:3]),
        )
        rows.append((name, shape, edges, middle))
    return _table(("", "voxels", "voxel edges (mm)", "centre (mm, RAS)"), rows)


def write_page(
    path: str | os.PathLike,
    measured: MetaTensor,
    result: MetaTensor,
    axis: int,
    facts: Sequence[tuple[str, str, str]],
    consistency: tuple[float, Tensor],
    warnings: Sequence[str],
    provenance: Mapping[str, str],
) -> None:
    """Writes one self-contained HTML file about a rebuilt scan; it needs no network.

    Args:
        path: file to write.
        measured: `(X, Y, Z)` thick slices with their affine.
        result: `(X, Y, Z)` on the fine grid with its affine, in the same units.
        axis: array axis of the slices.
        facts: what was assumed of the acquisition: name, value, and where it came from.
        consistency: `consistency.relative_rmse` and the map of `consistency.difference`.
        warnings: that the user was given.
        provenance: name -> value; weights, version, settings.
    """
    name = html.escape(Path(path).name.removesuffix(".html"))
    low, high = np.percentile(np.asarray(measured.as_tensor()), (0.5, 99.7))
    window = (float(low), float(high))
    number, difference = consistency
    alerts = "".join(f'<p class="warning">{html.escape(text)}</p>' for text in warnings) or "<p>None.</p>"
    agreement = "Not known: the scan is constant."
    if not np.isnan(number):
        agreement = (
            "The rebuilt scan, acquired again by the slice model, differs from the measured slices by "
            f"<b>{100 * number:.2f} %</b> (root mean square, inside the head, relative to the signal)."
        )
    content = f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{name}</title><style>{STYLE}</style></head><body>
<h1>{name}</h1>
<p class="note">Detail between the measured slices is estimated by a network, not measured. Small lesions can be
blurred, moved or missed. For research; not for diagnosis.</p>
<h2>Geometry</h2>{_geometry(measured, result)}
<h2>What was taken for the acquisition</h2>{_table(("", "value", "from"), facts)}
<h2>Warnings</h2>{alerts}
<h2>Before and after</h2>
<p class="note">Middle planes at one windowing, {window[0]:.4g} to {window[1]:.4g}. The patient's right is on the
left.</p>
{_views(measured, result, window)}
<h2>Sharpness</h2>
<p class="note">Power spectra along each axis. Where the curve through the slices meets those within them, the
result is as sharp through the slices as within; that does not say that its detail is right.</p>
{_spectrum(measured, result, axis)}
<h2>Agreement with the measurement</h2>
<p>{agreement}</p>
<p class="note">Below: the difference on the measured grid, black to white: &plusmn; a tenth of the window. Noise that
the result is free of shows here as well.</p>
{_difference(MetaTensor(difference, affine=measured.affine), window)}
<h2>Provenance</h2>{_table(("", ""), list(provenance.items()))}
<script>{SCRIPT}</script></body></html>
"""
    with whole_file(path) as partial:
        partial.write_text(content, encoding="utf-8")
