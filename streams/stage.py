"""Definition of a stage: data and two functions, `project` and `react`.

`StageRunner` runs it, and counts and times it by `Instrumentation`. `memoize` caches the engine
calls of a reaction by the hash of their input.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

from schemas.events import Event, EventData, list_event_classes
from schemas.generations import UPSTREAM_STAGES
from schemas.ports.ledger import (
    ClaimResult,
    ClaimStatus,
    Memo,
    MemoKey,
    OrderingPolicy,
    VisibilityChange,
)
from schemas.ports.stage_ports import StagePorts
from schemas.rows import DocumentRow, EventRow, Row
from schemas.topics import Record, Topic


class Instrumentation:
    """Measurements of stages. This class ignores them."""

    def count_finished(self, stage: str, dead_letter_code: str | None) -> None: ...

    def count_retry(self, stage: str, reason: str) -> None: ...

    def adjust_in_flight(self, stage: str, change: int) -> None: ...

    def observe_duration(self, stage: str, seconds: float) -> None: ...

    def count_engine_inputs(self, engine: str, input_count: int) -> None:
        """Count inputs (pages, texts, document parts) that an engine processed, without memoized
        ones.
        """

    def count_published(self, records: Sequence[Record]) -> None:
        """Count records that the log has acknowledged."""


ComputeMissing = Callable[[list[int]], Awaitable[list[bytes]]]


def build_memo_key(tenant: str, document_id: UUID, engine: str, engine_input: bytes) -> MemoKey:
    return MemoKey(tenant, document_id, engine, hashlib.sha256(engine_input).digest())


async def memoize(
    memo: Memo,
    keys: Sequence[MemoKey],
    compute_missing: ComputeMissing,
    cached_answers: Mapping[MemoKey, bytes] | None = None,
) -> list[bytes]:
    """Return results in the order of `keys`, computing those that the memo does not have.

    `compute_missing` receives the positions of missing keys, each distinct key once. New results
    are stored before this returns, so that a retry gets the same ones even from a non-deterministic
    engine. `cached_answers` are the results that the caller has already fetched from the memo.
    """
    cached_answers = dict(
        await memo.fetch(list(dict.fromkeys(keys))) if cached_answers is None else cached_answers
    )
    missing_positions: dict[MemoKey, int] = {}
    for position, key in enumerate(keys):
        if key not in cached_answers:
            # `setdefault` keeps the first position: equal inputs call the engine once.
            missing_positions.setdefault(key, position)
    if missing_positions:
        new_answers = dict(
            zip(
                missing_positions,
                await compute_missing(list(missing_positions.values())),
                strict=True,
            )
        )
        # Before returning: after a crash the retry must not get another answer for the same input.
        await memo.store(new_answers)
        cached_answers |= new_answers
    return [cached_answers[key] for key in keys]


@dataclass(frozen=True, slots=True)
class PendingEvent:
    """An event whose reaction is pending, with the result of the first transaction."""

    event: Event[Any]
    status: ClaimStatus
    visibility_change: VisibilityChange | None = None
    is_unchanged: bool = False
    revived_revision: DocumentRow | None = None
    amended_title: str | None = None

    @classmethod
    def from_claim(cls, event: Event[Any], claim: ClaimResult) -> PendingEvent:
        return cls(
            event,
            claim.status,
            claim.visibility_change,
            claim.is_unchanged,
            claim.revived_revision,
            claim.amended_title,
        )


@dataclass(frozen=True, slots=True)
class Emission:
    """An event that a reaction wants published.

    Its id derives from the stage, the pipeline fingerprint, the cause and the ordinal, or from
    `id_parts` if given: an outcome, for example, has the same id whichever event completes the
    document.
    """

    cause: Event[Any]
    data: EventData
    ordinal: int = 0
    id_parts: tuple[str, ...] | None = None


Projection = Callable[[Event[Any]], Iterable[Row]]
Reaction = Callable[[Sequence[PendingEvent], StagePorts], Awaitable[list[Emission]]]


def project_nothing(event: Event[Any]) -> Iterable[Row]:
    """Project no rows: for stages that only react."""
    return ()


def project_itself(event: Event[Any]) -> Iterable[EventRow]:
    """Project the event itself: for events that belong to no document."""
    yield EventRow(event.data, event.position.offset if event.position else 0, event.time)


def get_document(event: Event[Any]) -> UUID | None:
    return event.document_id


@dataclass(frozen=True, slots=True)
class Stage:
    """One step of the pipeline.

    Raise `version` only when the output changes. `batch_size` and `deadline_s` limit one reaction.
    """

    name: str
    topic: Topic
    version: int
    ordering_policy: OrderingPolicy
    project: Projection = project_nothing
    react: Reaction | None = None
    batch_size: int = 1
    deadline_s: float = 600.0
    fails_document: bool = True
    """True if a dead letter fails the document; False if it costs only the graph, or concerns no
    document.
    """
    emits: tuple[type[EventData], ...] = ()
    """Events that appear in its name, except dead letters. The stage's file may declare them."""
    serves_all_generations: bool = False
    """True if one consumer group serves all generations (ingress, control, runs, dead letters)."""
    resolve_document: Callable[[Event[Any]], UUID | None] = get_document
    """Document of the event, if it is known before the reaction."""
    is_ordered: bool = False
    """True if the events of a document are reacted to one by one, in the order of the log. Those
    that wait for foreign servers are not.
    """
    resolve_host: Callable[[Event[Any]], str | None] = lambda event: None
    """Foreign server that the reaction waits for.

    Such reactions have slots of their own, limited per host.
    """
    delegate_if: Callable[[PendingEvent], bool] = lambda pending_event: False
    """True if another program reacts: the event stays pending and unacknowledged, and later ones
    continue.
    """

    @property
    def projects(self) -> bool:
        return self.project is not project_nothing

    @property
    def output_topic(self) -> Topic | None:
        """The topic of its emissions that belongs to the index.

        If several generations share the topic, one of them produces.
        """
        return next((event.topic for event in self.emits if event.topic.feeds_index), None)


