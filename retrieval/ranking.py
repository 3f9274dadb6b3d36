"""From a question to ranked parents: route → channels → fuse → expand → rerank → fold, all over one snapshot."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from retrieval.bigrams import pair_scores
from retrieval.channels import Ask, Found, Seen, ask_channels
from retrieval.duplicates import fold
from retrieval.expand import RankedParent, expand
from retrieval.fuse import Fusion, Lists, fuse
from retrieval.gate import foreign_hits, keep_native
from retrieval.rerank import Reranked, rerank
from retrieval.states import StateReader
from retrieval.timing import Clock, Stopwatch
from retrieval.views import reading
from schemas.ports.engines import EmbeddedQuery, Reranker
from schemas.ports.search import ChunkView, Hit, Snapshot
from schemas.profiles import Profile
from schemas.questions import Channel

DEEPEST = 4000
"""Candidates of one channel at most, however few documents they belong to."""


@dataclass(frozen=True, slots=True)
class Looking:
    """What ranking needs besides the question. Without a reranker the fused order stands."""

    snapshot: Snapshot
    reranker: Reranker | None
    states: StateReader
    clock: Clock
    watch: Stopwatch


@dataclass(frozen=True, slots=True)
class Ranking:
    """Parents, best first, near-duplicates folded. `reranked` is None where no reranker was asked."""

    parents: tuple[RankedParent, ...]
    found: Found
    fusion: Fusion
    reranked: Reranked | None

    @property
    def idf(self) -> Mapping[str, Mapping[str, float]]:
        return self.found.lexical.idf if self.found.lexical else {}

    @property
    def whole(self) -> bool:
        """Whether everything that was asked has answered, the blobs of token states included."""
        return not self.found.failed and (self.reranked is None or (self.reranked.done and not self.reranked.unread))

    @property
    def notes(self) -> list[str]:
        return list(self.reranked.notes) if self.reranked else []

    @property
    def numbers(self) -> dict[str, Any]:
        """Every number that entered a sum, but for those of single candidates."""
        rerank_numbers = dict(self.reranked.numbers) if self.reranked else {}
        return {"fusion": dict(self.fusion.numbers), "idf": {name: dict(weights) for name, weights in self.idf.items()}, "rerank": rerank_numbers}


async def rank(
    looking: Looking, ask: Ask, channels: Sequence[Channel], query: asyncio.Task[EmbeddedQuery] | None, wanted: int, depth: int | None = None
) -> Ranking:
    """At least the first `wanted` parents differ. With a `depth`, channels are asked again with more candidates until each has that many documents or
    gives no more."""
    async with reading(looking.snapshot) as views:
        with looking.watch.step("channels"):
            found = await _search(looking, ask, channels, query, depth, views.begin)
        with looking.watch.step("chunks"):
            chunks = await views.all()
            found = await _gated(looking.snapshot, ask, found, chunks)
    with looking.watch.step("fuse"):
        fusion = fuse(Lists(found.hits, found.complete, _pairs(ask, found, chunks)), chunks, ask.profile.fusion)
        parents = expand(fusion.candidates, ask.profile.rerank.expand)
    if looking.reranker is None or not parents:
        return Ranking(tuple(_folded(parents, ask.profile, wanted)), found, fusion, None)
    with looking.watch.step("rerank"):
        reranked = await rerank(parents, ask.plan.question, found.embedded, looking.reranker, looking.snapshot, looking.states, ask.profile.rerank)
    return Ranking(tuple(_folded(reranked.parents, ask.profile, wanted)), found, fusion, reranked)


async def _search(looking: Looking, ask: Ask, channels: Sequence[Channel], query: asyncio.Task[EmbeddedQuery] | None, depth: int | None, seen: Seen) -> Found:
    found = await ask_channels(looking.snapshot, ask, channels, query, looking.clock, seen)
    while depth is not None and (shallow := [channel for channel in found.hits if _shallow(found, channel, depth) and ask.k[channel] < DEEPEST]):
        ask = replace(ask, k={**ask.k, **{channel: min(2 * ask.k[channel], DEEPEST) for channel in shallow}})
        found = await ask_channels(looking.snapshot, ask, channels, query, looking.clock, seen)
    return found


def _shallow(found: Found, channel: Channel, depth: int) -> bool:
    return channel not in found.complete and len({hit.document_id for hit in found.hits[channel]}) < depth


async def _gated(snapshot: Snapshot, ask: Ask, found: Found, chunks: Mapping[UUID, ChunkView]) -> Found:
    """The size of the corpus is asked for only where the gate would close on something."""
    lexical: Sequence[Hit] = found.hits.get("lexical", ())
    if not foreign_hits(lexical, chunks, ask.plan):
        return found
    kept = keep_native(lexical, chunks, ask.plan, await snapshot.corpus_size(ask.tenant))
    return replace(found, hits={**found.hits, "lexical": kept})


def _pairs(ask: Ask, found: Found, chunks: Mapping[UUID, ChunkView]) -> dict[UUID, float]:
    if not ask.profile.fusion.bigram or found.lexical is None:
        return {}
    views = [chunks[hit.chunk_id] for hit in found.hits["lexical"] if hit.chunk_id in chunks]
    return pair_scores(ask.plan.question, views, found.lexical.idf)


def _folded(parents: Sequence[RankedParent], profile: Profile, wanted: int) -> Sequence[RankedParent]:
    return fold(parents, max(profile.rerank.parents, wanted), wanted) if profile.fusion.near_duplicates else parents
