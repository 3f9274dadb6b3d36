"""The promises of the port Embedder, kept by every embedder."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import numpy as np
import pytest

from engines.embed.e5 import E5Embedder
from engines.embed.null import NullEmbedder
from engines.embed.openai import OpenAIEmbedder
from engines.openai_server import ServerSettings
from schemas.ports.engines import Embedder
from tests.fakes.openai_server import fake_openai

TEXTS = ["The bearing costs 18,740 euros.", "O gato dorme no telhado.", "", "word " * 3000, "🙂 \x00 ü"]


@pytest.fixture(scope="module")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(params=["null", "null with states", "e5", "e5 without states", "openai", "vllm messages"])
async def embedder(request: pytest.FixtureRequest, cache_dir: Path) -> AsyncIterator[Embedder]:
    async with AsyncExitStack() as stack:
        match request.param:
            case "null":
                yield NullEmbedder(dimension=48)
            case "null with states":
                yield NullEmbedder(dimension=48, state_dimension=16)
            case "e5" | "e5 without states":
                e5 = E5Embedder(cache_dir, state_dimension=64 if request.param == "e5" else 0, threads=2)
                stack.callback(e5.close)
                yield e5
            case "openai":
                fake = stack.enter_context(fake_openai())
                remote = OpenAIEmbedder(ServerSettings(base_url=fake.url, model="fake"), dimension=32, batch=2)
                stack.push_async_callback(remote.close)
                yield remote
            case _:
                fake = stack.enter_context(fake_openai(kind="vllm", matryoshka=False))
                remote = OpenAIEmbedder(ServerSettings(base_url=fake.url, model="Qwen/Qwen3-VL-Embedding-2B", kind="vllm"), dimension=32)
                stack.push_async_callback(remote.close)
                yield remote


async def test_each_text_gets_a_unit_vector_of_the_stated_dimension_in_order(embedder: Embedder) -> None:
    together = await embedder.embed(TEXTS)
    alone = [(await embedder.embed([text]))[0] for text in TEXTS[:2]]
    assert len(together) == len(TEXTS)
    for item in together:
        assert item.vector.dtype == np.float16 and item.vector.shape == (embedder.dimension,)
        assert np.linalg.norm(item.vector.astype(np.float32)) == pytest.approx(1, abs=2e-3)
    for expected, found in zip(alone, together, strict=False):
        assert float(expected.vector.astype(np.float32) @ found.vector.astype(np.float32)) == pytest.approx(1, abs=2e-3)


async def test_states_are_int8_unit_rows_with_a_token_id_each_or_absent(embedder: Embedder) -> None:
    for item in await embedder.embed(TEXTS):
        if not embedder.state_dimension:
            assert item.states is None and item.token_ids is None
            continue
        assert item.states is not None and item.token_ids is not None
        assert item.states.dtype == np.int8 and item.token_ids.dtype == np.int32
        assert item.states.shape == (len(item.token_ids), embedder.state_dimension)
        lengths = np.linalg.norm(item.states.astype(np.float32) / 127, axis=1)
        assert lengths == pytest.approx(np.ones(len(lengths)), abs=0.05)


async def test_a_question_is_near_the_passage_that_shares_its_words(embedder: Embedder) -> None:
    query = await embedder.embed_query("How much does the bearing cost?")
    near, far = [float(query.vector @ item.vector.astype(np.float32)) for item in await embedder.embed(TEXTS[:2])]
    assert query.vector.dtype == np.float32 and near > far
    assert (query.states is None) == (not embedder.state_dimension)
    if query.states is not None and query.token_ids is not None:
        assert query.states.shape == (len(query.token_ids), embedder.state_dimension)


async def test_no_texts_give_no_vectors(embedder: Embedder) -> None:
    assert await embedder.embed([]) == []


async def test_the_fingerprint_follows_from_what_changes_the_output(embedder: Embedder) -> None:
    assert len(embedder.fingerprint) == 16
    assert NullEmbedder(8).fingerprint != NullEmbedder(16).fingerprint != embedder.fingerprint
