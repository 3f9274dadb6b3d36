from __future__ import annotations

from uuid import UUID

import numpy as np
import pytest

from retrieval.bigrams import adjacent, pair_scores, question_pairs
from retrieval.denoise import trim
from retrieval.duplicates import fold
from retrieval.expand import at_most_per_document, expand, rescored
from retrieval.fuse import FEWEST, Fusion, Lists, fuse
from schemas.ports.search import Hit
from schemas.profiles import FusionProfile
from schemas.questions import Channel
from tests.unit.retrieval_index import Child, Document, MemoryIndex


def corpus(count: int = 30, *, text: str = "Passage number {n} about matters of its own kind.") -> MemoryIndex:
    index = MemoryIndex()
    for n in range(count):
        index.add(Document(f"d{n}", [[Child(text.format(n=n))]]))
    return index


def hits(index: MemoryIndex, scores: dict[int, float]) -> list[Hit]:
    views = list(index.views.values())
    return [Hit(views[n].chunk_id, views[n].document_id, score) for n, score in scores.items()]


def z(values: list[float], value: float) -> float:
    return (value - float(np.mean(values))) / float(np.std(values))


def fused(index: MemoryIndex, found: dict[Channel, list[Hit]], profile: FusionProfile, complete: frozenset[Channel] = frozenset()) -> Fusion:
    return fuse(Lists(found, complete), index.views, profile)


def test_the_default_is_the_weighted_sum_of_z_scores_over_the_union() -> None:
    index = corpus()
    words, meaning = {n: float(n) for n in range(25)}, {n: n / 50 for n in range(5, 30)}
    result = fused(index, {"lexical": hits(index, words), "semantic": hits(index, meaning)}, FusionProfile(semantic=2.0))
    lexical = [words.get(n, 0.0) for n in range(30)]
    semantic = [meaning.get(n, 0.1) for n in range(30)]
    best = {candidate.chunk.external_id: candidate.score for candidate in result.candidates}
    assert best["d7"] == pytest.approx(z(lexical, 7.0) + 2 * z(semantic, 0.14))
    assert result.numbers["method"] == "zscore" and result.numbers["semantic"]["mean"] == pytest.approx(np.mean(semantic))


def test_a_chunk_that_a_channel_missed_scores_its_least_hit_or_nothing_if_the_channel_gave_all_it_had() -> None:
    index = corpus()
    found: dict[Channel, list[Hit]] = {"lexical": hits(index, {n: 5.0 + n for n in range(10)}), "semantic": hits(index, {n: float(n) for n in range(30)})}
    parts = {c.chunk.external_id: c.parts for c in fused(index, found, FusionProfile()).candidates}
    assert parts["d0"]["lexical_z"] == parts["d29"]["lexical_z"]
    all_given = {c.chunk.external_id: c.parts for c in fused(index, found, FusionProfile(), frozenset({"lexical"})).candidates}
    assert all_given["d0"]["lexical_z"] > all_given["d29"]["lexical_z"]


def test_word_pairs_are_added_to_the_words_before_the_z_score() -> None:
    index = corpus()
    found: dict[Channel, list[Hit]] = {"lexical": hits(index, dict.fromkeys(range(30), 1.0))}
    target = hits(index, {3: 0.0})[0].chunk_id
    result = fuse(Lists(found, frozenset(), {target: 2.0}), index.views, FusionProfile(bigram=0.5))
    assert result.candidates[0].chunk.chunk_id == target
    assert result.candidates[0].score == pytest.approx(z([1.0] * 29 + [2.0], 2.0))


@pytest.mark.parametrize("count", [1, FEWEST - 1])
def test_under_twenty_candidates_ranks_are_fused(count: int) -> None:
    index = corpus()
    result = fused(index, {"lexical": hits(index, {n: float(n) for n in range(count)})}, FusionProfile())
    assert result.numbers["method"] == "rrf" and result.candidates[0].score == pytest.approx(1.0)


def test_equal_scores_everywhere_fall_back_to_ranks_in_the_order_of_ids() -> None:
    index = corpus()
    result = fused(index, {"semantic": hits(index, dict.fromkeys(range(30), 0.5))}, FusionProfile())
    assert result.numbers["method"] == "rrf"
    assert [candidate.chunk.chunk_id for candidate in result.candidates] == sorted(candidate.chunk.chunk_id for candidate in result.candidates)


def test_reciprocal_ranks_are_a_share_of_the_most_that_could_be() -> None:
    index = corpus()
    profile = FusionProfile(method="rrf", lexical=0.7, semantic=0.8, graph=1.0)
    found: dict[Channel, list[Hit]] = {"lexical": hits(index, {0: 9.0, 1: 8.0}), "semantic": hits(index, {0: 0.9, 2: 0.8}), "graph": hits(index, {0: 1.0})}
    scores = {c.chunk.external_id: c.score for c in fused(index, found, profile).candidates}
    most = (0.7 + 0.8 + 1.0) / 61
    assert scores["d0"] == pytest.approx(1.0)
    assert scores["d1"] == pytest.approx(0.7 / 62 / most) and scores["d2"] == pytest.approx(0.8 / 62 / most)


