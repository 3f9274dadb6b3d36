"""The encoder on ONNX Runtime. Blocks its thread but releases the GIL while it computes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from engines.embed.e5_file import FILE_SHA256, E5File, locate_weights
from engines.embed.e5_graph import GRAPH_VERSION, build_graph
from engines.embed.e5_tokens import E5Tokenizer

Floats = NDArray[np.float32]


class E5Encoder:
    """Computes hidden states from token ids.

    Several threads may call `compute_states`, each using one core.
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
    if not graph.exists():
        build_graph(weights, graph)
    options = onnxruntime.SessionOptions()
    # One thread per run: the embedder's pools run several at once.
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
