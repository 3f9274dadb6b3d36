"""Fuse the channels' scores into one, and keep every number that entered it.

Beside the channels, terms of freshness, metadata, entity overlap, hop and edge type are added with
their weights; each lies in 0..1, or is a weight of the profile (`edge_type`).

Word pairs add BM25 over adjacent words of the query to the lexical score, from the word positions
of the candidates: nothing is stored. The idf of a pair is taken as 0.8 × the sum of its words' idf,
since counting pairs would need tens of millions of terms. Words that the question shares with hits
in another language say little about them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from itertools import pairwise
from typing import Any
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from retrieval.question.query_plan import QueryPlan
from retrieval.question.words import (
    LexemeIndex,
    extract_content_words,
    extract_word_keys,
    stem_word,
)
from schemas.channels import Channel
from schemas.generations import LexicalConfig
from schemas.ports.search import ChunkView, EntitySeed, Hit, RankingFacts
from schemas.profiles import FusionProfile
from schemas.questions import ChannelRank

# Chunks of the tenant below which hits in another language than the question count: a name that
# both share may be the only match. In larger corpora they are dropped.
FOREIGN_BELOW = 200
# Candidates below which `zscore` combines reciprocal ranks too: mean and deviation of a few scores
# say little.
MIN_CANDIDATES = 20
# The weight `bridged` beside reciprocal ranks, which lie in 0 to 1.
RRF_BRIDGED = 1.0
TERM_NAMES = ("freshness", "metadata", "entity_overlap", "hop", "edge_type")


def score_terms(
    facts: Mapping[UUID, RankingFacts],
    plan: QueryPlan,
    seeds: Sequence[EntitySeed],
    profile: FusionProfile,
    today: date,
) -> dict[str, dict[UUID, float]]:
    """Return the terms that have a weight, by name and chunk."""
    question_keys = extract_word_keys(plan.question)
    scorers: Mapping[str, Callable[[RankingFacts], float]] = {
        "freshness": lambda fact: compute_freshness(
            fact.document_date, today, profile.freshness_half_life_days
        ),
        "metadata": lambda fact: match_labels(fact.labels, question_keys),
        "entity_overlap": lambda fact: compute_entity_overlap(fact.seed_keys, seeds),
        "hop": lambda fact: 0.0 if fact.hop is None else 1 / (1 + fact.hop),
        "edge_type": lambda fact: max(
            (profile.edge_types.get(name, 0.0) for name in fact.relation_types), default=0.0
        ),
    }
    return {
        name: {chunk_id: scorers[name](fact) for chunk_id, fact in facts.items()}
        for name in profile.term_weights
    }


def compute_freshness(document_date: date | None, today: date, half_life_days: float) -> float:
    if document_date is None:
        return 0.0
    return float(0.5 ** (max(0, (today - document_date).days) / half_life_days))


def match_labels(labels: Iterable[str], question_keys: set[str]) -> float:
    """Return 1 - 2^-n for the n distinct labels all of whose words the question holds."""
    label_keys = {frozenset(extract_word_keys(label)) for label in labels}
    count = sum(bool(keys) and keys <= question_keys for keys in label_keys)
    return 1 - 0.5**count


def compute_entity_overlap(seed_keys: frozenset[str], seeds: Sequence[EntitySeed]) -> float:
    """Return the share of the seeds, by weight, that are among the keys."""
    # A name may be linked to entities of several types: the weightiest counts.
    weights: dict[str, float] = {}
    for seed in seeds:
        weights[seed.key] = max(seed.weight, weights.get(seed.key, 0.0))
    total = sum(weights.values())
    return sum(weights[key] for key in seed_keys if key in weights) / total if total else 0.0


def find_foreign_hits(
    hits: Sequence[Hit], chunks: Mapping[UUID, ChunkView], plan: QueryPlan
) -> list[Hit]:
    """Return hits in documents of another language; none if the query's language is uncertain."""
    return [
        hit
        for hit in hits
        if hit.chunk_id in chunks and plan.is_foreign(chunks[hit.chunk_id].language)
    ]


