"""Trace the citations of an answer: all of them, those of one sentence, or one."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from retrieval.lineage.tracer import LineageTracer
from retrieval.recorded_run import RecordedRun, parse_run
from schemas.errors import InvalidRequest, NotFound
from schemas.lineage import RunLineage
from schemas.principals import Principal
from schemas.questions import Citation, QueryResponse

_CITATION_MARKS = re.compile(r"(?:\[\d++\])++(?:\s|$)")


async def trace_run(
    tracer: LineageTracer,
    caller: Principal,
    run: Mapping[str, Any],
    *,
    sentence: int | None,
    citation: int | None,
) -> RunLineage:
    """Trace a row of table `runs`. Sentences count from 1.

    Raises NotFound when the sentence, the citation or the record does not exist.
    """
    record = parse_run(run)
    response = record.response
    if not isinstance(response, QueryResponse):
        raise InvalidRequest(
            f"Run {response.run_id} is a search and has no answer.",
            remedy="Use the run of a query, or a document.",
        )
    chunks_by_id = {chunk.id: chunk for chunk in record.basis.chunks}
    sentences = parse_sentence_citations(response, is_quoted=record.is_quoted)
    citation_lineages = [
        await tracer.trace_citation(
            caller, response.generation, chosen, chunks_by_id[chosen.chunk_id]
        )
        for chosen in choose_citations(response, sentences, sentence, citation)
    ]
    faults = [fault for citation_lineage in citation_lineages for fault in citation_lineage.broken]
    return RunLineage(
        run_id=response.run_id,
        question=record.basis.question,
        generation=response.generation,
        answered_at=_parse_answered_at(record),
        answer=response.answer,
        citations=citation_lineages,
        verified=not faults,
        broken=list(dict.fromkeys(faults)),
    )


def choose_citations(
    response: QueryResponse,
    sentences: Mapping[int, set[int]],
    sentence: int | None,
    citation: int | None,
) -> Sequence[Citation]:
    citation_numbers = {candidate.n for candidate in response.citations}
    if sentence is not None:
        citation_numbers = sentences.get(sentence, set())
    if citation is not None:
        citation_numbers &= {citation}
    citations = [candidate for candidate in response.citations if candidate.n in citation_numbers]
    if not citations and (sentence is not None or citation is not None):
        subject = f"sentence {sentence}" if sentence is not None else f"citation {citation}"
        raise NotFound(
            f"Run {response.run_id} has no {subject}.", remedy=f"It has {len(sentences)} sentences."
        )
    return citations


def parse_sentence_citations(response: QueryResponse, *, is_quoted: bool) -> dict[int, set[int]]:
    """Return the citation numbers of each sentence, by the marks behind it.

    A quoted sentence has exactly one, and its text may contain marks that look like ours.
    """
    if is_quoted:
        return {
            sentence_number: {response_citation.n}
            for sentence_number, response_citation in enumerate(response.citations, 1)
        }
    citations_by_sentence: dict[int, set[int]] = {}
    start = 0
    for marks in _CITATION_MARKS.finditer(response.answer or ""):
        if marks.start() > start:
            citations_by_sentence[len(citations_by_sentence) + 1] = set(
                map(int, re.findall(r"\d+", marks[0]))
            )
            start = marks.end()
    return citations_by_sentence


def _parse_answered_at(record: RecordedRun) -> datetime | None:
    return datetime.fromisoformat(record.answered_at) if record.answered_at else None
