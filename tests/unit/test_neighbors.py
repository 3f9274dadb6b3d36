from __future__ import annotations

from uuid import UUID

import numpy as np
import pytest

from retrieval.fusion import FusedCandidate
from retrieval.neighbors import average_neighbors, blend_scores
from retrieval.parent_expansion import RankedParent
from schemas.ports.engines import RerankPassage
from tests.unit.retrieval_memory_index import IndexedChild, IndexedDocument, MemoryIndex


def make_parents(*scores: float) -> list[RankedParent]:
    index = MemoryIndex()
    index.add(IndexedDocument("any", [[IndexedChild("A passage.")]]))
    [view] = index.views.values()
    candidate = FusedCandidate(view, 0.0, {}, {})
    return [
        RankedParent(UUID(int=number), view.document_id, score, candidate, 1, rerank_score=score)
        for number, score in enumerate(scores)
    ]


def make_passage(number: int, *rows: tuple[int, int]) -> RerankPassage:
    states = (np.array(rows, np.int8),) if rows else ()
    return RerankPassage(
        UUID(int=number), "", states, (np.zeros(len(rows), np.int32),) * len(states)
    )


def test_nearest_passages_are_averaged_without_the_passage_itself() -> None:
    parents = make_parents(4.0, 2.0, 1.0, 0.0)
    passages = [
        make_passage(0, (100, 1)),
        make_passage(1, (100, 2), (100, 4)),
        make_passage(2, (1, 100)),
        make_passage(3, (2, 100)),
    ]
    means = average_neighbors(parents, passages, 1)
    assert means == {UUID(int=0): 2.0, UUID(int=1): 4.0, UUID(int=2): 0.0, UUID(int=3): 1.0}
    assert average_neighbors(parents, passages, 50)[UUID(int=0)] == pytest.approx(1.0)


def test_passage_without_states_has_no_neighbors_and_is_none() -> None:
    parents = make_parents(4.0, 2.0, 100.0)
    passages = [make_passage(0, (100, 1)), make_passage(1, (1, 100)), make_passage(2)]
    assert average_neighbors(parents, passages, 5) == {UUID(int=0): 2.0, UUID(int=1): 4.0}
    assert average_neighbors(parents[:1], passages[:1], 5) == {}


def test_blended_scores_decide_the_order_and_keep_rerank_scores() -> None:
    parents = make_parents(4.0, 3.9, 1.0)
    blended = blend_scores(parents, {UUID(int=0): 0.0, UUID(int=1): 4.0}, 0.5)
    assert [parent.parent_id.int for parent in blended] == [1, 0, 2]
    assert [parent.score for parent in blended] == pytest.approx([3.95, 2.0, 1.0])
    assert [parent.rerank_score for parent in blended] == [3.9, 4.0, 1.0]
    assert blended[1].score_parts == {"neighbor_mean": 0.0}
