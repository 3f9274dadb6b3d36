"""Runs in the background: progress, time-outs, cancelling, restarts, and who may see them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import httpx2
import pytest

from api.app import create_app
from api.routes import events as events_route
from api.routes import runs as runs_route
from processors.runs import project
from retrieval.profiles import ProfileCatalog
from schemas.errors import EngineUnavailable, InvalidRequest, NotFound, TransientError
from schemas.events import Event, EventData, QueryAnswered, RunProgressed, RunStarted, RunStopped
from schemas.principals import Principal
from schemas.questions import AnswerDelta, OnProgress, QueryRequest, QueryResponse, StepProgress
from services.query import runs
from services.query.runs import RunService, open_run_service
from tests.support.eventually import eventually
from tests.unit.api_fakes import make_services
from tests.unit.query_responses import respond

ANA = Principal("key:ana", "acme", "reader")
REQUEST = QueryRequest(query="When?")


@dataclass
class MemoryTable:
    """Rows as the stage `runs` projects them; `state` as query `run_state` derives it."""

    rows: dict[UUID, dict[str, Any]] = field(default_factory=dict)
    tenants: dict[UUID, str] = field(default_factory=dict)
    now: datetime = field(default_factory=lambda: datetime.now(UTC))

    def publish(self, event: EventData) -> None:
        envelope: Any = Event(uuid4(), event, "s", "1", self.now, "acme", None)
        for row in project(envelope):
            assert not isinstance(row, str)
            known = self.rows.setdefault(row.run_id, {"run_id": row.run_id, "steps": {}})  # type: ignore[union-attr]
            self.tenants[row.run_id] = row.tenant  # type: ignore[union-attr]
            known["steps"] |= row.steps  # type: ignore[union-attr]
            for name in ("received_at", "answered_at", "deadline", "stopped", "response"):
                known[name] = known.get(name) or getattr(row, name)

    async def fetch_progress(self, caller: Principal, run_id: UUID) -> dict[str, Any] | None:
        if run_id not in self.rows or self.tenants[run_id] != caller.tenant:
            return None
        row = self.rows[run_id]
        state = (
            "completed"
            if row["answered_at"]
            else row["stopped"]["state"]
            if row["stopped"]
            else "interrupted"
            if row["deadline"] < self.now
            else "running"
        )
        return {**row, "state": state}

    async def find_ended(self, run_ids: Sequence[UUID]) -> dict[UUID, bool]:
        rows = {run: self.rows[run] for run in run_ids}
        return {
            run: row["stopped"] is not None
            for run, row in rows.items()
            if row["answered_at"] or row["stopped"]
        }


@dataclass
class Pipeline:
    """Reports one step and a word, then waits until it is released."""

    released: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: int = 0
    error: Exception | None = None
    publish: Any = None

    async def answer(
        self, caller: Principal, request: QueryRequest, on_progress: OnProgress, run: UUID
    ) -> QueryResponse:
        assert request.stream
        on_progress(StepProgress(name="fuse"))
        on_progress(StepProgress(name="fuse", ms=1.5))
        on_progress(StepProgress(name="answer"))
        on_progress(AnswerDelta(draft=1, text="At "))
        try:
            await self.released.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.error:
            raise self.error
        on_progress(StepProgress(name="answer", ms=2.0))
        response = respond("At six.").model_copy(update={"run_id": run})
        self.publish(
            QueryAnswered(
                run_id=run,
                tenant=caller.tenant,
                generation="g1",
                answered_at=datetime.now(UTC),
                response=response.model_dump(mode="json"),
            )
        )
        return response


@dataclass
class World:
    table: MemoryTable = field(default_factory=MemoryTable)
    events: list[EventData] = field(default_factory=list)
    pipeline: Pipeline = field(default_factory=Pipeline)
    defaults: dict[str, Any] = field(default_factory=dict)
    """Settings of the collection's default profile."""

    def __post_init__(self) -> None:
        self.pipeline.publish = self.publish

    def publish(self, event: EventData) -> None:
        self.events.append(event)
        self.table.publish(event)

    async def apply_default_profile(self, caller: Principal, request: Any) -> Any:
        return request.model_copy(update={"overrides": self.defaults | request.overrides})

    def make_service(self, max_runs: int = 2) -> RunService:
        return RunService(
            self.pipeline.answer,
            self.apply_default_profile,
            ProfileCatalog({}).select,
            self.table,
            self.publish,
            lambda: datetime.now(UTC),
            uuid4,
            max_runs,
            uuid4(),
        )


