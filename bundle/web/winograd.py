"""Wide 3 x 3 convolutions of an ONNX graph with half of the products: rows by Winograd's minimal filtering F(4, 3)."""

from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

FEWEST = 16  # channels; the way to Winograd's points and back takes longer than what it saves for fewer
WINDOW = np.array(  # of six pixels, a kernel of three, and four results of their product: at 0, 1, -1, 2, -2, infinity
    [
        [4, 0, -5, 0, 1, 0],
        [0, -4, -4, 1, 1, 0],
        [0, 4, -4, -1, 1, 0],
        [0, -2, -1, 2, 1, 0],
        [0, 2, -1, -2, 1, 0],
        [0, 4, 0, -5, 0, 1],
    ]
)
KERNEL = np.array([[6, 0, 0], [-4, -4, -4], [-4, 4, -4], [1, 2, 4], [1, -2, 4], [0, 0, 24]]) / 24
RESULT = np.array([[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]])


def with_fewer_products(model: onnx.ModelProto) -> None:
    """Computes wide 3 x 3 convolutions with half of the products: rows by Winograd's minimal filtering F(4, 3).

    Six products make four outputs of a kernel of three (Lavin and Gray, "Fast algorithms for convolutional neural
    networks", CVPR 2016). Kernels are transformed when the file is loaded, so it keeps them in half precision.
    """
    sizes = {one.name: tuple(one.dims) for one in model.graph.initializer}
    nodes: list[onnx.NodeProto] = []

    def constant(name: str, values: np.ndarray | list[int]) -> str:
        if name not in sizes:
            kind = np.int64 if isinstance(values, list) else np.float32
            model.graph.initializer.append(numpy_helper.from_array(np.array(values, dtype=kind), name))
            sizes[name] = ()
        return name

    def apply(kind: str, *inputs: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(kind, inputs, [f"winograd.{len(nodes)}"], **attributes))
        return nodes[-1].output[0]

    def regrouped(x: str, one: int, other: int, height: str) -> str:
        """`(B, one * other, H, W)` with the two in the other order."""
        split = apply("Reshape", x, constant(f"split.{one}.{other}", [0, one, other, -1]))
        turned = apply("Transpose", split, perm=[0, 2, 1, 3])
        channels, rest = constant(f"channels.{one * other}", [0, one * other]), constant("rest", [-1])
        return apply("Reshape", turned, apply("Concat", channels, height, rest, axis=0))

    def convolve(node: onnx.NodeProto, filters: int, channels: int) -> None:
        image, kernel, bias = node.input
        height, width = (apply("Shape", image, start=k, end=k + 1) for k in (2, 3))
        spread = apply("MatMul", kernel, constant("kernel", KERNEL.T))
        stacked = apply("Transpose", spread, perm=[3, 0, 1, 2])
        kernels = apply("Reshape", stacked, constant(f"kernels.{filters}.{channels}", [6 * filters, channels, 3, 1]))
        windows = constant(f"windows.{channels}", np.tile(WINDOW[:, None, None], (channels, 1, 1, 1)))
        x = apply("Conv", image, windows, group=channels, strides=[1, 4], pads=[0, 1, 0, 4])
        x = apply("Conv", regrouped(x, channels, 6, height), kernels, group=6, pads=[1, 0, 1, 0])
        results = constant(f"results.{filters}", np.tile(RESULT.T[:, None, None], (filters, 1, 1, 1)))
        y = apply("ConvTranspose", regrouped(x, 6, filters, height), results, bias, group=filters, strides=[1, 4])
        end = [constant("first", [0]), width, constant("columns", [3])]
        nodes.append(helper.make_node("Slice", [y, *end], node.output))

    for node in model.graph.node:
        size = sizes.get(node.input[1], ()) if node.op_type == "Conv" else ()
        dense = {"strides": [1, 1], "dilations": [1, 1], "pads": [1, 1, 1, 1], "group": 1}
        if size[2:] == (3, 3) and min(size[:2]) >= FEWEST and dense.items() <= _attributes(node).items():
            convolve(node, *size[:2])
        else:
            nodes.append(node)
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def _attributes(node: onnx.NodeProto) -> dict[str, Any]:
    return {one.name: helper.get_attribute_value(one) for one in node.attribute}
