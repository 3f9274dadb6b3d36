"""Readiness and overview of topics, stages and the system, for the API and the command line."""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from engines.disk import DiskReserve
from processors import EVENT_CLASSES, TOPICS
from schemas.errors import AnabranchError, NoSpace, TransientError, unknown_resource_error
from schemas.findings import DependencyStatus
from schemas.principals import Principal
from schemas.topics import RAW
from services.instrumentation.metrics import CIRCUIT_VALUES, Metrics
from services.monitoring import lag_diagnosis
from services.monitoring.lag_diagnosis import BEING_PROCESSED, explain_lags
from services.query.retriever_pool import RetrieverPool
from services.storage import Storage
from sql.catalog.documents import PgDocuments
from sql.catalog.listings import PgListings
from sql.errors import LOCK_TIMEOUT_CODE
from sql.operations.monitoring import (
    fetch_blocking_transactions,
    fetch_stage_activity,
    inspect_database,
    list_tenants,
)

ACTIVITY_WINDOW_S = 60.0
MAX_WORK_S = 600.0
"""Older work does not count as in flight."""
NO_ACTIVITY: Mapping[str, Any] = dict.fromkeys(
    ("started", "finished", "in_flight", "retries", "p50_ms", "p95_ms")
)
SHARED_GENERATION = ""
CAUSE_FIELDS = ("reason", "remedy")
UNKNOWN_LINE: dict[str, Any] = {"is_live": True, "lag": None, "paused": False} | dict.fromkeys(
    CAUSE_FIELDS
)
MIN_WAIT_S = 2.0
"""Most documents are searchable earlier, and need no explanation."""
MAX_EXPLAIN_S = 2.0
CIRCUITS = {value: state for state, value in CIRCUIT_VALUES.items()}


async def list_topics(storage: Storage) -> list[dict[str, Any]]:
    """Return `{topic, partitions, records}` of each topic."""
    return [
        {
            "topic": topic,
            "partitions": len(await storage.log.fetch_offset_bounds(topic)),
            "records": await storage.log.count_records(topic),
        }
        for topic in (*TOPICS, *storage.producer_topics)
    ]


async def describe_topic(storage: Storage, topic: str) -> dict[str, Any]:
    """Return `{topic, event_types, partitions}` with the offsets of each partition.

    Raises NotFound.
    """
    topics = [str(name) for name in (*TOPICS, *storage.producer_topics)]
    if topic not in topics:
        raise unknown_resource_error(
            "topic", repr(topic), f"Available topics: {', '.join(topics)}."
        )
    bounds = await storage.log.fetch_offset_bounds(topic)
    return {
        "topic": topic,
        "event_types": [event.event_type() for event in EVENT_CLASSES if event.topic == topic],
        "partitions": [
            {"partition": partition, "first": first, "next": following}
            for partition, (first, following) in sorted(bounds.items())
        ],
    }


async def describe_stages(storage: Storage) -> dict[str, Any]:
    """Return the consumer groups with lag, cause and recent work, and what blocks them."""
    lags, horizon = await explain_lags(storage)
    live, activity = await _fetch_activity(storage)
    return {
        "window_seconds": ACTIVITY_WINDOW_S,
        "items": [
            {
                **line,
                "is_live": live is None or line["generation"] in (None, live),
                **_find_activity(activity, line, live),
            }
            for line in lags
        ],
        "horizon": horizon,
        "locks": await fetch_blocking_transactions(storage.dsn, lag_diagnosis.MIN_BLOCKING_S),
    }


async def _fetch_activity(
    storage: Storage,
) -> tuple[str | None, Mapping[tuple[str, str], Mapping[str, Any]]]:
    """Return the name of the live generation, and recent work by stage and generation."""
    try:
        live = await storage.generations.fetch_live()
        rows = await fetch_stage_activity(storage.pool, ACTIVITY_WINDOW_S, MAX_WORK_S)
    except TransientError as error:
        # A locked table must not hide the diagnosis, which names the lock's holder.
        if error.code != LOCK_TIMEOUT_CODE:
            raise
        return None, {}
    return live.name if live else None, {(row["stage"], row["generation"]): row for row in rows}


def _find_activity(
    activity: Mapping[tuple[str, str], Mapping[str, Any]], line: Mapping[str, Any], live: str | None
) -> dict[str, Any]:
    # A group that serves all generations writes its work under one of two names.
    names = (line["generation"],) if line["generation"] else (live or "", SHARED_GENERATION)
    row = next(
        (activity[key] for name in names if (key := (line["stage"], name)) in activity), NO_ACTIVITY
    )
    return {name: row[name] for name in NO_ACTIVITY}


