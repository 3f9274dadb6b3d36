"""What a question leaves behind so that it can be answered again: all that entered besides candidates and numbers, texts by their hash."""

from __future__ import annotations

from collections.abc import Iterable

from retrieval.answer.drafts import Draft
from retrieval.kept import kept_chunk, kept_parent
from retrieval.looked import Asked, Looked
from schemas.ports.engines import ChatReply
from schemas.ports.search import ChunkView
from schemas.runs import Basis, PastDraft, PastReply


def basis_of(asked: Asked, looked: Looked, draft: Draft | None) -> Basis:
    found = looked.ranking.found
    families = {context.parent.parent_id: context.children for context in looked.contexts}
    chunks = {chunk.chunk_id: chunk for chunk in _chunks(looked)}
    return Basis(
        profile=asked.profile,
        question=asked.plan.question,
        language=asked.plan.language,
        language_sure=asked.plan.language_sure,
        keywords=list(asked.plan.keywords),
        complete=sorted(found.complete),
        linked=[seed.key for seed in found.linked],
        parents=[kept_parent(view, families.get(view.parent_id, ())) for view in looked.views.values()],
        chunks=[kept_chunk(chunk) for chunk in chunks.values()],
        draft=_draft(draft) if draft else None,
        missing_collections=list(looked.missing_collections),
    )


def _chunks(looked: Looked) -> Iterable[ChunkView]:
    """The best child of each parent that was read, and all that could be quoted."""
    for parent in looked.ranking.parents:
        if parent.parent_id in looked.views:
            yield parent.best.chunk
    for context in looked.contexts:
        yield from context.children


def _draft(draft: Draft) -> PastDraft:
    return PastDraft(
        model=draft.model,
        closeness=None if draft.closeness is None else list(draft.closeness),
        reply=_reply(draft.reply) if draft.reply else None,
        assumptions=list(draft.assumptions),
        limitations=list(draft.limitations),
        calls=draft.calls,
        tokens=draft.tokens,
    )


def _reply(reply: ChatReply) -> PastReply:
    return PastReply(data=dict(reply.data), model=reply.model, calls=reply.calls, tokens=reply.usage.input_tokens + reply.usage.output_tokens)
