"""Prometheus metrics of one process, and decorators of the writing side of a log."""

from __future__ import annotations

import json
import math
import os
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from engines.server_settings import CircuitState
from schemas.events import DocumentIndexed
from schemas.ids import make_received_id
from schemas.judgements import FeedbackRequest
from schemas.ports.log import RecordAppender
from schemas.questions import QueryResponse, SearchResponse
from schemas.timestamps import utc_now
from schemas.topics import OUTCOMES, Position, Record
from streams.stage import Instrumentation

MAX_PENDING = 10_000
"""Documents waiting to be measured; the oldest are dropped."""
FetchReceivedTimes = Callable[[Sequence[UUID]], Awaitable[Mapping[UUID, datetime]]]


@dataclass(slots=True)
class IngestLatency:
    clock: Callable[[], datetime]
    observe_seconds: Callable[[float], None]
    pending: deque[tuple[UUID, datetime]] = field(default_factory=lambda: deque(maxlen=MAX_PENDING))

    def record_published(self, records: Iterable[Record]) -> None:
        for record in records:
            if (
                record.topic == OUTCOMES
                and record.headers.get("ce_type") == DocumentIndexed.event_type().encode()
            ):
                outcome = DocumentIndexed.model_validate(json.loads(record.value or b"{}"))
                # Those with a code are unchanged: they were searchable before.
                if outcome.code is None and outcome.tenant and outcome.source and outcome.event_id:
                    received_id = make_received_id(outcome.tenant, outcome.source, outcome.event_id)
                    self.pending.append((received_id, self.clock()))

    async def measure(self, fetch_received_times: FetchReceivedTimes) -> None:
        """Observe the latency of the pending documents.

        `fetch_received_times` maps event ids to the append times of their events.
        """
        batch = list(self.pending)
        if not batch:
            return
        received_times = await fetch_received_times([event_id for event_id, _ in batch])
        for event_id, searchable_at in batch:
            self.pending.popleft()
            if event_id in received_times:
                # Two clocks, the log's and this process's, may differ.
                self.observe_seconds(
                    max(0.0, (searchable_at - received_times[event_id]).total_seconds())
                )


STAGE_SECONDS = (0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60, 300)
QUERY_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 120)
INGEST_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60, 300, 1800, 7200)
SCORES = tuple(step / 10 for step in range(-5, 16))


def read_resident_bytes() -> float:
    """Return the resident memory of this process, or NaN where there is no /proc."""
    try:
        n_pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return math.nan
    return float(n_pages * os.sysconf("SC_PAGE_SIZE"))


