"""The encoder multilingual-e5-small on ONNX Runtime: tokenizer, graph and session."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer, models, pre_tokenizers

from engines.disk import write_atomically
from engines.embed.e5_file import FILE_SHA256, E5File, ModelVocabulary, locate_weights
from engines.embed.states import Floats

MAX_TOKENS = 512
MAX_USEFUL_CHARACTERS = 20_000
"""Longer texts are cut before tokenizing: in practice later characters cannot be among the first
510 tokens."""
GRAPH_VERSION = 1
FUSED_DOMAIN = "com.microsoft"
_SPACES = re.compile(" {2,}")


class E5Tokenizer:
    """Unigram model (Kudo 2018) over the pieces in the weights file."""

    def __init__(self, vocabulary: ModelVocabulary) -> None:
        model = models.Unigram(
            list(zip(vocabulary.pieces, vocabulary.scores.tolist(), strict=True)),
            vocabulary.unk,
            False,
        )
        self._tokenizer = Tokenizer(model)
        self._tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(
            replacement="▁", prepend_scheme="always", split=False
        )
        self.vocabulary = vocabulary

    def encode(self, text: str) -> list[int]:
        """Return at most 512 token ids, including the special tokens."""
        return [self.vocabulary.bos, *self.tokenize(text)[: MAX_TOKENS - 2], self.vocabulary.eos]

    def tokenize(self, text: str) -> list[int]:
        """Return the token ids without special tokens and without limit."""
        normalized = text[:MAX_USEFUL_CHARACTERS].translate(self.vocabulary.normalization)
        ids: list[int] = self._tokenizer.encode(
            _SPACES.sub(" ", normalized), add_special_tokens=False
        ).ids
        return ids


class E5Encoder:
    """Computes hidden states from token ids.

    Blocks its thread but releases the GIL: several threads may call `compute_states`, each using
    one core.
    """

    def __init__(self, cache_dir: Path) -> None:
        self._file = E5File(locate_weights())
        self.tokenizer = E5Tokenizer(self._file.vocabulary)
        self.dimension = self._file.shape.hidden
        self._position_embeddings = (
            self._file.read_tensor("emb.pos", self._file.shape.positions)
            + self._file.read_tensor("emb.type")[: self.dimension]
        )
        self._session = _create_session(
            self._file,
            cache_dir / f"multilingual-e5-small-{FILE_SHA256[:12]}-fp32-v{GRAPH_VERSION}.onnx",
        )

    def compute_states(self, batch: Sequence[Sequence[int]]) -> list[Floats]:
        """Return the last hidden states of each text, [tokens, dimension], without padding."""
        longest = max(map(len, batch))
        embeddings = np.zeros((len(batch), longest, self.dimension), np.float32)
        mask = np.zeros((len(batch), longest), np.int64)
        for row, ids in enumerate(batch):
            embeddings[row, : len(ids)] = (
                self._file.read_word_embeddings(np.asarray(ids, np.int64))
                + self._position_embeddings[: len(ids)]
            )
            mask[row, : len(ids)] = 1
        (hidden,) = self._session.run(["states"], {"emb": embeddings, "mask": mask})
        return [hidden[row, : len(ids)] for row, ids in enumerate(batch)]


def _create_session(weights: E5File, graph: Path) -> onnxruntime.InferenceSession:
    # Several processes may build it at once: the result is the same, and renamed into place.
    if not graph.exists():
        build_graph(weights, graph)
    options = onnxruntime.SessionOptions()
    # One thread per run: the embedder's pools run several at once.
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])


def build_graph(weights: E5File, target: Path) -> None:
    """Write the graph to `target` atomically."""
    write_atomically(
        target,
        lambda temporary_path: onnx.save(_GraphBuilder(weights).build_model(), temporary_path),
    )


class _GraphBuilder:
    """Builds the graph (BERT, Devlin et al. 2018) in float32 with fused attention.

    Inputs are `emb` [batch, tokens, hidden] (words + positions + types) and `mask` [batch, tokens];
    the output `states` has the shape of `emb`.
    """

    def __init__(self, weights: E5File) -> None:
        self._weights, self._shape = weights, weights.shape
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
        self._constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def _add_node(
        self, kind: str, inputs: list[str], output: str, domain: str = "", **attributes: Any
    ) -> None:
        self._nodes.append(helper.make_node(kind, inputs, [output], domain=domain, **attributes))

    def _describe_value(self, name: str, kind: int, rank: int) -> onnx.ValueInfoProto:
        sizes: list[str | int | None] = ["batch", "tokens", self._shape.hidden]
        return helper.make_tensor_value_info(name, kind, sizes[:rank])
