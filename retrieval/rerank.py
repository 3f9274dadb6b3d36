"""Reranking: a closer look at the best parents."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal
from uuid import UUID

import numpy as np

from retrieval.expand import RankedParent, rescored
from retrieval.fuse import z_scores
from retrieval.states import StateReader
from schemas.errors import AnabranchError
from schemas.ports.engines import EmbeddedQuery, Passage, Reranker
from schemas.ports.search import ChunkView, Snapshot
from schemas.profiles import RerankProfile


@dataclass(frozen=True, slots=True)
class Reranked:
    """Parents, best first. `done` is False where the reranker could not look: then the fused order stands and `notes` say why.
    `unread` counts children whose token states are stored and could not be read."""

    parents: tuple[RankedParent, ...]
    done: bool
    notes: tuple[str, ...]
    numbers: Mapping[str, Any]
    children: Mapping[UUID, Sequence[ChunkView]]
    unread: int = 0

    @property
    def best(self) -> float | None:
        return max((parent.rerank for parent in self.parents if parent.rerank is not None), default=None)


async def rerank(
    parents: Sequence[RankedParent],
    question: str,
    query: EmbeddedQuery | None,
    reranker: Reranker,
    snapshot: Snapshot,
    states: StateReader,
    profile: RerankProfile,
) -> Reranked:
    """The first `profile.parents` are offered. `added`: fused score + weight × z of the rerank score; `replaces`: the reranker's order, the rest behind."""
    offered, rest = parents[: profile.parents], parents[profile.parents :]
    if reranker.role == "added" and (query is None or query.states is None):
        return _unchanged(parents, "not reranked: the question has no token states")
    passages, children, unread = await _passages(offered, reranker, snapshot, states)
    if reranker.role == "added" and not any(passage.states for passage in passages):
        return _unchanged(parents, "not reranked: no token states are stored for these passages")
    try:
        async with asyncio.timeout(profile.timeout_s):
            scores = await reranker.rerank(question, query, passages)
    except AnabranchError as error:
        return _unchanged(parents, f"not reranked: {error.detail}")
    except TimeoutError:
        return _unchanged(parents, f"not reranked: {reranker.name} gave no answer within {profile.timeout_s:g} s")
    missing = sum(not passage.states for passage in passages)
    notes = (f"{missing} of {len(passages)} passages were reranked without token states",) if missing and reranker.role == "added" else ()
    scored = {passage.id: score for passage, score in zip(passages, scores, strict=True) if reranker.role == "replaces" or passage.states}
    return replace(combined(offered, rest, scored, reranker.role, profile, notes, children), unread=unread)


async def _passages(
    offered: Sequence[RankedParent], reranker: Reranker, snapshot: Snapshot, states: StateReader
) -> tuple[list[Passage], dict[UUID, list[ChunkView]], int]:
    """What the reranker reads of each parent, and how many children have states that could not be read."""
    ids = [parent.parent_id for parent in offered]
    if reranker.role == "replaces":
        texts = await snapshot.parents(ids)
        return [Passage(parent_id, texts[parent_id].text) for parent_id in ids if parent_id in texts], {}, 0
    children = _by_parent(await snapshot.children(ids))
    asked = [child for family in children.values() for child in family]
    read = await states.read(asked)
    passages = []
    for parent in offered:
        family = children.get(parent.parent_id) or [parent.best.chunk]
        found = [read[child.chunk_id] for child in family if child.chunk_id in read]
        text = "\n".join(child.text for child in family)
        passages.append(Passage(parent.parent_id, text, tuple(rows for rows, _ in found), tuple(ids for _, ids in found)))
    return passages, children, sum(child.chunk_id not in read for child in asked if child.states is not None and child.states[2] > 0)


def _by_parent(children: Sequence[ChunkView]) -> dict[UUID, list[ChunkView]]:
    families: dict[UUID, list[ChunkView]] = {}
    for child in sorted(children, key=lambda child: child.ordinal):
        families.setdefault(child.parent_id, []).append(child)
    return families


def combined(
    offered: Sequence[RankedParent],
    rest: Sequence[RankedParent],
    scores: Mapping[UUID, float],
    role: Literal["added", "replaces"],
    profile: RerankProfile,
    notes: tuple[str, ...],
    children: Mapping[UUID, Sequence[ChunkView]],
) -> Reranked:
    """Fused scores and rerank scores as one order. `scores` are of offered parents, in their order; not empty."""
    values = np.array(list(scores.values()), np.float64)
    numbers = {"mean": float(values.mean()), "deviation": float(values.std()), "weight": profile.weight, "role": role, "offered": len(offered)}
    if role == "replaces":
        seen = [rescored(parent, scores[parent.parent_id], scores[parent.parent_id], {}) for parent in offered if parent.parent_id in scores]
        unseen = [parent for parent in (*offered, *rest) if parent.parent_id not in scores]
        return Reranked((*sorted(seen, key=lambda parent: parent.order), *_behind(unseen, float(values.min()))), True, notes, numbers, children)
    z = dict(zip(scores, z_scores(values), strict=True))
    least = min(z.values())
    added = [_added(parent, scores.get(parent.parent_id), z.get(parent.parent_id, least), profile.weight) for parent in (*offered, *rest)]
    return Reranked(tuple(sorted(added, key=lambda parent: parent.order)), True, notes, numbers, children)


def _behind(unseen: Sequence[RankedParent], least: float) -> list[RankedParent]:
    """In their order and at their distances from each other, from the least score that was given downwards: scores of one list fall."""
    return [rescored(parent, least - (unseen[0].score - parent.score), None, {}) for parent in unseen]


def _added(parent: RankedParent, score: float | None, z: float, weight: float) -> RankedParent:
    """A parent that was not offered, or has no states, counts as the least that was."""
    return rescored(parent, parent.score + weight * float(z), score, {"rerank_z": float(z)})


def _unchanged(parents: Sequence[RankedParent], note: str) -> Reranked:
    return Reranked(tuple(parents), False, (note,), {}, {})
