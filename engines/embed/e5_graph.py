"""The encoder (BERT, Devlin et al. 2018) as an ONNX graph in float32 with fused attention, written once beside the data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from engines.embed.cache_files import write_whole
from engines.embed.e5_file import E5File

GRAPH_VERSION = 1
FUSED = "com.microsoft"


def build_graph(weights: E5File, target: Path) -> None:
    """Write the graph to `target`, whole or not at all; two processes may do so at the same time."""
    write_whole(target, lambda draft: onnx.save(_Builder(weights).model(), draft))


class _Builder:
    """Inputs `emb` [batch, tokens, hidden] (words + positions + types) and `mask` [batch, tokens]; output `states` like `emb`."""

    def __init__(self, weights: E5File) -> None:
        self._weights, self._shape = weights, weights.shape
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []

    def model(self) -> onnx.ModelProto:
        self._node("Cast", ["mask"], "mask32", to=TensorProto.INT32)
        self._node("LayerNormalization", ["emb", *self._vectors("emb.ln.w", "emb.ln.b")], "x0", axis=-1, epsilon=self._shape.epsilon)
        for layer in range(self._shape.layers):
            self._layer(layer)
        self._nodes[-1].output[0] = "states"
        graph = helper.make_graph(self._nodes, "e5", self._inputs(), [self._value("states", TensorProto.FLOAT, 3)], self._constants)
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid(FUSED, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    def _layer(self, number: int) -> None:
        name, x = f"l{number}", f"x{number}"
        for part in "qkv":
            self._matmul(x, f"{name}.{part}", self._shape.hidden)
        bias = self._constant(f"{name}.qkv.b", np.concatenate([self._weights.tensor(f"{name}.{part}.b") for part in "qkv"]))
        attended = [*(f"{name}.{part}" for part in "qkv"), bias, "mask32"]
        self._node("MultiHeadAttention", attended, f"{name}.mha", FUSED, num_heads=self._shape.heads)
        self._matmul(f"{name}.mha", f"{name}.ao", self._shape.hidden)
        self._skip_norm(x, f"{name}.ao", f"{name}.aln", f"{name}.mid")
        self._matmul(f"{name}.mid", f"{name}.fi", self._shape.feed_forward)
        self._node("BiasGelu", [f"{name}.fi", *self._vectors(f"{name}.fi.b")], f"{name}.gelu", FUSED)
        self._matmul(f"{name}.gelu", f"{name}.fo", self._shape.hidden)
        self._skip_norm(f"{name}.mid", f"{name}.fo", f"{name}.oln", f"x{number + 1}")

    def _matmul(self, source: str, name: str, rows: int) -> None:
        weights = self._constant(f"{name}.w", self._weights.tensor(f"{name}.w", rows).T)
        self._node("MatMul", [source, weights], name)

    def _skip_norm(self, source: str, added: str, norm: str, output: str) -> None:
        vectors = self._vectors(f"{norm}.w", f"{norm}.b", f"{added}.b")
        self._node("SkipLayerNormalization", [source, added, *vectors], output, FUSED, epsilon=self._shape.epsilon)

    def _vectors(self, *names: str) -> list[str]:
        return [self._constant(name, self._weights.tensor(name)) for name in names]

    def _constant(self, name: str, value: NDArray[np.float32]) -> str:
        self._constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def _node(self, kind: str, inputs: list[str], output: str, domain: str = "", **attributes: Any) -> None:
        self._nodes.append(helper.make_node(kind, inputs, [output], domain=domain, **attributes))

    def _inputs(self) -> list[onnx.ValueInfoProto]:
        return [self._value("emb", TensorProto.FLOAT, 3), self._value("mask", TensorProto.INT64, 2)]

    def _value(self, name: str, kind: int, rank: int) -> onnx.ValueInfoProto:
        sizes: list[str | int | None] = ["batch", "tokens", self._shape.hidden]
        return helper.make_tensor_value_info(name, kind, sizes[:rank])
