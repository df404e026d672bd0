"""Writes the networks that ship as ONNX files, and the numbers that Python owns as a JavaScript module.

    python bundle/web/export.py [--ckpt_path models/model.pt] [--output bundle/web/model]

Stage 1, an Euler step of the flow and its modulation are three files: modulations are computed once for a scan. Stage 1
with a guide is a fourth, where weights know guides. Their weights stay in the half precision of the weights file.
Networks on planes are there a second time, in `webgpu/`: `with_fewer_products` comes out wrong on onnxruntime's WebGPU.
"""

import argparse
import json
import logging
import math
import shutil
import sys
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import onnx
import onnxruntime
import torch
from monai.bundle import ConfigParser
from numpy.polynomial import chebyshev
from onnx import TensorProto, helper, numpy_helper
from scipy.integrate import cumulative_trapezoid
from torch import Tensor, nn
from torch.nn.functional import conv2d

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bundle.web.tables import tables
from bundle.web.winograd import with_fewer_products
from scripts.errors import InputError, report_input_errors
from scripts.files import sha256, whole_file
from scripts.inputs.sample import built_in_sample
from scripts.method.networks import Drift, stage2_lengths
from scripts.method.origin import SHOWN
from scripts.method.slice_projection import SliceProjectionNetwork
from scripts.method.weights import Card, check_card
from scripts.outputs.provenance import SAID_ALONE
from scripts.stack.noise import magnitude
from scripts.stack.profile import slice_profile

ROOT = Path(__file__).resolve().parents[2]
FREE = torch.export.Dim.AUTO
OPSET = 20
RICIAN, DEGREE = 3.0, 48  # standard deviations, of the Chebyshev series of `rician`


class InPairs(nn.Module):
    """A 3 x 3 convolution, as a sum over pairs of its channels: onnxruntime's WebGPU errs with six of them."""

    def __init__(self, convolution: nn.Conv2d):
        super().__init__()
        self.convolution = convolution

    def forward(self, x: Tensor) -> Tensor:
        """`x` is `(B, C, H, W)`."""
        one = self.convolution
        total = conv2d(x[:, :2], one.weight[:, :2], one.bias, padding=1)
        for k in range(2, one.in_channels, 2):
            total = total + conv2d(x[:, k : k + 2], one.weight[:, k : k + 2], padding=1)
        return total


class Stage1(nn.Module):
    """Stage 1 as the page calls it: ONNX knows no optional inputs."""

    def __init__(self, network: Drift):
        super().__init__()
        self.apn = network.apn

    def forward(self, image: Tensor, lengths: Tensor, rows: Tensor) -> Tensor:
        """See `SliceProjectionNetwork.forward`."""
        return self.apn(image, lengths, rows)


class Guided(Stage1):
    """Stage 1 with a guide."""

    def forward(  # type: ignore[override]
        self, image: Tensor, lengths: Tensor, rows: Tensor, guide: Tensor, guide_slices: Tensor, guide_share: Tensor
    ) -> Tensor:
        """See `SliceProjectionNetwork.forward`."""
        return self.apn(image, lengths, rows, guide, guide_slices, guide_share)


class Velocity(nn.Module):
    """An Euler step of the flow (`flow.euler_step`)."""

    def __init__(self, network: Drift):
        super().__init__()
        self.velocity = network.velocity

    def forward(self, x: Tensor, modulation: Tensor, step: Tensor) -> Tensor:
        """`x` is `(B, 1, H, W)`, `modulation` is `(1, M)`, `step` is `(1,)`."""
        return x + step * self.velocity.at(x, modulation)


class Modulation(nn.Module):
    """The modulation of the velocity's norms at a time."""

    def __init__(self, network: Drift):
        super().__init__()
        self.velocity = network.velocity

    def forward(self, lengths: Tensor, time: Tensor) -> Tensor:
        """`lengths` as in `SliceProjectionNetwork.forward`, `time` is `(1,)`; returns `(1, M)`."""
        return self.velocity.modulation(stage2_lengths(lengths), time)


