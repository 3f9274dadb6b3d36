"""Candidates by BM25 over the words of the question."""

from __future__ import annotations

from retrieval.question.question_terms import list_code_spellings
from retrieval.ranking.channels import ChannelOutput, ChannelRequest
from schemas.channels import LexicalProfile


async def retrieve(request: ChannelRequest) -> ChannelOutput:
    settings = LexicalProfile.model_validate(request.settings)
    lexical_hits = await request.snapshot.search_lexical(
        request.tenant,
        " ".join([request.question, *list_code_spellings(request.question)]),
        language=request.language,
        filters=request.filters,
        k=request.k,
        budget=settings.budget,
    )
    return ChannelOutput(lexical_hits.hits, lexical=lexical_hits)
