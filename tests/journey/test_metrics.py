"""Every metric moves when that happens which it counts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from anabranch.background.gauges import Gauges
from anabranch.composition.api import prepare_api
from anabranch.composition.overrides import Overrides
from anabranch.composition.worker import prepare_worker
from anabranch.process.metrics import Metrics
from anabranch.settings import Settings
from anabranch.settings_loading import load_settings
from api.services import Services
from engines.openai_server import OpenAIServer
from engines.resilience import Patience
from engines.server_settings import ServerSettings
from schemas.errors import EngineUnavailable
from schemas.questions import Progress, QueryRequest, Route, SearchResponse, Trace
from tests.api_access import api_client
from tests.callers import LOCAL
from tests.fakes.openai_server import NATIVE_DIMENSION, fake_openai
from tests.journey.conftest import World, _ready

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def samples(text: str) -> Samples:
    return {(one.name, frozenset(one.labels.items())): one.value for family in text_string_to_metric_families(text) for one in family.samples}


def value(found: Samples, name: str, **labels: str) -> float:
    """Of all series with these labels together."""
    return sum(number for (known, given), number in found.items() if known == f"anabranch_{name}" and labels.items() <= dict(given).items())


@dataclass
class Watched(World):
    metrics: Metrics
    working: asyncio.Task[None]
    services: Services

    async def of_worker(self, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> Samples:
        await Gauges(self.worker.storage, self.metrics, clock=clock).once()
        return samples(self.metrics.exposition()[0].decode())

    async def of_api(self) -> Samples:
        return samples((await self.http.get("/metrics")).text)


@asynccontextmanager
async def watched(settings: Settings, database: str, overrides: Overrides) -> AsyncIterator[Watched]:
    metrics = Metrics("1")
    given = replace(overrides, watch=metrics.watch)
    async with (
        prepare_worker(settings, database, overrides=given, observer=metrics) as worker,
        prepare_api(settings, database, overrides=overrides) as services,
        api_client(services) as http,
    ):
        working = asyncio.create_task(worker.run())
        try:
            await _ready(http)
            yield Watched(http, worker, settings, metrics, working, services)
        finally:
            await stopped(working)


async def stopped(working: asyncio.Task[None]) -> None:
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)


async def test_a_document_and_a_failure_are_told_by_the_worker(settings: Settings, database: str, overrides: Overrides) -> None:
    async with watched(settings, database, overrides) as world:
        await world.searchable("Herons stand still in shallow water.", external_id="herons")
        await world.ended(await world.ingest(b"%PDF-1.7\nno more", "torn.pdf"))
        found = await world.of_worker()
    assert value(found, "events_total", topic="accepted", type="document.accepted.v1") == 1
    assert value(found, "events_total", topic="outcomes", type="document.indexed.v1") == 1
    assert value(found, "ingest_end_to_end_seconds_count") == 1
    assert 0 < value(found, "ingest_end_to_end_seconds_sum") < 600
    assert value(found, "dead_letters", stage="receive") == 1
    assert value(found, "dead_letters_total", stage="receive") == 1
    assert value(found, "generation_info", id="g1", state="live") == 1
    assert (value(found, "documents", state="searchable"), value(found, "documents", state="failed")) == (1, 1)
    assert value(found, "stage_events_total", stage="index", outcome="done") == 1
    assert value(found, "stage_duration_seconds_count", stage="embed") >= 1


async def test_an_unchanged_document_does_not_count_as_one_that_took_time(settings: Settings, database: str, overrides: Overrides) -> None:
    async with watched(settings, database, overrides) as world:
        for _ in range(2):
            await world.searchable("Herons stand still in shallow water.")
        found = await world.of_worker()
    assert value(found, "events_total", topic="outcomes", type="document.indexed.v1") == 2
    assert value(found, "ingest_end_to_end_seconds_count") == 1


async def test_what_waits_is_told_with_its_age(settings: Settings, database: str, overrides: Overrides) -> None:
    async with watched(settings, database, overrides) as world:
        await world.searchable("Read at once.")
        await stopped(world.working)
        before = await world.of_worker()
        await world.ingest("Nobody reads this.")
        after = await world.of_worker(lambda: datetime.now(UTC) + timedelta(hours=1))
    assert value(before, "consumer_lag_seconds", stage="receive") == 0
    assert value(after, "consumer_lag_events", stage="receive") == 1
    assert 3600 <= value(after, "consumer_lag_seconds", stage="receive") < 7200


async def test_questions_and_what_is_said_of_their_answers_are_told_by_the_api(settings: Settings, database: str, overrides: Overrides) -> None:
    async with watched(settings, database, overrides) as world:
        await world.searchable("Herons stand still in shallow water.", external_id="herons")
        answer = await world.ask("Where do herons stand still?")
        await world.http.post("/v1/feedback", json={"run_id": answer["run_id"], "useful": False, "note": "no"})
        found = await world.of_api()
    channels = [channel for context in answer["contexts"] for channel in context["channels"]]
    assert value(found, "events_total", topic="raw", type="document.received.v1") == 1
    assert value(found, "channel_contribution_total", channel="lexical") == channels.count("lexical") > 0
    assert value(found, "query_duration_seconds_count", kind="query", profile="default") == 1
    assert value(found, "query_stage_duration_seconds_count", stage="fuse") == 1
    assert value(found, "answers_total") == 1
    failed = [check for check in (answer["judge"] or {"checks": []})["checks"] if check["result"] == "fail"]
    assert value(found, "judge_failures_total") == len(failed)
    assert value(found, "feedback_total", kind="not_useful") == value(found, "feedback_total", kind="note") == 1
    assert value(found, "feedback_total", kind="useful") == 0


async def test_model_servers_are_told_with_their_tokens_and_circuits(tmp_path: Path, database: str) -> None:
    with fake_openai(api_key="key") as fake:
        servers = [f"{section}.{key}={of}" for section in ("chat", "embed") for key, of in (("base_url", fake.url), ("api_key", "key"))]
        sets = [*servers, "chat.model=writer", "embed.model=vectors", f"embed.dimension={NATIVE_DIMENSION}", "logging.level=error"]
        async with watched(load_settings(data_dir=tmp_path / "data", sets=sets), database, Overrides()) as world:
            await world.searchable("The ferry to Sable Point leaves at nine.")
            await world.ask("When does the ferry leave?")
            api, worker = await world.of_api(), await world.of_worker()
    assert value(api, "tokens_total", model="writer", kind="input") > 0
    assert value(api, "tokens_total", model="writer", kind="output") > 0
    assert value(worker, "tokens_total", model="vectors", kind="input") > 0
    targets = {dict(labels)["target"] for name, labels in api if name == "anabranch_breaker_state"}
    assert targets == {"chat", "embed"}


async def test_a_circuit_opens_with_its_server_gone_and_closes_when_it_is_back() -> None:
    metrics = Metrics("1")

    def circuit() -> float:
        return value(samples(metrics.exposition()[0].decode()), "breaker_state", target="chat")

    with fake_openai() as fake:
        server = OpenAIServer(ServerSettings(fake.url, "m", watch=metrics.watch("chat")), Patience(attempts=1, failures=2, rest=0.0))
        try:
            fake.fail(times=2, status=500)
            for _ in range(2):
                with pytest.raises(EngineUnavailable):
                    await server.post("/embeddings", {"input": ["x"]})
            assert circuit() == 2
            await server.post("/embeddings", {"input": ["x"]})
            assert circuit() == 0
        finally:
            await server.close()


async def test_a_streamed_answer_counts_while_it_streams(settings: Settings, database: str, overrides: Overrides) -> None:
    async with watched(settings, database, overrides) as world:
        await world.searchable("Herons stand still in shallow water.")
        during = set()

        def tell(progress: Progress) -> None:
            during.add(value(samples(world.services.metrics()[0].decode()), "sse_clients"))

        for stream in (False, True):
            during.clear()
            await world.services.query(LOCAL, QueryRequest(query="Where do herons stand?", stream=stream), tell)
            assert during == {float(stream)}
        assert value(await world.of_api(), "sse_clients") == 0


def test_a_lost_channel_is_told_with_its_reason() -> None:
    metrics = Metrics("1")
    metrics.asked("search", 0.1, lost("graph", "TIMED_OUT"))
    assert value(samples(metrics.exposition()[0].decode()), "channel_failures_total", channel="graph", reason="TIMED_OUT") == 1


def lost(channel: str, reason: str) -> Any:
    trace = Trace(
        generation="g1", profile="default", route=Route(mode="hybrid", decided_by="rules", reason="-"), channels={}, channels_used=[],
        channels_failed={channel: reason}, timings_ms={}, reranker=None, max_rerank_score=None, threshold=None,
    )  # fmt: skip
    return SearchResponse(run_id="00000000-0000-0000-0000-000000000001", generation="g1", results=[], trace=trace)