@dataclass(slots=True)
class MonitoringService:
    storage: Storage
    metrics: Metrics
    disk: DiskReserve
    version: str
    backends: Mapping[str, str]
    count_event_streams: Callable[[], int]
    clock: Callable[[], datetime]
    started_at: datetime = field(init=False)
    _topics: SharedResult[list[dict[str, Any]]] = field(init=False)
    _stages: SharedResult[dict[str, Any]] = field(init=False)

    def __post_init__(self) -> None:
        self.started_at = self.clock()
        self._topics = SharedResult(lambda: list_topics(self.storage), 1.0)
        self._stages = SharedResult(lambda: describe_stages(self.storage), 1.0)

    async def list_topics(self) -> list[dict[str, Any]]:
        return await self._topics.get()

    async def describe_topic(self, topic: str) -> dict[str, Any]:
        return await describe_topic(self.storage, topic)

    async def describe_stages(self, caller: Principal) -> dict[str, Any]:
        """Causes name documents and statements of any tenant, so only operators get them."""
        stages = await self._stages.get()
        stages = stages | {"circuits": self._list_circuits()}
        if caller.has_role("operator"):
            return stages
        items = [item | dict.fromkeys(CAUSE_FIELDS) for item in stages["items"]]
        return stages | {"items": items, "horizon": None, "locks": []}

    async def explain_waiting(self, caller: Principal, *bodies: dict[str, Any]) -> None:
        """Replace `waiting`, `{stage, since, progress}`, by a `DocumentWaiting`, or remove it.

        Never fails: why a stage cannot be inspected is the reason then.
        """
        latest = self.clock() - timedelta(seconds=MIN_WAIT_S)
        waits = [(body, body.pop("waiting")) for body in bodies if "waiting" in body]
        waits = [
            (body, wait) for body, wait in waits if not wait["since"] or wait["since"] <= latest
        ]
        if not waits:
            return
        unknown, lines = UNKNOWN_LINE, list[Mapping[str, Any]]()
        try:
            async with asyncio.timeout(MAX_EXPLAIN_S):
                lines = (await self._stages.get())["items"]
        except TransientError as error:
            unknown = UNKNOWN_LINE | {"reason": error.detail, "remedy": error.remedy}
        except TimeoutError:
            unknown = UNKNOWN_LINE | {"reason": "the stages cannot be inspected now"}
        for body, wait in waits:
            explanation = _explain_stage(caller, wait["stage"], lines, unknown)
            body["waiting"] = explanation | {"progress": wait["progress"]}

    async def describe_system(self, caller: Principal) -> dict[str, Any]:
        database = await inspect_database(self.storage.dsn)
        usage = self.disk.get_usage()
        return {
            "version": self.version,
            "python": platform.python_version(),
            "platform": f"{platform.system()} {platform.machine()}",
            "started_at": self.started_at,
            "uptime_seconds": (self.clock() - self.started_at).total_seconds(),
            "backends": self.backends,
            "postgres": {"version": str(database.version), "pgvector": database.vector},
            "disk": {
                "total_bytes": usage.total,
                "free_bytes": usage.free,
                "reserve_bytes": self.disk.reserve_bytes,
            },
            "open_streams": {
                "events": self.count_event_streams(),
                "answers": int(
                    self.metrics.registry.get_sample_value("anabranch_sse_clients") or 0
                ),
            },
            "tenants": await list_tenants(self.storage.pool)
            if caller.has_role("operator")
            else None,
        }

    def _list_circuits(self) -> dict[str, str]:
        """Return the state of each model server's circuit, as this process sees it."""
        samples: Sequence[Any] = [
            sample for metric in self.metrics.breaker.collect() for sample in metric.samples
        ]
        return {sample.labels["target"]: CIRCUITS[int(sample.value)] for sample in samples}


def _explain_stage(
    caller: Principal, stage: str, lines: Iterable[Mapping[str, Any]], unknown: Mapping[str, Any]
) -> dict[str, Any]:
    line = max(
        (line for line in lines if line["stage"] == stage and line["is_live"]),
        key=lambda line: line["lag"] or 0,
        default=unknown,
    )
    sees_counts = caller.has_role("admin") and caller.readers is None
    sees_causes = caller.has_role("operator")
    return {
        "stage": stage,
        "pending": line["lag"] if sees_counts else None,
        "paused": line["paused"],
        "reason": (line["reason"] or BEING_PROCESSED) if sees_causes else None,
        "remedy": line["remedy"] or None if sees_causes else None,
    }


