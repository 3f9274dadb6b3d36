"""Terms of fusion beside the channels: freshness, metadata, entity overlap, hop and edge type.

Each lies in 0..1, or is a weight of the profile (`edge_type`), and is added with its weight.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from uuid import UUID

from retrieval.question.query_plan import QueryPlan
from retrieval.question.words import extract_word_keys
from schemas.ports.search import EntitySeed, RankingFacts
from schemas.profiles import FusionProfile

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
