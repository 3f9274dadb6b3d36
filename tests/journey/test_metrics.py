"""Metrics, and the topics, stages and system as the API shows them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from anabranch.composition.api import prepare_api
from anabranch.composition.worker import prepare_worker
from anabranch.config.loader import load_settings
from anabranch.config.overrides import Overrides
from anabranch.config.settings import Settings
from api.app import create_app
from api.services import Services
from engines.openai_server import OpenAIServer
from engines.server_settings import ServerRetryPolicy, ServerSettings
from schemas.errors import EngineUnavailable
from schemas.principals import Principal
from schemas.questions import Progress, QueryRequest, Route, SearchResponse, Trace
from services.instrumentation.metrics import Metrics
from services.monitoring.gauge_updater import GaugeUpdater
from tests.fakes.openai_server import NATIVE_DIMENSION, fake_openai
from tests.support.api_client import LOCAL_CALLER, api_client
from tests.support.api_world import ApiWorld, wait_until_ready
from tests.support.eventually import eventually
from tests.support.server_process import NOTE, run_anabranch, run_json, run_up

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


async def test_stages_show_recent_work_of_each_stage(world: ApiWorld) -> None:
    receipt = await world.ingest_until_searchable(NOTE)
    await world.wait_until_all_stages_done(receipt)
    stages = await eventually(
        lambda: world.fetch_json("/v1/stages"),
        lambda found: all(item["lag"] == 0 for item in found["items"]),
    )
    assert stages["window_seconds"] == 60
    by_stage = {item["stage"]: item for item in stages["items"] if item["is_live"]}
    for stage in ("chunk", "embed"):
        item = by_stage[stage]
        assert item["started"] == item["finished"] >= 1, item
        assert (item["in_flight"], item["retries"], item["paused"]) == (0, 0, False)
        assert 0 <= item["p50_ms"] <= item["p95_ms"]
        assert item["acknowledged"] <= item["end"]
    # Ingress sees events before they have a document.
    assert by_stage["receive"]["started"] is None


async def test_topics_count_records_and_name_their_events(world: ApiWorld) -> None:
    await world.ingest_until_searchable(NOTE)
    topics = {item["topic"]: item for item in (await world.fetch_json("/v1/topics"))["items"]}
    assert topics["accepted"]["partitions"] >= 1 and topics["accepted"]["records"] >= 1
    chunked = await world.fetch_json("/v1/topics/chunked")
    assert "document.chunked.v1" in chunked["event_types"]
    bounds = chunked["partitions"][0]
    assert 0 <= bounds["first"] <= bounds["next"]
    missing = await world.http.get("/v1/topics/nothing")
    assert missing.status_code == 404 and "Available topics: " in missing.json()["remedy"]


async def test_system_describes_the_process(world: ApiWorld) -> None:
    await world.ingest_until_searchable(NOTE)
    system = await world.fetch_json("/v1/system")
    assert system["uptime_seconds"] > 0 and system["tenants"] == ["default"]
    assert 0 < system["disk"]["free_bytes"] <= system["disk"]["total_bytes"]
    assert system["backends"]["log"] in ("postgres", "kafka")
    assert int(system["postgres"]["version"]) >= 15
    assert system["open_streams"] == {"events": 0, "answers": 0}


@pytest.mark.parametrize("log_settings", [[]], ids=["postgres"])
async def test_events_are_counted_by_time_and_tenant(
    settings: Settings, database: str, overrides: Overrides, world: ApiWorld
) -> None:
    receipt = await world.ingest_until_searchable(NOTE)
    await world.wait_until_all_stages_done(receipt)
    now = datetime.now(UTC)
    counts = await world.fetch_json("/v1/events/counts", bucket="second")
    assert counts["bucket_seconds"] == 1
    listed = (await world.fetch_json("/v1/events", topics="chunked", limit=500))["items"]
    assert sum(item["counts"].get("chunked", 0) for item in counts["items"]) == len(listed) > 0
    starts = [datetime.fromisoformat(item["start"]) for item in counts["items"]]
    assert starts == sorted(starts) and all(now - timedelta(minutes=2) < at <= now for at in starts)
    # Of a time before everything.
    early = {"from": "2020-01-01T00:00:00Z", "to": "2020-01-01T01:00:00Z"}
    assert (await world.fetch_json("/v1/events/counts", **early))["items"] == []
    assert "raw" in sum_counts(counts)
    async with prepare_api(settings, database, overrides=overrides) as services:
        for caller, topics in (
            (Principal("key:a", "default", "reader"), set(sum_counts(counts)) - {"raw", "control"}),
            (Principal("key:b", "other", "admin"), set()),
        ):
            async with open_client_of(services, caller) as http:
                found = (await http.get("/v1/events/counts")).json()
                assert set(sum_counts(found)) == topics, caller
        async with open_client_of(services, Principal("key:c", "default", "reader", ())) as http:
            refused = await http.get("/v1/events/counts")
            assert (refused.status_code, refused.json()["code"]) == (403, "LIMITED_TO_READERS")


async def test_count_of_too_many_intervals_is_refused(world: ApiWorld) -> None:
    refused = await world.http.get(
        "/v1/events/counts", params={"bucket": "second", "from": "2020-01-01T00:00:00Z"}
    )
    assert refused.status_code == 422 and "longer intervals" in refused.json()["remedy"]


async def test_causes_and_tenants_are_for_operators_only(
    settings: Settings, database: str, overrides: Overrides
) -> None:
    """Causes name documents and statements of any tenant."""
    async with prepare_api(settings, database, overrides=overrides) as services:
        # Nothing consumes it: no worker runs.
        async with open_client_of(services, Principal("local", "acme", "operator")) as http:
            assert (await http.post("/v1/ingest", json={"text": NOTE})).status_code == 202
            waiting = find_stage((await http.get("/v1/stages")).json(), "receive")
            assert waiting["lag"] == 1 and "no worker" in waiting["reason"] and waiting["remedy"]
            assert (await http.get("/v1/doctor")).status_code == 200
        async with open_client_of(services, Principal("key:a", "bolt", "admin")) as http:
            stages = (await http.get("/v1/stages")).json()
            waiting = find_stage(stages, "receive")
            assert (waiting["lag"], waiting["reason"], waiting["remedy"]) == (1, None, None)
            assert (stages["horizon"], stages["locks"]) == (None, [])
            assert (await http.get("/v1/system")).json()["tenants"] is None
            assert (await http.get("/v1/doctor")).status_code == 403


def test_commands_show_a_remote_server(folder: Path, tmp_path: Path) -> None:
    with run_up(folder) as (_, server):
        remote = {"ANABRANCH_SERVER": server["url"], "ANABRANCH_TOKEN": server["token"]}
        local = ("--data", str(folder))
        assert run_json("topics", "list", **remote) == run_json("topics", "list", *local)
        chunked = run_json("topics", "describe", "chunked", **remote)
        assert chunked == run_json("topics", "describe", "chunked", *local)
        lag = run_json("topics", "lag", **remote)
        assert {line["stage"] for line in lag["stages"]} >= {"receive", "chunk", "embed"}
        table = run_anabranch("topics", "lag", **remote)
        assert table.returncode == 0 and "receive" in table.stdout
        checks = run_json("doctor", **remote)
        assert {"server", "python", "Postgres", "stages", "blob store"} <= {
            check["check"] for check in checks["checks"]
        }
        assert checks["ok"], checks
        # Without a credential: the readiness report, and why there is no more.
        anonymous = run_json("doctor", "--server", server["url"])
        assert [check["check"] for check in anonymous["checks"]] == ["server", "other checks"]


def find_stage(stages: dict[str, Any], stage: str) -> dict[str, Any]:
    return next(item for item in stages["items"] if item["stage"] == stage)


def sum_counts(counts: dict[str, Any]) -> dict[str, int]:
    total: dict[str, int] = {}
    for item in counts["items"]:
        for topic, count in item["counts"].items():
            total[topic] = total.get(topic, 0) + count
    return total


def open_client_of(services: Any, caller: Principal) -> httpx2.AsyncClient:
    async def authenticate(credential: str | None, tenant: str | None) -> Principal:
        return caller

    transport = httpx2.ASGITransport(create_app(replace(services, authenticate=authenticate)))
    return httpx2.AsyncClient(transport=transport, base_url="http://localhost")
