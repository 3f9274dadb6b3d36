"""Asking two generations the same questions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from pydantic import ValidationError

from anabranch.desk.answering import Answering
from evaluation.agreement import Found
from evaluation.comparing import ComparisonRequest, GoldenJudgement
from evaluation.comparison import DEPTH, SIDES, Answered, Judgements, Replayed, Unasked, comparison_report
from evaluation.places import DocumentPlaces, JudgedPlace, ParentPlace, graded
from retrieval.rehearsal import Rehearsal
from schemas.errors import AnabranchError, InvalidRequest, NotFound, TransientError
from schemas.generations import Generation
from schemas.judgements import Judged
from schemas.ports.engines import Blobs
from schemas.ports.ledger import Generations
from schemas.principals import Principal
from schemas.questions import QueryRequest, SearchRequest
from sql.feedback import PgFeedback
from sql.generations_told import PgGenerationsTold
from sql.places import PgPlaces

REPLAYED = ("query", "mode", "profile", "filters", "channels", "language")
"""Of a request that was made before; the rest is the comparison's."""


@dataclass(slots=True)
class Question:
    id: str
    source: str
    request: SearchRequest
    run_id: UUID | None = None
    judgements: list[JudgedPlace] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two, with its documents that were judged."""

    generation: Generation
    documents: Mapping[UUID, DocumentPlaces]


@dataclass(frozen=True, slots=True)
class Comparing:
    answering: Answering
    generations: Generations
    feedback: PgFeedback
    places: PgPlaces
    told: PgGenerationsTold
    blobs: Blobs

    async def compare(self, tenant: str, a: str, b: str, wanted: ComparisonRequest) -> dict[str, Any]:
        """The report. Questions are asked one after the other, so that a latency is one question's, of the two generations in turn. Raises NotFound,
        InvalidRequest for a generation that is still being built, and what keeps both from being asked at all."""
        pair = [await self._generation(name) for name in (a, b)]
        questions, failed = await self._questions(tenant, wanted, [generation.name for generation in pair])
        sides = [await self._side(tenant, generation, pair[0], questions) for generation in pair]
        await self._warm(tenant, questions, sides)
        replayed: list[Replayed] = []
        for place, question in enumerate(questions):
            try:
                replayed.append(await self._ask(tenant, question, sides, turned=bool(place % 2)))
            except AnabranchError as error:
                failed[question.id] = Unasked(question.request.query, error.code, error.detail)
        index_bytes = {side: await self.told.bytes_of(one.name) for side, one in zip(SIDES, pair, strict=True)}
        names = {side: one.name for side, one in zip(SIDES, pair, strict=True)}
        return comparison_report(names, replayed, _mapped(questions, sides), index_bytes, failed)

    async def _warm(self, tenant: str, questions: Sequence[Question], sides: Sequence[Side]) -> None:
        """With the first question that can be asked, so that no latency is that of a cold start. Raises why, where none can."""
        failures: list[AnabranchError] = []
        for question in questions:
            try:
                await self._ask(tenant, question, sides)
            except TransientError:
                raise  # the others would wait as long
            except AnabranchError as error:
                failures.append(error)
            else:
                return
        if failures:
            raise failures[0]

    async def _generation(self, name: str) -> Generation:
        async with self.answering.asked(name):
            found = await self.generations.get(name)
        if found is None:
            raise NotFound(f"no generation {name!r}", code="NO_SUCH_GENERATION", remedy="`anabranch generations list` shows them.")
        return found

    async def _questions(self, tenant: str, wanted: ComparisonRequest, names: Sequence[str]) -> tuple[list[Question], dict[str, Unasked]]:
        failed: dict[str, Unasked] = {}
        asked = await self.feedback.asked(tenant, wanted.since, wanted.until, wanted.queries) if wanted.queries else []
        said: dict[str, list[JudgedPlace]] = defaultdict(list)
        for query, judged in await self.feedback.judged(tenant, wanted.since, wanted.until):
            said[query].append(_of_feedback(judged))
        known = await self._known(tenant, wanted, names)
        questions = [
            Question(f"golden:{place}", "golden", _request(golden.model_dump(exclude={"judgements"}), wanted), None, _of_golden(golden.judgements, known))
            for place, golden in enumerate(wanted.golden, 1)
        ]
        for run_id, request in asked:
            try:
                questions.append(Question(f"real:{run_id}", "real", _request(request, wanted), run_id))
            except ValidationError as error:
                failed[f"real:{run_id}"] = Unasked(str(request.get("query")), InvalidRequest.code, f"{error.error_count()} fields are not taken any more")
        for query in said.keys() - {question.request.query for question in questions}:
            questions.append(Question(f"feedback:{query}", "feedback", _request({"query": query}, wanted)))
        for question in questions:
            question.judgements += said.get(question.request.query, [])
        return questions, failed

    async def _known(self, tenant: str, wanted: ComparisonRequest, names: Sequence[str]) -> dict[str, UUID]:
        """Name → document, of what either generation shows; of several with one file name the newest."""
        wanted_names = sorted(
            {one.external_id for golden in wanted.golden for one in golden.judgements if one.external_id is not None and one.document_id is None}
        )
        found = [document for name in names for document in await self.places.documents(name, tenant, [], wanted_names)] if wanted_names else []
        return {called: document.id for document in found for called in document.names}

    async def _side(self, tenant: str, generation: Generation, first: Generation, questions: Sequence[Question]) -> Side:
        ids = sorted({judged.document_id for question in questions for judged in question.judgements})
        shown = await self.places.documents(generation.name, tenant, ids, []) if ids else []
        as_judged = generation.how.get("transcribe") == first.how.get("transcribe")
        documents = {}
        for one in shown:
            parents = [ParentPlace(parent.id, parent.char_start, parent.char_end) for parent in await self.places.parents_of(generation.name, one.id)]
            text = one.markdown if one.markdown is not None else (await self.blobs.get(one.blob_key or "")).decode()
            documents[one.id] = DocumentPlaces(one.id, one.revision, text, parents, as_judged)
        return Side(generation, documents)

    async def _ask(self, tenant: str, question: Question, sides: Sequence[Side], *, turned: bool = False) -> Replayed:
        """Each of the two first by turns."""
        answers: dict[str, Answered] = {}
        by_words = sides[0].generation.how.get("transcribe") != sides[1].generation.how.get("transcribe")
        for name, side in sorted(zip(SIDES, sides, strict=True), reverse=turned, key=lambda item: item[0]):
            rehearsal = await self._rehearsed(tenant, question.request, side.generation.name)
            answers[name] = await self._answered(rehearsal, question, side, by_words)
        return Replayed(question.id, question.request.query, question.source, answers["A"], answers["B"], question.run_id)

    async def _rehearsed(self, tenant: str, request: SearchRequest, generation: str) -> Rehearsal:
        async with self.answering.asked(generation) as (name, retriever):
            return await retriever.rehearse(Principal("comparison", tenant), request.model_copy(update={"generation": name}))

    async def _answered(self, rehearsal: Rehearsal, question: Question, side: Side, by_words: bool) -> Answered:
        parents = await self.places.parents(side.generation.name, [item.parent_id for item in rehearsal.ranked])
        found = [
            Found(parent.id, parent.document_id, parent.char_start, parent.char_end, _words(parent.text) if by_words else frozenset())
            for item in rehearsal.ranked
            if (parent := parents.get(item.parent_id)) is not None
        ]
        grades, _ = graded(question.judgements, side.documents)
        trace = rehearsal.trace
        return Answered(found, rehearsal.refused, trace.timings_ms.get("total", 0.0), trace.model_calls, trace.tokens, grades)


def _request(values: Mapping[str, Any], wanted: ComparisonRequest) -> SearchRequest:
    """Raises ValidationError for what was asked of an earlier version and is not taken any more."""
    given = {name: values[name] for name in REPLAYED if values.get(name) is not None}
    chosen = {"profile": wanted.profile} if wanted.profile else {}
    kind = QueryRequest if wanted.answers else SearchRequest
    return kind.model_validate({**given, **chosen, "k": DEPTH})


def _of_feedback(judged: Judged) -> JudgedPlace:
    return JudgedPlace(judged.document_id, judged.revision, judged.char_start, judged.char_end, judged.quote, judged.grade)


def _of_golden(judgements: Iterable[GoldenJudgement], known: Mapping[str, UUID]) -> list[JudgedPlace]:
    """One of a document that neither generation shows stays, unmapped."""
    return [
        JudgedPlace(
            one.document_id or known.get(one.external_id or "", UUID(int=0)),
            one.revision,
            one.span.char_start if one.span else None,
            one.span.char_end if one.span else None,
            one.quote,
            one.grade,
        )
        for one in judgements
    ]


def _mapped(questions: Sequence[Question], sides: Sequence[Side]) -> Judgements:
    counts = {name: sum(graded(question.judgements, side.documents)[1] for question in questions) for name, side in zip(SIDES, sides, strict=True)}
    return Judgements(sum(len(question.judgements) for question in questions), counts)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.casefold().split())