class Metrics(Instrumentation):
    """All metrics, in a registry of their own."""

    def __init__(self, version: str, clock: Callable[[], datetime] = utc_now) -> None:
        # One function: it declares each metric once, and does nothing else.
        self.registry = CollectorRegistry()
        common: dict[str, Any] = {"namespace": "anabranch", "registry": self.registry}
        counter: Callable[..., Counter] = partial(Counter, **common)
        gauge: Callable[..., Gauge] = partial(Gauge, **common)
        histogram: Callable[..., Histogram] = partial(Histogram, **common)
        self.events = counter(
            "events", "Events that this process appended to the log", ["topic", "type"]
        )
        self.end_to_end = histogram(
            "ingest_end_to_end_seconds",
            "Time from the append of a document's event until the document is searchable",
            buckets=INGEST_SECONDS,
        )
        self.ingest_latency = IngestLatency(clock, self.end_to_end.observe)
        self.stage_events = counter(
            "stage_events", "Events that a stage finished", ["stage", "outcome"]
        )
        self.stage_duration = histogram(
            "stage_duration_seconds", "Duration of one reaction", ["stage"], buckets=STAGE_SECONDS
        )
        self.stage_inflight = gauge("stage_inflight", "Events being reacted to", ["stage"])
        self.stage_retries = counter(
            "stage_retries", "Attempts that failed and were retried", ["stage", "reason"]
        )
        self.engine_calls = counter(
            "engine_calls", "Engine inputs that the engine result cache did not have", ["engine"]
        )
        self.dead_letters = counter("dead_letters", "Events dead-lettered", ["stage", "error"])
        self.consumer_lag = gauge(
            "consumer_lag_events", "Events that a stage has not acknowledged", ["stage"]
        )
        self.consumer_lag_seconds = gauge(
            "consumer_lag_seconds",
            "Age of the oldest event that a stage has not acknowledged",
            ["stage"],
        )
        # Registered below through _GaugeCollector.
        self.dead_letters_open = gauge(
            "dead_letters", "Open dead letters", ["stage"], registry=None
        )
        self.registry.register(_GaugeCollector(self.dead_letters_open))
        self.generations = gauge(
            "generation_info", "1 for each generation that is not dropped", ["id", "state"]
        )
        self.documents = gauge("documents", "Documents by state", ["state"])
        self.query_duration = histogram(
            "query_duration_seconds",
            "Duration of a query",
            ["kind", "profile"],
            buckets=QUERY_SECONDS,
        )
        self.query_stage_duration = histogram(
            "query_stage_duration_seconds",
            "Duration of one step of a query",
            ["stage"],
            buckets=QUERY_SECONDS,
        )
        self.channel_failures = counter(
            "channel_failures", "Channels that failed in a query", ["channel", "reason"]
        )
        self.channel_contribution = counter(
            "channel_contribution",
            "Passages in contexts and search results, by channel that retrieved them",
            ["channel"],
        )
        self.judge_failures = counter("judge_failures", "Checks that an answer failed", ["check"])
        self.feedback = counter("feedback", "Feedback on answers", ["kind"])
        self.tokens = counter("tokens", "Tokens as counted by the model server", ["model", "kind"])
        self.model_requests = counter(
            "model_requests",
            "Requests to model servers, retries included, by settings section",
            ["section"],
        )
        self.breaker = gauge(
            "breaker_state", "Circuit of a model server: 0 closed, 1 half open, 2 open", ["target"]
        )
        gauge("memory_bytes", "Resident memory of this process").set_function(read_resident_bytes)
        self.streams = gauge("sse_clients", "Answers being streamed")
        self.rerank_score = histogram(
            "rerank_score", "Best rerank score of a query", buckets=SCORES
        )
        self.cache_requests = counter(
            "cache_requests",
            "Cache lookups: hit, miss, or stale after a change",
            ["cache", "outcome"],
        )
        self.answers = counter("answers", "Queries by outcome", ["outcome"])
        self.usage_lost = counter("usage_events_lost", "Query events that could not be published")
        self.refused_busy = counter(
            "requests_refused_busy", "Requests refused with 503 because a pool was full", ["pool"]
        )
        self.authentication_failures = counter(
            "authentication_failures", "Requests without a valid credential"
        )
        Info("build", "Version of this program", **common).info({"version": version})

    def count_finished(self, stage: str, dead_letter_code: str | None) -> None:
        self.stage_events.labels(stage, "dead_lettered" if dead_letter_code else "done").inc()
        if dead_letter_code:
            self.dead_letters.labels(stage, dead_letter_code).inc()

    def count_retry(self, stage: str, reason: str) -> None:
        self.stage_retries.labels(stage, reason).inc()

    def adjust_in_flight(self, stage: str, change: int) -> None:
        self.stage_inflight.labels(stage).inc(change)

    def observe_duration(self, stage: str, seconds: float) -> None:
        self.stage_duration.labels(stage).observe(seconds)

    def count_engine_inputs(self, engine: str, input_count: int) -> None:
        self.engine_calls.labels(engine).inc(input_count)

    def count_published(self, records: Sequence[Record]) -> None:
        for record in records:
            self.events.labels(record.topic, record.headers.get("ce_type", b"").decode()).inc()
        self.ingest_latency.record_published(records)

    def watch(self, section: str) -> ServerWatch:
        return ServerWatch(self, section)

    def record_feedback(self, feedback: FeedbackRequest) -> None:
        kinds = {
            "useful": feedback.useful is True,
            "not_useful": feedback.useful is False,
            "graded": bool(feedback.list_grades()),
            "corrected": feedback.corrected_answer is not None,
            "note": feedback.note is not None,
        }
        for kind, is_given in kinds.items():
            if is_given:
                self.feedback.labels(kind).inc()

    def record_cache_lookup(self, cache: str, outcome: str) -> None:
        self.cache_requests.labels(cache, outcome).inc()

    def record_failed_query(self) -> None:
        self.answers.labels("error").inc()

    def record_query(
        self, kind: str, seconds: float, response: SearchResponse | QueryResponse
    ) -> str:
        """Record a finished query; returns `answered` or `refused`."""
        refused = isinstance(response, QueryResponse) and response.refused
        outcome = "refused" if refused else "answered"
        self.answers.labels(outcome).inc()
        trace = response.trace
        self.query_duration.labels(kind, trace.profile).observe(seconds)
        for step, milliseconds in trace.timings_ms.items():
            self.query_stage_duration.labels(step).observe(milliseconds / 1000)
        for failed_channel, reason in trace.channels_failed.items():
            self.channel_failures.labels(failed_channel, reason).inc()
        if trace.max_rerank_score is not None:
            self.rerank_score.observe(trace.max_rerank_score)
        for result in (
            response.contexts if isinstance(response, QueryResponse) else response.results
        ):
            for channel in result.channels:
                self.channel_contribution.labels(channel).inc()
        for check in (
            response.judge.checks if isinstance(response, QueryResponse) and response.judge else ()
        ):
            if check.result == "fail":
                self.judge_failures.labels(check.name).inc()
        return outcome

    def format_exposition(self) -> tuple[bytes, str]:
        return generate_latest(self.registry), CONTENT_TYPE_LATEST


