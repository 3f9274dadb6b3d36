"""Answer questions in the background, as runs that can be followed and cancelled.

A run publishes its progress; the tables hold it for other processes and after a restart.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import structlog
from cachetools import FIFOCache

from schemas.budgets import RunProfile
from schemas.errors import AnabranchError, TransientError, unknown_run_error
from schemas.events import EventData, RunProgressed, RunStarted, RunStopped
from schemas.principals import Principal
from schemas.profiles import Profile
from schemas.questions import (
    OnProgress,
    Progress,
    QueryRequest,
    QueryResponse,
    SearchRequest,
    StepProgress,
)
from schemas.run_records import RunMessage, RunStatus, RunStep, StoppedRun, StoppedState
from services.background_tasks import repeat, run_in_background
from services.query.service import ApplyDefaultProfile, build_run_timeout_error
from sql.catalog.listings import PgListings

log = structlog.get_logger(__name__)
GRACE = timedelta(seconds=30)
"""Time after a run's time-out in which its last event reaches the tables."""
POLL_INTERVAL_S = 0.5
STOP_CHECK_S = 1.0
PING_INTERVAL_S = 15.0
MAX_FINISHED_RUNS = 64
"""Finished runs that are kept until the tables have them."""
RETRY_REMEDY = "Start the run again."

StopReason = tuple[StoppedState, str, str, str]
"""State, code, detail and remedy."""
CANCELLED: StopReason = ("cancelled", "CANCELLED", "The run was cancelled.", RETRY_REMEDY)
INTERRUPTED: StopReason = ("interrupted", "INTERRUPTED", "The server stopped.", RETRY_REMEDY)
PROCESS_ENDED: StopReason = (
    "interrupted",
    "INTERRUPTED",
    "The process that ran it ended unexpectedly.",
    RETRY_REMEDY,
)

AnswerQuestion = Callable[
    [Principal, QueryRequest, OnProgress, UUID], Coroutine[Any, Any, QueryResponse]
]