T = TypeVar("T")
PAUSE_FACTOR = 4
"""A result is shared for at least this many durations of its query, which bounds its load."""


@dataclass(slots=True)
class SharedResult(Generic[T]):
    """The result of `fetch`, at most `max_age_s` old, or as old as its cost requires.

    Concurrent callers share one query. Errors are not kept.
    """

    fetch: Callable[[], Awaitable[T]]
    max_age_s: float
    _task: asyncio.Task[T] | None = field(default=None, init=False)
    _expires_at: float = field(default=0.0, init=False)

    async def get(self) -> T:
        task = self._task
        if task is None or (task.done() and asyncio.get_running_loop().time() >= self._expires_at):
            task = self._task = asyncio.create_task(self._run())
        # Shielded: one caller that disconnects must not cancel the query of the others.
        return await asyncio.shield(task)

    async def _run(self) -> T:
        clock = asyncio.get_running_loop().time
        started_at = clock()
        self._expires_at = started_at
        result = await self.fetch()
        now = clock()
        self._expires_at = now + max(self.max_age_s, PAUSE_FACTOR * (now - started_at))
        return result


CHECK_TIMEOUT_S = 5.0
PROBE_KEY = "uploads/_probe"
DEAD_LETTERS_PATH = "/v1/dead-letters"


@dataclass(frozen=True, slots=True)
class ReadinessService:
    storage: Storage
    retrievers: RetrieverPool
    disk: DiskReserve
    log_kind: str
    version: str

    async def check_all(self) -> Sequence[DependencyStatus]:
        checks = {
            "database": self._check_database,
            "log": self._check_log,
            "blobs": self._check_blobs,
            "generation": self._check_generation,
        }
        results = await asyncio.gather(*(_run_check(name, check) for name, check in checks.items()))
        free = self.disk.get_free_bytes()
        # A full disk only stops uploads, so it never makes the API unready.
        disk = (
            DependencyStatus("disk", True, self.disk.format_shortage(free), NoSpace.remedy)
            if free < self.disk.reserve_bytes
            else DependencyStatus("disk", True, f"{free / 2**30:.1f} GiB free")
        )
        return [*results, disk]

    async def summarize_health(self, caller: Principal) -> dict[str, Any]:
        """Summarize the dependencies, with counts of the tenant for callers that are not limited to
        readers.
        """
        lines = await self.check_all()
        live = await self.storage.generations.fetch_live()
        is_unlimited = caller.readers is None
        dead_letters = (
            await PgListings(self.storage.pool).count_dead_letters(caller.tenant)
            if is_unlimited
            else {}
        )
        return {
            "status": "ok" if all(line.ok for line in lines) else "degraded",
            "version": self.version,
            "log": self.log_kind,
            "generation": live.name if live else None,
            "documents": await PgDocuments(self.storage.pool).fetch_counts(caller.tenant)
            if is_unlimited
            else {},
            "dead_letters": {
                "total": sum(dead_letters.values()),
                "stages": dead_letters,
                "list": DEAD_LETTERS_PATH,
            },
            "dependencies": {line.name: line.ok for line in lines},
        }

    async def _check_database(self) -> str:
        await self.storage.generations.fetch_undropped()
        return "answers"

    async def _check_log(self) -> str:
        partitions = len(await self.storage.log.fetch_offset_bounds(RAW))
        return f"{self.log_kind}, topic {RAW} in {partitions} partition{'s' * (partitions > 1)}"

    async def _check_blobs(self) -> str:
        # A missing blob is an answer too.
        await self.storage.blobs.get_size(PROBE_KEY)
        return "answers"

    async def _check_generation(self) -> str:
        # Prepares the retriever if necessary, so that a ready server can answer.
        async with self.retrievers.acquire(None) as (name, _):
            return name


async def _run_check(name: str, check: Callable[[], Awaitable[str]]) -> DependencyStatus:
    try:
        async with asyncio.timeout(CHECK_TIMEOUT_S):
            return DependencyStatus(name, True, await check())
    except AnabranchError as error:
        return DependencyStatus(name, False, error.detail, error.remedy)
    except TimeoutError:
        return DependencyStatus(
            name, False, f"No response within {CHECK_TIMEOUT_S:.0f} s.", "Run `anabranch doctor`."
        )