def filter_foreign_hits(
    hits: Sequence[Hit],
    chunks: Mapping[UUID, ChunkView],
    plan: QueryPlan,
    corpus_size: int,
) -> list[Hit]:
    """Return the hits without foreign ones; all of them in a small corpus."""
    foreign = (
        {hit.chunk_id for hit in find_foreign_hits(hits, chunks, plan)}
        if corpus_size >= FOREIGN_BELOW
        else set()
    )
    return [hit for hit in hits if hit.chunk_id not in foreign]


Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class FusedCandidate:
    """A child chunk with its fused score.

    `score_parts` contains the addends by name and their inputs.
    """

    chunk: ChunkView
    score: float
    channel_places: Mapping[Channel, ChannelRank]
    score_parts: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Fusion:
    """Candidates, best first, ties by chunk id. `numbers` holds method, weights, means and
    deviations.
    """

    candidates: tuple[FusedCandidate, ...]
    numbers: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class FusionInput:
    """Hits by channel, exhausted channels and word-pair scores by chunk.

    `complete_channels` returned every hit they have, so a chunk that they lack scores 0 there.
    `lexical_coverage` is the share of the query's idf mass that the best lexical hit holds.
    `backgrounds` are the semantic scores of general questions with the chunks.
    `named` weighs the chunks of documents that the question names, and `bridged` those that bridges
    lead to, found by a channel or not; `titles` are those of `score_titles`. `weight_factors` of
    the plan multiply the channels' weights. `terms` are those of
    `retrieval.ranking.fusion` that have a weight.
    """

    hits: Mapping[Channel, Sequence[Hit]]
    complete_channels: frozenset[Channel] = frozenset()
    pair_scores: Mapping[UUID, float] | None = None
    lexical_coverage: float = 1.0
    backgrounds: Mapping[UUID, float] = field(default_factory=dict)
    named: Mapping[UUID, float] = field(default_factory=dict)
    bridged: Mapping[UUID, float] = field(default_factory=dict)
    titles: Mapping[UUID, float] = field(default_factory=dict)
    weight_factors: Mapping[Channel, float] = field(default_factory=dict)
    terms: Mapping[str, Mapping[UUID, float]] = field(default_factory=dict)


def fuse_candidates(
    inputs: FusionInput, chunks: Mapping[UUID, ChunkView], profile: FusionProfile
) -> Fusion:
    """Fuse by the sum of z-scores, or by weighted reciprocal ranks.

    Reciprocal ranks are used when the profile says so, or when candidates are too few or their
    scores all equal. The result does not depend on the order of the hits.
    """
    places = {channel: _rank_hits(hits, chunks) for channel, hits in inputs.hits.items() if hits}
    # Sorted, so that floating-point sums do not depend on which channel answered first.
    ids = sorted(
        {chunk_id for places_by_chunk in places.values() for chunk_id in places_by_chunk}
        | ((inputs.named.keys() | inputs.bridged.keys()) & chunks.keys())
    )
    fuser = _Fuser(ids, places, inputs, chunks, profile)
    if profile.method == "zscore" and len(ids) >= MIN_CANDIDATES:
        fusion = fuser.fuse_z_scores()
        if fusion is not None:
            return fusion
    return fuser.fuse_reciprocal_ranks()


def _rank_hits(hits: Sequence[Hit], chunks: Mapping[UUID, ChunkView]) -> dict[UUID, ChannelRank]:
    # Ascending, so that the best of repeated hits is the one that stays in the dict.
    best = {
        hit.chunk_id: hit.score
        for hit in sorted(hits, key=lambda hit: hit.score)
        if hit.chunk_id in chunks
    }
    ordered = sorted(best, key=lambda chunk_id: (-best[chunk_id], chunk_id))
    return {
        chunk_id: ChannelRank(rank=rank, score=best[chunk_id])
        for rank, chunk_id in enumerate(ordered, 1)
    }


