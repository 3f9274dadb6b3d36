"""Prometheus metrics of one process. Labels never hold tenant, document, query or user."""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from schemas.questions import Trace

STAGE_SECONDS = (0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60, 300)
QUERY_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 120)
SCORES = tuple(step / 10 for step in range(-5, 16))


class Metrics:
    """All metrics of this program, in a registry of their own; also the `Observer` of the stages."""

    def __init__(self, version: str) -> None:
        self.registry = CollectorRegistry()
        own: dict[str, Any] = {"registry": self.registry}
        self.stage_events = Counter("anabranch_stage_events", "Events that a stage finished", ["stage", "outcome"], **own)
        self.stage_duration = Histogram("anabranch_stage_duration_seconds", "Time of one reaction", ["stage"], buckets=STAGE_SECONDS, **own)
        self.stage_inflight = Gauge("anabranch_stage_inflight", "Events in a reaction now", ["stage"], **own)
        self.stage_retries = Counter("anabranch_stage_retries", "Tries that failed and were repeated", ["stage", "reason"], **own)
        self.engine_calls = Counter("anabranch_engine_calls", "Inputs that an engine was asked about, and that no memo knew", ["engine"], **own)
        self.dead_letters = Counter("anabranch_dead_letters", "Events buried", ["stage", "error"], **own)
        self.consumer_lag = Gauge("anabranch_consumer_lag_events", "Events that a stage has not acknowledged", ["stage"], **own)
        self.documents = Gauge("anabranch_documents", "Documents by state", ["state"], **own)
        self.query_duration = Histogram("anabranch_query_duration_seconds", "Time of a question", ["kind", "profile"], buckets=QUERY_SECONDS, **own)
        self.query_stage_duration = Histogram(
            "anabranch_query_stage_duration_seconds", "Time of one step of a question", ["stage"], buckets=QUERY_SECONDS, **own
        )
        self.channel_failures = Counter("anabranch_channel_failures", "Channels lost to a question", ["channel"], **own)
        self.rerank_score = Histogram("anabranch_rerank_score", "Best score of a question's rerank", buckets=SCORES, **own)
        self.answers = Counter("anabranch_answers", "Questions by outcome", ["outcome"], **own)
        self.usage_lost = Counter("anabranch_usage_events_lost", "Facts about questions that the log did not take", **own)
        self.refused_busy = Counter("anabranch_requests_refused_busy", "Requests answered 503 because a pool was full", ["pool"], **own)
        Info("anabranch_build", "This program", registry=self.registry).info({"version": version})

    def finished(self, stage: str, buried_code: str | None) -> None:
        self.stage_events.labels(stage, "buried" if buried_code else "done").inc()
        if buried_code:
            self.dead_letters.labels(stage, buried_code).inc()

    def retried(self, stage: str, reason: str) -> None:
        self.stage_retries.labels(stage, reason).inc()

    def in_flight(self, stage: str, change: int) -> None:
        self.stage_inflight.labels(stage).inc(change)

    def took(self, stage: str, seconds: float) -> None:
        self.stage_duration.labels(stage).observe(seconds)

    def asked_engine(self, engine: str, inputs: int) -> None:
        self.engine_calls.labels(engine).inc(inputs)

    def asked(self, kind: str, seconds: float, outcome: str, trace: Trace | None) -> None:
        """One question: `outcome` is answered, refused or error."""
        self.answers.labels(outcome).inc()
        if trace is None:
            return
        self.query_duration.labels(kind, trace.profile).observe(seconds)
        for step, milliseconds in trace.timings_ms.items():
            self.query_stage_duration.labels(step).observe(milliseconds / 1000)
        for channel in trace.channels_failed:
            self.channel_failures.labels(channel).inc()
        if trace.max_rerank_score is not None:
            self.rerank_score.observe(trace.max_rerank_score)

    def exposition(self) -> tuple[bytes, str]:
        return generate_latest(self.registry), CONTENT_TYPE_LATEST
