"""The graph of multilingual-e5-small for ONNX Runtime, written from the weights file."""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from engines.disk import write_atomically
from engines.embed.e5_file import E5File

FUSED_DOMAIN = "com.microsoft"


def write_graph(weights: E5File, target: Path) -> None:
    """Write the graph to `target` and its constants next to it, both atomically."""
    # Constants of 85 MB inside the graph would take a second and 300 MB more: protobuf copies
    # them several times. ONNX Runtime maps a file of their own into memory.
    data_path = target.with_suffix(".weights")
    model: onnx.ModelProto

    def write_data(temporary_path: Path) -> None:
        nonlocal model
        with temporary_path.open("wb") as data:
            model = _GraphBuilder(weights, data_path.name, data).build_model()

    # First, because a graph promises its constants.
    write_atomically(data_path, write_data)
    write_atomically(target, lambda path: path.write_bytes(model.SerializeToString()))


class _GraphBuilder:
    """Builds the graph (BERT, Devlin et al. 2018) in float32 with fused attention.

    Inputs are `emb` [batch, tokens, hidden] (words + positions + types) and `mask` [batch, tokens];
    the output `states` has the shape of `emb`.
    """

    def __init__(self, weights: E5File, data_name: str, data: BinaryIO) -> None:
        self._weights, self._shape = weights, weights.shape
        self._data_name, self._data = data_name, data
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []

    def build_model(self) -> onnx.ModelProto:
        # MultiHeadAttention takes its padding mask as int32.
        self._add_node("Cast", ["mask"], "mask32", to=TensorProto.INT32)
        self._add_node(
            "LayerNormalization",
            ["emb", *self._add_vectors("emb.ln.w", "emb.ln.b")],
            "x0",
            axis=-1,
            epsilon=self._shape.epsilon,
        )
        for layer in range(self._shape.layers):
            self._add_layer(layer)
        # Renames the output of the last layer.
        self._nodes[-1].output[0] = "states"
        inputs = [
            self._describe_value("emb", TensorProto.FLOAT, 3),
            self._describe_value("mask", TensorProto.INT64, 2),
        ]
        graph = helper.make_graph(
            self._nodes,
            "e5",
            inputs,
            [self._describe_value("states", TensorProto.FLOAT, 3)],
            self._constants,
        )
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid(FUSED_DOMAIN, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    def _add_layer(self, number: int) -> None:
        name, x = f"l{number}", f"x{number}"
        for part in "qkv":
            self._add_matmul(x, f"{name}.{part}", self._shape.hidden)
        bias = self._add_constant(
            f"{name}.qkv.b",
            np.concatenate([self._weights.read_tensor(f"{name}.{part}.b") for part in "qkv"]),
        )
        attention_inputs = [*(f"{name}.{part}" for part in "qkv"), bias, "mask32"]
        self._add_node(
            "MultiHeadAttention",
            attention_inputs,
            f"{name}.mha",
            FUSED_DOMAIN,
            num_heads=self._shape.heads,
        )
        self._add_matmul(f"{name}.mha", f"{name}.ao", self._shape.hidden)
        self._add_skip_norm(x, f"{name}.ao", f"{name}.aln", f"{name}.mid")
        self._add_matmul(f"{name}.mid", f"{name}.fi", self._shape.feed_forward)
        self._add_node(
            "BiasGelu",
            [f"{name}.fi", *self._add_vectors(f"{name}.fi.b")],
            f"{name}.gelu",
            FUSED_DOMAIN,
        )
        self._add_matmul(f"{name}.gelu", f"{name}.fo", self._shape.hidden)
        self._add_skip_norm(f"{name}.mid", f"{name}.fo", f"{name}.oln", f"x{number + 1}")

    def _add_matmul(self, source: str, name: str, rows: int) -> None:
        weights = self._add_constant(f"{name}.w", self._weights.read_tensor(f"{name}.w", rows).T)
        self._add_node("MatMul", [source, weights], name)

    def _add_skip_norm(self, source: str, addend: str, norm: str, output: str) -> None:
        vectors = self._add_vectors(f"{norm}.w", f"{norm}.b", f"{addend}.b")
        self._add_node(
            "SkipLayerNormalization",
            [source, addend, *vectors],
            output,
            FUSED_DOMAIN,
            epsilon=self._shape.epsilon,
        )

    def _add_vectors(self, *names: str) -> list[str]:
        return [self._add_constant(name, self._weights.read_tensor(name)) for name in names]

    def _add_constant(self, name: str, value: NDArray[np.float32]) -> str:
        constant = TensorProto(
            name=name,
            dims=value.shape,
            data_type=TensorProto.FLOAT,
            data_location=TensorProto.EXTERNAL,
        )
        for key, setting in (
            ("location", self._data_name),
            ("offset", self._data.tell()),
            ("length", value.nbytes),
        ):
            constant.external_data.add(key=key, value=str(setting))
        self._data.write(np.ascontiguousarray(value, "<f4").data)
        self._constants.append(constant)
        return name

    def _add_node(
        self, kind: str, inputs: list[str], output: str, domain: str = "", **attributes: Any
    ) -> None:
        self._nodes.append(helper.make_node(kind, inputs, [output], domain=domain, **attributes))

    def _describe_value(self, name: str, kind: int, rank: int) -> onnx.ValueInfoProto:
        sizes: list[str | int | None] = ["batch", "tokens", self._shape.hidden]
        return helper.make_tensor_value_info(name, kind, sizes[:rank])