@asynccontextmanager
async def open_api(service: RunService, caller: Principal = ANA) -> AsyncIterator[Any]:
    async def authenticate(credential: str | None, tenant: str | None) -> Principal:
        return caller

    app = create_app(make_services(runs=service, authenticate=authenticate))
    transport = httpx2.ASGITransport(app, raise_app_exceptions=False)
    async with httpx2.AsyncClient(
        transport=transport, base_url="http://localhost", headers={"Authorization": "Bearer x"}
    ) as client:
        yield client


def parse_stream(text: str) -> list[dict[str, str]]:
    return [
        dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        for block in text.strip().split("\n\n")
    ]


@pytest.mark.parametrize("route", [events_route, runs_route])
def test_line_separator_of_a_document_ends_no_event(route: Any) -> None:
    data = {"text": "a\x85b\u2028c\u2029"}
    message = SimpleNamespace(event="step", data=data, id="1", cursor="1")
    lines = route._format_message(message).decode().splitlines()
    assert json.loads(lines[1].removeprefix("data: ")) == data


async def collect(service: RunService, run: UUID, after: int = 0) -> list[tuple[str, str | None]]:
    return [(message.event, message.id) async for message in service.follow(ANA, run, after)]


STREAM = [
    ("step", "1"),
    ("step", "2"),
    ("step", "3"),
    ("delta", "4"),
    ("step", "5"),
    ("answer", "end"),
]


async def test_run_streams_the_same_from_memory_and_tables() -> None:
    world = World()
    service = world.make_service()
    run = await service.start(ANA, REQUEST)
    world.pipeline.released.set()
    assert await collect(service, run) == STREAM
    assert await collect(service, run, after=4) == STREAM[4:]
    # After a restart, the tables hold all but the words of the draft.
    restarted = world.make_service()
    assert await collect(restarted, run) == [item for item in STREAM if item[0] != "delta"]
    assert await collect(restarted, run, after=3) == STREAM[4:]
    in_memory, in_tables = [await s.get_status(ANA, run) for s in (service, restarted)]
    assert in_memory.state == in_tables.state == "completed"
    assert in_memory.steps == in_tables.steps
    kinds = [type(event) for event in world.events]
    assert kinds == [RunStarted, *[RunProgressed] * 4, QueryAnswered]


async def test_number_that_no_message_has_gets_the_answer() -> None:
    world = World()
    service = world.make_service()
    run = await service.start(ANA, REQUEST)
    world.pipeline.released.set()
    assert await collect(service, run, after=10**9) == STREAM[-1:]
    assert await collect(service, run, after=10**9) == STREAM[-1:]
    assert await collect(world.make_service(), run, after=10**9) == STREAM[-1:]


async def test_erased_answer_leaves_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "STOP_CHECK_S", 0.01)
    world = World()
    async with open_run_service(world.make_service()) as service:
        run = await service.start(ANA, REQUEST)
        world.pipeline.released.set()
        assert await collect(service, run) == STREAM
        world.table.rows[run]["response"] = None
        await eventually(lambda: not service.finished)
        messages = [message async for message in service.follow(ANA, run, 0)]
        assert (messages[-1].event, messages[-1].data) == ("answer", {})
        assert "At " not in str(messages)


