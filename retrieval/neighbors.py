"""Smooth the scores of passages over those that are most similar.

Passages of one topic support each other (Kurland and Lee 2004, corpus structure and language
models; Diaz 2005, score regularization).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

import numpy as np

from retrieval.parent_expansion import RankedParent, replace_score
from schemas.ports.engines import RerankPassage


def average_neighbors(
    parents: Sequence[RankedParent], passages: Sequence[RerankPassage], count: int
) -> dict[UUID, float]:
    """Return the mean score of the `count` passages whose mean token states are nearest, by parent.

    Passages without token states have no neighbors and are none.
    """
    scores_by_parent = {parent.parent_id: parent.score for parent in parents}
    compared = [passage for passage in passages if any(map(len, passage.states))]
    if len(compared) < 2:
        return {}
    means = np.stack(
        [
            np.concatenate([rows for rows in passage.states if len(rows)]).mean(axis=0)
            for passage in compared
        ]
    )
    # Raw states point in nearly one direction, which hides differences.
    means -= means.mean(axis=0)
    means /= np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-12)
    similarities = means @ means.T
    np.fill_diagonal(similarities, -np.inf)
    scores = np.array([scores_by_parent[passage.id] for passage in compared])
    nearest = np.argsort(-similarities, axis=1, kind="stable")[:, : min(count, len(compared) - 1)]
    return dict(
        zip(
            (passage.id for passage in compared),
            scores[nearest].mean(axis=1).tolist(),
            strict=True,
        )
    )


def blend_scores(
    parents: Sequence[RankedParent], neighbor_means: Mapping[UUID, float], share: float
) -> tuple[RankedParent, ...]:
    """Return the parents in the order of their scores, `share` of which are the neighbors'."""
    blended = [
        replace_score(
            parent,
            (1 - share) * parent.score + share * neighbor_means[parent.parent_id],
            parent.rerank_score,
            {"neighbor_mean": neighbor_means[parent.parent_id]},
        )
        if parent.parent_id in neighbor_means
        else parent
        for parent in parents
    ]
    return tuple(sorted(blended, key=lambda parent: parent.sort_key))
