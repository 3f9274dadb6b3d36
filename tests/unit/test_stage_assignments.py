"""Which consumer reads which topic when several generations exist, and claims of builds.

Rules that the list of stages must satisfy.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from processors import STAGES, embed, extract, transcribe
from schemas.generations import Generation, GenerationState, IndexConfig
from schemas.ports.ledger import OrderingPolicy
from schemas.topics import RAW, Topic
from services.generations.decisions import BASE_TOPICS
from services.generations.stage_assignments import StageAssignment, StageRole, assign_stages
from services.worker.assignment_ledgers import BUILD_TRANSACTIONS, BuildLedger
from sql.inbox.ledger import PgLedger
from streams.stage import (
    Stage,
    require_event_per_topic,
    require_rebuildable_tables,
    require_upstream_stages,
)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"project": embed.STAGE.project}, "Stages embed and extract both project topic chunked."),
        (
            {"project": embed.STAGE.project, "topic": RAW},
            "Stage extract projects topic raw, whose records expire.",
        ),
    ],
)
def test_tables_that_a_rebuild_could_not_fill_are_refused(
    changed: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        require_rebuildable_tables([embed.STAGE, replace(extract.STAGE, **changed)])


def test_stages_that_only_react_may_share_a_topic() -> None:
    require_rebuildable_tables([embed.STAGE, extract.STAGE])


def test_topic_of_producers_besides_raw_is_refused() -> None:
    with pytest.raises(ValueError, match="Topic 'reviews': producers write `raw`"):
        Topic("reviews", "Reviews.", written_by=("producers",))


def test_topic_that_no_event_names_is_refused() -> None:
    with pytest.raises(ValueError, match=r"No event names topic notes\. Name it"):
        require_event_per_topic(["raw", Topic("notes", "Notes.")], [])


def test_stage_with_generation_topic_needs_an_upstream_stage() -> None:
    with pytest.raises(ValueError, match=r'Add `"names": "chunk"` to UPSTREAM_STAGES'):
        require_upstream_stages(
            [replace(one, name="names") if one is extract.STAGE else one for one in STAGES]
        )


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


DOCUMENTS = [UUID(int=number) for number in (4, 1, 1, 2, 4, 3)]


def make_events() -> Any:
    return [
        SimpleNamespace(
            number=number, event=SimpleNamespace(data=SimpleNamespace(document_id=document_id))
        )
        for number, document_id in enumerate(DOCUMENTS)
    ]


async def claim_with(monkeypatch: pytest.MonkeyPatch, claim: Any) -> Any:
    monkeypatch.setattr(PgLedger, "claim", claim)
    ledger: Any = BuildLedger(None, None)  # type: ignore[arg-type]
    return await ledger.claim("embed", OrderingPolicy.VISIBLE, make_events())


async def test_results_are_in_order_and_a_document_stays_in_one_transaction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    transactions: list[list[int]] = []

    async def claim(_ledger: Any, _stage: str, _ordering: Any, events: Sequence[Any]) -> list[int]:
        transactions.append([event.number for event in events])
        return [event.number for event in events]

    assert await claim_with(monkeypatch, claim) == [0, 1, 2, 3, 4, 5]
    assert sorted(transactions) == [[0, 3, 4], [1, 2, 5]]
    assert len(transactions) == BUILD_TRANSACTIONS


async def test_error_is_raised_after_all_transactions_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended: list[int] = []

    async def claim(_ledger: Any, _stage: str, _ordering: Any, events: Sequence[Any]) -> list[int]:
        if events[0].number == 0:
            raise ValueError("rejected")
        await asyncio.sleep(0.01)
        ended.append(events[0].number)
        return [event.number for event in events]

    with pytest.raises(ValueError, match="rejected"):
        await claim_with(monkeypatch, claim)
    assert ended == [1]
