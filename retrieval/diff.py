"""Two answers to a question side by side: which passages moved, came and went, and why. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from retrieval.past import Past
from schemas.generations import Generation
from schemas.questions import QueryResponse, Result
from schemas.run_diffs import DocumentNow, PassageChange, Reason, RunDiff, Side

ORDER = ("request", "profile", "generation", "document", "ranking")


@dataclass(frozen=True, slots=True)
class Known:
    """What tells why: the generations of both answers, and the documents as they are now. What is unknown explains nothing."""

    generations: Mapping[str, Generation]
    documents: Mapping[UUID, DocumentNow]


def compare(then: Past, now: Past, known: Known) -> RunDiff:
    before, after = {one.parent_id: one for one in passages(then)}, {one.parent_id: one for one in passages(now)}
    why = _Why(then, now, known, {one.document_id: one.revision for one in before.values()}, {one.document_id: one.revision for one in after.values()})
    moved = [_change(one, other, why.moved()) for key, one in before.items() if (other := after.get(key)) and other.rank != one.rank]
    gone = [_change(one, None, why.gone(one)) for key, one in before.items() if key not in after]
    new = [_change(None, one, why.new(one)) for key, one in after.items() if key not in before]
    answer_changed, citations_changed = _said(then) != _said(now), _cited(then) != _cited(now)
    return RunDiff(
        question=then.basis.question,
        then=side(then),
        now=side(now),
        same=not (moved or gone or new or answer_changed or citations_changed),
        answer_changed=answer_changed,
        citations_changed=citations_changed,
        moved=moved,
        new=new,
        gone=gone,
        profile_changes=why.profile,
        request_changes=why.request,
        reasons=_each_once([*why.general(), *(one.reason for one in (*gone, *new, *moved) if one.reason)]),
    )


def passages(past: Past) -> Sequence[Result]:
    """What was read, ranked. A question without `return_context` tells only what it cited."""
    return past.response.contexts if isinstance(past.response, QueryResponse) else past.response.results


def side(past: Past) -> Side:
    said = past.response if isinstance(past.response, QueryResponse) else None
    return Side(
        run_id=past.response.run_id,
        generation=past.response.generation,
        profile=past.basis.profile.name,
        answered_at=past.answered_at,
        answer=said.answer if said else None,
        refused=said.refused if said else None,
        code=said.code if said else None,
    )


class _Why:
    """The reasons that there can be, from what differs around the passages."""

    def __init__(self, then: Past, now: Past, known: Known, before: Mapping[UUID, int], after: Mapping[UUID, int]) -> None:
        self._then, self._now, self._documents, self._before, self._after = then, now, known.documents, before, after
        self.profile = _settings_changed(then.basis.profile.model_dump(mode="json"), now.basis.profile.model_dump(mode="json"))
        self.request = _settings_changed(_asked(then), _asked(now))
        self.generation = _stages_changed(then.response.generation, now.response.generation, known.generations)
        self._candidates = {one.parent_id for one in now.candidates}

    def general(self) -> Iterable[Reason]:
        if self.request:
            yield Reason(cause="request", detail=f"asked with another {', '.join(self.request)}")
        if self.profile:
            yield Reason(cause="profile", detail=f"the profile has another {', '.join(self.profile)}")
        if self.generation:
            yield self.generation

    def gone(self, passage: Result) -> Reason:
        found = self._documents.get(passage.document_id)
        if found is not None and found.visible_revision is None:
            return Reason(cause="document", detail=f"{_name(passage)} answers no question any more ({found.state})")
        revision = self._after.get(passage.document_id) or (found.visible_revision if found else None)
        if revision is not None and revision != passage.revision:
            return Reason(cause="document", detail=f"{_name(passage)} went from revision {passage.revision} to {revision}")
        if passage.parent_id in self._candidates:
            return self._general() or Reason(cause="ranking", detail=f"{_name(passage)} is still found, below what is read")
        return self._general() or Reason(cause="ranking", detail=f"other passages than those of {_name(passage)} are closer now")

    def new(self, passage: Result) -> Reason:
        was = self._before.get(passage.document_id)
        if was is not None and was != passage.revision:
            return Reason(cause="document", detail=f"{_name(passage)} went from revision {was} to {passage.revision}")
        if passage.document_id not in {one.document_id for one in self._then.candidates}:
            return self._general() or Reason(cause="document", detail=f"{_name(passage)} was not found then: it is new, or has changed")
        return self._general() or Reason(cause="ranking", detail=f"{_name(passage)} was found then, below what was read")

    def moved(self) -> Reason | None:
        return self._general() or Reason(cause="ranking", detail="passages around it came or went, or the numbers of the corpus have moved")

    def _general(self) -> Reason | None:
        return next(iter(self.general()), None)


def _change(then: Result | None, now: Result | None, reason: Reason | None) -> PassageChange:
    shown = now or then
    assert shown is not None
    return PassageChange(
        parent_id=shown.parent_id,
        chunk_id=shown.chunk_id,
        document_id=shown.document_id,
        external_id=shown.external_id,
        title=shown.title,
        section=shown.section,
        rank_then=then.rank if then else None,
        rank_now=now.rank if now else None,
        reason=reason,
    )


def _said(past: Past) -> Any:
    said = past.response
    return (said.answer, said.refused, said.code) if isinstance(said, QueryResponse) else None


def _cited(past: Past) -> Any:
    return [(one.document_id, one.quote) for one in past.response.citations] if isinstance(past.response, QueryResponse) else None


def _asked(past: Past) -> dict[str, Any]:
    """What changes an answer; which generation is compared by itself."""
    asked = past.request.model_dump(mode="json", exclude={"stream", "debug", "explain", "generation"})
    return {"kind": type(past.response).__name__, **asked}


def _settings_changed(then: Mapping[str, Any], now: Mapping[str, Any], path: str = "") -> dict[str, tuple[Any, Any]]:
    found: dict[str, tuple[Any, Any]] = {}
    for name in dict.fromkeys([*then, *now]):
        left, right = then.get(name), now.get(name)
        if isinstance(left, dict) and isinstance(right, dict):
            found |= _settings_changed(left, right, f"{path}{name}.")
        elif left != right:
            found[f"{path}{name}"] = (left, right)
    return found


def _stages_changed(then: str, now: str, known: Mapping[str, Generation]) -> Reason | None:
    """Two generations made in the same way (a rebuild) explain nothing."""
    if then == now:
        return None
    one, other = known.get(then), known.get(now)
    if one is None or other is None:
        return Reason(cause="generation", detail=f"generation {then} answered then, {now} now")
    stages = [stage for stage in one.how if one.how[stage] != other.how.get(stage)]
    return Reason(cause="generation", detail=f"generation {now} differs from {then} in {', '.join(stages)}") if stages else None


def _name(passage: Result) -> str:
    return passage.title or passage.external_id or str(passage.document_id)


def _each_once(reasons: Iterable[Reason]) -> list[Reason]:
    return sorted(dict.fromkeys(reasons), key=lambda reason: ORDER.index(reason.cause))
