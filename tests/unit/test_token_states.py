"""Encoding of token states, background scores, and the order of work in lanes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from engines.embed.e5 import Background, load_texts
from engines.embed.e5_session import PriorityThreadPool
from engines.embed.states import (
    StateScale,
    normalize_rows,
    pack_states,
    take_leading,
    unpack_states,
)
from retrieval.ranking.reranking import TokenStateReader, weigh_tokens


@given(st.integers(0, 40), st.integers(1, 300), st.integers(0, 2**32 - 1))
def test_packed_states_round_trip(rows: int, columns: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    states = normalize_rows(draw.normal(size=(rows, columns)).astype(np.float32))
    ids = draw.integers(0, 250_000, rows).astype(np.int32)
    found, found_ids = unpack_states(pack_states(states, ids, StateScale.for_random_rows(columns)))
    assert np.array_equal(found_ids, ids) and found_ids.dtype == np.int32
    assert found.shape == (rows, columns)
    # Two bits keep .94 of a normal distribution, four bits .995. A few numbers may be far from one:
    # of 24,000 random rows, the worst kept .919 and .968.
    if columns >= 64:
        assert (np.sum(take_leading(found) * take_leading(states), axis=1) > 0.95).all()
        assert (np.sum(found * states, axis=1) > 0.9).all()


def test_scale_keeps_states_that_lie_around_a_mean() -> None:
    draw = np.random.default_rng(1)
    noise = draw.normal(size=(400, 256)) * np.repeat([0.06, 0.03, 0.02, 0.015], 64)
    states = normalize_rows((draw.normal(size=256) / 16 + noise).astype(np.float32))
    ids = np.arange(400, dtype=np.int32)
    agreements = [
        np.sum(states * unpack_states(pack_states(states, ids, scale))[0], axis=1).mean()
        for scale in (StateScale.from_rows(states), StateScale.for_random_rows(256))
    ]
    assert agreements[0] > 0.98 > agreements[1]


def test_packed_states_take_under_three_bits_a_number() -> None:
    ids, scale = np.zeros(200, np.int32), StateScale.for_random_rows(256)
    packed = pack_states(np.zeros((200, 256), np.float32), ids, scale)
    assert len(packed) - 4 * len(ids) == 8 + 16 + 256 + 200 * (32 + 48)


def pack_ones() -> bytes:
    ids = np.arange(3, dtype=np.int32)
    return pack_states(np.ones((3, 4), np.float32), ids, StateScale.for_random_rows(4))


@pytest.mark.parametrize("cut", [0, 3, 8, 20, -1])
def test_truncated_states_are_rejected(cut: int) -> None:
    whole = pack_ones()
    with pytest.raises(ValueError, match="cannot hold"):
        unpack_states(whole[:cut])


@pytest.mark.parametrize("deviation", [float("nan"), float("inf"), -0.1, 1e30])
def test_states_with_impossible_deviations_are_rejected(deviation: float) -> None:
    packed = bytearray(pack_ones())
    packed[8:12] = np.float32(deviation).tobytes()
    with pytest.raises(ValueError, match="between 0 and 1"):
        unpack_states(bytes(packed))


def test_states_require_one_id_each() -> None:
    with pytest.raises(ValueError, match="token ids"):
        pack_states(
            np.ones((3, 4), np.float32), np.arange(2, dtype=np.int32), StateScale.for_random_rows(4)
        )


def test_background_scores_are_means_over_texts(tmp_path: Path) -> None:
    rows = normalize_rows(np.array([[1, 0], [0, 1], [1, 1]], np.float32))
    background = Background.from_vectors([rows[0], rows[1]], [rows[:1], rows[1:]])
    background.save(tmp_path / "background.npz")
    loaded = Background.load(tmp_path / "background.npz")
    half = float(np.sqrt(0.5))
    for found in (background, loaded):
        assert found.mean_cosine(rows[0]) == pytest.approx(0.5)
        assert found.mean_maxsim_for_passage(rows[:1]) == pytest.approx((1 + (0 + half) / 2) / 2)
        assert found.mean_maxsim_for_question(rows[:1]) == pytest.approx((1 + half) / 2)
        assert (
            found.mean_maxsim_for_passage(rows[:0]) is None
            and found.mean_maxsim_for_question(rows[:0]) is None
        )
    assert [path.name for path in tmp_path.iterdir()] == ["background.npz"]


def test_background_texts_count_is_sixty_per_kind() -> None:
    for name in ("questions", "passages"):
        assert len(set(load_texts(name))) == 60 and all(line.strip() for line in load_texts(name))


def test_pool_runs_lowest_rank_first_and_skips_cancelled_work() -> None:
    lanes, began, gate, done = (
        PriorityThreadPool(1, "test"),
        threading.Event(),
        threading.Event(),
        [],
    )
    first = lanes.submit(lambda: (began.set(), gate.wait(60)))
    assert began.wait(60)
    waiting = [lanes.submit(lambda rank=rank: done.append(rank), rank) for rank in (30, 10, 20)]
    dropped = lanes.submit(lambda: done.append("dropped"), 5)
    assert dropped.cancel()
    gate.set()
    for future in [first, *waiting]:
        future.result(60)
    lanes.close()
    assert done == [10, 20, 30]


async def test_pool_propagates_errors_to_caller() -> None:
    lanes = PriorityThreadPool(1, "test")
    with pytest.raises(ZeroDivisionError):
        await lanes.run(lambda: 1 / 0)
    assert await lanes.run(lambda: 7) == 7
    lanes.close()


def test_closing_pool_waits_for_running_and_cancels_queued_work() -> None:
    lanes, began, gate = PriorityThreadPool(1, "test"), threading.Event(), threading.Event()
    running = lanes.submit(lambda: (began.set(), gate.wait(60)))
    assert began.wait(60)
    waiting = lanes.submit(lambda: "never")
    closing = threading.Thread(target=lanes.close)
    closing.start()
    gate.set()
    closing.join(60)
    assert running.done() and waiting.cancelled()
    lanes.close()


class CountingBlobs:
    """Blobs of equal token states that count range reads."""

    def __init__(self) -> None:
        self.packed = pack_ones()
        self.n_ranges = 0

    async def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        await asyncio.sleep(0)
        self.n_ranges += len(ranges)
        return [self.packed for _ in ranges]


async def test_states_read_at_once_fill_the_cache_once() -> None:
    blobs: Any = CountingBlobs()
    length = len(blobs.packed)
    reader = TokenStateReader(blobs, unpack_states, cache_bytes=3 * length)
    chunks: Any = [
        SimpleNamespace(chunk_id=uuid4(), states=("blob", number * length, length))
        for number in range(2)
    ]
    for _ in range(20):
        await asyncio.gather(*(reader.read(chunks[:1]) for _ in range(5)))
        await reader.read(chunks)
    assert blobs.n_ranges == 5 + 1


async def test_cache_of_no_bytes_reads_states_each_time() -> None:
    blobs: Any = CountingBlobs()
    reader = TokenStateReader(blobs, unpack_states, cache_bytes=0)
    chunks: Any = [SimpleNamespace(chunk_id=uuid4(), states=("blob", 0, len(blobs.packed)))]
    assert await reader.read(chunks) and await reader.read(chunks)
    assert blobs.n_ranges == 2


QUESTION = "What does the bearing cost in Lisbon?"
IDF = {"english": {"bear": 3.0, "cost": 1.0, "lisbon": 6.0}}


def make_spans(*texts: str) -> NDArray[np.int64]:
    starts = [QUESTION.index(text) for text in texts]
    return np.array(
        [(start, start + len(text)) for start, text in zip(starts, texts, strict=True)], np.int64
    )


def test_tokens_weigh_as_much_as_their_word() -> None:
    spans = make_spans("bear", "ing", "cost", "Lis", "bon")
    weights = weigh_tokens(QUESTION, spans, "en", IDF)
    assert weights is not None and weights.tolist() == [3.0, 3.0, 1.0, 6.0, 6.0]


def test_function_words_and_punctuation_have_no_weight() -> None:
    weights = weigh_tokens(QUESTION, make_spans("What", "the", "cost", "?"), "en", IDF)
    assert weights is not None and weights.tolist() == [0.0, 0.0, 1.0, 0.0]


def test_word_without_lexeme_weighs_the_mean_of_the_others() -> None:
    idf = {"english": {"bear": 3.0, "cost": 1.0}}
    weights = weigh_tokens(QUESTION, make_spans("cost", "Lis", "bon"), "en", idf)
    assert weights is not None and weights.tolist() == [1.0, 2.0, 2.0]


def test_first_configuration_decides() -> None:
    other = {"portuguese": {"bearing": 9.0, "cost": 9.0, "lisbon": 9.0}}
    weights = weigh_tokens(QUESTION, make_spans("cost"), "en", {**IDF, **other})
    assert weights is not None and weights.tolist() == [1.0]


@pytest.mark.parametrize(
    ("idf", "tokens"),
    [({}, ["cost"]), ({"english": {}}, ["cost"]), (IDF, ["What", "?"]), (IDF, [])],
)
def test_question_without_weighed_tokens_has_no_weights(
    idf: dict[str, dict[str, float]], tokens: list[str]
) -> None:
    spans = make_spans(*tokens).reshape(-1, 2)
    assert weigh_tokens(QUESTION, spans, "en", idf) is None
