"""Each metric moves when the event that it counts occurs."""

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

from anabranch.composition.api import prepare_api
from anabranch.composition.worker import prepare_worker
from anabranch.config.loader import load_settings
from anabranch.config.overrides import Overrides
from anabranch.config.settings import Settings
from api.services import Services
from engines.openai_server import OpenAIServer
from engines.server_settings import ServerRetryPolicy, ServerSettings
from schemas.errors import EngineUnavailable
from schemas.questions import Progress, QueryRequest, Route, SearchResponse, Trace
from services.instrumentation.metrics import Metrics
from services.monitoring.gauge_updater import GaugeUpdater
from tests.fakes.openai_server import NATIVE_DIMENSION, fake_openai
from tests.support.api_client import LOCAL_CALLER, api_client
from tests.support.api_world import ApiWorld, wait_until_ready

MetricSamples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def parse_samples(text: str) -> MetricSamples:
    return {
        (one.name, frozenset(one.labels.items())): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }


def sum_samples(found: MetricSamples, name: str, **labels: str) -> float:
    """Sum all series with these labels."""
    return sum(
        number
        for (known, given), number in found.items()
        if known == f"anabranch_{name}" and labels.items() <= dict(given).items()
    )


@dataclass
class MeteredWorld(ApiWorld):
    metrics: Metrics
    worker_task: asyncio.Task[None]
    services: Services

    async def sample_worker(
        self, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> MetricSamples:
        await GaugeUpdater(self.worker.storage, self.metrics, clock=clock).update()
        return parse_samples(self.metrics.format_exposition()[0].decode())

    async def sample_api(self) -> MetricSamples:
        return parse_samples((await self.http.get("/metrics")).text)


@asynccontextmanager
async def run_metered_system(
    settings: Settings, database: str, overrides: Overrides
) -> AsyncIterator[MeteredWorld]:
    metrics = Metrics("1")
    given = replace(overrides, watch=metrics.watch)
    async with (
        prepare_worker(settings, database, overrides=given, instrumentation=metrics) as worker,
        prepare_api(settings, database, overrides=overrides) as services,
        api_client(services) as http,
    ):
        working = asyncio.create_task(worker.run())
        try:
            await wait_until_ready(http)
            yield MeteredWorld(http, worker, settings, metrics, working, services)
        finally:
            await stop_worker(working)


async def stop_worker(working: asyncio.Task[None]) -> None:
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)


async def test_worker_metrics_count_document_and_failure(
    settings: Settings, database: str, overrides: Overrides
) -> None:
    async with run_metered_system(settings, database, overrides) as world:
        await world.ingest_until_searchable(
            "Herons stand still in shallow water.", external_id="herons"
        )
        await world.wait_until_final(await world.ingest(b"%PDF-1.7\nno more", "torn.pdf"))
        found = await world.sample_worker()
    assert sum_samples(found, "events_total", topic="accepted", type="document.accepted.v1") == 1
    assert sum_samples(found, "events_total", topic="outcomes", type="document.indexed.v1") == 1
    assert sum_samples(found, "ingest_end_to_end_seconds_count") == 1
    assert 0 < sum_samples(found, "ingest_end_to_end_seconds_sum") < 600
    assert sum_samples(found, "dead_letters", stage="receive") == 1
    assert sum_samples(found, "dead_letters_total", stage="receive") == 1
    assert sum_samples(found, "generation_info", id="g1", state="live") == 1
    assert (
        sum_samples(found, "documents", state="searchable"),
        sum_samples(found, "documents", state="failed"),
    ) == (1, 1)
    assert sum_samples(found, "stage_events_total", stage="index", outcome="done") == 1
    assert sum_samples(found, "stage_duration_seconds_count", stage="embed") >= 1


async def test_unchanged_document_is_not_in_latency_histogram(
    settings: Settings, database: str, overrides: Overrides
) -> None:
    async with run_metered_system(settings, database, overrides) as world:
        for _ in range(2):
            await world.ingest_until_searchable("Herons stand still in shallow water.")
        found = await world.sample_worker()
    assert sum_samples(found, "events_total", topic="outcomes", type="document.indexed.v1") == 2
    assert sum_samples(found, "ingest_end_to_end_seconds_count") == 1


async def test_consumer_lag_is_measured_in_events_and_seconds(
    settings: Settings, database: str, overrides: Overrides
) -> None:
    async with run_metered_system(settings, database, overrides) as world:
        await world.ingest_until_searchable("Read at once.")
        await stop_worker(world.worker_task)
        before = await world.sample_worker()
        await world.ingest("Nobody reads this.")
        after = await world.sample_worker(lambda: datetime.now(UTC) + timedelta(hours=1))
    assert sum_samples(before, "consumer_lag_seconds", stage="receive") == 0
    assert sum_samples(after, "consumer_lag_events", stage="receive") == 1
    assert 3600 <= sum_samples(after, "consumer_lag_seconds", stage="receive") < 7200