shared_stage = partial(
    Stage,
    ordering_policy=OrderingPolicy.ALWAYS,
    fails_document=False,
    serves_all_generations=True,
)
"""A stage of events that belong to no document and no index."""


def collect_event_classes(stages: Iterable[Stage]) -> tuple[type[EventData], ...]:
    """List the events of `schemas/events` and those that stages declare in their own files."""
    emitted = [event_class for stage in stages for event_class in stage.emits]
    # `dict.fromkeys` removes duplicates and keeps the order.
    return tuple(dict.fromkeys((*list_event_classes(), *emitted)))


def order_topics(stages: Iterable[Stage]) -> tuple[Topic, ...]:
    """List all topics, upstream first. Raises ValueError for a stage that precedes its input."""
    topics = list(dict.fromkeys(event_class.topic for event_class in list_event_classes()))
    for stage in stages:
        if stage.topic not in topics:
            raise ValueError(
                f"Stage {stage.name} reads topic {stage.topic}, which no earlier stage emits."
            )
        for event_class in stage.emits:
            if event_class.topic not in topics:
                # Directly behind its input, which keeps the list upstream first.
                topics.insert(topics.index(stage.topic) + 1, event_class.topic)
    return tuple(topics)


def require_event_per_topic(declared: Iterable[object], topics: Iterable[Topic]) -> None:
    """Raise ValueError for a declared topic that no event names: it would not be created."""
    known = set(topics)
    for topic in declared:
        if isinstance(topic, Topic) and topic not in known:
            raise ValueError(
                f"No event names topic {topic}. Name it in the class of an event in "
                "schemas/events, or in `emits` of a stage."
            )


def require_upstream_stages(stages: Iterable[Stage]) -> None:
    """Raise ValueError unless `UPSTREAM_STAGES` lists the stages of topics per generation.

    Without its line, a stage has no pipeline fingerprint and a reindex leaves it out.
    """
    emitters = {
        stage.output_topic: stage
        for stage in stages
        if stage.output_topic is not None and stage.output_topic.per_generation
    }
    for topic, stage in emitters.items():
        upstream = emitters[stage.topic].name if stage.topic in emitters else None
        if stage.name not in UPSTREAM_STAGES or UPSTREAM_STAGES[stage.name] != upstream:
            line = f'"{stage.name}": "{upstream}"' if upstream else f'"{stage.name}": None'
            raise ValueError(
                f"Stage {stage.name} emits to {topic}, a topic per generation, and reads "
                f"{stage.topic}. Add `{line}` to UPSTREAM_STAGES in schemas/generations.py."
            )


def require_rebuildable_tables(stages: Iterable[Stage]) -> None:
    """Raise ValueError if two stages project the same topic, or one projects a topic with
    `retention`.

    All rows of an event are written in one transaction, with the claim that makes a redelivered
    event a no-op; a second projector would have a claim of its own. A rebuild needs every record.
    """
    projectors: dict[Topic, Stage] = {}
    for stage in [stage for stage in stages if stage.projects]:
        if stage.topic.retention is not None:
            raise ValueError(
                f"Stage {stage.name} projects topic {stage.topic}, whose records expire. Declare "
                "the topic without `retention`: a rebuild of the tables reads every record."
            )
        projector = projectors.setdefault(stage.topic, stage)
        if projector is not stage:
            raise ValueError(
                f"Stages {projector.name} and {stage.name} both project topic {stage.topic}. "
                "Project it in one of them, and only react in the other."
            )
