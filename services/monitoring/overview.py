"""Overview of topics, stages and the system, for the API and the command line."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from engines.disk import DiskReserve
from processors import EVENT_CLASSES, TOPICS
from schemas.errors import TransientError, unknown_resource_error
from schemas.principals import Principal
from services.instrumentation.metrics import CIRCUIT_VALUES, Metrics
from services.monitoring import lag_diagnosis
from services.monitoring.lag_diagnosis import explain_lags
from services.monitoring.shared_result import SharedResult
from services.storage import Storage
from sql.errors import LOCK_TIMEOUT_CODE
from sql.index.generations import PgGenerations
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
        live = await PgGenerations(storage.pool).fetch_live()
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
                "answers": self._count_answer_streams(),
            },
            "tenants": await list_tenants(self.storage.pool)
            if caller.has_role("operator")
            else None,
        }

    def _count_answer_streams(self) -> int:
        return int(self.metrics.registry.get_sample_value("anabranch_sse_clients") or 0)

    def _list_circuits(self) -> dict[str, str]:
        """Return the state of each model server's circuit, as this process sees it."""
        samples: Sequence[Any] = [
            sample for metric in self.metrics.breaker.collect() for sample in metric.samples
        ]
        return {sample.labels["target"]: CIRCUITS[int(sample.value)] for sample in samples}
