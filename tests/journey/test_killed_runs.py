"""A run whose API process is killed is reported by another process, which keeps its own."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from anabranch.composition.api import prepare_api
from anabranch.config.loader import load_settings
from anabranch.config.overrides import Overrides
from anabranch.config.settings import Settings
from schemas.questions import QueryRequest
from services.query import orphaned_runs
from tests.fakes.null_embedder import NullEmbedder
from tests.fakes.openai_server import FakeOpenAI, fake_openai
from tests.support.api_client import LOCAL_CALLER
from tests.support.api_world import ApiWorld, run_system
from tests.support.eventually import eventually
from tests.support.forked_process import fork_process, is_sigkilled
from tests.support.lineage import NOTE, QUESTION


@dataclass(frozen=True)
class ApiOrders:
    settings: Settings
    dsn: str


def run_api(orders: ApiOrders) -> None:
    """Start a run, print its id, and wait until killed."""
    asyncio.run(_run_api(orders))


async def _run_api(orders: ApiOrders) -> None:
    async with prepare_api(orders.settings, orders.dsn, overrides=make_overrides()) as services:
        request = QueryRequest(query=QUESTION)
        print(await services.runs.start(LOCAL_CALLER, request), flush=True)
        await asyncio.Event().wait()


def make_overrides() -> Overrides:
    return Overrides(embedder=NullEmbedder(64, 16))


@pytest.fixture
def model() -> Iterator[FakeOpenAI]:
    with fake_openai() as server:
        server.fail(on="chat/completions", times=100, hang=True)
        yield server


@pytest.fixture
def settings(tmp_path: Path, model: FakeOpenAI) -> Settings:
    chat = [f"chat.base_url={model.url}", "chat.model=writer"]
    return load_settings(data_dir=tmp_path / "data", sets=["logging.level=error", *chat])


@pytest.fixture
async def world(settings: Settings, database: str) -> AsyncIterator[ApiWorld]:
    async with run_system(settings, database, make_overrides()) as found:
        yield found


async def fetch_status(world: ApiWorld, run_id: str) -> dict[str, Any]:
    return await world.fetch_json(f"/v1/runs/{run_id}/status") or {}


async def test_killed_process_leaves_no_running_run(
    world: ApiWorld, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orphaned_runs, "CHECK_S", 0.2)
    monkeypatch.setattr(orphaned_runs, "GRACE_S", 0.5)
    await world.ingest_until_searchable(NOTE, external_id="allowances")
    started = await world.http.post("/v1/runs", json={"query": QUESTION})
    own_run = started.json()["run_id"]
    output = tmp_path / "api.out"
    api = fork_process(run_api, ApiOrders(world.settings, database), log=output, environment={})
    killed_run = (await eventually(lambda: output.exists() and output.read_text().strip())) or ""
    answering = await eventually(
        lambda: fetch_status(world, killed_run),
        lambda status: [step["step"] for step in status.get("steps", [])][-1:] == ["answer"],
    )
    assert answering["state"] == "running"
    api.send_signal(signal.SIGKILL)
    status = await eventually(
        lambda: fetch_status(world, killed_run), lambda status: status["state"] != "running"
    )
    assert is_sigkilled(api)
    assert (status["state"], status["error"]["code"]) == ("interrupted", "INTERRUPTED")
    assert status["error"]["step"] == "answer"
    assert status["error"]["remedy"] == "Start the run again."
    stream = (await world.http.get(f"/v1/runs/{killed_run}/stream")).text
    assert "event: stopped" in stream
    # Long enough for a second report.
    await asyncio.sleep(4 * orphaned_runs.GRACE_S)
    assert (await fetch_status(world, own_run))["state"] == "running"
    page = await world.fetch_json("/v1/events", topics="queries", after="begin", limit=200)
    stopped = [event for event in page["items"] if event["type"] == "run.stopped.v1"]
    assert len(stopped) == 1, stopped
