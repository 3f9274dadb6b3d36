"""The encoder multilingual-e5-small on ONNX Runtime: tokenizer and session."""

from __future__ import annotations

import asyncio
import atexit
import itertools
import queue
import re
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from sentencepiece import SentencePieceProcessor

from engines.disk import write_atomically
from engines.embed.e5_file import FILE_SHA256, E5File, locate_weights
from engines.embed.states import Floats

MAX_TOKENS = 512
MAX_USEFUL_CHARACTERS = 20_000
"""Longer texts are cut before tokenizing: in practice later characters cannot be among the first
510 tokens."""
GRAPH_VERSION = 2
UNIGRAM_MODEL_VERSION = 1
CACHE_PREFIX = f"multilingual-e5-small-{FILE_SHA256[:12]}"
"""Prefix of the files in the cache folder that are derived from the weights."""
WORD_MARK = "▁"
"""Stands for a space in the pieces."""
_SPACES = re.compile(" {2,}")


class E5Tokenizer:
    """Unigram model (Kudo 2018) over the pieces in the weights file.

    The model is cached in `cache_dir`: made from the pieces it takes three times as long to load.
    """

    def __init__(self, weights: E5File, cache_dir: Path) -> None:
        self._special, self._normalization = weights.special_tokens, weights.normalization
        model_path = cache_dir / f"{CACHE_PREFIX}-v{UNIGRAM_MODEL_VERSION}.spm"
        if not model_path.exists():
            model = build_unigram_model(weights)
            write_atomically(model_path, lambda path: path.write_bytes(model))
        self._processor = SentencePieceProcessor(model_file=str(model_path))

    def encode(self, text: str) -> list[int]:
        """Return at most 512 token ids, including the special tokens."""
        ids = self.tokenize(text)[: MAX_TOKENS - 2]
        return [self._special.bos, *ids, self._special.eos]

    def tokenize(self, text: str) -> list[int]:
        """Return the token ids without special tokens and without limit."""
        normalized = text[:MAX_USEFUL_CHARACTERS].translate(self._normalization)
        ids: list[int] = self._processor.encode(_mark_words(_SPACES.sub(" ", normalized)))
        return ids

    def locate_tokens(self, text: str) -> NDArray[np.int64]:
        """Return the characters [start, end) of `text` of each token that `encode` keeps, special
        tokens aside.
        """
        normalized: list[str] = []
        # The index in `text` of each normalized character.
        sources: list[int] = []
        for index, original in enumerate(text[:MAX_USEFUL_CHARACTERS]):
            for character in self._normalization.get(ord(original), original):
                if character != " " or normalized[-1:] != [" "]:
                    normalized.append(character)
                    sources.append(index)
        marked = _mark_words("".join(normalized))
        if len(marked) > len(sources):
            sources.insert(0, 0)
        offsets = self._processor.encode(marked, return_type="offset_mapping")["offsets"]
        return np.array(
            [(sources[start], sources[end - 1] + 1) for start, end in offsets[: MAX_TOKENS - 2]],
            np.int64,
        ).reshape(-1, 2)


def _mark_words(normalized: str) -> str:
    """Put WORD_MARK before each word, also before the first one."""
    marked = normalized.replace(" ", WORD_MARK)
    return marked if marked.startswith(WORD_MARK) or not marked else WORD_MARK + marked


def build_unigram_model(weights: E5File) -> bytes:
    """Build the model of SentencePiece (sentencepiece_model.proto) that segments escaped text."""
    # Here, because it imports protobuf, which a process that finds the model does not need.
    from sentencepiece import sentencepiece_model_pb2

    # protobuf makes the classes at import, where no type checker sees them.
    protocol: Any = sentencepiece_model_pb2
    special = weights.special_tokens
    kinds = {
        special.unk: protocol.ModelProto.SentencePiece.UNKNOWN,
        # Never found in text: one that spells a special token is ordinary text.
        **dict.fromkeys(
            (special.bos, special.eos, special.pad), protocol.ModelProto.SentencePiece.CONTROL
        ),
    }
    model = protocol.ModelProto()
    for index, (piece, score) in enumerate(weights.read_pieces()):
        kind = kinds.get(index, protocol.ModelProto.SentencePiece.NORMAL)
        model.pieces.add(piece=piece, score=score, type=kind)
    model.trainer_spec.model_type = protocol.TrainerSpec.UNIGRAM
    model.trainer_spec.unk_id = special.unk
    model.trainer_spec.bos_id, model.trainer_spec.eos_id = special.bos, special.eos
    model.trainer_spec.pad_id = special.pad
    # The text is normalized and escaped before.
    model.normalizer_spec.name = "identity"
    model.normalizer_spec.add_dummy_prefix = False
    model.normalizer_spec.remove_extra_whitespaces = False
    model.normalizer_spec.escape_whitespaces = False
    serialized: bytes = model.SerializeToString()
    return serialized


class E5Encoder:
    """Computes hidden states from token ids.

    Blocks its thread but releases the GIL: several threads may call `compute_states`, each using
    one core.
    """

    def __init__(self, cache_dir: Path) -> None:
        self._file = E5File(locate_weights())
        self.tokenizer = E5Tokenizer(self._file, cache_dir)
        self.dimension = self._file.shape.hidden
        self._position_embeddings = (
            self._file.read_tensor("emb.pos", self._file.shape.positions)
            + self._file.read_tensor("emb.type")[: self.dimension]
        )
        graph_path = cache_dir / f"{CACHE_PREFIX}-fp32-v{GRAPH_VERSION}.onnx"
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


# Thread pool with priorities for blocking work.

T = TypeVar("T")
_Task = tuple[float, int, "Future[Any] | None", Callable[[], Any]]


class PriorityThreadPool:
    """Runs work in `threads` threads, the lowest `priority` first.

    Equal priorities run in order of arrival. Work that was canceled while waiting does not start.
    """

    def __init__(self, threads: int, name: str) -> None:
        self._queue: queue.PriorityQueue[_Task] = queue.PriorityQueue()
        self._sequence = itertools.count()
        self._threads = [
            threading.Thread(target=self._process_queue, name=f"{name}-{n}", daemon=True)
            for n in range(threads)
        ]
        for thread in self._threads:
            thread.start()
        atexit.register(self.close)

    async def run(self, work: Callable[[], T], priority: float = 0.0) -> T:
        return await asyncio.wrap_future(self.submit(work, priority))

    def submit(self, work: Callable[[], T], priority: float = 0.0) -> Future[T]:
        future: Future[T] = Future()
        # The sequence number breaks ties, since futures cannot be compared.
        self._queue.put((priority, next(self._sequence), future, work))
        return future

    def close(self) -> None:
        """Wait for running work and cancel the rest."""
        # Also registered with atexit: native code that runs while the interpreter exits crashes it.
        atexit.unregister(self.close)
        for _ in self._threads:
            # Ends one thread, ahead of all waiting work.
            self._queue.put((float("-inf"), next(self._sequence), None, lambda: None))
        for thread in self._threads:
            thread.join()
        while not self._queue.empty():
            if (pending_future := self._queue.get()[2]) is not None:
                pending_future.cancel()

    def _process_queue(self) -> None:
        while True:
            _, _, future, work = self._queue.get()
            if future is None:
                return
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(work())
                except BaseException as error:
                    future.set_exception(error)