async def test_cancel_ends_the_work_and_is_recorded() -> None:
    world = World()
    service = world.make_service()
    run = await service.start(ANA, REQUEST)
    await asyncio.sleep(0)
    status = await service.cancel(ANA, run)
    assert (status.state, status.error and status.error.step) == ("cancelled", "answer")
    assert world.pipeline.cancelled == 1 and not service.running
    assert (await world.make_service().get_status(ANA, run)).state == "cancelled"
    # Once more: it stays as it is.
    assert (await service.cancel(ANA, run)) == status
    assert sum(isinstance(event, RunStopped) for event in world.events) == 1


async def test_run_cancelled_before_its_first_step_ends() -> None:
    service = World().make_service()
    run = await service.start(ANA, REQUEST)
    assert (await service.cancel(ANA, run)).state == "cancelled"
    assert not service.running


async def test_cancel_through_another_process_ends_the_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runs, "STOP_CHECK_S", 0.01)
    world = World()
    async with open_run_service(world.make_service()) as service:
        run = await service.start(ANA, REQUEST)
        await asyncio.sleep(0)
        await world.make_service().cancel(ANA, run)
        await eventually(lambda: world.pipeline.cancelled == 1)
        assert (await service.get_status(ANA, run)).state == "cancelled"


@pytest.mark.parametrize(
    ("limits", "code"),
    [({"timeout_s": 1}, "RUN_TIMED_OUT"), ({"step_timeout_s": 1}, "STEP_TIMED_OUT")],
)
async def test_time_outs_stop_the_run(limits: dict[str, float], code: str) -> None:
    world = World()
    service = world.make_service()
    request = REQUEST.model_copy(update={"overrides": {"run": limits}})
    run = await service.start(ANA, request)
    assert (await collect(service, run))[-1] == ("stopped", "end")
    status = await service.get_status(ANA, run)
    assert status.state == "timed_out" and status.error and status.error.code == code
    assert world.pipeline.cancelled == 1


@pytest.mark.parametrize(
    ("error", "code"),
    [(EngineUnavailable("away"), "ENGINE_UNAVAILABLE"), (ValueError("bug"), "INTERNAL")],
)
async def test_failure_is_reported(error: Exception, code: str) -> None:
    world = World()
    world.pipeline.error = error
    world.pipeline.released.set()
    service = world.make_service()
    run = await service.start(ANA, REQUEST)
    assert (await collect(service, run))[-1] == ("stopped", "end")
    status = await service.get_status(ANA, run)
    assert status.state == "failed" and status.error and status.error.code == code
    assert "bug" not in status.error.detail


async def test_stopping_server_interrupts_its_runs() -> None:
    world = World()
    async with open_run_service(world.make_service()) as service:
        run = await service.start(ANA, REQUEST)
        await asyncio.sleep(0)
    assert (await world.make_service().get_status(ANA, run)).state == "interrupted"


async def test_run_of_a_killed_process_is_interrupted_after_its_deadline() -> None:
    world = World()
    run = uuid4()
    started = RunStarted(
        run_id=run,
        tenant="acme",
        started_at=world.table.now,
        deadline=world.table.now + timedelta(seconds=330),
        requested_by=ANA.id,
    )
    world.publish(started)
    service = world.make_service()
    assert (await service.get_status(ANA, run)).state == "running"
    world.table.now += timedelta(seconds=331)
    status = await service.get_status(ANA, run)
    assert status.state == "interrupted" and status.error and status.error.code == "INTERRUPTED"
    assert await collect(service, run) == [("stopped", "end")]


async def test_time_limit_is_that_of_the_default_profile_of_the_collection() -> None:
    world = World(defaults={"run": {"timeout_s": 7}})
    service = world.make_service()
    await service.cancel(ANA, await service.start(ANA, REQUEST))
    started = world.events[0]
    assert isinstance(started, RunStarted)
    assert started.deadline - started.started_at == timedelta(seconds=7) + runs.GRACE


