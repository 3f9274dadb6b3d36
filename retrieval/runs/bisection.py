"""Find the change between two runs of a question that flipped its answer.

The changes are the documents whose candidates differ, in the order in which the log received their
revisions, then the generation, the profile, and last what concerns every candidate, such as corpus
statistics. The question is answered from the candidates of the earlier run with the first of the
changes applied, which takes those of the later run; a binary search finds the change after which
the answer is another one. Answers are quoted, as in `counterfactual`; no engine is called.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
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

_Answer = tuple[str | None, bool]


@dataclass(frozen=True, slots=True)
class _Change:
    """One step from the earlier run to the later one. `documents` take the later candidates."""

    reason: ChangeReason
    documents: frozenset[UUID] = frozenset()
    document: FlippingDocument | None = None


async def bisect_runs(
    earlier: RecordedRun,
    later: RecordedRun,
    caller: Principal,
    texts: Mapping[UUID, str],
    arrivals: Sequence[RevisionArrival],
) -> Bisection:
    """Raise InvalidRequest unless both runs answer the same question, and differently.

    `arrivals` are the revisions of the candidates' documents.
    """
    _require_same_question(earlier, later)
    first, last = restrict_to_quotes(earlier), restrict_to_quotes(later)
    ends = [await answer_from_record(run, caller, texts) for run in (first, last)]
    scores = map_quote_scores(ends[1]) | map_quote_scores(ends[0])
    changes = list_changes(first, last, arrivals)
    before, after = map(_read_answer, ends)
    if before == after:
        raise InvalidRequest(
            f"Runs {earlier.response.run_id} and {later.response.run_id} have the same answer.",
            code="SAME_ANSWER",
            remedy="Name two runs with different answers, or compare them with "
            "POST /v1/runs/{run}/diff.",
        )
    # The answer is the earlier one up to `low` changes, and another one from `high` on.
    low, high, reruns = 0, len(changes), 0
    while high - low > 1:
        middle, reruns = (low + high) // 2, reruns + 1
        record = _mix(first, last, changes[:middle])
        answer = _read_answer(await answer_from_record(record, caller, texts, scores))
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
        changes=len(changes),
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
        revisions = [one for one in arrivals if one.document_id == document_id]
        then, now = (_find_revision(run, document_id, revisions) for run in (earlier, later))
        if then is now:
            continue
        shown = now or then
        assert shown is not None
        name = titles.get(document_id) or shown.title or shown.external_id or str(document_id)
        document = FlippingDocument(
            document_id=document_id,
            title=name,
            revision_then=then.revision if then else None,
            revision_now=now.revision if now else None,
            topic=now.log_topic if now else None,
            partition=now.log_partition if now else None,
            offset=now.log_offset if now else None,
        )
        detail = (
            f"{name} was added"
            if then is None
            else f"{name} is no longer searchable"
            if now is None
            else f"{name} changed from revision {then.revision} to {now.revision}"
        )
        reason = ChangeReason(cause="document", detail=detail)
        found.append((shown.received_at, _Change(reason, frozenset([document_id]), document)))
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


def _find_revision(
    run: RecordedRun, document_id: UUID, arrivals: Sequence[RevisionArrival]
) -> RevisionArrival | None:
    """Return the revision that the run searched: the one that it read, else the latest of its
    time. None if none of the document's chunks was a candidate and the document is gone or new.
    """
    read = {one.revision for one in run.run_record.chunks if one.document_id == document_id}
    answered_at = datetime.fromisoformat(run.answered_at) if run.answered_at else None
    known = [
        one
        for one in arrivals
        if (one.revision in read if read else answered_at is None or one.received_at <= answered_at)
    ]
    latest = max(known, key=lambda one: one.revision, default=None)
    is_gone = latest is not None and latest.is_withdrawn and document_id not in _list_documents(run)
    return None if is_gone else latest


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
