"""The promises of the port Reranker, kept by every reranker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from uuid import NAMESPACE_URL, uuid5

import pytest

from engines.embed.null import NullEmbedder
from engines.rerank.http import HttpReranker
from engines.rerank.maxsim import MaxSimReranker
from engines.server_settings import ServerSettings
from schemas.ports.engines import EmbeddedQuery, Passage, Reranker
from tests.fakes.chunks import passage
from tests.fakes.openai_server import fake_openai

EMBEDDER = NullEmbedder(dimension=32, state_dimension=32)


async def with_states(*children: str) -> Passage:
    found = await EMBEDDER.embed(children)
    states = [item.states for item in found if item.states is not None]
    ids = [item.token_ids for item in found if item.token_ids is not None]
    return Passage(uuid5(NAMESPACE_URL, " ".join(children)), " ".join(children), states, ids)


async def query(text: str) -> EmbeddedQuery:
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


async def test_the_passage_that_answers_scores_best_wherever_it_stands(reranker: Reranker) -> None:
    question = "bearing replacement cost"
    passages = [
        await with_states("the cat sleeps"),
        await with_states("weather today", "replacement of the bearing: cost 18,740"),
        await with_states("a cost of living"),
    ]
    for order in ([0, 1, 2], [1, 0, 2], [2, 0, 1]):
        scores = await reranker.rerank(question, await query(question), [passages[place] for place in order])
        assert len(scores) == 3 and order[scores.index(max(scores))] == 1
        assert sorted(scores)[0] == scores[order.index(0)]


async def test_no_passages_give_no_scores(reranker: Reranker) -> None:
    assert await reranker.rerank("q", await query("q"), []) == []


async def test_the_threshold_parts_what_answers_from_what_is_foreign(reranker: Reranker) -> None:
    question = "bearing replacement cost"
    passages = [await with_states("replacement of the bearing, cost 18,740"), await with_states("cats sleep on warm roofs")]
    embedded = await query(question)
    answering, foreign = [score - (embedded.background_maxsim_mean or 0) for score in await reranker.rerank(question, embedded, passages)]
    assert foreign < reranker.threshold <= answering


async def test_maxsim_without_states_ranks_nothing() -> None:
    assert await MaxSimReranker().rerank("q", None, [passage("a"), passage("b")]) == [0.0, 0.0]


async def test_maxsim_scores_a_passage_by_its_best_child() -> None:
    embedded = await query("bearing cost")
    one, both = await MaxSimReranker().rerank("", embedded, [await with_states("bearing cost"), await with_states("cats", "bearing cost", "dogs")])
    assert one == pytest.approx(both, abs=1e-6) and one == pytest.approx(1, abs=0.02)


async def test_a_token_that_every_candidate_holds_weighs_less() -> None:
    common, rare = await with_states("contract alpha"), await with_states("contract beta")
    scores = await MaxSimReranker().rerank("", await query("contract beta"), [common, rare, await with_states("contract gamma")])
    assert scores[1] > scores[0]


async def test_the_background_stretches_scores_without_changing_their_order() -> None:
    embedded = await query("bearing cost today")
    raised = EmbeddedQuery(embedded.vector, embedded.states, embedded.token_ids, 0.8)
    passages = [await with_states("bearing"), await with_states("bearing cost"), await with_states("bearing cost today")]
    plain, stretched = await MaxSimReranker().rerank("", embedded, passages), await MaxSimReranker().rerank("", raised, passages)
    assert sorted(range(3), key=plain.__getitem__) == sorted(range(3), key=stretched.__getitem__)
    assert stretched[2] - 0.8 == pytest.approx(1, abs=0.1)