async def test_bad_requests_start_no_run() -> None:
    world = World()
    service = world.make_service(max_runs=1)
    for request in (
        REQUEST.model_copy(update={"profile": "unknown"}),
        REQUEST.model_copy(update={"overrides": {"run": {"timeout_s": 0}}}),
        REQUEST.model_copy(update={"overrides": {"run": {"timeout_s": 3601}}}),
    ):
        with pytest.raises(InvalidRequest):
            await service.start(ANA, request)
    run = await service.start(ANA, REQUEST)
    with pytest.raises(TransientError, match="1 runs of this tenant are in progress"):
        await service.start(ANA, REQUEST)
    await service.cancel(ANA, run)
    await service.cancel(ANA, await service.start(ANA, REQUEST))


async def test_tenant_that_starts_all_it_can_leaves_runs_to_others() -> None:
    service = World().make_service(max_runs=8)

    async def start_all(tenant: str) -> list[UUID]:
        caller = Principal(f"key:{tenant}", tenant, "reader")
        started = []
        with pytest.raises(TransientError, match="of this tenant"):
            while True:
                started.append(await service.start(caller, REQUEST))
        return started

    attacker, *others = [await start_all(tenant) for tenant in ("mallory", "acme", "bolt", "cork")]
    assert [len(attacker), *map(len, others)] == [4, 2, 1, 1]
    # A run that ends is free for a tenant without runs, not for one that has some.
    await service.cancel(Principal("key:mallory", "mallory", "reader"), attacker[0])
    assert await start_all("mallory") == []
    assert len(await start_all("drum")) == 1
    service.interrupt()


@pytest.mark.parametrize(
    "intruder",
    [
        Principal("key:ana", "bolt", "operator"),
        Principal("jwt:ben", "acme", "reader", readers=("user:ben",)),
    ],
)
async def test_other_tenant_or_principal_gets_404(intruder: Principal) -> None:
    world = World()
    service = world.make_service()
    run = await service.start(ANA, REQUEST)
    await asyncio.sleep(0)
    async with open_api(service, intruder) as client:
        for attack in range(2):
            for method, path in (
                ("GET", "status"),
                ("GET", "stream"),
                ("GET", "artifacts"),
                ("POST", "cancel"),
            ):
                response = await client.request(method, f"/v1/runs/{run}/{path}")
                assert response.status_code == 404, (attack, path)
                assert "When?" not in response.text
            response = await client.get(f"/v1/runs/{run}/stream", headers={"Last-Event-ID": "end"})
            assert response.status_code == 404
            if not attack:
                # Neither while it runs nor after it has ended.
                assert world.pipeline.cancelled == 0
                world.pipeline.released.set()
                await eventually(lambda: not service.running)
    assert (await service.get_status(ANA, run)).state == "completed"
    with pytest.raises(NotFound):
        await service.cancel(replace(ANA, tenant="bolt"), run)


async def test_routes_start_stream_resume_and_report() -> None:
    world = World()
    service = world.make_service()
    world.pipeline.released.set()
    async with open_api(service) as client:
        started = await client.post("/v1/runs", json={"query": "When?"})
        assert started.status_code == 202
        path = f"/v1/runs/{started.json()['run_id']}"
        events = parse_stream((await client.get(f"{path}/stream")).text)
        assert [(event["event"], event["id"]) for event in events] == STREAM
        assert json.loads(events[-1]["data"])["run_id"] == started.json()["run_id"]
        resumed = await client.get(f"{path}/stream", headers={"Last-Event-ID": "4"})
        assert parse_stream(resumed.text) == events[4:]
        ended = await client.get(f"{path}/stream", headers={"Last-Event-ID": "end"})
        assert ended.status_code == 204
        for wrong in ("-1", "1.5", "²", "x"):
            refused = await client.get(
                f"{path}/stream", headers={"Last-Event-ID": wrong.encode("latin-1")}
            )
            assert refused.status_code == 422, wrong
        status = (await client.get(f"{path}/status")).json()
        assert status["state"] == "completed" and status["error"] is None
        assert (await client.post(f"{path}/cancel")).json()["state"] == "completed"