@dataclass(slots=True, eq=False)
class LocalRun:
    """A run of this process, with everything that its streams send."""

    run_id: UUID
    owner: Principal
    request: QueryRequest
    limits: RunProfile
    started_at: datetime
    messages: list[RunMessage] = field(default_factory=list)
    steps: list[RunStep] = field(default_factory=list)
    open_steps: dict[str, asyncio.TimerHandle] = field(default_factory=dict)
    task: asyncio.Task[QueryResponse | None] | None = None
    stop: StopReason | None = None
    status: RunStatus | None = None  # once it has ended
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def is_visible_to(self, caller: Principal) -> bool:
        """Return whether the caller may see the run: as the tables do, only its own if limited."""
        return caller.tenant == self.owner.tenant and (
            caller.readers is None or caller.id == self.owner.id
        )

    def notify(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()

    def cancel(self, reason: StopReason) -> None:
        """Cancel the task, which ends its model calls. The first reason counts."""
        if self.stop is None and self.status is None and self.task is not None:
            self.stop = reason
            self.task.cancel()


@dataclass(slots=True)
class RunService:
    """Raises NotFound for a run that is unknown, another tenant's, or another principal's."""

    answer: AnswerQuestion
    apply_default_profile: ApplyDefaultProfile
    select_profile: Callable[[SearchRequest], Profile]
    table: PgListings
    publish: Callable[[EventData], None]
    clock: Callable[[], datetime]
    fresh_id: Callable[[], UUID]
    max_runs: int
    process_id: UUID = field(default_factory=uuid4)
    running: dict[UUID, LocalRun] = field(default_factory=dict)
    finished: FIFOCache[UUID, LocalRun] = field(
        default_factory=lambda: FIFOCache(MAX_FINISHED_RUNS)
    )

    async def start(self, caller: Principal, request: QueryRequest) -> UUID:
        """Start a run and return its id.

        Raises InvalidRequest for an unknown profile, and TransientError with code TOO_MANY_RUNS.
        """
        request = await self.apply_default_profile(caller, request)
        limits = self.select_profile(request).run
        # Fewer than are free, so that no tenant takes them all from the others.
        own_count = sum(run.owner.tenant == caller.tenant for run in self.running.values())
        if own_count >= self.max_runs - len(self.running):
            raise TransientError(
                f"{own_count} runs of this tenant are in progress; it may start no more now.",
                code="TOO_MANY_RUNS",
                remedy="Retry in a few seconds, or raise ANABRANCH_API__MAX_RUNS.",
            )
        # Streamed answers are never shared by a cache, so that cancelling ends their work.
        request = request.model_copy(update={"stream": True})
        run = LocalRun(self.fresh_id(), caller, request, limits, self.clock())
        self.publish(
            RunStarted(
                run_id=run.run_id,
                tenant=caller.tenant,
                started_at=run.started_at,
                deadline=run.started_at + timedelta(seconds=limits.timeout_s) + GRACE,
                requested_by=caller.id,
                process_id=self.process_id,
            )
        )
        self.running[run.run_id] = run
        run.task = asyncio.create_task(self._answer(run))
        # A callback, since a task that is cancelled before it starts runs no code of its own.
        run.task.add_done_callback(partial(self._finish, run))
        return run.run_id

    async def get_status(self, caller: Principal, run_id: UUID) -> RunStatus:
        if run := self._find_local(caller, run_id):
            return run.status or _build_status(run)
        status, _ = await self._fetch_recorded(caller, run_id)
        return status

    async def cancel(self, caller: Principal, run_id: UUID) -> RunStatus:
        """Cancel a run, also one of another process. A run that has ended stays as it is."""
        if run := self._find_local(caller, run_id):
            run.cancel(CANCELLED)
            if run.task is not None:
                await asyncio.wait([run.task])
            return await self.get_status(caller, run_id)
        status, _ = await self._fetch_recorded(caller, run_id)
        if status.state == "running":
            # The process that runs it sees this event in the tables.
            stopped = build_stopped(CANCELLED, self.clock(), None)
            self.publish(RunStopped(run_id=run_id, tenant=caller.tenant, **stopped.model_dump()))
        return status

    async def follow(
        self, caller: Principal, run_id: UUID, after: int
    ) -> AsyncGenerator[RunMessage, None]:
        """Yield the messages of a run after a number; the last one is `answer` or `stopped`.

        Raises NotFound before the first message. Words of a draft are only in the process that
        runs it.
        """
        if run := self._find_local(caller, run_id):
            async for message in _follow_local(run, after):
                yield message
            return
        waited_s = 0.0
        while True:
            status, response = await self._fetch_recorded(caller, run_id)
            for step in status.steps:
                if step.number > after:
                    after = step.number
                    yield _to_message(step)
            if status.state != "running":
                yield _build_last_message(status, response)
                return
            if waited_s >= PING_INTERVAL_S:
                waited_s = 0.0
                yield RunMessage(event="working")
            await asyncio.sleep(POLL_INTERVAL_S)
            waited_s += POLL_INTERVAL_S

    def interrupt(self) -> None:
        """Stop every run of this process, because it ends."""
        for run in list(self.running.values()):
            run.cancel(INTERRUPTED)

    async def watch_table(self) -> None:
        """Stop runs that were cancelled through another process, and forget the answers that the
        tables have, until cancelled itself.
        """
        await repeat(self._check_ended, STOP_CHECK_S, "run_cancellations_unknown")

    async def _check_ended(self) -> None:
        run_ids = [*self.running, *self.finished]
        ended = await self.table.find_ended(run_ids) if run_ids else {}
        for run_id, is_stopped in ended.items():
            # An erasure clears the tables, but not the memory of this process.
            self.finished.pop(run_id, None)
            if is_stopped and (run := self.running.get(run_id)):
                run.cancel(CANCELLED)

    def _find_local(self, caller: Principal, run_id: UUID) -> LocalRun | None:
        run = self.running.get(run_id) or self.finished.get(run_id)
        if run is not None and not run.is_visible_to(caller):
            raise unknown_run_error(run_id)
        return run

    async def _fetch_recorded(
        self, caller: Principal, run_id: UUID
    ) -> tuple[RunStatus, dict[str, Any] | None]:
        row = await self.table.fetch_progress(caller, run_id)
        # A query that was not started as a run has no state before its answer.
        if row is None or row["state"] is None:
            raise unknown_run_error(run_id)
        return _read_status(row), row["response"]

    async def _answer(self, run: LocalRun) -> QueryResponse | None:
        """Return the response, or None with the reason in `run.stop`."""
        limit = asyncio.timeout(run.limits.timeout_s)
        try:
            async with limit:
                return await self.answer(
                    run.owner, run.request, lambda step: self._report(run, step), run.run_id
                )
        except AnabranchError as error:
            run.stop = ("failed", error.code, error.detail, error.remedy)
        except Exception as error:
            if isinstance(error, TimeoutError) and limit.expired():
                reason = build_run_timeout_error(run.limits.timeout_s)
                run.stop = ("timed_out", reason.code, reason.detail, reason.remedy)
            else:
                log.exception("run_failed", run=str(run.run_id))
                run.stop = ("failed", "INTERNAL", "The run failed.", "See the log of the server.")
        return None

    def _finish(self, run: LocalRun, task: asyncio.Task[QueryResponse | None]) -> None:
        for handle in run.open_steps.values():
            handle.cancel()
        response = None if task.cancelled() else task.result()
        stopped = None
        # An answer that was completed while the run was being cancelled counts: it is published.
        if response is None:
            # Without a reason, the task was cancelled because the process ends.
            stopped = build_stopped(
                run.stop or INTERRUPTED, self.clock(), _get_last_step(run.steps)
            )
            self.publish(
                RunStopped(run_id=run.run_id, tenant=run.owner.tenant, **stopped.model_dump())
            )
        run.status = _build_status(run, stopped, self.clock())
        body = response.model_dump(mode="json") if response else None
        run.messages.append(_build_last_message(run.status, body))
        del self.running[run.run_id]
        self.finished[run.run_id] = run
        run.notify()

    def _report(self, run: LocalRun, progress: Progress) -> None:
        number = len(run.messages) + 1
        if isinstance(progress, StepProgress):
            self._watch_step(run, progress)
            step = RunStep(
                number=number, step=progress.name, occurred_at=self.clock(), ms=progress.ms
            )
            run.steps.append(step)
            run.messages.append(_to_message(step))
            self.publish(
                RunProgressed(run_id=run.run_id, tenant=run.owner.tenant, **step.model_dump())
            )
        else:
            data = progress.model_dump(mode="json")
            run.messages.append(RunMessage(event="delta", id=str(number), data=data))
        run.notify()

    def _watch_step(self, run: LocalRun, progress: StepProgress) -> None:
        if handle := run.open_steps.pop(progress.name, None):
            handle.cancel()
        if progress.ms is None:
            run.open_steps[progress.name] = asyncio.get_running_loop().call_later(
                run.limits.step_timeout_s,
                run.cancel,
                (
                    "timed_out",
                    "STEP_TIMED_OUT",
                    f"Step {progress.name!r} took longer than {run.limits.step_timeout_s:g} s.",
                    "Raise run.step_timeout_s of the profile, or check the server that it calls.",
                ),
            )


async def _follow_local(run: LocalRun, after: int) -> AsyncIterator[RunMessage]:
    while True:
        changed = run.changed
        if run.status is not None:
            # The last message is always sent, also behind a number that no message has.
            after = min(after, len(run.messages) - 1)
        # Message n has number n.
        while after < len(run.messages):
            after += 1
            yield run.messages[after - 1]
        if run.status is not None:
            return
        try:
            async with asyncio.timeout(PING_INTERVAL_S):
                await changed.wait()
        except TimeoutError:
            yield RunMessage(event="working")


def _build_status(
    run: LocalRun, stopped: StoppedRun | None = None, ended_at: datetime | None = None
) -> RunStatus:
    return RunStatus(
        run_id=run.run_id,
        state=stopped.state if stopped else "completed" if ended_at else "running",
        started_at=run.started_at,
        ended_at=ended_at,
        steps=run.steps,
        error=stopped,
    )


def build_stopped(reason: StopReason, stopped_at: datetime, step: str | None) -> StoppedRun:
    fields = dict(zip(("state", "code", "detail", "remedy"), reason, strict=True))
    return StoppedRun.model_validate({**fields, "stopped_at": stopped_at, "step": step})


def _get_last_step(steps: Sequence[RunStep]) -> str | None:
    return steps[-1].step if steps else None


def _read_status(row: dict[str, Any]) -> RunStatus:
    steps = [
        RunStep.model_validate({"number": int(number), **step})
        for number, step in sorted(row["steps"].items(), key=lambda item: int(item[0]))
    ]
    state, error = row["state"], None
    if state != "completed" and row["stopped"] is not None:
        error = StoppedRun.model_validate(row["stopped"])
    elif state == "interrupted":
        error = build_stopped(PROCESS_ENDED, row["deadline"], _get_last_step(steps))
    return RunStatus(
        run_id=row["run_id"],
        state=state,
        started_at=row["received_at"],
        ended_at=error.stopped_at if error else row["answered_at"],
        steps=steps,
        error=error,
    )


def _to_message(step: RunStep) -> RunMessage:
    return RunMessage(event="step", id=str(step.number), data={"name": step.step, "ms": step.ms})


def _build_last_message(status: RunStatus, response: dict[str, Any] | None) -> RunMessage:
    if status.error is not None:
        return RunMessage(event="stopped", id="end", data=status.error.model_dump(mode="json"))
    return RunMessage(event="answer", id="end", data=response or {})


@asynccontextmanager
async def open_run_service(service: RunService) -> AsyncIterator[RunService]:
    """Watch the tables; at the end, stop the runs and publish that they were."""
    async with run_in_background(service.watch_table()):
        try:
            yield service
        finally:
            service.interrupt()
            tasks = [run.task for run in service.running.values() if run.task is not None]
            await asyncio.gather(*tasks, return_exceptions=True)