@dataclass(frozen=True, slots=True)
class _GaugeCollector(Collector):
    """Collect a gauge whose name differs from a counter's only by `_total`.

    A registry that compares base names would refuse it.
    """

    gauge: Gauge

    def collect(self) -> Iterable[Metric]:
        return self.gauge.collect()


CIRCUIT_VALUES: dict[CircuitState, int] = {"closed": 0, "half-opened": 1, "opened": 2}


@dataclass(frozen=True, slots=True)
class ServerWatch:
    """`ServerInstrumentation` of one settings section."""

    metrics: Metrics
    section: str

    def record_request(self) -> None:
        self.metrics.model_requests.labels(self.section).inc()

    def record_circuit_state(self, state: CircuitState) -> None:
        self.metrics.breaker.labels(self.section).set(CIRCUIT_VALUES[state])

    def record_tokens(self, model: str, kind: Literal["input", "output"], number: int) -> None:
        self.metrics.tokens.labels(model, kind).inc(number)


log = structlog.get_logger(__name__)
LOGGED_FIELDS = ("document_id", "tenant", "event_id", "source", "chunks_count", "code")


def log_outcomes(records: Sequence[Record]) -> None:
    """Log one line per published outcome. No text of a document enters it."""
    for record in records:
        if record.topic == OUTCOMES:
            outcome = json.loads(record.value or b"{}")
            event_type = record.headers.get("ce_type", b"").decode().partition(".v")[0]
            fields = {
                name: outcome[name] for name in LOGGED_FIELDS if outcome.get(name) is not None
            }
            log.info(event_type, **fields)


@dataclass(frozen=True, slots=True)
class OutcomeSuppressingLog:
    """Drop the outcomes of a generation that is not live. Returns the positions of the other
    records.
    """

    inner: RecordAppender

    async def append(self, records: Sequence[Record]) -> list[Position]:
        remaining = [record for record in records if record.topic != OUTCOMES]
        return await self.inner.append(remaining) if remaining else []


@dataclass(frozen=True, slots=True)
class NotifyingLog:
    """Call `on_append`, which must not block, once the log has the records."""

    inner: RecordAppender
    on_append: Callable[[Sequence[Record]], None]

    async def append(self, records: Sequence[Record]) -> list[Position]:
        positions = await self.inner.append(records)
        self.on_append(records)
        return positions
