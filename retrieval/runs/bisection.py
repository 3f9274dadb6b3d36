"""Find the change between two runs of a question that flipped its answer.

The changes are the documents whose candidates differ, in the order in which the log received their
revisions and withdrawals, then the generation, the profile, and last what concerns every candidate,
such as corpus statistics. Positions of the log limit the search to the documents that it received
between them: it has no position for the other changes. The question is answered from the candidates
of the earlier run with the first of the changes applied, which takes those of the later run; a
binary search finds the change after which the answer is another one. Answers are quoted, as in
`counterfactual`; no engine is called.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby
from uuid import UUID

from retrieval.pipeline import PipelineResult
from retrieval.runs.counterfactual import (
    PASSAGE_FIELDS,
    keep_documents,
    map_quote_scores,
    restrict_to_quotes,
)
from retrieval.runs.recorded_run import RecordedRun
from retrieval.runs.rerun import answer_from_record
from retrieval.runs.run_diff import describe_side
from schemas.errors import InvalidRequest
from schemas.ports.lineage import RevisionArrival
from schemas.principals import Principal
from schemas.questions import QueryRequest, QueryResponse
from schemas.run_records import Bisection, ChangeReason, FlippingDocument
from schemas.topics import Position, StoredRecord

_Answer = tuple[str | None, bool]


@dataclass(frozen=True, slots=True)
class _Change:
    """One step from the earlier run to the later one. `documents` take the later candidates."""

    reason: ChangeReason
    documents: frozenset[UUID] = frozenset()
    document: FlippingDocument | None = None
    received: tuple[Position, datetime] | None = None
    """Where and when the log received it, if it did."""

    def is_received_by(self, record: StoredRecord) -> bool:
        return self.received is not None and _is_received(*self.received, record)


async def bisect_runs(
    earlier: RecordedRun,
    later: RecordedRun,
    caller: Principal,
    texts: Mapping[UUID, str],
    arrivals: Sequence[RevisionArrival],
    start: StoredRecord | None = None,
    end: StoredRecord | None = None,
) -> Bisection:
    """Raise InvalidRequest unless both runs answer the same question, and differently.

    `arrivals` are the revisions of the candidates' documents. `start` and `end` are records of the
    time between the runs; the answers compared are then those of these positions.
    """
    _require_same_question(earlier, later)
    _require_between(earlier, later, (start, end))
    first, last = restrict_to_quotes(earlier), restrict_to_quotes(later)
    ends = [await answer_from_record(run, caller, texts) for run in (first, last)]
    scores = map_quote_scores(ends[1]) | map_quote_scores(ends[0])
    changes = list_changes(first, last, arrivals)
    before, after = map(_read_answer, ends)

    async def answer_after(changes_count: int) -> _Answer:
        record = _mix(first, last, changes[:changes_count])
        return _read_answer(await answer_from_record(record, caller, texts, scores))

    # The answer is the earlier one up to `low` changes, and another one from `high` on.
    low, high, reruns = 0, len(changes), 0
    for record in filter(None, (start, end)):
        _require_known_revisions(record, changes, arrivals)
    if end:
        changes = [change for change in changes if change.is_received_by(end)]
        high = len(changes)
        after = await answer_after(high)
    if start:
        changes.sort(key=lambda change: not change.is_received_by(start))
        low = sum(change.is_received_by(start) for change in changes)
        before = await answer_after(low)
    if low == high or before == after:
        raise InvalidRequest(
            f"Runs {earlier.response.run_id} and {later.response.run_id} have the same answer"
            f"{' at these positions of the log' if start or end else ''}.",
            code="SAME_ANSWER",
            remedy="Name two runs with different answers, or compare them with "
            "POST /v1/runs/{run}/diff.",
        )
    found_changes = high - low
    while high - low > 1:
        middle, reruns = (low + high) // 2, reruns + 1
        answer = await answer_after(middle)
        if answer == before:
            low = middle
        else:
            high, after = middle, answer
    found = changes[high - 1]
    return Bisection(
        question=earlier.run_record.question,
        then=describe_side(earlier),
        now=describe_side(later),
        reason=found.reason,
        document=found.document,
        before=before[0],
        after=after[0],
        changes=found_changes,
        reruns=reruns,
    )


def _mix(first: RecordedRun, last: RecordedRun, changes: Sequence[_Change]) -> RecordedRun:
    """Build the record of a run with some of the changes: their documents as in the later run."""
    changed = frozenset[UUID]().union(*(change.documents for change in changes))
    earlier = keep_documents(first, lambda document: document not in changed)
    later = keep_documents(last, changed.__contains__)
    merged: dict[str, object] = {
        name: [*getattr(earlier.run_record, name), *getattr(later.run_record, name)]
        for name in PASSAGE_FIELDS
    }
    if any(change.reason.cause == "profile" for change in changes):
        merged["profile"] = last.run_record.profile
    # A run that was refused has no draft.
    merged["draft"] = earlier.run_record.draft or later.run_record.draft
    # The later decision to answer holds once a document is there that its answer cites, or all are
    # gone that the earlier answer cites.
    cited_then, cited_now = map(_list_cited, (first, last))
    is_later = not cited_now.isdisjoint(changed) if cited_now else cited_then <= changed
    return replace(
        earlier,
        candidates=(*earlier.candidates, *later.candidates),
        run_record=earlier.run_record.model_copy(update=merged),
        numbers={**earlier.numbers, "refusal": (last if is_later else first).numbers["refusal"]},
    )


def list_changes(
    earlier: RecordedRun, later: RecordedRun, arrivals: Sequence[RevisionArrival]
) -> list[_Change]:
    """List what differs between the runs, in the order in which it is applied."""
    found = []
    # A title that a stage found in the text is in the runs alone.
    titles = {
        chunk.document_id: chunk.title
        for run in (earlier, later)
        for chunk in run.run_record.chunks
    }
    for document_id in _list_documents(earlier) | _list_documents(later):
        revisions = _list_revisions(document_id, arrivals)
        then, now = (_find_revision(run, document_id, revisions) for run in (earlier, later))
        if then is now:
            continue
        shown = now or then
        assert shown is not None
        position = now.position if now else shown.withdrawal
        received_at = shown.received_at if now else shown.withdrawn_at or shown.received_at
        name = titles.get(document_id) or shown.title or shown.external_id or str(document_id)
        document = FlippingDocument(
            document_id=document_id,
            title=name,
            revision_then=then.revision if then else None,
            revision_now=now.revision if now else None,
            topic=position.topic if position else None,
            partition=position.partition if position else None,
            offset=position.offset if position else None,
        )
        detail = (
            f"{name} was added"
            if then is None
            else f"{name} is no longer searchable"
            if now is None
            else f"{name} changed from revision {then.revision} to {now.revision}"
        )
        reason = ChangeReason(cause="document", detail=detail)
        received = (position, received_at) if position else None
        change = _Change(reason, frozenset([document_id]), document, received)
        found.append((received_at, change))
    changes = [change for _, change in sorted(found, key=lambda pair: pair[0])]
    names = earlier.response.generation, later.response.generation
    if names[0] != names[1]:
        everything = frozenset(_list_documents(earlier) | _list_documents(later))
        detail = f"generation {names[1]} answers instead of {names[0]}"
        changes.append(_Change(ChangeReason(cause="generation", detail=detail), everything))
    if earlier.run_record.profile != later.run_record.profile:
        detail = f"profile {later.run_record.profile.name} has other settings"
        changes.append(_Change(ChangeReason(cause="profile", detail=detail)))
    detail = "other candidates or corpus statistics of unchanged documents"
    return [*changes, _Change(ChangeReason(cause="ranking", detail=detail))]


def _list_cited(run: RecordedRun) -> set[UUID]:
    response = run.response
    citations = response.citations if isinstance(response, QueryResponse) else []
    return {citation.document_id for citation in citations}


def _list_documents(run: RecordedRun) -> set[UUID]:
    return {candidate.document_id for candidate in run.candidates}


def _list_revisions(
    document_id: UUID, arrivals: Sequence[RevisionArrival]
) -> list[RevisionArrival]:
    """List the revisions of a document in order, without those that changed nothing."""
    revisions = [one for one in arrivals if one.document_id == document_id]
    revisions.sort(key=lambda one: one.revision)
    return [next(same) for _, same in groupby(revisions, key=lambda one: one.content)]


def _find_revision(
    run: RecordedRun, document_id: UUID, arrivals: Sequence[RevisionArrival]
) -> RevisionArrival | None:
    """Return the revision that the run searched: the one that it read, else the latest of its
    time. None if none of the document's chunks was a candidate and the document is gone or new.
    """
    read = {one.revision for one in run.run_record.chunks if one.document_id == document_id}
    answered_at = _read_time(run)
    known = [
        one
        for one in arrivals
        if (
            one.revision <= max(read)
            if read
            else answered_at is None or one.received_at <= answered_at
        )
    ]
    latest = known[-1] if known else None
    is_gone = latest is not None and latest.is_withdrawn and document_id not in _list_documents(run)
    return None if is_gone else latest


def _require_between(
    earlier: RecordedRun, later: RecordedRun, records: Sequence[StoredRecord | None]
) -> None:
    first, last = map(_read_time, (earlier, later))
    for record in filter(None, records):
        if (first and record.appended_at < first) or (last and record.appended_at > last):
            raise _outside_error(f"{record.position} was not received between the two runs.")
    start, end = records
    if start and end and start.appended_at > end.appended_at:
        raise InvalidRequest(
            f"{start.position} is later than {end.position}.",
            remedy="Give the earlier position as start.",
        )


def _outside_error(detail: str) -> InvalidRequest:
    return InvalidRequest(
        detail,
        code="OUTSIDE_RUNS",
        remedy="Name runs before and after it, between which each document changed once, from "
        "GET /v1/runs.",
    )


def _read_time(run: RecordedRun) -> datetime | None:
    return datetime.fromisoformat(run.answered_at) if run.answered_at else None


def _is_received(position: Position, received_at: datetime, record: StoredRecord) -> bool:
    # Clocks of two partitions differ; offsets of one do not err.
    if (position.topic, position.partition) == (record.position.topic, record.position.partition):
        return position.offset <= record.position.offset
    return received_at <= record.appended_at


def _require_known_revisions(
    record: StoredRecord, changes: Sequence[_Change], arrivals: Sequence[RevisionArrival]
) -> None:
    """Raise InvalidRequest if a document had a revision at `record` that neither run can show."""
    for change in changes:
        if (document := change.document) is None or change.is_received_by(record):
            continue
        revisions = [
            one.revision
            for one in _list_revisions(document.document_id, arrivals)
            if _is_received(one.position, one.received_at, record)
        ]
        if revisions and max(revisions) != document.revision_then:
            raise _outside_error(
                f"{document.title} had revision {max(revisions)} at {record.position}, which "
                "neither run read."
            )


def _require_same_question(earlier: RecordedRun, later: RecordedRun) -> None:
    fields = {"query", "history", "filters", "language", "mode", "channels", "k"}
    requests = [run.request.model_dump(include=fields) for run in (earlier, later)]
    searches = [run for run in (earlier, later) if not isinstance(run.request, QueryRequest)]
    if searches:
        raise InvalidRequest(
            f"Run {searches[0].response.run_id} is a search, which has no answer.",
            code="NO_CITATIONS",
            remedy="Name two runs of POST /v1/query.",
        )
    if requests[0] != requests[1]:
        raise InvalidRequest(
            f"Runs {earlier.response.run_id} and {later.response.run_id} ask different questions.",
            code="DIFFERENT_QUESTIONS",
            remedy="Name two runs of one question, or only the first, to ask it again now.",
        )


def _read_answer(result: PipelineResult) -> _Answer:
    assert isinstance(result.response, QueryResponse)
    return result.response.answer, result.response.refused
