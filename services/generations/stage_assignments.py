"""Assign consumers: which stage reads which topic, for which generation, in which consumer group.

The assignment depends on the list of generations only. The first generation owns the plain topics.
A later one owns topics such as `embedded.g2` for the stages that it changes, and reacts there;
topics that it shares it only projects. When the owner of a shared topic is dropped, the oldest
generation that shares it succeeds: it continues in the owner's consumer group, beside its own
projection.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from processors import transcribe
from processors.outcomes import make_final_outcomes
from schemas.events import DocumentAccepted
from schemas.generations import UPSTREAM_STAGES, Generation
from schemas.ports.ledger import ClaimStatus, OrderingPolicy
from schemas.ports.stage_ports import StagePorts
from schemas.topics import ACCEPTED, OCR_DONE, RAW
from services.generations.decisions import FIRST_GENERATION
from streams.stage import Emission, PendingEvent, Stage, project_nothing
from streams.stage_consumer import format_group_name

SERVING_STATES = ("live", "standby")
RETRANSCRIBE = "retranscribe"
"""Stage `transcribe` of a generation that parses documents again.

It does not write documents or revisions.
"""


class StageRole(Enum):
    """Role of a consumer: how it handles the events that it claims."""

    PRODUCE = "produce"
    """Project rows and emit events."""
    REPORT_OUTCOMES = "report outcomes"
    """Project rows and emit outcomes; another generation emits the events."""
    PROJECT = "project"


@dataclass(frozen=True, slots=True)
class StageAssignment:
    """One consumer. `emitting_stage` is the stage in whose name events are emitted."""

    stage: Stage
    emitting_stage: str
    generation: Generation
    group: str
    topic: str
    suppresses_outcomes: bool
    role: StageRole = StageRole.PRODUCE

    @property
    def key(self) -> tuple[object, ...]:
        """Identity of the consumer: a generation's state may change while it runs."""
        return (
            self.group,
            self.topic,
            self.generation.name,
            self.stage,
            self.role,
            self.suppresses_outcomes,
        )


def assign_stages(
    generations: Sequence[Generation], stages: Sequence[Stage], producer_topics: Sequence[str] = ()
) -> list[StageAssignment]:
    """Assign the stages of all generations that are not dropped, oldest first.

    `producer_topics` are read like `raw`.
    """
    if not generations:
        return []
    plan = _AssignmentPlan(
        generations,
        [generation for generation in generations if generation.state in SERVING_STATES]
        or list(generations),
        producer_topics,
    )
    return [assignment for stage in stages for assignment in plan.assign(stage)]


