"""Write rows that belong to no generation: generations, sources, collections, erasures, runs,
feedback, facts, saved questions, dead letters.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields

from schemas.events import (
    AnswerChanged,
    AuditRecorded,
    CollectionConfigured,
    CollectionDeleted,
    CollectionDeletionRequested,
    DeadLetterClosed,
    EntityAmended,
    EntityMerged,
    EntityRetyped,
    EntitySplit,
    ErasureCompleted,
    ErasureRequested,
    EventDeadLettered,
    ExamCompleted,
    ExperimentConfigured,
    FactApproved,
    FactProposed,
    FactRejected,
    FactRetracted,
    FeedbackGiven,
    GenerationBuilt,
    GenerationCalibrated,
    GenerationCreated,
    GenerationDropped,
    GenerationPromoted,
    KeysDestroyed,
    QuestionDeleted,
    QuestionSaved,
    SourceAdded,
    SourceRemoved,
    SourceReset,
)
from schemas.rows import EventRow, Row, RunRow
from sql.catalog.collections import write_collection_event
from sql.catalog.facts import write_fact_event
from sql.catalog.profiles import write_experiment
from sql.database import Connection, load_query, read_values
from sql.index.entities import write_aliases, write_correction
from sql.index.partitions import create_partitions
from sql.index.standing_questions import write_question_event
from sql.operations.erasure import write_erasure_event

RUN_FIELDS = tuple(field.name for field in fields(RunRow))
AUDIT_FIELDS = (
    *("audit_id", "tenant", "occurred_at", "actor", "role", "action", "subject", "request_id"),
    "outcome",
)
FEEDBACK_FIELDS = (
    *("feedback_id", "tenant", "given_at", "run_id", "query", "useful", "corrected_answer", "note"),
    *("judgements", "candidate_rejected"),
)


async def write_shared_rows(connection: Connection, rows: Iterable[Row]) -> None:
    """Write rows in order, one by one: there are few, and later ones depend on earlier ones."""
    for row in rows:
        match row:
            case RunRow():
                await connection.execute(load_query("upsert_run"), *read_values(row, *RUN_FIELDS))
            case EventRow():
                await _write_event(connection, row)
            case _:
                raise TypeError(
                    f"{type(row).__name__} belongs to a document: its stage needs the ordering "
                    "policy `latest` or `visible`"
                )


async def _write_event(connection: Connection, row: EventRow) -> None:
    # One function: one case for each event that has a table.
    offset = row.offset
    match row.data:
        case GenerationCreated() as created:
            await _create_generation(connection, created)
        case GenerationBuilt(generation=name, barrier=barrier):
            await connection.execute(load_query("mark_generation_built"), name, barrier)
        case GenerationPromoted(generation=name):
            await connection.execute(load_query("promote"), name, offset)
        case GenerationDropped(generation=name):
            await connection.execute(load_query("mark_generation_dropped"), name)
        case ExamCompleted(exam=exam):
            values = read_values(exam, "exam_id", "tenant", "generation", "completed_at")
            await connection.execute(
                load_query("insert_exam"), *values, exam.model_dump(mode="json")
            )
        case GenerationCalibrated(calibration=calibration):
            values = read_values(calibration, "tenant", "generation", "scores")
            await connection.execute(
                load_query("upsert_calibration"),
                *values,
                offset,
                calibration.model_dump(mode="json"),
            )
        case EntityAmended() as amended:
            await write_aliases(connection, amended, offset)
        case (EntityRetyped() | EntityMerged() | EntitySplit()) as correction:
            await write_correction(connection, correction, offset)
        case (
            CollectionConfigured() | CollectionDeletionRequested() | CollectionDeleted()
        ) as decision:
            await write_collection_event(connection, decision, offset)
        case ExperimentConfigured() as experiment:
            await write_experiment(connection, experiment)
        case SourceAdded(source=spec, epoch=epoch):
            await connection.execute(
                load_query("declare_source"),
                spec.name,
                spec.ce_source,
                spec.model_dump(mode="json"),
                epoch,
            )
        case SourceRemoved(source=name, withdraw=withdraw):
            await connection.execute(load_query("end_source"), name, withdraw)
        case SourceReset(source=name, reset=reset):
            await connection.execute(
                load_query("reset_source"), name, reset.epoch, reset.model_dump(mode="json")
            )
        case (ErasureRequested() | KeysDestroyed() | ErasureCompleted()) as erasure:
            await write_erasure_event(connection, erasure, offset)
        case FeedbackGiven() as feedback:
            values = read_values(feedback, *FEEDBACK_FIELDS)
            await connection.execute(load_query("insert_feedback"), *values)
        case (FactProposed() | FactApproved() | FactRejected() | FactRetracted()) as fact:
            await write_fact_event(connection, fact, offset)
        case (QuestionSaved() | QuestionDeleted() | AnswerChanged()) as question:
            await write_question_event(connection, question)
        case AuditRecorded() as audit:
            values = read_values(audit, *AUDIT_FIELDS)
            await connection.execute(load_query("insert_audit_event"), *values)
        case EventDeadLettered() as dead_letter:
            await _upsert_dead_letter(connection, dead_letter, row)
        case DeadLetterClosed() as closed:
            identity = closed.event_id, closed.stage, closed.generation or ""
            values = read_values(closed, "resolution", "reason", "closed_at")
            await connection.execute(load_query("close_dead_letter"), *identity, *values)
        case other:
            raise TypeError(f"{type(other).__name__} has no table")


async def _create_generation(connection: Connection, created: GenerationCreated) -> None:
    generation, base = created.generation, created.base
    values = generation.model_dump(mode="json")
    columns = [values[name] for name in ("name", "config", "how", "topics", "state")]
    inserted_name = await connection.fetchval(
        load_query("insert_generation"), *columns, base, created.purpose
    )
    # A repeated event: partitions and pointer exist already.
    if inserted_name is None:
        return
    # The first generation is live at once and needs its indexes from the start.
    await create_partitions(connection, generation, indexed=base is None)
    # The table has one row, so only the first generation ever gets it.
    if await connection.fetchval(load_query("insert_live_generation"), generation.name):
        await connection.execute(load_query("mark_generation_live"), generation.name)


async def _upsert_dead_letter(
    connection: Connection, data: EventDeadLettered, row: EventRow
) -> None:
    summary = data.document_summary
    await connection.execute(
        load_query("upsert_dead_letter"),
        data.event_id,
        data.stage,
        data.generation or "",
        *read_values(data, "original_type", "tenant", "document_id"),
        *read_values(data.position, "topic", "partition", "offset"),
        *read_values(data, "code", "detail", "remedy", "traceback", "attempts", "record"),
        *read_values(data, "producer_event_id", "producer_source"),
        row.time,
        *read_values(data, "headers", "appended_at"),
        summary.model_dump(exclude_none=True) if summary else None,
    )