class Families(nn.Module):
    """`families.weigh_families` of planes across both axes; the cosine transforms are products with matrices."""

    def forward(self, first: Tensor, second: Tensor, spacing: Tensor, slice_spacing: Tensor) -> Tensor:
        """`first` and `second` are `(P, N, M)`, their own planes along N and along M; `spacing` is `(2,)`, in mm."""
        one, other = (cosines(n) for n in first.shape[1:])
        f, g = ((torch.arange(n) / (2 * n * edge)) ** 2 for n, edge in zip(first.shape[1:], spacing))
        share = (f[:, None] - g) / 2 / (f[:, None] + g + 1 / (2 * slice_spacing) ** 2)
        apart = one.T @ (share * (one @ (first - second) @ other.T)) @ other
        return (first + second) / 2 + apart


class Weighed(nn.Module):
    """The patterns of slices in `consistency.project`, weighed for each in-plane frequency."""

    def forward(self, seen: Tensor, values: Tensor, regularisation: Tensor) -> Tensor:
        """`seen` is `(P, N, M)`, `values` is `(P,)`, `regularisation` is `(N, M)`; returns `(P, N, M)`."""
        one, other = (cosines(n) for n in seen.shape[1:])
        return one.T @ (one @ seen @ other.T / (values[:, None, None] + regularisation)) @ other


def cosines(n: int) -> Tensor:
    """The orthonormal cosine transform of `n` numbers, `(n, n)`; float32 would round whole turns."""
    k = torch.arange(n)
    quarters = (k[:, None] * (2 * k + 1)) % torch.full_like(k, 4 * n)
    return torch.cos(quarters * (math.pi / 2) / n) * ((2 - (k == 0).float()) / n).sqrt()[:, None]


def parts(network: Drift, guided: bool) -> dict[str, tuple[nn.Module, dict[str, Tensor], dict[str, dict[int, object]]]]:
    """By name: a module, examples of its inputs, and which of their dimensions are free."""
    stage1 = {
        "image": torch.zeros(2, network.apn.planes, 12, 56),
        "lengths": torch.tensor([[5.0, 1.0, 5.0, 1.0, 0.02]]),
    }
    stage1["rows"] = torch.linspace(0, 11, 44)[None]
    moment = {"lengths": stage1["lengths"], "time": torch.zeros(1)}
    modulation = Modulation(network)(*moment.values())
    planes = {0: FREE, 2: FREE, 3: FREE}
    sizes = {"image": planes, "lengths": {}, "rows": {1: FREE}}
    beside = {"guide": torch.zeros(2, 1, 44, 56), "guide_slices": torch.zeros(2, 1, 12, 56)}
    beside["guide_share"] = torch.ones_like(beside["guide"])
    with_guide = (Guided(network), stage1 | beside, sizes | {name: planes for name in beside})
    every = {0: FREE, 1: FREE, 2: FREE}
    both = {"first": torch.zeros(3, 12, 14), "second": torch.zeros(3, 12, 14)}
    weighed = {"seen": torch.zeros(3, 12, 14), "values": torch.ones(3), "regularisation": torch.ones(12, 14)}
    both |= {"spacing": torch.ones(2), "slice_spacing": torch.ones(1)}
    return {
        **({"guided": with_guide} if guided else {}),
        "stage1": (Stage1(network), stage1, sizes),
        "velocity": (
            Velocity(network),
            {"x": torch.zeros(2, 1, 56, 64), "modulation": modulation, "step": torch.ones(1)},
            {"x": planes, "modulation": {}, "step": {}},
        ),
        "modulation": (Modulation(network), moment, {"lengths": {}, "time": {}}),
        "families": (Families(), both, {"first": every, "second": every, "spacing": {}, "slice_spacing": {}}),
        "weighed": (Weighed(), weighed, {"seen": every, "values": {0: FREE}, "regularisation": {0: FREE, 1: FREE}}),
    }


