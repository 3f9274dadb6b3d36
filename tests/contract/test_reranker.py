"""Contract of the port `Reranker`, run against every reranker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from uuid import NAMESPACE_URL, uuid5

import pytest

from engines.embed.null import NullEmbedder
from engines.rerank.http import HttpReranker
from engines.rerank.maxsim import MaxSimReranker
from engines.server_settings import ServerSettings
from schemas.ports.engines import QueryEmbedding, Reranker, RerankPassage
from tests.fakes.chunks import make_passage
from tests.fakes.openai_server import fake_openai

EMBEDDER = NullEmbedder(dimension=32, state_dimension=32)


async def make_passage_with_states(*children: str) -> RerankPassage:
    found = await EMBEDDER.embed(children)
    states = [item.states for item in found if item.states is not None]
    ids = [item.token_ids for item in found if item.token_ids is not None]
    return RerankPassage(uuid5(NAMESPACE_URL, " ".join(children)), " ".join(children), states, ids)


async def embed_query(text: str) -> QueryEmbedding:
    return await EMBEDDER.embed_query(text)


@pytest.fixture(params=["maxsim", "http", "http of vllm"])
async def reranker(request: pytest.FixtureRequest) -> AsyncIterator[Reranker]:
    async with AsyncExitStack() as stack:
        if request.param == "maxsim":
            yield MaxSimReranker()
            return
        kind = "vllm" if "vllm" in request.param else "openai"
        fake = stack.enter_context(fake_openai(kind=kind))
        remote = HttpReranker(ServerSettings(base_url=fake.url, model="fake", kind=kind))
        stack.push_async_callback(remote.close)
        yield remote


async def test_answering_passage_scores_best_in_any_position(reranker: Reranker) -> None:
    question = "bearing replacement cost"
    passages = [
        await make_passage_with_states("the cat sleeps"),
        await make_passage_with_states("weather today", "replacement of the bearing: cost 18,740"),
        await make_passage_with_states("a cost of living"),
    ]
    for order in ([0, 1, 2], [1, 0, 2], [2, 0, 1]):
        scores = await reranker.rerank(
            question, await embed_query(question), [passages[place] for place in order]
        )
        assert len(scores) == 3 and order[scores.index(max(scores))] == 1
        assert sorted(scores)[0] == scores[order.index(0)]


async def test_empty_batch_returns_no_scores(reranker: Reranker) -> None:
    assert await reranker.rerank("q", await embed_query("q"), []) == []


async def test_threshold_separates_answering_from_unrelated_passages(reranker: Reranker) -> None:
    question = "bearing replacement cost"
    passages = [
        await make_passage_with_states("replacement of the bearing, cost 18,740"),
        await make_passage_with_states("cats sleep on warm roofs"),
    ]
    embedded = await embed_query(question)
    answering, foreign = [
        score - (embedded.background_maxsim_mean or 0)
        for score in await reranker.rerank(question, embedded, passages)
    ]
    assert foreign < reranker.threshold <= answering


async def test_maxsim_without_token_states_scores_zero() -> None:
    assert await MaxSimReranker().rerank("q", None, [make_passage("a"), make_passage("b")]) == [
        0.0,
        0.0,
    ]


async def test_maxsim_scores_passage_by_its_best_child() -> None:
    embedded = await embed_query("bearing cost")
    one, both = await MaxSimReranker().rerank(
        "",
        embedded,
        [
            await make_passage_with_states("bearing cost"),
            await make_passage_with_states("cats", "bearing cost", "dogs"),
        ],
    )
    assert one == pytest.approx(both, abs=1e-6) and one == pytest.approx(1, abs=0.02)


async def test_token_in_every_candidate_has_lower_weight() -> None:
    common, rare = (
        await make_passage_with_states("contract alpha"),
        await make_passage_with_states("contract beta"),
    )
    scores = await MaxSimReranker().rerank(
        "",
        await embed_query("contract beta"),
        [common, rare, await make_passage_with_states("contract gamma")],
    )
    assert scores[1] > scores[0]


async def test_background_rescaling_preserves_ranking() -> None:
    embedded = await embed_query("bearing cost today")
    raised = QueryEmbedding(embedded.vector, embedded.states, embedded.token_ids, 0.8)
    passages = [
        await make_passage_with_states("bearing"),
        await make_passage_with_states("bearing cost"),
        await make_passage_with_states("bearing cost today"),
    ]
    plain, stretched = (
        await MaxSimReranker().rerank("", embedded, passages),
        await MaxSimReranker().rerank("", raised, passages),
    )
    assert sorted(range(3), key=plain.__getitem__) == sorted(range(3), key=stretched.__getitem__)
    assert stretched[2] - 0.8 == pytest.approx(1, abs=0.1)
