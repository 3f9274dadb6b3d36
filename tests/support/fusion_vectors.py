"""Random inputs of fusion with the results of `retrieval`, which the browser must compute alike.

`python -m tests.support.fusion_vectors` writes the file that the tests of both sides read.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

from retrieval.ranking.fusion import TERM_NAMES, Fusion, FusionInput, fuse_candidates
from retrieval.ranking.passages import RankedParent, expand_to_parents
from retrieval.ranking.reranking import combine_scores
from schemas.ports.search import ChunkView, Hit
from schemas.profiles import FusionProfile, RerankProfile

VECTORS_PATH = Path(__file__).parents[1] / "golden" / "fusion_vectors.json"
CASES_COUNT = 80
_DOCUMENT = UUID(int=0)


def make_cases() -> list[dict[str, Any]]:
    return [make_case(number) for number in range(CASES_COUNT)]


def make_case(number: int) -> dict[str, Any]:
    """Return inputs and results; chunks are numbers, `parents[i]` is the passage of chunk i."""
    seed = hashlib.sha256(f"fusion {number}".encode()).digest()
    inputs = _draw_inputs(random.Random(seed))
    return {**inputs, "expected": compute_expected(inputs)}


def _draw_inputs(rng: random.Random) -> dict[str, Any]:
    # Sizes on both sides of MIN_CANDIDATES, and of the blocks in which NumPy sums.
    n_chunks = rng.choice((0, 1, 2, 5, 8, 15, 20, 26, 40, 150))
    # Few distinct scores, so that there are ties.
    digits = rng.choice((1, 4))

    def draw_scores(share: float, low: float, high: float) -> dict[str, float]:
        return {
            str(chunk): round(rng.uniform(low, high), digits)
            for chunk in range(n_chunks)
            if rng.random() < share
        }

    def draw_optional(high: float) -> dict[str, float]:
        return draw_scores(rng.choice((0.2, 1)), 0, high) if rng.random() < 0.4 else {}

    scales = {"lexical": (0.0, 30.0), "semantic": (0.5, 0.9), "graph": (0.0, 2.0)}
    parents = [rng.randrange(max(1, n_chunks * 3 // 4)) for _ in range(n_chunks)]
    passages = sorted(set(parents))
    reranked = {str(parent): round(rng.uniform(0, 2), digits) for parent in passages}
    return {
        "parents": parents,
        "hits": {
            channel: draw_scores(rng.choice((0, 0.3, 0.7, 1)), *scale)
            for channel, scale in scales.items()
        },
        "complete": [channel for channel in scales if rng.random() < 0.5],
        "pair_scores": draw_optional(8),
        "coverage": round(rng.uniform(0, 1.5), 3),
        "backgrounds": draw_optional(0.8),
        "named": draw_optional(1),
        "bridged": draw_optional(1),
        "titles": draw_optional(1),
        "weight_factors": {c: rng.choice((0.5, 2)) for c in scales if rng.random() < 0.2},
        "terms": {name: draw_optional(1) for name in TERM_NAMES},
        "fusion": {
            "lexical": rng.choice((0, 0.3, 1)),
            "semantic": rng.choice((0.5, 1, 2.25)),
            "graph": rng.choice((0, 0.5)),
            "method": rng.choice(("zscore", "zscore", "rrf")),
            "rrf_k": rng.choice((1, 60, 200)),
            "bigram": rng.choice((0, 0.6)),
            "full_coverage": rng.choice((0, 0.5, 1)),
            "unnamed_semantic": rng.choice((1, 1.25)),
            "unnamed_graph": rng.choice((0.5, 1)),
            "background": rng.choice((0, 0.3)),
            "named": rng.choice((0, 20)),
            "bridged": 18,
            "title": rng.choice((0, 3)),
            "freshness": rng.choice((0, 0.5)),
            "metadata": rng.choice((0, 1.5)),
            "entity_overlap": rng.choice((0, 1)),
            "hop": rng.choice((0, 2)),
            "edge_types": rng.choice(({}, {"supplies": 0.7})),
        },
        "rerank": {
            "weight": rng.choice((0, 0.2, 2)),
            "named_factor": rng.choice((0.25, 1)),
            "parents": rng.choice((1, 5, 50)),
            "expand": rng.choice(("max", "sum")),
        },
        "role": rng.choice(("added", "added", "replaces", None)),
        "rerank_scores": dict(rng.sample(sorted(reranked.items()), k=len(reranked) * 3 // 4)),
        "has_order": rng.random() < 0.5,
    }


def compute_expected(case: Mapping[str, Any]) -> dict[str, Any]:
    """Return method, chunks and passages with their scores, best first, by the product's code."""
    fusion = fuse_candidates(
        FusionInput(
            {
                channel: [
                    Hit(UUID(int=int(chunk)), _DOCUMENT, score) for chunk, score in hits.items()
                ]
                for channel, hits in case["hits"].items()
            },
            frozenset(case["complete"]),
            _by_id(case["pair_scores"]),
            case["coverage"],
            _by_id(case["backgrounds"]),
            _by_id(case["named"]),
            _by_id(case["bridged"]),
            _by_id(case["titles"]),
            case["weight_factors"],
            {name: _by_id(scores) for name, scores in case["terms"].items()},
        ),
        {
            UUID(int=chunk): _make_chunk(chunk, parent)
            for chunk, parent in enumerate(case["parents"])
        },
        FusionProfile(**case["fusion"]),
    )
    return {
        "method": fusion.numbers["method"],
        "chunks": [[item.chunk.chunk_id.int, item.score] for item in fusion.candidates],
        "passages": [
            [parent.parent_id.int, parent.score] for parent in _rank_passages(case, fusion)
        ],
    }


def _rank_passages(case: Mapping[str, Any], fusion: Fusion) -> list[RankedParent]:
    profile = RerankProfile(**case["rerank"])
    parents = expand_to_parents(fusion.candidates, profile.expand)
    offered, rest = parents[: profile.parents], parents[profile.parents :]
    scores = {
        parent.parent_id: case["rerank_scores"][str(parent.parent_id.int)]
        for parent in offered
        if str(parent.parent_id.int) in case["rerank_scores"]
    }
    if case["role"] is None or not scores:
        return parents
    return list(
        combine_scores(
            offered,
            rest,
            scores,
            case["role"],
            profile.weight * (profile.named_factor if case["named"] else 1.0),
            (),
            order=derive_order(scores) if case["has_order"] else None,
        ).parents
    )


def derive_order(scores: Mapping[UUID, float]) -> dict[UUID, float]:
    """Return other scores of the same passages, without storing them in the file."""
    return {parent_id: (score * 7) % 2 for parent_id, score in scores.items()}


def _by_id(scores: Mapping[str, float]) -> dict[UUID, float]:
    return {UUID(int=int(chunk)): score for chunk, score in scores.items()}


def _make_chunk(chunk: int, parent: int) -> ChunkView:
    return ChunkView(
        chunk_id=UUID(int=chunk),
        parent_id=UUID(int=parent),
        document_id=_DOCUMENT,
        order=(chunk,),
        revision=1,
        external_id=None,
        title=None,
        source_uri=None,
        language=None,
        kind="paragraph",
        prefix="",
        text="",
        char_start=0,
        char_end=0,
        spans=[],
        ordinal=chunk,
        positions={},
        states=None,
    )


def format_cases(cases: list[dict[str, Any]]) -> str:
    """One case a line, so that a change can be read."""
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    return f"[\n{lines}\n]\n"


if __name__ == "__main__":
    VECTORS_PATH.write_text(format_cases(make_cases()), encoding="utf-8")
