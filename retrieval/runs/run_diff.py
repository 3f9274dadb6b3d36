"""Compare two runs of a query: passages that moved, disappeared or appeared, and why. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from retrieval.runs.recorded_run import RecordedRun
from schemas.generations import Generation
from schemas.questions import QueryResponse, SearchResult
from schemas.run_records import (
    FORMER_SETTINGS,
    ChangeCause,
    ChangeReason,
    ComparedRun,
    CurrentDocument,
    PassageChange,
    RunDiff,
)

# Reasons are listed from the caller's own changes to those of the corpus.
CAUSE_ORDER = ("request", "profile", "generation", "document", "ranking")


@dataclass(frozen=True, slots=True)
class DiffContext:
    """Generations of both runs and current documents, for explaining differences. May be
    incomplete.
    """

    generations: Mapping[str, Generation]
    documents: Mapping[UUID, CurrentDocument]


def compare_runs(then: RecordedRun, now: RecordedRun, context: DiffContext) -> RunDiff:
    # By parent id: unchanged text in the same section keeps its id in every revision.
    passages_then = {passage.parent_id: passage for passage in get_passages(then)}
    passages_now = {passage.parent_id: passage for passage in get_passages(now)}
    explainer = _ChangeExplainer(then, now, context)
    moved = [
        _build_change(passage, later_passage, explainer.explain_moved())
        for key, passage in passages_then.items()
        if (later_passage := passages_now.get(key)) and later_passage.rank != passage.rank
    ]
    removed = [
        _build_change(passage, None, explainer.explain_removed(passage))
        for key, passage in passages_then.items()
        if key not in passages_now
    ]
    added = [
        _build_change(None, passage, explainer.explain_added(passage))
        for key, passage in passages_now.items()
        if key not in passages_then
    ]
    answer_changed = _get_answer(then) != _get_answer(now)
    citations_changed = _get_citations(then) != _get_citations(now)
    reasons = [
        *explainer.explain_run(),
        *(change.reason for change in (*removed, *added, *moved) if change.reason),
    ]
    return RunDiff(
        question=then.run_record.question,
        then=describe_side(then),
        now=describe_side(now),
        same=not (moved or removed or added or answer_changed or citations_changed),
        answer_changed=answer_changed,
        citations_changed=citations_changed,
        moved=moved,
        added=added,
        removed=removed,
        profile_changes=explainer.profile_changes,
        request_changes=explainer.request_changes,
        # Each reason once, though it may explain several passages.
        reasons=sorted(dict.fromkeys(reasons), key=lambda reason: CAUSE_ORDER.index(reason.cause)),
    )


def get_passages(run: RecordedRun) -> Sequence[SearchResult]:
    """Return the ranked passages.

    Without `return_context`, an answer records only its contexts that were returned.
    """
    return (
        run.response.contexts if isinstance(run.response, QueryResponse) else run.response.results
    )


def describe_side(run: RecordedRun) -> ComparedRun:
    query_response = run.response if isinstance(run.response, QueryResponse) else None
    return ComparedRun(
        run_id=run.response.run_id,
        generation=run.response.generation,
        profile=run.run_record.profile.name,
        answered_at=run.answered_at,
        answer=query_response.answer if query_response else None,
        refused=query_response.refused if query_response else None,
        code=query_response.code if query_response else None,
    )


class _ChangeExplainer:
    """Explain changes by differences in request, profile, generation, documents and ranking."""

    def __init__(self, then: RecordedRun, now: RecordedRun, context: DiffContext) -> None:
        self._documents = context.documents
        self._revisions_then, self._revisions_now = (
            {passage.document_id: passage.revision for passage in get_passages(run)}
            for run in (then, now)
        )
        self.profile_changes = _diff_settings(_get_settings(then), _get_settings(now))
        self.request_changes = _diff_settings(_get_request(then), _get_request(now))
        self.generation_reason = _explain_generations(
            then.response.generation, now.response.generation, context.generations
        )
        # Retrieved, though perhaps ranked below the passages that were read.
        self._candidates = {candidate.parent_id for candidate in now.candidates}
        self._documents_then = {candidate.document_id for candidate in then.candidates}

    def explain_run(self) -> Iterable[ChangeReason]:
        if self.request_changes:
            yield ChangeReason(
                cause="request", detail=f"the request differs in {', '.join(self.request_changes)}"
            )
        if self.profile_changes:
            yield ChangeReason(
                cause="profile", detail=f"the profile differs in {', '.join(self.profile_changes)}"
            )
        if self.generation_reason:
            yield self.generation_reason

    def explain_removed(self, passage: SearchResult) -> ChangeReason:
        document_now = self._documents.get(passage.document_id)
        # From certain causes to presumed ones: the first that applies is reported.
        if document_now is not None and document_now.visible_revision is None:
            return ChangeReason(
                cause="document",
                detail=f"{_format_name(passage)} is no longer searchable ({document_now.state})",
            )
        revision = self._revisions_now.get(passage.document_id) or (
            document_now.visible_revision if document_now else None
        )
        if revision is not None and revision != passage.revision:
            return _explain_revisions(passage, passage.revision, revision)
        name = _format_name(passage)
        if passage.parent_id in self._candidates:
            return self._explain(
                "ranking", f"{name} is still retrieved, below the ranks that are read"
            )
        return self._explain("ranking", f"other passages now rank above {name}")

    def explain_added(self, passage: SearchResult) -> ChangeReason:
        previous_revision = self._revisions_then.get(passage.document_id)
        if previous_revision is not None and previous_revision != passage.revision:
            return _explain_revisions(passage, previous_revision, passage.revision)
        name = _format_name(passage)
        if passage.document_id not in self._documents_then:
            detail = f"{name} was not retrieved then: it is new or has changed"
            return self._explain("document", detail)
        return self._explain(
            "ranking", f"{name} was retrieved then, below the ranks that were read"
        )

    def explain_moved(self) -> ChangeReason:
        return self._explain("ranking", "neighboring passages or corpus statistics changed")

    def _explain(self, cause: ChangeCause, detail: str) -> ChangeReason:
        """Return the first difference of the runs as the reason, or without one the given one."""
        return next(iter(self.explain_run()), ChangeReason(cause=cause, detail=detail))


def _build_change(
    then: SearchResult | None, now: SearchResult | None, reason: ChangeReason | None
) -> PassageChange:
    passage = now or then
    assert passage is not None
    return PassageChange(
        parent_id=passage.parent_id,
        chunk_id=passage.chunk_id,
        document_id=passage.document_id,
        external_id=passage.external_id,
        title=passage.title,
        section=passage.section,
        rank_then=then.rank if then else None,
        rank_now=now.rank if now else None,
        reason=reason,
    )


def _get_answer(run: RecordedRun) -> Any:
    response = run.response
    return (
        (response.answer, response.refused, response.code)
        if isinstance(response, QueryResponse)
        else None
    )


def _get_citations(run: RecordedRun) -> Any:
    # Without chunk ids and offsets, which may change while the quote stays.
    return (
        [(citation.document_id, citation.quote) for citation in run.response.citations]
        if isinstance(run.response, QueryResponse)
        else None
    )


def _get_settings(run: RecordedRun) -> dict[str, Any]:
    record = run.run_record
    former = {**FORMER_SETTINGS, **record.former_settings}
    return {**record.profile.model_dump(mode="json"), **former}


def _get_request(run: RecordedRun) -> dict[str, Any]:
    """Return the request fields that can change an answer. Generations are compared separately."""
    request_fields = run.request.model_dump(
        mode="json", exclude={"stream", "debug", "explain", "generation"}
    )
    return {"kind": type(run.response).__name__, **request_fields}


def _diff_settings(
    then: Mapping[str, Any], now: Mapping[str, Any], path: str = ""
) -> dict[str, tuple[Any, Any]]:
    changes: dict[str, tuple[Any, Any]] = {}
    for name in dict.fromkeys([*then, *now]):
        value_then, value_now = then.get(name), now.get(name)
        if isinstance(value_then, dict) and isinstance(value_now, dict):
            changes |= _diff_settings(value_then, value_now, f"{path}{name}.")
        elif value_then != value_now:
            changes[f"{path}{name}"] = (value_then, value_now)
    return changes


def _explain_generations(
    then: str, now: str, generations: Mapping[str, Generation]
) -> ChangeReason | None:
    """Compare two generations. Equal fingerprints (a rebuild) explain nothing."""
    if then == now:
        return None
    generation_then, generation_now = generations.get(then), generations.get(now)
    if generation_then is None or generation_now is None:
        return ChangeReason(
            cause="generation", detail=f"generation {then} served then, {now} serves now"
        )
    stages = [
        stage
        for stage in generation_then.how
        if generation_then.how[stage] != generation_now.how.get(stage)
    ]
    return (
        ChangeReason(
            cause="generation",
            detail=f"generation {now} differs from {then} in {', '.join(stages)}",
        )
        if stages
        else None
    )


def _explain_revisions(passage: SearchResult, then: int, now: int) -> ChangeReason:
    detail = f"{_format_name(passage)} changed from revision {then} to {now}"
    return ChangeReason(cause="document", detail=detail)


def _format_name(passage: SearchResult) -> str:
    return passage.title or passage.external_id or str(passage.document_id)
