"""Which stage reads which topic, for which generation, in which consumer group: decided from the generations that are there, and from nothing else.

The first generation states the facts of the plain topics. Another one has topics of its own for what it changes (`embedded.g2`), where its stages react;
what it shares with others it only projects. When the generation that stated the facts of a shared topic is dropped, the oldest that shares it goes on
where that one had come to, in its consumer group, and beside its own projection.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from processors import transcribe
from processors.outcomes import make_final_outcomes
from schemas.events import DocumentAccepted
from schemas.generations import UPSTREAM_STAGES, Generation
from schemas.ports.ledger import ClaimStatus
from schemas.ports.stage_ports import StagePorts
from services.generations.first_generation import FIRST_GENERATION
from streams.stage import Emission, PendingEvent, Stage, project_nothing
from streams.stage_consumer import format_group_name
from streams.topics import ACCEPTED, OCR_DONE, RAW

SERVING_STATES = ("live", "standby")
RETRANSCRIBE = "retranscribe"
"""The stage `transcribe` of a generation that parses anew: documents and revisions are not its to write."""


@dataclass(frozen=True, slots=True)
class StageAssignment:
    """`author` is the stage in whose name facts are stated; a `silent` one tells no outcomes."""

    stage: Stage
    emitting_stage: str
    generation: Generation
    group: str
    topic: str
    suppresses_outcomes: bool

    @property
    def key(self) -> tuple[object, ...]:
        """Two that are equal in this are the same reader: the state of a generation changes while it is read."""
        return (self.group, self.topic, self.generation.name, self.stage, self.suppresses_outcomes)


def assign_stages(generations: Sequence[Generation], stages: Sequence[Stage], producer_topics: Sequence[str] = ()) -> list[StageAssignment]:
    """Of all generations that are not dropped, the oldest first. Each of `producer_topics` is read as topic `raw` is."""
    if not generations:
        return []
    plan = _AssignmentPlan(generations, [generation for generation in generations if generation.state in SERVING_STATES] or list(generations), producer_topics)
    return [assignment for stage in stages for assignment in plan.assign(stage)]


@dataclass(frozen=True, slots=True)
class _AssignmentPlan:
    generations: Sequence[Generation]
    serving: Sequence[Generation]
    producer_topics: Sequence[str]

    def assign(self, stage: Stage) -> Iterator[StageAssignment]:
        if stage.serves_all_generations:
            yield StageAssignment(stage, stage.name, self.serving[0], format_group_name(stage.name, None), stage.topic, suppresses_outcomes=False)
            for topic in self.producer_topics if stage.topic == RAW else ():
                yield StageAssignment(
                    stage, stage.name, self.serving[0], format_group_name(stage.name, topic.partition(".")[2]), topic, suppresses_outcomes=False
                )
        elif stage.ordering_policy == "latest":
            yield from self._assign_document_stage(stage)
        else:
            for generation in self.generations:
                yield from self._assign_generation_stage(stage, generation)

    def _assign_document_stage(self, stage: Stage) -> Iterator[StageAssignment]:
        """Documents and revisions are projected once for all; texts are made once for each topic of texts."""
        primary = self.serving[0]
        primary_topic = _resolve_topic(primary, OCR_DONE)
        document_stage = stage if primary_topic == OCR_DONE else replace(stage, react=_emit_acceptance_outcomes)
        yield StageAssignment(document_stage, stage.name, primary, format_group_name(stage.name, FIRST_GENERATION), stage.topic, suppresses_outcomes=False)
        text_stage = replace(stage, name=RETRANSCRIBE, ordering_policy="visible", project=project_nothing)
        for topic in dict.fromkeys(_resolve_topic(generation, OCR_DONE) for generation in self.generations):
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

    def _assign_generation_stage(self, stage: Stage, generation: Generation) -> Iterator[StageAssignment]:
        topic, suppresses_outcomes = _resolve_topic(generation, stage.topic), generation.state not in SERVING_STATES
        output_topic = _resolve_topic(generation, stage.output_topic or stage.topic)
        if resolve_topic_generation(output_topic) == generation.name:
            yield StageAssignment(stage, stage.name, generation, format_group_name(stage.name, generation.name), topic, suppresses_outcomes)
            return
        if stage.project is not project_nothing:
            reaction = emit_outcomes_only if stage.react is not None and not suppresses_outcomes else None
            yield StageAssignment(
                replace(stage, react=reaction), stage.name, generation, format_group_name(stage.name, generation.name), topic, suppresses_outcomes
            )
        if stage.output_topic is not None and self._has_no_owner(output_topic) and self._find_successor(stage.output_topic, output_topic) == generation:
            yield StageAssignment(
                stage, stage.name, generation, format_group_name(stage.name, resolve_topic_generation(output_topic)), topic, suppresses_outcomes
            )

    def _has_no_owner(self, topic: str) -> bool:
        return all(generation.name != resolve_topic_generation(topic) for generation in self.generations)

    def _find_successor(self, base_topic: str, topic: str) -> Generation:
        """Who states the facts of a topic: the generation that it was made for, else the oldest that shares it, one that answers before others."""
        sharing = [generation for generation in (*self.serving, *self.generations) if _resolve_topic(generation, base_topic) == topic]
        return next((generation for generation in sharing if generation.name == resolve_topic_generation(topic)), sharing[0])


def emits_index_events(assignment: StageAssignment) -> bool:
    """Whether it states facts that the index is made from."""
    return assignment.emitting_stage in UPSTREAM_STAGES and assignment.stage.react not in (None, emit_outcomes_only, _emit_acceptance_outcomes)


def restrict_to_document_changes(assignment: StageAssignment) -> StageAssignment | None:
    """What is left of a reader where another version of this program makes its facts: documents are still changed and withdrawn, and those that need a
    text wait for it. Of the others nothing: they are left alone, so that another worker goes on where they are."""
    return replace(assignment, stage=replace(assignment.stage, delegate_if=_needs_text)) if assignment.stage.ordering_policy == "latest" else None


def _needs_text(item: PendingEvent) -> bool:
    if item.status is ClaimStatus.SUPERSEDED or item.is_unchanged:
        return False
    return isinstance(item.event.data, DocumentAccepted) or item.revived_revision is not None


def resolve_topic_generation(topic: str) -> str:
    """The generation that a topic was made for."""
    return topic.partition(".")[2] or FIRST_GENERATION


async def emit_outcomes_only(pending_events: Sequence[PendingEvent], ports: StagePorts) -> list[Emission]:
    """Of facts that another generation states: only what became of the document here."""
    return [statement for item in pending_events for statement in make_final_outcomes(item)]


async def _emit_acceptance_outcomes(pending_events: Sequence[PendingEvent], ports: StagePorts) -> list[Emission]:
    """What `transcribe` says of a document that it makes no text of: its text is made elsewhere."""
    concluded = [item for item in pending_events if item.is_unchanged or item.visibility_change is not None or item.status is ClaimStatus.SUPERSEDED]
    return await transcribe.react(concluded, ports)


def _resolve_topic(generation: Generation, base_topic: str) -> str:
    return generation.topics.get(base_topic, base_topic)
