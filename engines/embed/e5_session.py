"""The encoder multilingual-e5-small on ONNX Runtime: tokenizer and session."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime
from tokenizers import Tokenizer, models, pre_tokenizers

from engines.embed.e5_file import FILE_SHA256, E5File, ModelVocabulary, locate_weights
from engines.embed.states import Floats

MAX_TOKENS = 512
MAX_USEFUL_CHARACTERS = 20_000
"""Longer texts are cut before tokenizing: in practice later characters cannot be among the first
510 tokens."""
GRAPH_VERSION = 2
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
        graph_path = (
            cache_dir / f"multilingual-e5-small-{FILE_SHA256[:12]}-fp32-v{GRAPH_VERSION}.onnx"
        )
        # Several processes may write it at once: the result is the same, and renamed into place.
        if not (graph_path.exists() and graph_path.with_suffix(".weights").exists()):
            # Here, because it imports `onnx`, which a process that finds the graph does not need.
            from engines.embed.e5_graph import write_graph

            write_graph(self._file, graph_path)
        options = onnxruntime.SessionOptions()
        # One thread per run: the embedder's pools run several at once.
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(
            str(graph_path), options, providers=["CPUExecutionProvider"]
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
