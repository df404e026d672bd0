"""Real thick scans by methods, measured without a truth (Sec. S13, Tab. S6)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from monai.utils import convert_to_tensor

from ..errors import InputError, logger
from ..evaluate.paired import volume_of
from ..method.weights import read_card
from ..stack.acquisition import Acquisition
from ..stack.interpolation import interpolate
from ..train.datasets import from_datalist
from .image_quality import ImageQuality
from .reformats import Reformats
from .trained_variants import TrainedVariants


def thick_scans(data: Path | None) -> list[dict]:
    """Real scans of thick slices that a datalist names, `"kind": "thick"` or under `"thick"`; they have no truth."""
    items = from_datalist(data, "thick") if data is not None and data.is_file() else []
    if not items:
        raise InputError(
            f'{data} names no thick scans: expected a datalist with entries of "kind": "thick", or a list of them '
            'under "thick". Set --dataset_dir.'
        )
    return items


def no_reference(trained: TrainedVariants, methods: Sequence[str], settings: Mapping[str, Any]) -> pd.DataFrame:
    """Sharpness, NIQE and BRISQUE of real scans, as far as they are installed.

    The cubic spline says what is black and white, and which planes count, for all methods.

    Args:
        trained: says the data, a datalist that names thick scans, and the weights.
        methods: of `configs/evaluate.yaml`, with the shipped weights.
        settings: id of `configs/evaluate.yaml` -> value, how the networks rebuild.

    Returns:
        A row for each scan and method.
    """
    trained = trained.of_size(read_card(trained.weights).size)
    deployed = trained.config("inference.yaml", [], {"ckpt_path": str(trained.weights)})
    config = trained.config("evaluate.yaml", [], {**settings, "ckpt_path": str(trained.weights)})
    preprocessing, quality = deployed.get_parsed_content("preprocessing"), ImageQuality.installed()
    rows = []
    for item in thick_scans(trained.data):
        thick = preprocessing({"image": item["label"]})["image"]
        acquisition = Acquisition.of(thick)
        smooth = convert_to_tensor(interpolate(thick, acquisition, "cubic"), track_meta=False)[0]
        view = Reformats.of(smooth, acquisition.slice_axis)
        case = {"volume": Path(item["label"]).name, "subject": item["subject"], "contrast": item["contrast"]}
        case |= {"slice_axis": acquisition.slice_axis, "slice_thickness": acquisition.slice_thickness, "seed": 0}
        for name in methods:
            volume = volume_of(config.get_parsed_content(f"methods#{name}")(thick.clone(), acquisition))[0]
            rows.append({**case, "label": name, **quality.unpaired(volume, view)})
            logger.info(f"{case['volume']}, {name}: sharpness {rows[-1]['sharpness']:.3f}")
    return pd.DataFrame(rows)
