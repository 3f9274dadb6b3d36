"""Contract of the port `Embedder`, run against every embedder."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import numpy as np
import pytest

from engines.embed.e5 import E5Embedder
from engines.embed.openai import OpenAIEmbedder
from engines.embed.states import unpack_states
from engines.server_settings import ServerSettings
from schemas.ports.engines import Embedder
from tests.fakes.null_embedder import NullEmbedder
from tests.fakes.openai_server import fake_openai

TEXTS = [
    "The bearing costs 18,740 euros.",
    "O gato dorme no telhado.",
    "",
    "word " * 3000,
    "🙂 \x00 ü",
]


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Embedder]]:
    folder = tmp_path_factory.mktemp("models")
    with_states, without = (
        E5Embedder(folder, threads=2),
        E5Embedder(folder, state_dimension=0, threads=1),
    )
    yield {
        "null": NullEmbedder(dimension=48),
        "null with states": NullEmbedder(dimension=48, state_dimension=16),
        "e5": with_states,
        "e5 without states": without,
    }
    with_states.close()
    without.close()


@pytest.fixture(
    params=[
        "null",
        "null with states",
        "e5",
        "e5 without states",
        "openai",
        "vllm messages",
        "cohere",
    ]
)
async def embedder(
    request: pytest.FixtureRequest, local: dict[str, Embedder]
) -> AsyncIterator[Embedder]:
    if request.param in local:
        yield local[request.param]
        return
    kind, model = (
        ("vllm", "Qwen/Qwen3-VL-Embedding-2B")
        if request.param == "vllm messages"
        else ("openai", "fake")
    )
    with fake_openai(kind=kind, matryoshka=kind == "openai") as fake:
        remote = OpenAIEmbedder(
            ServerSettings(base_url=fake.url, model=model, kind=kind),
            dimension=32,
            api="cohere" if request.param == "cohere" else "openai",
            batch_size=2,
        )
        yield remote
        await remote.close()


async def test_vectors_are_normalized_and_in_text_order(embedder: Embedder) -> None:
    together = await embedder.embed(TEXTS)
    alone = [(await embedder.embed([text]))[0] for text in TEXTS[:2]]
    assert len(together) == len(TEXTS)
    for item in together:
        assert item.vector.dtype == np.float16 and item.vector.shape == (embedder.dimension,)
        assert np.linalg.norm(item.vector.astype(np.float32)) == pytest.approx(1, abs=2e-3)
    for expected, found in zip(alone, together, strict=False):
        assert float(
            expected.vector.astype(np.float32) @ found.vector.astype(np.float32)
        ) == pytest.approx(1, abs=2e-3)


async def test_token_states_are_unit_rows_or_absent(embedder: Embedder) -> None:
    for item in await embedder.embed(TEXTS):
        if not embedder.state_dimension:
            assert item.states is None
            continue
        states, token_ids = unpack_states(item.states or b"")
        assert states.dtype == np.float32 and token_ids.dtype == np.int32
        assert states.shape == (len(token_ids), embedder.state_dimension)
        lengths = np.linalg.norm(states, axis=1)
        assert lengths == pytest.approx(np.ones(len(lengths)), abs=0.05)


async def test_located_tokens_fit_the_states_and_the_words(embedder: Embedder) -> None:
    texts = [*TEXTS, "O  ﬁm…\n\tdo ½ contrato", "| Número | Preço |\n| --- | --- |\n| 7 | 310 € |"]
    located = await embedder.locate_tokens(texts)
    for text, item, spans in zip(texts, await embedder.embed(texts), located, strict=True):
        assert spans.shape == (0 if item.states is None else len(unpack_states(item.states)[0]), 2)
        assert ((spans[:, 0] <= spans[:, 1]) & (spans[:, 1] <= len(text))).all()
    if embedder.state_dimension:
        start = TEXTS[0].index("costs")
        (spans,) = await embedder.locate_tokens(TEXTS[:1])
        words = {TEXTS[0][max(0, first) : end].strip() for first, end in spans.tolist()}
        assert any(TEXTS[0][start:].startswith(word) for word in words if word.startswith("c"))


async def test_query_is_nearest_to_passage_with_shared_words(embedder: Embedder) -> None:
    query = await embedder.embed_query("How much does the bearing cost?")
    near, far = [
        float(query.vector @ item.vector.astype(np.float32))
        for item in await embedder.embed(TEXTS[:2])
    ]
    assert query.vector.dtype == np.float32 and near > far
    assert (query.states is None) == (not embedder.state_dimension)
    if query.states is not None and query.token_ids is not None:
        assert query.states.shape == (len(query.token_ids), embedder.state_dimension)


async def test_empty_batch_returns_no_vectors(embedder: Embedder) -> None:
    assert await embedder.embed([]) == []


async def test_fingerprint_changes_with_dimension(embedder: Embedder) -> None:
    assert len(embedder.fingerprint) == 16
    assert NullEmbedder(8).fingerprint != NullEmbedder(16).fingerprint != embedder.fingerprint