def test_a_channel_that_found_nothing_takes_no_part() -> None:
    index = corpus()
    with_empty = fused(index, {"lexical": hits(index, {n: float(n) for n in range(30)}), "graph": []}, FusionProfile())
    without = fused(index, {"lexical": hits(index, {n: float(n) for n in range(30)})}, FusionProfile())
    assert [c.score for c in with_empty.candidates] == [c.score for c in without.candidates]


def test_nothing_found_is_nothing_fused() -> None:
    assert fused(corpus(), {"lexical": []}, FusionProfile()).candidates == ()


def test_pairs_stand_next_to_each_other_in_question_and_text() -> None:
    assert question_pairs("the boundary layers of a wing", {"boundari": 2.0, "layer": 1.0, "wing": 3.0}) == pytest.approx(
        {("boundari", "layer"): 2.4, ("layer", "wing"): 3.2}
    )
    assert adjacent([1, 5, 9], [2, 7, 10]) == 2 and adjacent([], [1]) == 0
    index = MemoryIndex()
    index.add(Document("near", [[Child("The boundary layer is thin.")]]))
    index.add(Document("far", [[Child("A layer lies beyond the boundary.")]]))
    near, far = index.views.values()
    scores = pair_scores("boundary layer", [near, far], {"english": {"boundari": 2.0, "layer": 1.0}})
    assert scores[near.chunk_id] > 0 == scores[far.chunk_id]


def test_a_parent_scores_as_its_best_child_or_as_the_sum_above_the_least() -> None:
    index = MemoryIndex()
    index.add(Document("two", [[Child("one"), Child("two")]]))
    index.add(Document("one", [[Child("three")]]))
    views = list(index.views.values())
    found = [Hit(view.chunk_id, view.document_id, score) for view, score in zip(views, (3.0, 2.0, 1.0), strict=True)]
    candidates = fuse(Lists({"lexical": found}), index.views, FusionProfile()).candidates
    scores = {candidate.chunk.text: candidate.score for candidate in candidates}
    by_max = expand(candidates, "max")
    assert [(parent.best.chunk.text, parent.children) for parent in by_max] == [("one", 2), ("three", 1)]
    assert by_max[0].score == scores["one"]
    assert expand(candidates, "sum")[0].score == pytest.approx(scores["one"] + scores["two"] - 2 * scores["three"])


LONG = "The supplier shall deliver the goods to the warehouse named in annex two within thirty days of the order and bears the cost of carriage"


@pytest.mark.parametrize(
    ("first", "second", "folded"),
    [
        (LONG, LONG, True),
        (LONG, LONG.upper() + ".", True),
        (LONG * 3, LONG * 3 + " today", True),
        (LONG, LONG.replace("thirty", "sixty"), False),
        ("The rent is 100 euros.", "The rent is 200 euros.", False),
    ],
)
def test_near_equal_passages_fold_and_others_do_not(first: str, second: str, folded: bool) -> None:
    index = MemoryIndex()
    for name, text in (("a", first), ("b", second)):
        index.add(Document(name, [[Child(text)]]))
    found = [Hit(view.chunk_id, view.document_id, score) for view, score in zip(index.views.values(), (2.0, 1.0), strict=True)]
    parents = fold(expand(fuse(Lists({"lexical": found}), index.views, FusionProfile()).candidates, "max"), read=50, wanted=10)
    assert (len(parents) == 1) is folded
    assert len(parents) + sum(len(parent.duplicates) for parent in parents) == 2


def test_at_most_two_of_a_document_keeps_the_best_two() -> None:
    index = MemoryIndex()
    index.add(Document("many", [[Child(f"text {n}")] for n in range(5)]))
    found = [Hit(view.chunk_id, view.document_id, float(n)) for n, view in enumerate(index.views.values())]
    parents = expand(fuse(Lists({"lexical": found}), index.views, FusionProfile()).candidates, "max")
    assert at_most_per_document(parents, 2) == parents[:2] and at_most_per_document(parents, None) == parents


def test_ids_decide_between_equal_parents() -> None:
    index = corpus(25)
    parents = expand(fused(index, {"lexical": hits(index, dict.fromkeys(range(25), 1.0))}, FusionProfile(method="rrf")).candidates, "sum")
    ranks = [parent.parent_id for parent in parents if parent.score == parents[0].score]
    assert ranks == sorted(ranks, key=UUID.__int__)


def test_a_passage_that_was_not_reranked_pushes_none_out_that_was() -> None:
    index = corpus(3)
    parents = expand(fused(index, {"lexical": hits(index, {0: 9.0, 1: 8.0, 2: 7.0})}, FusionProfile()).candidates, "max")
    ranked = [rescored(parents[0], 0.9, 0.9, {}), rescored(parents[1], 0.7, 0.7, {}), rescored(parents[2], 3.5, None, {})]
    assert trim(ranked, 0.6, 0.0) == ranked
    assert trim([rescored(parents[0], 0.9, 0.9, {}), rescored(parents[1], 0.2, 0.2, {}), ranked[2]], 0.6, 0.0) == ranked[:1]