@dataclass(frozen=True, slots=True)
class _Fuser:
    """Candidates with their places by channel."""

    ids: list[UUID]
    places: Mapping[Channel, Mapping[UUID, ChannelRank]]
    inputs: FusionInput
    chunks: Mapping[UUID, ChunkView]
    profile: FusionProfile

    def fuse_z_scores(self) -> Fusion | None:
        """Sum `weight × (score − mean) / deviation`; None when every deviation is zero."""
        inputs, profile = self.inputs, self.profile
        total = np.zeros(len(self.ids))
        parts: dict[str, Floats] = {}
        numbers: dict[str, Any] = {"method": "zscore", "candidates": len(self.ids)}
        for channel, places_by_chunk in self.places.items():
            scores = {chunk_id: place.score for chunk_id, place in places_by_chunk.items()}
            if channel == "semantic" and inputs.backgrounds:
                parts["semantic_background"] = self._list_scores(inputs.backgrounds)
                if not inputs.named:
                    scores = {
                        chunk_id: score - profile.background * inputs.backgrounds.get(chunk_id, 0.0)
                        for chunk_id, score in scores.items()
                    }
            # A chunk that the channel did not return scores the channel's lowest hit (an upper
            # bound), or 0 when the channel is complete.
            is_complete = channel in inputs.complete_channels
            values = self._list_scores(scores, 0.0 if is_complete else min(scores.values()))
            if channel == "lexical" and profile.bigram and inputs.pair_scores:
                parts["word_pairs"] = self._list_scores(inputs.pair_scores)
                values = values + profile.bigram * parts["word_pairs"]
            # Over the candidates, not the corpus, which would cost extra reads for .002 to .005
            # nDCG.
            mean, deviation = float(values.mean()), float(values.std())
            weight = self._compute_weight(channel)
            numbers[channel] = {"weight": weight, "mean": mean, "deviation": deviation}
            parts[f"{channel}_z"] = compute_z_scores(values)
            total += weight * parts[f"{channel}_z"]
        if not any(numbers[channel]["deviation"] for channel in self.places):
            return None
        return self._build_fusion(total, parts, numbers)

    def fuse_reciprocal_ranks(self) -> Fusion:
        """Fuse by weighted reciprocal rank (Cormack, Clarke and Büttcher 2009).

        Scores are a share of the maximum that the channels with hits can reach.
        """
        rrf_k = self.profile.rrf_k
        # `or 1.0`: without hits or with zero weights there is nothing to divide by.
        weights = {channel: self._compute_weight(channel) for channel in self.places}
        max_sum = sum(weight / (rrf_k + 1) for weight in weights.values()) or 1.0
        parts = {
            f"{channel}_rrf": self._list_scores(
                {
                    chunk_id: weights[channel] / (rrf_k + place.rank) / max_sum
                    for chunk_id, place in places_by_chunk.items()
                }
            )
            for channel, places_by_chunk in self.places.items()
        }
        total = np.sum(list(parts.values()), axis=0) if parts else np.zeros(len(self.ids))
        numbers: dict[str, Any] = {
            "method": "rrf",
            "candidates": len(self.ids),
            "k": rrf_k,
            "most": max_sum,
        }
        numbers.update({channel: {"weight": weight} for channel, weight in weights.items()})
        return self._build_fusion(total, parts, numbers)

    def _list_scores(self, scores: Mapping[UUID, float], default: float = 0.0) -> Floats:
        """Return one score per candidate."""
        return np.array([scores.get(chunk_id, default) for chunk_id in self.ids])

    def _compute_weight(self, channel: Channel) -> float:
        """Return the weight of a channel: for words less where they have little evidence, for
        meaning and graph by another factor where the question names no document.

        A question that shares few words with every passage is a paraphrase, or in another language.
        The lexical scores are then noise, which standardizing would blow up.
        """
        inputs, profile = self.inputs, self.profile
        weight = profile.get_weight(channel) * inputs.weight_factors.get(channel, 1.0)
        if channel == "semantic" and not inputs.named:
            return weight * profile.unnamed_semantic
        if channel == "graph" and not inputs.named:
            return weight * profile.unnamed_graph
        return weight * compute_word_evidence(inputs, profile) if channel == "lexical" else weight

    def _build_fusion(
        self, total: Floats, parts: dict[str, Floats], numbers: dict[str, Any]
    ) -> Fusion:
        inputs, profile = self.inputs, self.profile
        # Not standardized: to be named is evidence by itself, however many others are named.
        if "lexical" in self.places:
            numbers["lexical"]["coverage"] = inputs.lexical_coverage
        term_weights = profile.term_weights
        is_rrf = numbers["method"] == "rrf"
        title_weight = 0.0 if is_rrf else profile.title * compute_word_evidence(inputs, profile)
        for name, scores_by_chunk, weight in (
            ("named", inputs.named, profile.named),
            ("bridged", inputs.bridged, RRF_BRIDGED if is_rrf else profile.bridged),
            ("title", inputs.titles, title_weight),
            *((name, inputs.terms.get(name, {}), weight) for name, weight in term_weights.items()),
        ):
            if scores_by_chunk:
                parts[name] = self._list_scores(scores_by_chunk)
                total = total + weight * parts[name]
                numbers[name] = {"weight": weight}
        columns = zip(*(values.tolist() for values in parts.values()), strict=True)
        candidates = [
            FusedCandidate(
                self.chunks[chunk_id],
                score,
                {
                    channel: places_by_chunk[chunk_id]
                    for channel, places_by_chunk in self.places.items()
                    if chunk_id in places_by_chunk
                },
                dict(zip(parts, row, strict=True)),
            )
            for chunk_id, score, row in zip(self.ids, total.tolist(), columns, strict=True)
        ]
        return Fusion(
            tuple(sorted(candidates, key=lambda item: (-item.score, item.chunk.chunk_id))), numbers
        )