@dataclass(frozen=True, slots=True)
class _AssignmentPlan:
    generations: Sequence[Generation]
    serving: Sequence[Generation]
    producer_topics: Sequence[str]

    def assign(self, stage: Stage) -> Iterator[StageAssignment]:
        # One consumer group for all generations; this one only supplies the configuration.
        if stage.serves_all_generations:
            producer_topics = self.producer_topics if stage.topic == RAW else ()
            for topic in (stage.topic, *producer_topics):
                yield StageAssignment(
                    stage,
                    stage.name,
                    self.serving[0],
                    format_group_name(stage.name, topic.partition(".")[2]),
                    topic,
                    suppresses_outcomes=False,
                )
        # Only `transcribe` compares with the latest order.
        elif stage.ordering_policy == OrderingPolicy.LATEST:
            yield from self._assign_document_stage(stage)
        else:
            for generation in self.generations:
                yield from self._assign_generation_stage(stage, generation)

    def _assign_document_stage(self, stage: Stage) -> Iterator[StageAssignment]:
        """Project documents and revisions once for all generations; transcribe once per topic of
        texts.
        """
        primary = self.serving[0]
        primary_topic = _resolve_topic(primary, OCR_DONE)
        produces = primary_topic == OCR_DONE
        # Always in the group of g1, whose offset outlives the generation.
        yield StageAssignment(
            stage if produces else replace(stage, react=_emit_acceptance_outcomes),
            stage.name,
            primary,
            format_group_name(stage.name, FIRST_GENERATION),
            stage.topic,
            suppresses_outcomes=False,
            role=StageRole.PRODUCE if produces else StageRole.REPORT_OUTCOMES,
        )
        text_stage = replace(
            stage,
            name=RETRANSCRIBE,
            ordering_policy=OrderingPolicy.VISIBLE,
            project=project_nothing,
        )
        for topic in dict.fromkeys(
            _resolve_topic(generation, OCR_DONE) for generation in self.generations
        ):
            # Otherwise the assignment above emits the texts itself.
            if topic != primary_topic or topic != OCR_DONE:
                successor = self._find_successor(OCR_DONE, topic)
                yield StageAssignment(
                    text_stage,
                    stage.name,
                    successor,
                    format_group_name(RETRANSCRIBE, resolve_topic_generation(topic)),
                    ACCEPTED,
                    successor.state not in SERVING_STATES,
                )

    def _assign_generation_stage(
        self, stage: Stage, generation: Generation
    ) -> Iterator[StageAssignment]:
        topic = _resolve_topic(generation, stage.topic)
        suppresses_outcomes = generation.state not in SERVING_STATES
        output_topic = _resolve_topic(generation, stage.output_topic or stage.topic)
        owner = resolve_topic_generation(output_topic)
        assignment = StageAssignment(
            stage,
            stage.name,
            generation,
            format_group_name(stage.name, generation.name),
            topic,
            suppresses_outcomes,
        )
        # It owns the output topic, so one consumer both projects and emits.
        if owner == generation.name:
            yield assignment
            return
        # Another generation emits these events; here they may still complete a revision.
        if stage.projects:
            reports = stage.react is not None and not suppresses_outcomes
            yield replace(
                assignment,
                stage=replace(stage, react=_emit_outcomes_only if reports else None),
                role=StageRole.REPORT_OUTCOMES if reports else StageRole.PROJECT,
            )
        if (
            stage.output_topic is not None
            and all(other.name != owner for other in self.generations)
            and self._find_successor(stage.output_topic, output_topic) == generation
        ):
            # In the dropped owner's group, to continue at its offset.
            yield replace(assignment, group=format_group_name(stage.name, owner))

    def _find_successor(self, base_topic: str, topic: str) -> Generation:
        """Find the generation that emits to a topic.

        This is its owner, else the oldest that shares it, serving ones first.
        """
        sharing = [
            generation
            for generation in (*self.serving, *self.generations)
            if _resolve_topic(generation, base_topic) == topic
        ]
        return next(
            (
                generation
                for generation in sharing
                if generation.name == resolve_topic_generation(topic)
            ),
            sharing[0],
        )


def emits_index_events(assignment: StageAssignment) -> bool:
    """Return whether the assignment emits events that the index is built from."""
    return assignment.emitting_stage in UPSTREAM_STAGES and assignment.role is StageRole.PRODUCE


def restrict_to_document_changes(assignment: StageAssignment) -> StageAssignment | None:
    """Restrict a consumer whose events another program version emits.

    Stage `transcribe` still amends and withdraws documents; those that need a text wait. Other
    stages return None: their events are delegated, and a worker of that version continues at the
    same offset.
    """
    return (
        replace(assignment, stage=replace(assignment.stage, delegate_if=_needs_text))
        if assignment.stage.ordering_policy == OrderingPolicy.LATEST
        else None
    )


def _needs_text(item: PendingEvent) -> bool:
    if item.status is ClaimStatus.SUPERSEDED or item.is_unchanged:
        return False
    return isinstance(item.event.data, DocumentAccepted) or item.revived_revision is not None


def resolve_topic_generation(topic: str) -> str:
    """Return the generation that owns the topic."""
    return topic.partition(".")[2] or FIRST_GENERATION


async def _emit_outcomes_only(
    pending_events: Sequence[PendingEvent], ports: StagePorts
) -> list[Emission]:
    """Emit outcomes of events that another generation emits."""
    return [statement for item in pending_events for statement in make_final_outcomes(item)]


async def _emit_acceptance_outcomes(
    pending_events: Sequence[PendingEvent], ports: StagePorts
) -> list[Emission]:
    """Emit the outcomes of documents that `transcribe` need not parse."""
    concluded = [
        item
        for item in pending_events
        if item.is_unchanged
        or item.visibility_change is not None
        or item.status is ClaimStatus.SUPERSEDED
    ]
    return await transcribe.react(concluded, ports)


def _resolve_topic(generation: Generation, base_topic: str) -> str:
    return generation.topics.get(base_topic, base_topic)
