"""A past question answered again as it was: from fusion on, by the recorded candidates, numbers and words of engines. No engine and no index is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import numpy as np

from retrieval.answer.drafts import Draft
from retrieval.answer.extractive import Floats, quoted_answer
from retrieval.answer.model import written_answer
from retrieval.answer.quotables import Quotable, quotables
from retrieval.channels import Found
from retrieval.conclude import conclude, suits
from retrieval.duplicates import fold
from retrieval.expand import RankedParent, expand
from retrieval.fuse import Lists, fuse
from retrieval.looked import Asked, Looked, with_contexts, with_results
from retrieval.past import Past, past_of, texts_wanted
from retrieval.plan import Plan
from retrieval.ranking import Ranking
from retrieval.refuse import Suitability
from retrieval.rerank import Reranked, combined
from retrieval.timing import Stopwatch
from schemas.errors import NotFound
from schemas.ports.engines import ChatReply, ChatUsage, Hear, Sentences
from schemas.ports.runs import PastTexts
from schemas.ports.search import Hit, Seed
from schemas.principals import Principal
from schemas.questions import CHANNELS, Channel, QueryRequest, QueryResponse, SearchResponse, untold
from schemas.runs import PastReply


@dataclass(frozen=True, slots=True)
class Rerun:
    """`same`: the response equals the recorded one, its trace (with the clock times of then) taken over. `differences` name the fields that do not.
    `missing` are passages whose text is nowhere any more and that no part of the answer was read from."""

    response: SearchResponse | QueryResponse
    same: bool
    differences: tuple[str, ...]
    missing: tuple[UUID, ...]


async def rerun(run: Mapping[str, Any], caller: Principal, texts: PastTexts, sentences: Sentences) -> Rerun:
    """`run` is a row of table `runs`. Raises NotFound where it holds too little, or where a text that was read is gone."""
    past = past_of(run)
    found = await texts.find(caller, texts_wanted(past))
    past.check_read(found)
    asked, looked = _asked(past, caller), _ranked(past, found)
    response = await (_answered(asked, looked, past, found, sentences) if isinstance(asked.request, QueryRequest) else _searched(asked, looked, past, found))
    now, then = response.model_dump(mode="json"), past.response.model_dump(mode="json")
    differences = tuple(name for name in then if now[name] != then[name])
    return Rerun(response, not differences, differences, tuple(candidate.chunk_id for candidate in past.candidates if candidate.chunk_id not in found))


def _asked(past: Past, caller: Principal) -> Asked:
    basis = past.basis
    plan = Plan(basis.question, basis.language, basis.language_sure, tuple(basis.keywords), (), {})
    return Asked(caller, past.response.run_id, past.request, basis.profile, plan, Stopwatch(_no_time), untold)


def _no_time() -> datetime:
    return datetime.fromtimestamp(0, UTC)


def _ranked(past: Past, texts: Mapping[UUID, str]) -> Looked:
    profile, trace = past.basis.profile, past.response.trace
    chunks = past.chunk_views(texts)
    hits = {channel: hits for channel in CHANNELS if (hits := _hits(past, channel))}
    fusion = fuse(Lists(hits, frozenset(past.basis.complete), past.word_pairs()), chunks, profile.fusion)
    reranked = _reranked(past, expand(fusion.candidates, profile.rerank.expand))
    wanted = max(past.request.k, profile.rerank.keep)
    parents = fold(reranked.parents, max(profile.rerank.parents, wanted), wanted) if profile.fusion.near_duplicates else reranked.parents
    linked = [Seed("", key, 1.0) for key in past.basis.linked]
    found = Found(hits, trace.channels, trace.channels_failed, frozenset(past.basis.complete), None, linked, None)
    ranking = Ranking(tuple(parents), found, fusion, reranked)
    return Looked(past.response.generation, trace.route, ranking, _suitability(past, parents), missing_collections=tuple(past.basis.missing_collections))


def _hits(past: Past, channel: Channel) -> Sequence[Hit]:
    return [Hit(one.chunk_id, one.document_id, one.channels[channel].score) for one in past.candidates if channel in one.channels]


def _reranked(past: Past, parents: Sequence[RankedParent]) -> Reranked:
    """By the recorded scores; the fused order where none were given."""
    role = past.numbers.get("rerank", {}).get("role")
    scores = {one.parent_id: one.rerank_score for one in past.candidates if one.rerank_score is not None}
    if role not in ("added", "replaces") or not scores:
        return Reranked(tuple(parents), False, tuple(past.response.trace.notes), {}, {})
    profile = past.basis.profile.rerank
    offered, rest = parents[: profile.parents], parents[profile.parents :]
    given = {parent.parent_id: scores[parent.parent_id] for parent in offered if parent.parent_id in scores}
    return combined(offered, rest, given, role, profile, tuple(past.response.trace.notes), {})


def _suitability(past: Past, parents: Sequence[RankedParent]) -> Suitability:
    """Whether it was refused had to be told from the numbers before it was recorded with them."""
    recorded = past.numbers["refusal"]
    best, threshold = recorded["best"], recorded["threshold"]
    told = not parents if best is None or threshold is None else best < threshold
    return Suitability(recorded.get("refused", told), best, threshold, recorded["background"], recorded["reason"])


async def _searched(asked: Asked, looked: Looked, past: Past, texts: Mapping[UUID, str]) -> SearchResponse:
    read = await with_results(asked, looked, past.snapshot(texts))
    return SearchResponse(run_id=asked.run_id, generation=looked.generation, results=list(read.results), trace=past.response.trace)


async def _answered(asked: Asked, looked: Looked, past: Past, texts: Mapping[UUID, str], sentences: Sentences) -> QueryResponse:
    read = await with_contexts(asked, looked, past.snapshot(texts))
    draft = await _draft(read, past, asked.plan, sentences) if suits(asked, read) else None
    return conclude(asked, read, draft, lambda: past.response.trace)


async def _draft(looked: Looked, past: Past, plan: Plan, sentences: Sentences) -> Draft:
    """Sentences and citations are made anew; what cannot be (who answered, at what cost, what was said of it) is taken over."""
    recorded = past.basis.draft
    if recorded is None:
        raise NotFound(f"run {past.response.run_id} recorded no draft, though passages suited", code="RUN_INCOMPLETE", remedy="Ask again.")
    items = quotables(looked.contexts, sentences)
    if past.is_quoted or recorded.reply is None:
        draft = await quoted_answer(items, plan, _Recorded(recorded.closeness))
    else:
        draft = await written_answer(looked.contexts, items, plan, _Replying(recorded.reply))
    limitations, assumptions = tuple(recorded.limitations), tuple(recorded.assumptions)
    return replace(draft, model=recorded.model, limitations=limitations, assumptions=assumptions, calls=recorded.calls, tokens=recorded.tokens)


@dataclass(frozen=True, slots=True)
class _Recorded:
    """The closeness that was found then."""

    closeness: Sequence[float] | None

    async def __call__(self, offered: Sequence[Quotable]) -> Floats | None:
        usable = self.closeness is not None and len(self.closeness) == len(offered)
        return np.array(self.closeness, np.float64) if usable else None


class _Replying:
    """A chat that says again what it said then."""

    def __init__(self, reply: PastReply) -> None:
        self._reply, self.model = reply, reply.model

    async def ask(self, system: str, user: str, schema: Mapping[str, Any], *, name: str, hear: Hear | None = None) -> ChatReply:
        return ChatReply(self._reply.data, self._reply.model, ChatUsage(self._reply.tokens), self._reply.calls)
