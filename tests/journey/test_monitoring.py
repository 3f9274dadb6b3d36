"""Topics, stages, checks and the system over HTTP, and the commands that show them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest

from anabranch.composition.api import prepare_api
from anabranch.config.overrides import Overrides
from anabranch.config.settings import Settings
from api.app import create_app
from schemas.principals import Principal
from tests.support.api_world import ApiWorld
from tests.support.eventually import eventually
from tests.support.server_process import NOTE, run_anabranch, run_json, run_up


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
