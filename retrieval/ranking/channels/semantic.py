"""Candidates by cosine similarity to the embedding of the question."""

from __future__ import annotations

from retrieval.ranking.channels import ChannelOutput, ChannelRequest
from schemas.channels import SemanticProfile


async def retrieve(request: ChannelRequest) -> ChannelOutput:
    settings = SemanticProfile.model_validate(request.settings)
    embedded_query = await request.embed()
    return ChannelOutput(
        await request.snapshot.search_semantic(
            request.tenant,
            embedded_query.vector,
            filters=request.filters,
            k=request.k,
            ef_search=settings.ef_search,
        )
    )
