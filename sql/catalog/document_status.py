"""Derive the status of a document, one line per stage, from the rows of its revision. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

StatusRow = Mapping[str, Any]
StageLine = dict[str, Any]

FAILED, DONE, RUNNING, WAITING, SKIPPED = "failed", "done", "running", "waiting", "skipped"
FINAL_STATES = frozenset({"failed", "superseded", "withdrawn"})
"""Revision states after which an unfinished stage never runs."""
BLOCKING_STAGES = ("receive", "transcribe", "chunk", "embed", "index")
PART_KINDS = {"embed": "chunks", "extract": "chunks", "index": "vectors", "graph": "entities"}
"""Kind of the rows that say in how many parts the document reaches a stage."""
NO_OTHER_STAGES: Mapping[str, bool] = {}


def build_stage_lines(
    revision: StatusRow, stages: Mapping[str, bool] = NO_OTHER_STAGES
) -> list[StageLine]:
    """Return one line per stage: from the tables, then the worker's job rows, then the dead letter.

    `stages` (name → whether it has a reaction) may contain others than those whose state follows
    from the tables.
    """
    table_states = _derive_states(revision)
    # Of other stages only the worker's job rows tell.
    other_state = DONE if revision["unchanged"] else WAITING
    states = dict.fromkeys(stages, (other_state, None)) | table_states
    job_rows = {
        stage: [
            # Without a reaction, nothing follows the rows that were committed with the job row.
            {**row, "state": DONE}
            if row["state"] == RUNNING and not stages.get(stage, True)
            else row
            for row in rows
        ]
        for stage, rows in _group_by_stage(revision["jobs"]).items()
    }
    dead_letters = _group_by_stage(revision["dead_letters"])
    lines = [
        _apply_dead_letter(
            _apply_job_rows(_build_line(stage, *states[stage]), job_rows.get(stage, ())),
            dead_letters.get(stage, ()),
            revision,
        )
        for stage in dict.fromkeys((*table_states, *states))
    ]
    if revision["state"] not in FINAL_STATES:
        return [
            line | {"progress": progress}
            if line["state"] == RUNNING and (progress := _measure_progress(line["stage"], revision))
            else line
            for line in lines
        ]
    return [
        line | {"state": SKIPPED} if line["state"] in (WAITING, RUNNING) else line for line in lines
    ]


def find_pending_stage(lines: Iterable[StageLine]) -> StageLine | None:
    """Return the first unfinished stage that keeps the revision from being searchable."""
    return next(
        (
            line
            for stage in BLOCKING_STAGES
            for line in lines
            if line["stage"] == stage and line["state"] in (WAITING, RUNNING)
        ),
        None,
    )


def _measure_progress(stage: str, revision: StatusRow) -> StageLine | None:
    """Return what a running stage has done of a long document: pages, or parts of 64 chunks."""
    job_rows = [row for row in revision["jobs"] if row["stage"] == stage]
    part_rows = {row["kind"]: row for row in revision["parts"]}
    kind = PART_KINDS.get(stage)
    if kind in part_rows:
        done = sum(row["state"] == DONE for row in job_rows)
        total, unit = part_rows[kind]["parts"], "parts"
    else:
        done, total = next(((row["pages_done"], row["pages_total"]) for row in job_rows), (0, 0))
        unit = "pages"
    return {"done": done, "total": total, "unit": unit} if total and total > 1 else None


def build_ingress_line(row: StatusRow) -> StageLine:
    """Return the ingress line of an event that has produced no revision."""
    if row["dead_letter"] is not None:
        return _apply_dead_letter(_build_line("receive", WAITING, None), [row["dead_letter"]], None)
    return _build_line(
        "receive",
        DONE if row["is_admitted"] else RUNNING if row["log_topic"] else WAITING,
        _extract_position(row, "log_"),
    )


def resolve_ingress_state(row: StatusRow) -> str:
    if row["dead_letter"] is not None:
        return "failed"
    if row["withdraws"]:
        return "withdrawn"
    if row["amends"]:
        return "searchable"
    return "superseded" if row["is_admitted"] and row["is_superseded"] else "accepted"


def _derive_states(revision: StatusRow) -> dict[str, tuple[str, StageLine | None]]:
    part_rows = {row["kind"]: row for row in revision["parts"]}
    is_unchanged = revision["unchanged"]
    has_text = revision["text_topic"] is not None
    chunks, vectors, entities = (
        kind in part_rows and part_rows[kind]["have"] >= part_rows[kind]["parts"]
        for kind in ("chunks", "vectors", "entities")
    )
    # An unchanged revision has no rows of its own: the visible one stands for it.
    after_text = DONE if is_unchanged or chunks else RUNNING if has_text else WAITING
    return {
        "receive": (
            DONE,
            _extract_position(revision, "door_")
            | {"started_at": revision["received_at"].isoformat()},
        ),
        "transcribe": (
            DONE if has_text or is_unchanged else RUNNING,
            _extract_position(revision, "log_"),
        ),
        "chunk": (after_text, _extract_position(revision, "text_") if has_text else None),
        "extract": (
            _resolve_state(is_unchanged or entities, chunks or bool(part_rows)),
            part_rows.get("chunks"),
        ),
        "embed": (
            _resolve_state(is_unchanged or vectors, bool(part_rows)),
            part_rows.get("chunks"),
        ),
        "graph": (
            _resolve_state(is_unchanged or entities, "entities" in part_rows),
            part_rows.get("entities"),
        ),
        "index": (
            _resolve_state(revision["state"] == "searchable", "vectors" in part_rows),
            part_rows.get("vectors"),
        ),
    }


def _resolve_state(is_done: bool, has_begun: bool) -> str:
    return DONE if is_done else RUNNING if has_begun else WAITING


def _build_line(stage: str, state: str, position_row: StatusRow | None) -> StageLine:
    position = position_row or {}
    return {
        "stage": stage,
        "state": state,
        "attempts": 0 if state == WAITING else 1,
        "topic": position.get("topic"),
        "partition": position.get("partition"),
        "offset": position.get("offset"),
        "started_at": position.get("started_at"),
        "duration_ms": None,
        "error": None,
    }


def _extract_position(row: StatusRow, prefix: str) -> StageLine:
    return {name: row[f"{prefix}{name}"] for name in ("topic", "partition", "offset")}


def _apply_job_rows(line: StageLine, job_rows: Sequence[StatusRow]) -> StageLine:
    """Merge the parts of a stage into one line, from the first start to the last end."""
    if not job_rows:
        return line
    starts = [datetime.fromisoformat(job_row["started_at"]) for job_row in job_rows]
    ends = [
        start + timedelta(milliseconds=job_row["duration_ms"] or 0)
        for start, job_row in zip(starts, job_rows, strict=True)
    ]
    first = job_rows[0]
    return line | {
        "state": _merge_states(line["state"], [job_row["state"] for job_row in job_rows]),
        "attempts": max(job_row["attempts"] for job_row in job_rows),
        "topic": first["topic"],
        "partition": first["partition"],
        "offset": first["offset"],
        "started_at": min(starts).isoformat(),
        "duration_ms": round((max(ends) - min(starts)).total_seconds() * 1000, 1),
        "error": next((job_row["error"] for job_row in job_rows if job_row["error"]), None),
    }


def _merge_states(table_state: str, states: Iterable[str]) -> str:
    # One failed part fails the stage. Otherwise the tables win: a worker may die before it records
    # the end.
    if FAILED in (distinct_states := set(states)):
        return FAILED
    if table_state == DONE or distinct_states == {DONE}:
        return DONE
    return RUNNING


def _apply_dead_letter(
    line: StageLine, dead_letters: Sequence[StatusRow], revision: StatusRow | None
) -> StageLine:
    # A dead letter that a later attempt resolved is history.
    if not dead_letters or (
        line["state"] == DONE and revision is not None and revision["state"] == "searchable"
    ):
        return line
    last = dead_letters[-1]
    error = {name: last[name] for name in ("code", "detail", "remedy")}
    return (
        line
        | {"state": FAILED, "error": error}
        | {name: last[name] for name in ("attempts", "topic", "partition", "offset")}
    )


def _group_by_stage(rows: Iterable[StatusRow]) -> dict[str, list[StatusRow]]:
    grouped: dict[str, list[StatusRow]] = {}
    for row in rows:
        grouped.setdefault(row["stage"], []).append(row)
    return grouped
