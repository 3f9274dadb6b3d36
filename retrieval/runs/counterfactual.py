"""Answer a recorded question again without each cited document, to find its support.

The steps from fusion on run over the recorded candidates and scores, without a call of an engine.
An answer that a chat model wrote is compared by what the passages state: by its quotes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal
from uuid import UUID

from retrieval.answering.conflicts import CONFLICT_DISTANCE
from retrieval.answering.evidence import QUOTE_DISTANCE, rank_rows
from retrieval.pipeline import PipelineResult
from retrieval.question.answer_values import choose_cell, choose_value, detect_answer_type
from retrieval.question.quantities import find_quantities
from retrieval.question.words import extract_stems
from retrieval.ranking.quote_candidates import QuoteCandidate, find_equal_quotes, normalize_quote
from retrieval.runs.recorded_run import RecordedRun
from retrieval.runs.rerun import answer_from_record
from schemas.citations import Citation
from schemas.errors import InvalidRequest
from schemas.principals import Principal
from schemas.questions import QueryResponse
from schemas.run_records import CounterfactualAnswer, LeftOutDocument, LeftOutOutcome

PASSAGE_FIELDS = ("parents", "chunks", "graph_evidence")


@dataclass(frozen=True, slots=True)
class _Lead:
    """The sentence that an answer rests on most, and the value in it that the question asks for."""

    quote: QuoteCandidate
    score: float
    text: str
    value: str | None

    def states_same(self, other: _Lead, question: str) -> bool:
        """Tell whether the other sentence has the same text, or the same value for the question."""
        if self.text == other.text:
            return True
        return (
            self.value is not None
            and other.value is not None
            and self.score - other.score <= CONFLICT_DISTANCE
            and not extract_stems(question).isdisjoint(extract_stems(other.text))
            and _are_equal(self.value, other.value)
        )


async def answer_without_each_document(
    record: RecordedRun, caller: Principal, texts: Mapping[UUID, str]
) -> CounterfactualAnswer:
    """Raise InvalidRequest for a run whose answer cites no document."""
    citations = record.response.citations if isinstance(record.response, QueryResponse) else []
    if not citations:
        raise InvalidRequest(
            f"Run {record.response.run_id} cites no document that could be left out.",
            code="NO_CITATIONS",
            remedy="Use a run that has an answer. List runs with GET /v1/runs.",
        )
    quoted = restrict_to_quotes(record)
    everything = await answer_from_record(quoted, caller, texts)
    scores = map_quote_scores(everything)
    full = next(_list_leads(everything), None)
    names = {citation.document_id: citation for citation in reversed(citations)}
    left_out = []
    for document_id, first in reversed(names.items()):
        without = keep_documents(quoted, document_id.__ne__)
        rest = await answer_from_record(without, caller, texts, scores)
        numbers = [one.n for one in citations if one.document_id == document_id]
        left_out.append(_compare(full, rest, first, numbers))
    confirming = _find_confirming(everything, full)
    contested = any(one.outcome == "other_value" for one in left_out) or (
        everything.draft is not None and everything.draft.draft.conflict is not None
    )
    answer = _get_response(everything).answer
    return CounterfactualAnswer(
        run_id=record.response.run_id,
        answer=answer,
        is_quoted=record.is_quoted,
        verdict="contested" if contested else _judge_support(len(confirming)),
        confirming=confirming,
        documents=left_out,
        summary=_summarize(names, confirming, left_out),
    )


def restrict_to_quotes(record: RecordedRun) -> RecordedRun:
    """Return the run without replies of models, which hold for its own passages only."""
    draft = record.run_record.draft
    if draft is None:
        return record
    replies = {"reply": None, "judge_reply": None, "rejected": None}
    run_record = record.run_record.model_copy(update={"draft": draft.model_copy(update=replies)})
    return replace(record, run_record=run_record)


def keep_documents(record: RecordedRun, is_kept: Callable[[UUID], bool]) -> RecordedRun:
    """Return the run without the candidates and passages of other documents."""
    run_record = record.run_record
    passages = {
        name: [one for one in getattr(run_record, name) if is_kept(one.document_id)]
        for name in PASSAGE_FIELDS
    }
    return replace(
        record,
        candidates=tuple(one for one in record.candidates if is_kept(one.document_id)),
        run_record=run_record.model_copy(update=passages),
    )


def map_quote_scores(result: PipelineResult) -> dict[str, float]:
    """Return the scores of the sentences by their text; the best where a text is repeated."""
    scores: dict[str, float] = {}
    for lead in _list_leads(result):
        scores.setdefault(lead.text, lead.score)
    return scores


def _list_leads(result: PipelineResult) -> Iterator[_Lead]:
    """Yield the compared sentences, best first."""
    if (evidence := result.evidence) is None:
        return
    question = result.query.plan.question
    scores = evidence.get_scores(result.query.plan)
    for row in rank_rows(scores):
        quote = evidence.candidates[row]
        text = normalize_quote(quote.readable_text)
        yield _Lead(quote, scores[row], text, _read_value(quote, question))


def _read_value(quote: QuoteCandidate, question: str) -> str | None:
    answer_type = detect_answer_type(question)
    if quote.is_row:
        cells = quote.cells
        cell = choose_cell(quote.header or (), cells, question, answer_type)
        return None if cell is None else cells[cell]
    place = choose_value(answer_type, quote.readable_text, question)
    return quote.readable_text[slice(*place)] if place else None


def _are_equal(first: str, second: str) -> bool:
    if normalize_quote(first) == normalize_quote(second):
        return True
    quantities = [list(find_quantities(text)) for text in (first, second)]
    return all(quantities) and all(
        one.kind == other.kind and one.unit == other.unit and one.is_equal(other)
        for one, other in zip(*quantities, strict=False)
    )


def _compare(
    full: _Lead | None, rest: PipelineResult, first: Citation, numbers: list[int]
) -> LeftOutDocument:
    response, lead = _get_response(rest), next(_list_leads(rest), None)
    outcome = _find_outcome(full, lead if response.answer else None, rest)
    says_otherwise = outcome in ("other_value", "other_words")
    value = lead.value if lead is not None and outcome == "other_value" else None
    return LeftOutDocument(
        document_id=first.document_id,
        external_id=first.external_id,
        title=first.title,
        revision=first.revision,
        citations=numbers,
        outcome=outcome,
        answer=response.answer if outcome != "unsupported" else None,
        value=rest.query.redactor.mask(value) if value else None,
        said_by=lead.quote.chunk.title or lead.quote.chunk.external_id
        if lead is not None and says_otherwise
        else None,
        said_in_revision=lead.quote.chunk.revision if lead is not None and says_otherwise else None,
    )


def _find_outcome(full: _Lead | None, rest: _Lead | None, result: PipelineResult) -> LeftOutOutcome:
    question = result.query.plan.question
    if full is None or rest is None:
        return "unsupported"
    if full.states_same(rest, question):
        return "unchanged"
    # Further from the question than a quote may be: nothing else states it.
    if full.score - rest.score > QUOTE_DISTANCE:
        return "unsupported"
    return "other_value" if full.value and rest.value else "other_words"


def _find_confirming(result: PipelineResult, full: _Lead | None) -> list[UUID]:
    """Return the documents that state the same as the answer, whether it cites them or not."""
    if full is None or result.evidence is None:
        return []
    question = result.query.plan.question
    same_text = find_equal_quotes(full.quote, result.evidence.candidates, None)
    documents = [quote.chunk.document_id for quote in same_text]
    documents += [
        lead.quote.chunk.document_id
        for lead in _list_leads(result)
        if full.states_same(lead, question)
    ]
    return list(dict.fromkeys(documents))


def _judge_support(n_documents: int) -> Literal["one_document", "confirmed", "unknown"]:
    if n_documents == 0:
        return "unknown"
    return "one_document" if n_documents == 1 else "confirmed"


def _get_response(result: PipelineResult) -> QueryResponse:
    assert isinstance(result.response, QueryResponse)
    return result.response


def _summarize(
    names: Mapping[UUID, Citation], confirming: list[UUID], left_out: list[LeftOutDocument]
) -> str:
    """Say in words what the answer rests on."""
    if len(confirming) == 1:
        cited = names.get(confirming[0])
        name = (cited.title or cited.external_id) if cited else None
        sentences = [f"The answer rests on one document{f': {name}' if name else ''}."]
    elif confirming:
        sentences = [f"The answer is confirmed by {len(confirming)} documents."]
    else:
        sentences = ["Nothing tells which document the answer rests on."]
    sentences += [
        f"Without {one.title or one.external_id or one.document_id}, "
        f"{one.said_by or 'another document'} (revision {one.said_in_revision}) says otherwise: "
        f"{one.value}."
        for one in left_out
        if one.outcome == "other_value"
    ]
    return " ".join(sentences)
