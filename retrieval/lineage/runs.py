"""The lineage of an answer: of all that it cites, of one sentence, or of one citation."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from retrieval.lineage.walk import Walk
from retrieval.past import Past, past_of
from schemas.errors import InvalidRequest, NotFound
from schemas.lineage import RunLineage
from schemas.principals import Principal
from schemas.questions import Citation, QueryResponse

_MARKS = re.compile(r"(?:\[\d++\])++(?:\s|$)")


async def run_lineage(walk: Walk, caller: Principal, run: Mapping[str, Any], *, sentence: int | None, citation: int | None) -> RunLineage:
    """`run` is a row of table `runs`. Sentences count from 1. Raises NotFound where there is no such sentence, citation or record."""
    past = past_of(run)
    response = past.response
    if not isinstance(response, QueryResponse):
        raise InvalidRequest(f"run {response.run_id} was a search: it answered nothing", remedy="Name the run of a question, or a document.")
    read = {chunk.id: chunk for chunk in past.basis.chunks}
    sentences = cited_by_sentence(response, quoted=past.is_quoted)
    walked = [await walk.citation(caller, response.generation, one, read[one.chunk_id]) for one in chosen(response, sentences, sentence, citation)]
    faults = [fault for one in walked for fault in one.broken]
    return RunLineage(
        run_id=response.run_id,
        question=past.basis.question,
        generation=response.generation,
        answered_at=_moment(past),
        answer=response.answer,
        citations=walked,
        verified=not faults,
        broken=list(dict.fromkeys(faults)),
    )


def chosen(response: QueryResponse, sentences: Mapping[int, set[int]], sentence: int | None, citation: int | None) -> Sequence[Citation]:
    numbers = {one.n for one in response.citations}
    if sentence is not None:
        numbers = sentences.get(sentence, set())
    if citation is not None:
        numbers &= {citation}
    found = [one for one in response.citations if one.n in numbers]
    if not found and (sentence is not None or citation is not None):
        what = f"sentence {sentence}" if sentence is not None else f"citation {citation}"
        raise NotFound(f"run {response.run_id} has no {what}", remedy=f"It has {len(sentences)} sentences.")
    return found


def cited_by_sentence(response: QueryResponse, *, quoted: bool) -> dict[int, set[int]]:
    """Sentence → the numbers of its citations, by the marks behind each. A quoted sentence has one, and may hold marks of its own text that look like ours."""
    if quoted:
        return {place: {one.n} for place, one in enumerate(response.citations, 1)}
    cited: dict[int, set[int]] = {}
    start = 0
    for marks in _MARKS.finditer(response.answer or ""):
        if marks.start() > start:
            cited[len(cited) + 1] = set(map(int, re.findall(r"\d+", marks[0])))
            start = marks.end()
    return cited


def _moment(past: Past) -> datetime | None:
    return datetime.fromisoformat(past.answered_at) if past.answered_at else None
