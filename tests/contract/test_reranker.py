"""Contract of the port `Reranker`, run against every reranker."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import numpy as np
import pytest

from anabranch.config.engines import open_reranker
from anabranch.config.loader import load_settings
from engines.embed.states import normalize_rows, unpack_states
from engines.rerank.http import HttpReranker
from engines.rerank.maxsim import MaxSimReranker
from engines.server_settings import ServerRetryPolicy, ServerSettings
from schemas.errors import EngineUnavailable
from schemas.generations import Generation, IndexConfig
from schemas.ports.engines import QueryEmbedding, Reranker, RerankPassage, TokenWeighting
from services.instrumentation.metrics import Metrics, ServerWatch
from tests.fakes.chunks import make_passage
from tests.fakes.null_embedder import NullEmbedder
from tests.fakes.openai_server import FakeOpenAI, fake_openai

EMBEDDER = NullEmbedder(dimension=32, state_dimension=32)


async def make_passage_with_states(*children: str) -> RerankPassage:
    found = await EMBEDDER.embed(children)
    states, ids = zip(*(unpack_states(item.states or b"") for item in found), strict=True)
    return RerankPassage(uuid5(NAMESPACE_URL, " ".join(children)), " ".join(children), states, ids)


async def embed_query(text: str) -> QueryEmbedding:
    return await EMBEDDER.embed_query(text)


@pytest.fixture(params=["maxsim", "http", "http of vllm", "score of vllm", "http in batches"])
async def reranker(request: pytest.FixtureRequest) -> AsyncIterator[Reranker]:
    async with AsyncExitStack() as stack:
        if request.param == "maxsim":
            yield MaxSimReranker()
            return
        kind = "vllm" if "vllm" in request.param else "openai"
        fake = stack.enter_context(fake_openai(kind=kind))
        remote = HttpReranker(
            ServerSettings(base_url=fake.url, model="fake", kind=kind),
            api="score" if "score" in request.param else "rerank",
            batch=1 if "batches" in request.param else 64,
        )
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
        for score, _ in await reranker.rerank(question, embedded, passages)
    ]
    assert foreign < reranker.threshold <= answering


async def test_maxsim_without_token_states_scores_zero() -> None:
    passages = [make_passage("a"), make_passage("b")]
    assert await MaxSimReranker().rerank("q", None, passages) == [(0.0, 0.0), (0.0, 0.0)]


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
    assert one.score == pytest.approx(both.score, abs=1e-6)
    assert one.score == pytest.approx(1, abs=0.02)


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


async def test_given_token_weights_replace_those_by_passages() -> None:
    passages = [await make_passage_with_states(text) for text in ("alpha x", "beta y", "beta z")]
    embedded = await embed_query("alpha beta")
    alpha_first, beta_first = [
        await MaxSimReranker().rerank(
            "", embedded, passages, TokenWeighting(np.array(weights, np.float32))
        )
        for weights in ([3.0, 1.0], [1.0, 3.0])
    ]
    assert alpha_first[0].order > alpha_first[1].order
    assert beta_first[0].order < beta_first[1].order
    plain = await MaxSimReranker().rerank("", embedded, passages)
    for scores in (alpha_first, beta_first):
        assert [item.score for item in scores] == [item.score for item in plain]
    assert all(item.order == item.score for item in plain)


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
    assert stretched[2].score - 0.8 == pytest.approx(1, abs=0.1)


def make_passages(count: int) -> list[RerankPassage]:
    return [make_passage("bearing " * (number % 3) + f"page {number}") for number in range(count)]


@pytest.fixture
def fake() -> Iterator[FakeOpenAI]:
    with fake_openai(kind="vllm") as server:
        yield server


def make_remote(fake: FakeOpenAI, **options: Any) -> HttpReranker:
    return HttpReranker(
        ServerSettings(
            base_url=fake.url, model="fake", kind=fake.kind, timeout_s=options.pop("timeout_s", 10)
        ),
        retry_policy=ServerRetryPolicy(
            attempts=1, first_wait_s=0, jitter_s=0, failure_threshold=2, circuit_open_s=60
        ),
        **options,
    )


@pytest.mark.parametrize("api", ["rerank", "score"])
async def test_batches_give_the_scores_of_one_request(fake: FakeOpenAI, api: Any) -> None:
    passages = make_passages(10)
    whole, batched = make_remote(fake, api=api), make_remote(fake, api=api, batch=4, parallel=2)
    expected = await whole.rerank("bearing page", None, passages)
    assert await batched.rerank("bearing page", None, passages) == expected
    sizes = [len(body.get("documents") or body["text_2"]) for _, body in fake.requests]
    assert sizes[0] == 10 and sorted(sizes[1:]) == [2, 4, 4]
    assert (whole.count_requests(10), batched.count_requests(10)) == (1, 3)
    assert batched.count_requests(0) == 0
    for reranker in (whole, batched):
        await reranker.close()


@pytest.mark.parametrize("api", ["rerank", "score"])
@pytest.mark.parametrize(
    "fault", [{"drop": True}, {"nan": True}, {"malformed": True}, {"body": {"results": "none"}}]
)
async def test_broken_reply_of_one_batch_is_no_order(
    fake: FakeOpenAI, api: Any, fault: dict[str, Any]
) -> None:
    reranker = make_remote(fake, api=api, batch=2)
    fake.fail(on=api, **fault)
    with pytest.raises(EngineUnavailable) as caught:
        await reranker.rerank("bearing", None, make_passages(6))
    assert caught.value.code == "ENGINE_BROKEN_ANSWER"
    await reranker.close()


async def test_hanging_server_times_out_and_opens_the_circuit(fake: FakeOpenAI) -> None:
    reranker = make_remote(fake, timeout_s=0.2)
    fake.fail(on="rerank", times=9, hang=True)
    for _ in range(2):
        with pytest.raises(EngineUnavailable):
            await reranker.rerank("bearing", None, make_passages(2))
    n_requests = len(fake.requests)
    with pytest.raises(EngineUnavailable, match="circuit stays open"):
        await reranker.rerank("bearing", None, make_passages(2))
    assert len(fake.requests) == n_requests == 2
    await reranker.close()


async def test_score_on_a_server_without_it_names_the_remedy() -> None:
    with fake_openai(kind="openai") as server:
        reranker = make_remote(server, api="score")
        with pytest.raises(EngineUnavailable) as caught:
            await reranker.rerank("bearing", None, make_passages(2))
        assert caught.value.code == "ENGINE_NOT_FOUND" and "address" in caught.value.remedy
        await reranker.close()


async def test_settings_choose_endpoint_batches_and_breaker(fake: FakeOpenAI) -> None:
    sets = {
        "base_url": fake.url,
        "model": "fake",
        "kind": "vllm",
        "api": "score",
        "batch": "2",
        "attempts": "1",
        "breaker_failures": "1",
    }
    settings = load_settings(sets=[f"rerank.{name}={value}" for name, value in sets.items()])
    generation = Generation(name="g1", config=IndexConfig(), how={}, topics={}, state="live")
    metrics = Metrics("0")
    async with AsyncExitStack() as stack:
        watch = partial(ServerWatch, metrics)
        reranker = await open_reranker(settings, generation, stack, watch)
        assert reranker is not None
        assert len(await reranker.rerank("bearing", None, make_passages(5))) == 5
        sizes = [len(body["text_2"]) for body in fake.get_request_bodies("/score")]
        assert sorted(sizes) == [1, 2, 2]
        fake.fail(on="score", times=9, status=503)
        for _ in range(2):
            with pytest.raises(EngineUnavailable):
                await reranker.rerank("bearing", None, make_passages(1))
    # The request that the open circuit held back was not sent.
    assert len(fake.requests) == 4
    assert metrics.model_requests.labels("rerank")._value.get() == 4


async def test_background_share_is_subtracted_from_each_child() -> None:
    embedded = await embed_query("bearing cost today")
    near_to_all = await make_passage_with_states("bearing cost", "today")
    of_its_own = await make_passage_with_states("bearing cost", "unrelated")
    passages = [
        replace(near_to_all, backgrounds=(0.9, 0.0)),
        replace(of_its_own, backgrounds=(0.0, 0.9)),
    ]
    plain, corrected = [
        await MaxSimReranker().rerank(
            "", embedded, passages, TokenWeighting(np.ones(3, np.float32), share)
        )
        for share in (0.0, 0.5)
    ]
    assert plain[0].order == pytest.approx(plain[1].order)
    assert corrected[0].order < corrected[1].order
    assert [item.score for item in corrected] == [item.score for item in plain]


async def test_weights_of_tokens_count_by_their_share() -> None:
    passages = [await make_passage_with_states(text) for text in ("alpha x", "beta y", "beta z")]
    embedded = await embed_query("alpha beta")

    async def order(share: float) -> list[float]:
        weighting = TokenWeighting(np.array([3.0, 1.0], np.float32), share=share)
        scores = await MaxSimReranker().rerank("", embedded, passages, weighting)
        return [score.order for score in scores]

    none, quarter, full = [np.array(await order(share)) for share in (0.0, 0.25, 1.0)]
    assert quarter == pytest.approx(0.25 * full + 0.75 * none) and (full != none).any()


async def test_score_compares_leading_dimensions_and_order_all() -> None:
    leading, others = np.zeros((2, 64)), np.eye(2, 64)
    leading[:, 0] = 1
    rows = normalize_rows(np.concatenate([leading, others], axis=1).astype(np.float32))
    ids = np.array([1, 2], np.int32)
    question = QueryEmbedding(np.ones(4, np.float32), rows[:1], ids[:1])
    alike, unlike = await MaxSimReranker().rerank(
        "",
        question,
        [
            RerankPassage(uuid5(NAMESPACE_URL, str(n)), "", (rows[n : n + 1],), (ids[n : n + 1],))
            for n in range(2)
        ],
    )
    assert alike.score == unlike.score == pytest.approx(1, abs=1e-6)
    assert alike.order == pytest.approx(1, abs=1e-6)
    assert unlike.order == pytest.approx(0.5, abs=1e-6)
