"""Fusion: one score from the channels, with every number that entered it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from schemas.ports.search import ChunkView, Hit
from schemas.profiles import FusionProfile
from schemas.questions import Channel, ChannelPlace

Floats = NDArray[np.float64]

FEWEST = 20
"""Candidates below which a mean and a deviation say nothing: then reciprocal ranks are fused."""


@dataclass(frozen=True, slots=True)
class Fused:
    """A child chunk with its fused score; `parts` are the addends by name and what they were made of."""

    chunk: ChunkView
    score: float
    places: Mapping[Channel, ChannelPlace]
    parts: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Fusion:
    """Candidates, best first, equal scores in the order of their ids. `numbers` holds method, weights, means and deviations."""

    candidates: tuple[Fused, ...]
    numbers: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Lists:
    """What is fused: each channel's hits, which channels gave all they had, and the word-pair scores of chunks."""

    hits: Mapping[Channel, Sequence[Hit]]
    complete: frozenset[Channel] = frozenset()
    pairs: Mapping[UUID, float] | None = None


def fuse(lists: Lists, chunks: Mapping[UUID, ChunkView], profile: FusionProfile) -> Fusion:
    """The sum of z-scores, or weighted reciprocal ranks where the profile says so or where deviations say nothing. Does not depend on the order of the hits."""
    places = {channel: _places(hits, chunks) for channel, hits in lists.hits.items() if hits}
    ids = sorted({chunk_id for found in places.values() for chunk_id in found})
    if profile.method == "zscore" and len(ids) >= FEWEST:
        fusion = _z_sums(ids, places, lists, chunks, profile)
        if fusion is not None:
            return fusion
    return _reciprocal_ranks(ids, places, chunks, profile)


def _places(hits: Sequence[Hit], chunks: Mapping[UUID, ChunkView]) -> dict[UUID, ChannelPlace]:
    best = {hit.chunk_id: hit.score for hit in sorted(hits, key=lambda hit: hit.score) if hit.chunk_id in chunks}
    ordered = sorted(best, key=lambda chunk_id: (-best[chunk_id], chunk_id))
    return {chunk_id: ChannelPlace(rank=rank, score=best[chunk_id]) for rank, chunk_id in enumerate(ordered, 1)}


def _z_sums(
    ids: list[UUID],
    places: Mapping[Channel, Mapping[UUID, ChannelPlace]],
    lists: Lists,
    chunks: Mapping[UUID, ChunkView],
    profile: FusionProfile,
) -> Fusion | None:
    """`Σ weight × (score − mean) / deviation` over the union of the candidates; None when every channel's deviation is zero."""
    total = np.zeros(len(ids))
    parts: dict[str, Floats] = {}
    numbers: dict[str, Any] = {"method": "zscore", "candidates": len(ids)}
    for channel, found in places.items():
        values = _filled(ids, found, complete=channel in lists.complete)
        if channel == "lexical" and profile.bigram and lists.pairs:
            pairs = np.array([lists.pairs.get(chunk_id, 0.0) for chunk_id in ids])
            values, parts["word_pairs"] = values + profile.bigram * pairs, pairs
        mean, deviation = float(values.mean()), float(values.std())
        weight = weight_of(channel, profile)
        numbers[channel] = {"weight": weight, "mean": mean, "deviation": deviation}
        parts[f"{channel}_z"] = z_scores(values)
        total += weight * parts[f"{channel}_z"]
    if not any(numbers[channel]["deviation"] for channel in places):
        return None
    return _fusion(ids, total, parts, places, chunks, numbers)


def _filled(ids: list[UUID], found: Mapping[UUID, ChannelPlace], *, complete: bool) -> Floats:
    """Scores of the union. A chunk that the channel missed scores its least hit, an upper bound; or 0 if the channel gave all it had."""
    least = 0.0 if complete else min(place.score for place in found.values())
    return np.array([found[chunk_id].score if chunk_id in found else least for chunk_id in ids])


def z_scores(values: Floats) -> Floats:
    """(value − mean) / deviation; zeros where all values are equal."""
    deviation = values.std()
    return (values - values.mean()) / deviation if deviation > 1e-12 else np.zeros(len(values))


def _reciprocal_ranks(
    ids: list[UUID], places: Mapping[Channel, Mapping[UUID, ChannelPlace]], chunks: Mapping[UUID, ChunkView], profile: FusionProfile
) -> Fusion:
    """Weighted reciprocal rank fusion (Cormack, Clarke and Büttcher 2009) as a share of the most that the channels that answered can give."""
    most = sum(weight_of(channel, profile) / (profile.rrf_k + 1) for channel in places) or 1.0
    parts = {
        f"{channel}_rrf": np.array(
            [weight_of(channel, profile) / (profile.rrf_k + found[chunk_id].rank) / most if chunk_id in found else 0.0 for chunk_id in ids]
        )
        for channel, found in places.items()
    }
    total = np.sum(list(parts.values()), axis=0) if parts else np.zeros(len(ids))
    numbers: dict[str, Any] = {"method": "rrf", "candidates": len(ids), "k": profile.rrf_k, "most": most}
    numbers.update({channel: {"weight": weight_of(channel, profile)} for channel in places})
    return _fusion(ids, total, parts, places, chunks, numbers)


def weight_of(channel: Channel, profile: FusionProfile) -> float:
    return {"lexical": profile.lexical, "semantic": profile.semantic, "graph": profile.graph}[channel]


def _fusion(
    ids: list[UUID],
    total: Floats,
    parts: Mapping[str, Floats],
    places: Mapping[Channel, Mapping[UUID, ChannelPlace]],
    chunks: Mapping[UUID, ChunkView],
    numbers: Mapping[str, Any],
) -> Fusion:
    scores, names = total.tolist(), tuple(parts)
    columns = zip(*(values.tolist() for values in parts.values()), strict=True)
    candidates = [
        Fused(chunks[chunk_id], score, {channel: found[chunk_id] for channel, found in places.items() if chunk_id in found}, dict(zip(names, row, strict=True)))
        for chunk_id, score, row in zip(ids, scores, columns, strict=True)
    ]
    return Fusion(tuple(sorted(candidates, key=lambda item: (-item.score, item.chunk.chunk_id))), numbers)