async def test_api_metrics_count_queries_and_feedback(
    settings: Settings, database: str, overrides: Overrides
) -> None:
    async with run_metered_system(settings, database, overrides) as world:
        await world.ingest_until_searchable(
            "Herons stand still in shallow water.", external_id="herons"
        )
        answer = await world.ask("Where do herons stand still?")
        await world.http.post(
            "/v1/feedback", json={"run_id": answer["run_id"], "useful": False, "note": "no"}
        )
        found = await world.sample_api()
    channels = [channel for context in answer["contexts"] for channel in context["channels"]]
    assert sum_samples(found, "events_total", topic="raw", type="document.received.v1") == 1
    assert (
        sum_samples(found, "channel_contribution_total", channel="lexical")
        == channels.count("lexical")
        > 0
    )
    assert sum_samples(found, "query_duration_seconds_count", kind="query", profile="default") == 1
    assert sum_samples(found, "query_stage_duration_seconds_count", stage="fuse") == 1
    assert sum_samples(found, "answers_total") == 1
    failed = [
        check
        for check in (answer["judge"] or {"checks": []})["checks"]
        if check["result"] == "fail"
    ]
    assert sum_samples(found, "judge_failures_total") == len(failed)
    assert (
        sum_samples(found, "feedback_total", kind="not_useful")
        == sum_samples(found, "feedback_total", kind="note")
        == 1
    )
    assert sum_samples(found, "feedback_total", kind="useful") == 0


async def test_model_server_tokens_and_breakers_are_measured(tmp_path: Path, database: str) -> None:
    with fake_openai(api_key="key") as fake:
        servers = [
            f"{section}.{key}={of}"
            for section in ("chat", "embed")
            for key, of in (("base_url", fake.url), ("api_key", "key"))
        ]
        sets = [
            *servers,
            "chat.model=writer",
            "embed.model=vectors",
            f"embed.dimension={NATIVE_DIMENSION}",
            "logging.level=error",
        ]
        async with run_metered_system(
            load_settings(data_dir=tmp_path / "data", sets=sets), database, Overrides()
        ) as world:
            await world.ingest_until_searchable("The ferry to Sable Point leaves at nine.")
            await world.ask("When does the ferry leave?")
            api, worker = await world.sample_api(), await world.sample_worker()
    assert sum_samples(api, "tokens_total", model="writer", kind="input") > 0
    assert sum_samples(api, "tokens_total", model="writer", kind="output") > 0
    assert sum_samples(worker, "tokens_total", model="vectors", kind="input") > 0
    targets = {dict(labels)["target"] for name, labels in api if name == "anabranch_breaker_state"}
    # The tasks that fall back to the chat server have clients of their own.
    assert targets == {"chat", "embed", "judge", "plan", "route"}


async def test_breaker_opens_on_outage_and_closes_on_recovery() -> None:
    metrics = Metrics("1")

    def circuit() -> float:
        return sum_samples(
            parse_samples(metrics.format_exposition()[0].decode()), "breaker_state", target="chat"
        )

    with fake_openai() as fake:
        server = OpenAIServer(
            ServerSettings(fake.url, "m", instrumentation=metrics.watch("chat")),
            ServerRetryPolicy(attempts=1, failure_threshold=2, circuit_open_s=0.0),
        )
        try:
            fake.fail(times=2, status=500)
            for _ in range(2):
                with pytest.raises(EngineUnavailable):
                    await server.post("/embeddings", {"input": ["x"]}, "embed")
            assert circuit() == 2
            await server.post("/embeddings", {"input": ["x"]}, "embed")
            assert circuit() == 0
        finally:
            await server.close()


async def test_streaming_clients_gauge_counts_open_streams(
    settings: Settings, database: str, overrides: Overrides
) -> None:
    async with run_metered_system(settings, database, overrides) as world:
        await world.ingest_until_searchable("Herons stand still in shallow water.")
        during = set()

        def tell(progress: Progress) -> None:
            during.add(
                sum_samples(
                    parse_samples(world.services.render_metrics()[0].decode()), "sse_clients"
                )
            )

        for stream in (False, True):
            during.clear()
            await world.services.query(
                LOCAL_CALLER, QueryRequest(query="Where do herons stand?", stream=stream), tell
            )
            assert during == {float(stream)}
        assert sum_samples(await world.sample_api(), "sse_clients") == 0


def test_failed_channel_is_counted_by_reason() -> None:
    metrics = Metrics("1")
    metrics.record_query("search", 0.1, make_failed_channel_response("graph", "TIMED_OUT"))
    assert (
        sum_samples(
            parse_samples(metrics.format_exposition()[0].decode()),
            "channel_failures_total",
            channel="graph",
            reason="TIMED_OUT",
        )
        == 1
    )


def make_failed_channel_response(channel: str, reason: str) -> Any:
    trace = Trace(
        generation="g1",
        profile="default",
        route=Route(mode="hybrid", decided_by="rules", reason="-"),
        channels={},
        channels_used=[],
        channels_failed={channel: reason},
        timings_ms={},
        reranker=None,
        max_rerank_score=None,
        threshold=None,
    )
    return SearchResponse(
        run_id="00000000-0000-0000-0000-000000000001", generation="g1", results=[], trace=trace
    )
