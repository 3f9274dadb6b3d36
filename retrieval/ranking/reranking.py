"""Rerank the best parents with a more expensive model."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from retrieval.question.words import LexemeIndex, extract_content_words, find_words
from retrieval.ranking.fusion import compute_z_scores
from retrieval.ranking.passages import RankedParent, replace_score
from schemas.errors import AnabranchError
from schemas.ports.engines import (
    BlobStore,
    Embedder,
    QueryEmbedding,
    Reranker,
    RerankPassage,
    TokenSpans,
    TokenWeighting,
)
from schemas.ports.search import ChildStates, ChunkView, IndexSnapshot
from schemas.profiles import RerankProfile
from schemas.values import format_embedding_text


@dataclass(frozen=True, slots=True)
class RerankResult:
    """Parents, best first.

    When the reranker could not run, `is_reranked` is False, the fused order stands and `notes` say
    why. `unread_states_count` counts children whose stored token states could not be read, and
    `requests` those to a server.
    """

    parents: tuple[RankedParent, ...]
    is_reranked: bool
    notes: tuple[str, ...]
    numbers: Mapping[str, Any]
    unread_states_count: int = 0
    requests: int = 0

    @property
    def best(self) -> float | None:
        return max(
            (parent.rerank_score for parent in self.parents if parent.rerank_score is not None),
            default=None,
        )


async def rerank_parents(
    parents: Sequence[RankedParent],
    question: str,
    query: QueryEmbedding | None,
    reranker: Reranker,
    snapshot: IndexSnapshot,
    states: TokenStateReader,
    profile: RerankProfile,
    *,
    names_document: bool = False,
    weigh_tokens: WeighTokens | None = None,
) -> RerankResult:
    """Rerank the first `profile.parents` parents.

    `added`: fused score + weight × z-score of the reranker's order, part of which is by the weights
    of `weigh_tokens`. `replaces`: the reranker's order, followed by the parents
    that it did not score.
    """
    offered, rest = parents[: profile.parents], parents[profile.parents :]
    # Late interaction compares token states: without them every score would be 0.
    if reranker.role == "added" and (query is None or query.states is None):
        return _keep_fused_order(parents, "not reranked: the question has no token states")
    passages, unread = await _build_passages(offered, reranker, snapshot, states)
    if reranker.role == "added" and not any(passage.states for passage in passages):
        return _keep_fused_order(
            parents, "not reranked: no token states are stored for these passages"
        )
    requests = reranker.count_requests(len(passages))
    try:
        async with asyncio.timeout(profile.timeout_s):
            weighting = await weigh_tokens() if reranker.role == "added" and weigh_tokens else None
            scores = await reranker.rerank(question, query, passages, weighting)
    except AnabranchError as error:
        return _keep_fused_order(parents, f"not reranked: {error.detail}", requests)
    except TimeoutError:
        note = f"not reranked: {reranker.name} timed out after {profile.timeout_s:g} s"
        return _keep_fused_order(parents, note, requests)
    n_without_states = sum(not passage.states for passage in passages)
    notes = (
        (f"{n_without_states} of {len(passages)} passages were reranked without token states",)
        if n_without_states and reranker.role == "added"
        else ()
    )
    # A late-interaction score without states is a constant 0 and must not count as one.
    scored = {
        passage.id: score
        for passage, score in zip(passages, scores, strict=True)
        if reranker.role == "replaces" or passage.states
    }
    reranked = combine_scores(
        offered,
        rest,
        {parent_id: item.score for parent_id, item in scored.items()},
        reranker.role,
        profile.weight * (profile.named_factor if names_document else 1.0),
        notes,
        order={parent_id: item.order for parent_id, item in scored.items()},
    )
    return replace(reranked, unread_states_count=unread, requests=requests)


async def _build_passages(
    offered: Sequence[RankedParent],
    reranker: Reranker,
    snapshot: IndexSnapshot,
    states: TokenStateReader,
) -> tuple[list[RerankPassage], int]:
    """Build the passages to score; also return the number of unreadable token states."""
    ids = [parent.parent_id for parent in offered]
    if reranker.role == "replaces":
        # A cross-encoder reads the passage's text; late interaction reads its children's states.
        texts = await snapshot.fetch_parents(ids)
        return (
            [
                RerankPassage(parent_id, texts[parent_id].text)
                for parent_id in ids
                if parent_id in texts
            ],
            0,
        )
    children = await snapshot.fetch_child_states(ids)
    children_by_parent: dict[UUID, list[ChildStates]] = {}
    for child in children:
        children_by_parent.setdefault(child.parent_id, []).append(child)
    states_by_chunk = await states.read(children)
    passages = []
    for parent in offered:
        read_children = [
            child
            for child in children_by_parent.get(parent.parent_id, ())
            if child.chunk_id in states_by_chunk
        ]
        passage_states = [states_by_chunk[child.chunk_id] for child in read_children]
        passages.append(
            RerankPassage(
                parent.parent_id,
                "",
                tuple(rows for rows, _ in passage_states),
                tuple(ids for _, ids in passage_states),
                tuple(child.background for child in read_children),
            )
        )
    return (
        passages,
        sum(
            # A stored length of 0 means that there are no states to read, which is no failure.
            child.chunk_id not in states_by_chunk
            for child in children
            if child.states is not None and child.states[2] > 0
        ),
    )


def combine_scores(
    offered: Sequence[RankedParent],
    rest: Sequence[RankedParent],
    scores: Mapping[UUID, float],
    role: Literal["added", "replaces"],
    weight: float,
    notes: tuple[str, ...],
    *,
    order: Mapping[UUID, float] | None = None,
) -> RerankResult:
    """Combine fused scores and rerank scores into one order.

    `scores` belong to offered parents, in their order, and are not empty. `order` has other scores
    of the same parents, which are standardized and added in their place.
    """
    added = scores if order is None else order
    values = np.array(list(added.values()), np.float64)
    numbers = {
        "mean": float(values.mean()),
        "deviation": float(values.std()),
        "weight": weight,
        "role": role,
        "offered": len(offered),
    }
    if role == "replaces":
        parents = _replace_scores((*offered, *rest), scores, float(values.min()))
        return RerankResult(parents, True, notes, numbers)
    z_by_parent = dict(zip(added, compute_z_scores(values).tolist(), strict=True))
    # A parent must gain nothing from lacking a score.
    lowest_z = min(z_by_parent.values())
    rescored_parents = []
    for parent in (*offered, *rest):
        z = z_by_parent.get(parent.parent_id, lowest_z)
        rescored_parents.append(
            replace_score(
                parent,
                parent.score + weight * z,
                scores.get(parent.parent_id),
                {"rerank_z": z, **_get_order_part(parent, order)},
            )
        )
    return RerankResult(
        tuple(sorted(rescored_parents, key=lambda parent: parent.sort_key)), True, notes, numbers
    )


def _replace_scores(
    parents: Sequence[RankedParent], scores: Mapping[UUID, float], lowest: float
) -> tuple[RankedParent, ...]:
    scored = [
        replace_score(parent, scores[parent.parent_id], scores[parent.parent_id], {})
        for parent in parents
        if parent.parent_id in scores
    ]
    unscored = [parent for parent in parents if parent.parent_id not in scores]
    return (
        *sorted(scored, key=lambda parent: parent.sort_key),
        # Below the lowest rerank score, so that scores fall along the list.
        *(
            replace_score(parent, lowest - (unscored[0].score - parent.score), None, {})
            for parent in unscored
        ),
    )


def _get_order_part(
    parent: RankedParent, order: Mapping[UUID, float] | None
) -> Mapping[str, float]:
    if order is None or parent.parent_id not in order:
        return {}
    return {"rerank_order": order[parent.parent_id]}


def _keep_fused_order(
    parents: Sequence[RankedParent], note: str, requests: int = 0
) -> RerankResult:
    return RerankResult(tuple(parents), False, (note,), {}, requests=requests)


# Returns one weight per token of the question, or None to let the reranker weigh them. Raises
# EngineUnavailable.
WeighTokens = Callable[[], Awaitable[TokenWeighting | None]]
TokenStates = tuple[NDArray[np.float32], NDArray[np.int32]]
# Stored bytes → (unit states [tokens, dimension], token ids [tokens]). Raises ValueError for other
# bytes.
UnpackTokenStates = Callable[[bytes], TokenStates]
DEFAULT_CACHE_BYTES = 64 * 1024 * 1024
# Blob key, offset, length.
StatesLocation = tuple[str, int, int]


class TokenStateReader:
    """Read token states, with one call for all ranges of a blob, through an LRU cache of their
    bytes, which take a quarter of the memory.
    """

    def __init__(
        self, blobs: BlobStore, unpack: UnpackTokenStates, cache_bytes: int = DEFAULT_CACHE_BYTES
    ) -> None:
        self._blobs, self._unpack, self._max_cached_bytes = blobs, unpack, cache_bytes
        self._cache: OrderedDict[StatesLocation, bytes] = OrderedDict()
        self._cached_bytes = 0

    async def read(self, chunks: Sequence[ChunkView | ChildStates]) -> dict[UUID, TokenStates]:
        """Return states by chunk id.

        Chunks without states, or whose blob is missing, damaged or unavailable, are left out.
        """
        location_by_chunk = {
            chunk.chunk_id: chunk.states
            for chunk in chunks
            if chunk.states is not None and chunk.states[2] > 0
        }
        locations = list(dict.fromkeys(location_by_chunk.values()))
        data = {
            location: cached
            for location in locations
            if (cached := self._get_cached(location)) is not None
        }
        fetched = await self._fetch([location for location in locations if location not in data])
        # Blocks for milliseconds, so it stays off the event loop.
        states = await asyncio.to_thread(self._unpack_all, {**data, **fetched})
        for location, packed in fetched.items():
            if location in states:
                self._store(location, packed)
        return {
            chunk_id: states[location]
            for chunk_id, location in location_by_chunk.items()
            if location in states
        }

    async def read_located(
        self, chunks: Mapping[UUID, ChunkView], embedder: Embedder
    ) -> dict[UUID, tuple[TokenStates, TokenSpans]] | None:
        """Return the states of the chunks with the places of their tokens in the chunks' texts.

        None unless all are stored. Long texts are cut before the embedding, and another program
        version may have embedded other texts.
        """
        states = await self.read(list(chunks.values()))
        if len(states) < len(chunks):
            return None
        texts = [format_embedding_text(chunk.prefix, chunk.text) for chunk in chunks.values()]
        located = {
            chunk.chunk_id: (
                states[chunk.chunk_id],
                spans - len(format_embedding_text(chunk.prefix, "")),
            )
            for chunk, spans in zip(
                chunks.values(), await embedder.locate_tokens(texts), strict=True
            )
        }
        fits = all(len(rows) == len(spans) for (rows, _), spans in located.values())
        return located if fits else None

    def _unpack_all(
        self, packed_by_location: Mapping[StatesLocation, bytes]
    ) -> dict[StatesLocation, TokenStates]:
        states = {}
        for location, packed in packed_by_location.items():
            # Damaged bytes cost these passages their rerank score, not the query its answer.
            with suppress(ValueError):
                states[location] = self._unpack(packed)
        return states

    async def _fetch(self, locations: Sequence[StatesLocation]) -> dict[StatesLocation, bytes]:
        by_blob: dict[str, list[StatesLocation]] = {}
        for location in locations:
            by_blob.setdefault(location[0], []).append(location)
        parts = await asyncio.gather(
            *(self._fetch_blob(key, blob_locations) for key, blob_locations in by_blob.items())
        )
        return {location: packed for part in parts for location, packed in part.items()}

    async def _fetch_blob(
        self, key: str, locations: Sequence[StatesLocation]
    ) -> Mapping[StatesLocation, bytes]:
        try:
            data = await self._blobs.get_ranges(
                key, [(offset, length) for _, offset, length in locations]
            )
        # As above.
        except AnabranchError:
            return {}
        return dict(zip(locations, data, strict=True))

    def _get_cached(self, location: StatesLocation) -> bytes | None:
        if location in self._cache:
            self._cache.move_to_end(location)
        return self._cache.get(location)

    def _store(self, location: StatesLocation, packed: bytes) -> None:
        # Concurrent queries may have fetched the same location: count its bytes once.
        if location not in self._cache:
            self._cached_bytes += location[2]
        self._cache[location] = packed
        while self._cached_bytes > self._max_cached_bytes and self._cache:
            (_, _, length), _ = self._cache.popitem(last=False)
            self._cached_bytes -= length


def weigh_tokens(
    text: str, spans: TokenSpans, language: str | None, idf: Mapping[str, Mapping[str, float]]
) -> NDArray[np.float32] | None:
    """Return one weight per token of `text`, 0 outside topical words; None without any weight.

    Of several text search configurations the first counts, which is that of the documents in which
    the words are most frequent. Words that it does not know weigh as much as the mean of the
    others.
    """
    weights_by_lexeme = next(iter(idf.values()), {})
    lexemes = LexemeIndex(weights_by_lexeme)
    content_words = set(extract_content_words(text, language))
    words = [
        (start, end, lexemes.find(word))
        for word, start, end in find_words(text)
        if word in content_words
    ]
    known = [weights_by_lexeme[lexeme] for _, _, lexeme in words if lexeme]
    if not known:
        return None
    weights = np.zeros(len(spans), np.float32)
    for start, end, lexeme in words:
        weight = weights_by_lexeme[lexeme] if lexeme else float(np.mean(known))
        weights[(spans[:, 0] < end) & (spans[:, 1] > start)] = weight
    return weights if weights.any() else None