def with_split(model: onnx.ModelProto) -> None:
    """Puts Split in the place of sequences of tensors, which WebGPU does not know. All chunks of a tensor are alike."""
    taken: dict[str, list[onnx.NodeProto]] = {}
    for node in model.graph.node:
        if node.op_type == "SequenceAt":
            taken.setdefault(node.input[0], []).append(node)
    place = {one.name: numpy_helper.to_array(one) for one in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Constant":
            value = helper.get_attribute_value(node.attribute[0])
            place[node.output[0]] = numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value
    nodes = []
    for node in model.graph.node:
        if node.op_type == "SplitToSequence":
            axis = next(one.i for one in node.attribute if one.name == "axis")
            chunks = {int(place[one.input[1]]): one.output[0] for one in taken[node.output[0]]}
            names = [chunks[k] for k in range(len(chunks))]
            nodes.append(helper.make_node("Split", node.input[:1], names, axis=axis, num_outputs=len(names)))
        elif node.op_type != "SequenceAt":
            nodes.append(node)
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def halve(model: onnx.ModelProto) -> None:
    """Stores every weight that half precision holds exactly in half precision; a cast brings it back when it loads."""
    casts = []
    for weight in model.graph.initializer:
        values = numpy_helper.to_array(weight)
        if weight.data_type != TensorProto.FLOAT or values.size < 64:
            continue
        with np.errstate(over="ignore"):
            half = values.astype(np.float16)
        if np.array_equal(half.astype(np.float32), values):
            name = weight.name
            weight.CopyFrom(numpy_helper.from_array(half, f"{name}.half"))
            casts.append(helper.make_node("Cast", [weight.name], [name], to=TensorProto.FLOAT))
    nodes = [*casts, *model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)


@torch.no_grad()
def export(network: Drift, output: Path, guided: bool) -> None:
    """Writes the ONNX files, optimised for any processor; stage 1 a second time, if the weights know guides."""
    for name, (module, inputs, free) in parts(network, guided).items():
        with tempfile.TemporaryDirectory() as folder:
            plain, optimised = Path(folder) / "plain.onnx", Path(folder) / "optimised.onnx"
            torch.onnx.export(
                module.eval(),
                tuple(inputs.values()),
                plain,
                dynamo=True,
                input_names=list(inputs),
                output_names=["result"],
                dynamic_shapes=tuple(free.values()),
                opset_version=OPSET,
                external_data=False,
                optimize=False,  # the exporter's own optimiser would fix sizes
                verbose=False,
            )
            model = onnx.load(plain)
            with_split(model)
            onnx.save(model, plain)
            options = onnxruntime.SessionOptions()
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
            options.optimized_model_filepath = str(optimised)
            left_out = ["GatherSliceToSplitFusion"]  # one Split of 44 has more outputs than WebGPU allows
            onnxruntime.InferenceSession(plain, options, ["CPUExecutionProvider"], disabled_optimizers=left_out)
            own, plain_too = onnx.load(optimised), onnx.load(optimised)
            with_fewer_products(own)
            if own.graph.node != plain_too.graph.node:
                save(plain_too, output / "webgpu" / f"{name}.onnx")
            save(own, output / f"{name}.onnx")


def save(model: onnx.ModelProto, path: Path) -> None:
    """Writes a model, its weights in half precision."""
    halve(model)
    with whole_file(path) as partial:
        onnx.save(model, partial)


def constants(card: Card, weights: Path, settings: Mapping[str, Any], planes: int) -> dict[str, dict]:
    """Python's tables, the weights' card, the inferer's settings, the planes that stage 1 sees, the slice profile."""
    shared = tables()
    position, height = slice_profile(shared["acquisition"]["SLR"])
    cumulative = cumulative_trapezoid(height, position, initial=0)
    shared["card"] = {k: v for k, v in asdict(card).items() if k == "foretelling" or k not in SAID_ALONE}
    shared["profile"] = {"first": position[0], "step": position[1] - position[0], "cumulative": cumulative.tolist()}
    shared["noise"]["rician"] = {"scale": RICIAN, "series": rician()}
    shared["inferer"] = {**settings, "planes": planes}
    metadata = json.loads((ROOT / "configs" / "metadata.json").read_text(encoding="utf-8"))
    shared["release"] = {"version": metadata["version"], "weights": sha256([weights])}
    shared["release"]["network"] = f"weights {card.version} ({card.sha256[:SHOWN]})"
    return shared


def rician() -> list[float]:
    """`(x + RICIAN) (magnitude(x, 1) - x)` as a Chebyshev series in `(x - RICIAN) / (x + RICIAN)`, x from 0 up."""

    def raised(place: np.ndarray) -> np.ndarray:
        signal = RICIAN * (1 + place) / (1 - place)
        return (signal + RICIAN) * (magnitude(torch.from_numpy(signal), 1.0).numpy() - signal)

    return chebyshev.chebinterpolate(raised, DEGREE).tolist()


def sample(folder: Path, path: Path) -> None:
    """Writes the built-in sample as the page opens it, in whole numbers, which are small; none without its packages."""
    try:
        scan = built_in_sample(folder)
    except InputError as error:
        print(f"The page has no sample: {error}", file=sys.stderr)
        return
    image = nib.load(scan.files[0])
    voxels = np.rint(np.asarray(image.dataobj) * (1000 / np.asarray(image.dataobj).max())).astype(np.int16)
    with whole_file(path) as partial:
        nib.save(nib.Nifti1Image(voxels, image.affine), partial)
    shutil.copy(scan.files[1], path.with_name("sample.json"))


def main(arguments: Sequence[str] | None = None) -> None:
    """The command.

    Args:
        arguments: of the command line.

    Raises:
        InputError: if the weights cannot be read, or are not of the kind that the page computes with.
        SystemExit: with exit code 2, if the arguments are not as the help says.
    """
    parser = argparse.ArgumentParser(description="Writes what the page computes by.")
    parser.add_argument("--ckpt_path", type=Path, default=ROOT / "models" / "model.pt")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "model")
    given = parser.parse_args(arguments)
    config = ConfigParser(ConfigParser.load_config_file(str(ROOT / "configs" / "inference.yaml")))
    config.update({"bundle_root": str(ROOT), "ckpt_path": str(given.ckpt_path)})
    network, card = config.get_parsed_content("weights").eval(), check_card(given.ckpt_path)
    if not isinstance(network.apn, SliceProjectionNetwork):
        raise InputError(
            f"{given.ckpt_path}: stage 1 is a {type(network.apn).__name__}: expected one on the measured slices. Give "
            "weights such as those that ship."
        )
    network.apn.trunk.down[0].enter = InPairs(network.apn.trunk.down[0].enter)
    (given.output / "webgpu").mkdir(parents=True, exist_ok=True)
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # they tell of other packages and of what they tidied
    warnings.filterwarnings("ignore", category=FutureWarning)
    onnxruntime.set_default_logger_severity(3)
    export(network, given.output, card.guide_share > 0)
    settings = config.get_parsed_content("inferer").settings
    with tempfile.TemporaryDirectory() as folder:
        sample(Path(folder), given.output / "sample.nii.gz")
    text = json.dumps(constants(card, given.ckpt_path, settings, network.apn.planes), separators=(",", ":"))
    with whole_file(given.output / "constants.js") as partial:
        partial.write_text(f"export default {text};\n", encoding="utf-8")
    for path in sorted(file for file in given.output.rglob("*") if file.is_file()):
        print(f"{path}: {path.stat().st_size / 1e6:.1f} MB")
    print(f"The page's networks and constants are in {given.output}.")


if __name__ == "__main__":
    report_input_errors()
    main()
