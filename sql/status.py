"""Where a document is: its revision's rows, folded into one line a stage. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

Row = Mapping[str, Any]
Line = dict[str, Any]

STAGES = ("receive", "transcribe", "chunk", "extract", "embed", "graph", "index")
FAILED, DONE, RUNNING, WAITING, SKIPPED = "failed", "done", "running", "waiting", "skipped"
ENDED = frozenset({"failed", "superseded", "withdrawn"})
"""States of a revision in which a stage that has not come to its end never will."""


def stage_lines(revision: Row) -> list[Line]:
    """What the tables show of each stage, then what its worker noted, then its dead letter."""
    seen = _from_tables(revision)
    noted = _by_stage(revision["jobs"])
    buried = _by_stage(revision["burials"])
    lines = [_with_burial(_with_notes(_line(stage, *seen[stage]), noted.get(stage, ())), buried.get(stage, ()), revision) for stage in STAGES]
    return [_given_up(line) if revision["state"] in ENDED else line for line in lines]


def door_line(row: Row) -> Line:
    """The door, of an event that no revision has come of."""
    if row["burial"] is not None:
        return _with_burial(_line("receive", WAITING, None), [row["burial"]], None)
    return _line("receive", DONE if row["passed_on"] else RUNNING if row["log_topic"] else WAITING, _place(row, "log_"))


def door_state(row: Row) -> str:
    if row["burial"] is not None:
        return "failed"
    if row["withdraws"]:
        return "withdrawn"
    if row["amends"]:
        return "searchable"
    return "superseded" if row["passed_on"] and row["overtaken"] else "accepted"


def _from_tables(revision: Row) -> dict[str, tuple[str, Line | None]]:
    settled = {row["kind"]: row for row in revision["settled"]}
    unchanged = revision["unchanged"]
    text = revision["text_topic"] is not None
    chunks, vectors, entities = (_complete(settled.get(kind)) for kind in ("chunks", "vectors", "entities"))
    after_text = DONE if unchanged or chunks else RUNNING if text else WAITING
    return {
        "receive": (DONE, _place(revision, "door_") | {"started_at": revision["received_at"].isoformat()}),
        "transcribe": (DONE if text or unchanged else RUNNING, _place(revision, "log_")),
        "chunk": (after_text, _place(revision, "text_") if text else None),
        "extract": (_reached(unchanged or entities, chunks or bool(settled)), settled.get("chunks")),
        "embed": (_reached(unchanged or vectors, bool(settled)), settled.get("chunks")),
        "graph": (_reached(unchanged or entities, "entities" in settled), settled.get("entities")),
        "index": (_reached(revision["state"] == "searchable", "vectors" in settled), settled.get("vectors")),
    }


def _complete(settled: Row | None) -> bool:
    return settled is not None and settled["have"] >= settled["parts"]


def _reached(done: bool, begun: bool) -> str:
    return DONE if done else RUNNING if begun else WAITING


def _line(stage: str, state: str, place: Row | None) -> Line:
    at = place or {}
    return {
        "stage": stage,
        "state": state,
        "attempts": 0 if state == WAITING else 1,
        "topic": at.get("topic"),
        "partition": at.get("partition"),
        "offset": at.get("offset"),
        "started_at": at.get("started_at"),
        "duration_ms": None,
        "error": None,
    }


def _place(row: Row, prefix: str) -> Line:
    return {name: row[f"{prefix}{name}"] for name in ("topic", "partition", "offset")}


def _with_notes(line: Line, notes: Sequence[Row]) -> Line:
    """Parts of one stage as one line: as long as the parts together took from the first start to the last end."""
    if not notes:
        return line
    starts = [datetime.fromisoformat(note["started_at"]) for note in notes]
    ends = [start + timedelta(milliseconds=note["duration_ms"] or 0) for start, note in zip(starts, notes, strict=True)]
    first = notes[0]
    return line | {
        "state": _together(line["state"], [note["state"] for note in notes]),
        "attempts": max(note["attempts"] for note in notes),
        "topic": first["topic"],
        "partition": first["partition"],
        "offset": first["offset"],
        "started_at": min(starts).isoformat(),
        "duration_ms": round((max(ends) - min(starts)).total_seconds() * 1000, 1),
        "error": next((note["error"] for note in notes if note["error"]), None),
    }


def _together(seen: str, states: Iterable[str]) -> str:
    """One part that failed fails the stage; what the tables show to be done is done, whatever a worker noted last."""
    if FAILED in (every := set(states)):
        return FAILED
    if seen == DONE or every == {DONE}:
        return DONE
    return RUNNING


def _with_burial(line: Line, burials: Sequence[Row], revision: Row | None) -> Line:
    """A burial that was made good by a later try is history."""
    if not burials or (line["state"] == DONE and revision is not None and revision["state"] == "searchable"):
        return line
    last = burials[-1]
    error = {name: last[name] for name in ("code", "detail", "remedy")}
    return line | {"state": FAILED, "error": error} | {name: last[name] for name in ("attempts", "topic", "partition", "offset")}


def _given_up(line: Line) -> Line:
    return line | {"state": SKIPPED} if line["state"] in (WAITING, RUNNING) else line


def _by_stage(rows: Iterable[Row]) -> dict[str, list[Row]]:
    grouped: dict[str, list[Row]] = {}
    for row in rows:
        grouped.setdefault(row["stage"], []).append(row)
    return grouped
