"""Which consumer reads which topic when several generations exist."""

from __future__ import annotations

from processors import STAGES, embed, transcribe
from schemas.generations import Generation, GenerationState, IndexConfig
from schemas.ports.ledger import OrderingPolicy
from services.generations.first_generation import BASE_TOPICS
from services.generations.stage_assignments import (
    StageAssignment,
    StageRole,
    assign_stages,
)
from streams.stage import Stage


def make_generation(
    name: str, state: GenerationState, *own: str, base: dict[str, str] | None = None
) -> Generation:
    topics = (
        {topic: topic for topic in BASE_TOPICS}
        | (base or {})
        | {topic: f"{topic}.{name}" for topic in own}
    )
    return Generation(name=name, config=IndexConfig(), how={}, topics=topics, state=state)


def assignments_by_group(
    *generations: Generation, stages: tuple[Stage, ...] = STAGES
) -> dict[str, StageAssignment]:
    found = assign_stages(generations, stages)
    groups = {reader.group: reader for reader in found}
    assert len(groups) == len(found), "two readers in one group would share its topic"
    return groups


def list_projecting_stages() -> set[str]:
    """Return the stages that write rows of a generation.

    Stages with policy LATEST write documents and revisions, which all generations share.
    """
    return {
        stage.name
        for stage in STAGES
        if stage.projects
        and not stage.serves_all_generations
        and stage.ordering_policy is not OrderingPolicy.LATEST
    }


FIRST_GENERATION = make_generation("g1", "live")


def test_first_generation_runs_every_stage() -> None:
    groups = assignments_by_group(FIRST_GENERATION)
    assert {reader.stage for reader in groups.values()} == set(STAGES)
    assert groups["anabranch.transcribe.g1"].stage == transcribe.STAGE
    assert not any(reader.suppresses_outcomes for reader in groups.values())


def test_rebuild_only_projects() -> None:
    new = {
        name: reader
        for name, reader in assignments_by_group(
            FIRST_GENERATION, make_generation("g2", "building")
        ).items()
        if name.endswith(".g2")
    }
    assert set(new) == {f"anabranch.{stage}.g2" for stage in list_projecting_stages()}
    assert {"anabranch.chunk.g2", "anabranch.graph.g2"} <= set(new)
    assert all(
        reader.suppresses_outcomes
        and reader.stage.react is None
        and reader.topic == reader.stage.topic
        for reader in new.values()
    )


def test_new_embedder_reruns_from_embed_stage() -> None:
    groups = assignments_by_group(FIRST_GENERATION, make_generation("g2", "building", "embedded"))
    assert groups["anabranch.embed.g2"].stage == embed.STAGE
    assert groups["anabranch.index.g2"].topic == "embedded.g2"
    assert groups["anabranch.chunk.g2"].stage.react is None
    assert groups["anabranch.graph.g2"].topic == "entities"
    assert "anabranch.extract.g2" not in groups


def test_new_parser_rereads_accepted_documents() -> None:
    groups = assignments_by_group(
        FIRST_GENERATION,
        make_generation("g2", "building", "ocr_done", "chunked", "entities", "embedded"),
    )
    again = groups["anabranch.retranscribe.g2"]
    assert (
        again.topic,
        again.emitting_stage,
        again.stage.ordering_policy,
        again.generation.name,
    ) == ("accepted", "transcribe", "visible", "g2")
    assert groups["anabranch.transcribe.g1"].stage == transcribe.STAGE
    assert all(
        groups[f"anabranch.{stage}.g2"].topic.endswith(".g2")
        for stage in ("chunk", "embed", "extract", "index", "graph")
    )


def test_promoted_generation_reports_outcomes_and_standby_continues() -> None:
    groups = assignments_by_group(make_generation("g1", "standby"), make_generation("g2", "live"))
    assert groups["anabranch.index.g2"].role is StageRole.REPORT_OUTCOMES
    assert groups["anabranch.embed.g1"].stage == embed.STAGE
    assert not any(reader.suppresses_outcomes for reader in groups.values())


def test_successor_continues_groups_of_dropped_generation() -> None:
    groups = assignments_by_group(make_generation("g2", "live"), make_generation("g3", "shadow"))
    assert (
        groups["anabranch.chunk.g1"].generation.name,
        groups["anabranch.chunk.g1"].stage.output_topic,
    ) == ("g2", "chunked")
    assert groups["anabranch.chunk.g1"].stage.react is not None
    assert groups["anabranch.extract.g1"].generation.name == "g2"
    assert groups["anabranch.chunk.g2"].role is StageRole.REPORT_OUTCOMES
    assert groups["anabranch.transcribe.g1"].generation.name == "g2"
    assert groups["anabranch.chunk.g3"].stage.react is None


def test_topics_of_dropped_reindex_are_inherited() -> None:
    g2_topics = {topic: f"{topic}.g2" for topic in ("ocr_done", "chunked", "entities", "embedded")}
    groups = assignments_by_group(make_generation("g3", "live", base=g2_topics))
    assert groups["anabranch.retranscribe.g2"].generation.name == "g3"
    assert groups["anabranch.embed.g2"].topic == "chunked.g2"
    assert groups["anabranch.transcribe.g1"].stage.react is not transcribe.react
    assert groups["anabranch.embed.g3"].role is StageRole.REPORT_OUTCOMES