def compute_word_evidence(inputs: FusionInput, profile: FusionProfile) -> float:
    """Return how much the question's words count, from 0 to 1."""
    if not profile.full_coverage:
        return 1.0
    return min(1.0, inputs.lexical_coverage / profile.full_coverage)


def compute_z_scores(values: Floats) -> Floats:
    """Return (value − mean) / deviation; zeros when all values are equal."""
    deviation = values.std()
    return (values - values.mean()) / deviation if deviation > 1e-12 else np.zeros(len(values))


def compute_lexical_coverage(best_score: float, idf: Mapping[str, Mapping[str, float]]) -> float:
    """Return the share of the query's idf mass that a score holds: 1 for every lexeme once in a
    chunk of average length, more for repeated ones. Lexemes that no chunk has count.
    """
    mass = max((sum(weights.values()) for weights in idf.values()), default=0.0)
    return best_score / mass if mass else 0.0


IDF_SHARE = 0.8
# Chunk views lack their length in lexemes, so it is estimated from the characters.
_LEXEMES_PER_CHARACTER = 1 / 8.5

Pair = tuple[str, str]


def score_pairs(
    question: str,
    chunks: Iterable[ChunkView],
    idf: Mapping[str, Mapping[str, float]],
    config: LexicalConfig,
) -> dict[UUID, float]:
    """Return the pair BM25 by chunk id, 0 where no pair of the query occurs.

    The best text search configuration counts: a chunk holds the lexemes of one only.
    """
    pairs = [weigh_question_pairs(question, weights) for weights in idf.values()]
    return {
        chunk.chunk_id: max((_score(chunk, weighted, config) for weighted in pairs), default=0.0)
        for chunk in chunks
    }


def weigh_question_pairs(question: str, idf: Mapping[str, float]) -> dict[Pair, float]:
    """Return the idf of each pair of lexemes whose words are adjacent in the query, function words
    aside.
    """
    lexeme_index = LexemeIndex(idf)
    lexemes = [lexeme_index.find(word) for word in extract_content_words(question)]
    return {
        (left, right): IDF_SHARE * (idf[left] + idf[right])
        for left, right in pairwise(lexemes)
        if left and right and left != right
    }


def score_titles(
    question: str, chunks: Iterable[ChunkView], idf: Mapping[str, Mapping[str, float]]
) -> dict[UUID, float]:
    """Return the share of the question's idf mass that the title of its document holds, by chunk
    id, without zeros.

    The title says what all of a document is about, so a word counts for more there than in a
    passage (fields of BM25F: Robertson, Zaragoza and Taylor 2004). A word that the corpus lacks
    weighs as much as the rarest known one. Of several text search configurations the first counts.
    """
    weights = next(iter(idf.values()), {})
    index, unknown = LexemeIndex(weights), max(weights.values(), default=0.0)
    masses = {
        stem_word(word): weights[lexeme] if (lexeme := index.find(word)) else unknown
        for word in extract_content_words(question)
    }
    total = sum(masses.values())
    if not total:
        return {}
    titled = [(chunk.chunk_id, chunk.title) for chunk in chunks if chunk.title]
    shares = {
        title: sum(masses[key] for key in masses.keys() & extract_word_keys(title)) / total
        for title in {title for _, title in titled}
    }
    return {chunk_id: shares[title] for chunk_id, title in titled if shares[title]}


def _score(chunk: ChunkView, pairs: Mapping[Pair, float], config: LexicalConfig) -> float:
    length = (len(chunk.text) + len(chunk.prefix)) * _LEXEMES_PER_CHARACTER
    score = 0.0
    positions = chunk.positions
    for (left, right), weight in pairs.items():
        if left in positions and right in positions:
            count = count_adjacent(positions[left], positions[right])
            score += weight * config.compute_weight(count, length)
    return score


def count_adjacent(left: Sequence[int], right: Sequence[int]) -> int:
    """Count the positions in `right` that directly follow one in `left`."""
    return len({position + 1 for position in left}.intersection(right)) if left and right else 0
