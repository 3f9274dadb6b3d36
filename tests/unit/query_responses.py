"""Responses to questions, for tests of what is done with them."""

from __future__ import annotations

from uuid import UUID

from schemas.citations import Citation
from schemas.questions import Confidence, QueryResponse, Route, Trace


def respond(answer: str | None, quote: str = "", level: str = "high") -> QueryResponse:
    citation = Citation(
        n=1,
        document_id=UUID(int=1),
        external_id="rent.md",
        revision=1,
        chunk_id=UUID(int=2),
        title=None,
        source_uri=None,
        link="",
        section="",
        pages=[],
        spans=[],
        quote=quote,
    )
    return QueryResponse(
        run_id=UUID(int=3),
        generation="g1",
        answer=answer,
        refused=answer is None,
        language="en",
        citations=[citation] if answer else [],
        confidence=Confidence.model_validate({"level": level, "reasons": []}),
        trace=Trace(
            generation="g1",
            profile="default",
            route=Route(mode="hybrid", decided_by="rules", reason=""),
            channels={},
            channels_used=[],
            channels_failed={},
            timings_ms={"total": 12.0},
            reranker=None,
            max_rerank_score=None,
            threshold=None,
        ),
    )
