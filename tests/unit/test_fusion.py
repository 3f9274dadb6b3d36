from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal
from uuid import UUID

import numpy as np
import pytest

from retrieval.profiles import load_profiles
from retrieval.ranking.fusion import (
    Fusion,
    FusionInput,
    compute_lexical_coverage,
    count_adjacent,
    fuse_candidates,
    score_pairs,
    score_titles,
    weigh_question_pairs,
)
from retrieval.ranking.passages import (
    RankedParent,
    expand_to_parents,
    fold_duplicates,
    limit_per_document,
    replace_score,
    trim_parents,
)
from schemas.channels import Channel
from schemas.generations import LexicalConfig
from schemas.ports.search import Hit
from schemas.profiles import FusionProfile
from tests.unit.retrieval_memory_index import IndexedChild, IndexedDocument, MemoryIndex

PROFILES_DIR = Path(__file__).parents[2] / "profiles"


def make_corpus(
    count: int = 30, *, text: str = "Passage number {n} about matters of its own kind."
) -> MemoryIndex:
    index = MemoryIndex()
    for n in range(count):
        index.add(IndexedDocument(f"d{n}", [[IndexedChild(text.format(n=n))]]))
    return index


def make_hits(index: MemoryIndex, scores: dict[int, float]) -> list[Hit]:
    views = list(index.views.values())
    return [Hit(views[n].chunk_id, views[n].document_id, score) for n, score in scores.items()]


def make_lexical_hits(index: MemoryIndex, count: int) -> dict[Channel, list[Hit]]:
    return {"lexical": make_hits(index, {n: float(n) for n in range(count)})}


def z_score(values: list[float], value: float) -> float:
    return (value - float(np.mean(values))) / float(np.std(values))


def fuse_channels(
    index: MemoryIndex,
    found: dict[Channel, list[Hit]],
    profile: FusionProfile,
    complete: frozenset[Channel] = frozenset(),
) -> Fusion:
    return fuse_candidates(FusionInput(found, complete), index.views, profile)


def rank_parents(
    index: MemoryIndex, scores: Sequence[float], aggregation: Literal["max", "sum"] = "max"
) -> list[RankedParent]:
    """Rank the parents of the first chunks, of which the lexical channel has these scores."""
    found: dict[Channel, list[Hit]] = {"lexical": make_hits(index, dict(enumerate(scores)))}
    profile = FusionProfile(method="rrf")
    return expand_to_parents(fuse_channels(index, found, profile).candidates, aggregation)


def test_default_fusion_is_weighted_z_score_sum() -> None:
    index = make_corpus()
    words, meaning = {n: float(n) for n in range(25)}, {n: n / 50 for n in range(5, 30)}
    result = fuse_channels(
        index,
        {"lexical": make_hits(index, words), "semantic": make_hits(index, meaning)},
        FusionProfile(semantic=2.0),
    )
    lexical = [words.get(n, 0.0) for n in range(30)]
    semantic = [meaning.get(n, 0.1) for n in range(30)]
    best = {candidate.chunk.external_id: candidate.score for candidate in result.candidates}
    # No document is named, so meaning weighs 1.25 times.
    assert best["d7"] == pytest.approx(z_score(lexical, 7.0) + 2.5 * z_score(semantic, 0.14))
    assert result.numbers["method"] == "zscore" and result.numbers["semantic"][
        "mean"
    ] == pytest.approx(np.mean(semantic))


def test_missing_channel_score_defaults_to_lowest_or_zero() -> None:
    index = make_corpus()
    found: dict[Channel, list[Hit]] = {
        "lexical": make_hits(index, {n: 5.0 + n for n in range(10)}),
        "semantic": make_hits(index, {n: float(n) for n in range(30)}),
    }
    parts = {
        c.chunk.external_id: c.score_parts
        for c in fuse_channels(index, found, FusionProfile()).candidates
    }
    assert parts["d0"]["lexical_z"] == parts["d29"]["lexical_z"]
    all_given = {
        c.chunk.external_id: c.score_parts
        for c in fuse_channels(index, found, FusionProfile(), frozenset({"lexical"})).candidates
    }
    assert all_given["d0"]["lexical_z"] > all_given["d29"]["lexical_z"]


def test_word_pair_scores_are_added_before_normalization() -> None:
    index = make_corpus()
    found: dict[Channel, list[Hit]] = {"lexical": make_hits(index, dict.fromkeys(range(30), 1.0))}
    target = make_hits(index, {3: 0.0})[0].chunk_id
    result = fuse_candidates(
        FusionInput(found, frozenset(), {target: 2.0}), index.views, FusionProfile(bigram=0.5)
    )
    assert result.candidates[0].chunk.chunk_id == target
    assert result.candidates[0].score == pytest.approx(z_score([1.0] * 29 + [2.0], 2.0))


@pytest.mark.parametrize("count", [1, 19])
def test_few_candidates_use_reciprocal_rank_fusion(count: int) -> None:
    index = make_corpus()
    result = fuse_channels(index, make_lexical_hits(index, count), FusionProfile())
    assert result.numbers["method"] == "rrf" and result.candidates[0].score == pytest.approx(1.0)


def test_identical_scores_fall_back_to_rank_by_id() -> None:
    index = make_corpus()
    result = fuse_channels(
        index, {"semantic": make_hits(index, dict.fromkeys(range(30), 0.5))}, FusionProfile()
    )
    assert result.numbers["method"] == "rrf"
    assert [candidate.chunk.chunk_id for candidate in result.candidates] == sorted(
        candidate.chunk.chunk_id for candidate in result.candidates
    )


def test_reciprocal_rank_score_is_relative_to_maximum() -> None:
    index = make_corpus()
    profile = FusionProfile(
        method="rrf", lexical=0.7, semantic=0.8, graph=1.0, unnamed_semantic=1.0, unnamed_graph=1.0
    )
    found: dict[Channel, list[Hit]] = {
        "lexical": make_hits(index, {0: 9.0, 1: 8.0}),
        "semantic": make_hits(index, {0: 0.9, 2: 0.8}),
        "graph": make_hits(index, {0: 1.0}),
    }
    scores = {c.chunk.external_id: c.score for c in fuse_channels(index, found, profile).candidates}
    most = (0.7 + 0.8 + 1.0) / 61
    assert scores["d0"] == pytest.approx(1.0)
    assert scores["d1"] == pytest.approx(0.7 / 62 / most) and scores["d2"] == pytest.approx(
        0.8 / 62 / most
    )


@pytest.mark.parametrize("name", ["default", "rrf", "balanced"])
def test_weak_bridge_does_not_outrank_every_channel(name: str) -> None:
    index = make_corpus()
    found: dict[Channel, list[Hit]] = {
        "lexical": make_hits(index, {0: 9.0, 1: 8.0}),
        "semantic": make_hits(index, {0: 0.9, 1: 0.8}),
    }
    bridged = {list(index.views)[2]: 0.1}
    profile = load_profiles(PROFILES_DIR).get(name).fusion
    fusion = fuse_candidates(FusionInput(found, bridged=bridged), index.views, profile)
    assert [candidate.chunk.external_id for candidate in fusion.candidates] == ["d0", "d1", "d2"]


def test_bridge_has_the_weight_of_the_method() -> None:
    index = make_corpus()
    weights = [
        fuse_candidates(
            FusionInput(make_lexical_hits(index, count), bridged={list(index.views)[2]: 0.1}),
            index.views,
            FusionProfile(bridged=7.0),
        ).numbers["bridged"]["weight"]
        for count in (20, 19)
    ]
    assert weights == [7.0, 1.0]


def test_empty_channel_does_not_affect_fusion() -> None:
    index = make_corpus()
    found = make_lexical_hits(index, 30)
    with_empty = fuse_channels(index, {**found, "graph": []}, FusionProfile())
    without = fuse_channels(index, found, FusionProfile())
    assert [c.score for c in with_empty.candidates] == [c.score for c in without.candidates]
    assert fuse_channels(index, {"lexical": []}, FusionProfile()).candidates == ()


def test_word_pairs_require_adjacency() -> None:
    assert weigh_question_pairs(
        "the boundary layers of a wing", {"boundari": 2.0, "layer": 1.0, "wing": 3.0}
    ) == pytest.approx({("boundari", "layer"): 2.4, ("layer", "wing"): 3.2})
    assert count_adjacent([1, 5, 9], [2, 7, 10]) == 2 and count_adjacent([], [1]) == 0
    index = MemoryIndex()
    index.add(IndexedDocument("near", [[IndexedChild("The boundary layer is thin.")]]))
    index.add(IndexedDocument("far", [[IndexedChild("A layer lies beyond the boundary.")]]))
    near, far = index.views.values()
    scores = score_pairs(
        "boundary layer", [near, far], {"english": {"boundari": 2.0, "layer": 1.0}}, LexicalConfig()
    )
    assert scores[near.chunk_id] > 0 == scores[far.chunk_id]


def test_parent_score_is_max_or_sum_of_children() -> None:
    index = MemoryIndex()
    index.add(IndexedDocument("two", [[IndexedChild("one"), IndexedChild("two")]]))
    index.add(IndexedDocument("one", [[IndexedChild("three")]]))
    by_max = rank_parents(index, (3.0, 2.0, 1.0))
    by_sum = rank_parents(index, (3.0, 2.0, 1.0), "sum")
    assert [(parent.best.chunk.text, parent.children_count) for parent in by_max] == [
        ("one", 2),
        ("three", 1),
    ]
    one, three = (parent.best.score for parent in by_max)
    assert [parent.score for parent in by_max] == [one, three]
    two = fuse_channels(
        index, {"lexical": make_hits(index, {0: 3.0, 1: 2.0, 2: 1.0})}, FusionProfile(method="rrf")
    ).candidates[1]
    assert by_sum[0].score == pytest.approx(one + two.score - 2 * three)


LONG_SENTENCE = (
    "The supplier shall deliver the goods to the warehouse named in annex two within "
    "thirty days of the order and bears the cost of carriage"
)


@pytest.mark.parametrize(
    ("first", "second", "min_similarity", "folded"),
    [
        (LONG_SENTENCE, LONG_SENTENCE, 0.9, True),
        (LONG_SENTENCE, LONG_SENTENCE.upper() + ".", 0.9, True),
        (LONG_SENTENCE * 3, LONG_SENTENCE * 3 + " today", 0.9, True),
        (LONG_SENTENCE * 3, LONG_SENTENCE * 3 + " today", 1.0, False),
        (LONG_SENTENCE, LONG_SENTENCE.replace("thirty", "sixty"), 0.9, False),
        ("The rent is 100 euros.", "The rent is 200 euros.", 0.9, False),
    ],
)
def test_near_duplicate_passages_are_folded(
    first: str, second: str, min_similarity: float, folded: bool
) -> None:
    index = MemoryIndex()
    for name, text in (("a", first), ("b", second)):
        index.add(IndexedDocument(name, [[IndexedChild(text)]]))
    parents = fold_duplicates(
        rank_parents(index, (2.0, 1.0)),
        scan_limit=50,
        n_distinct=10,
        min_similarity=min_similarity,
    )
    assert (len(parents) == 1) is folded
    assert len(parents) + sum(len(parent.duplicates) for parent in parents) == 2


def test_per_document_limit_keeps_best_parents() -> None:
    index = MemoryIndex()
    index.add(IndexedDocument("many", [[IndexedChild(f"text {n}")] for n in range(5)]))
    parents = rank_parents(index, range(5))
    assert (
        limit_per_document(parents, 2) == parents[:2]
        and limit_per_document(parents, None) == parents
    )


def test_equal_parents_are_ordered_by_id() -> None:
    index = make_corpus(25)
    parents = rank_parents(index, [1.0] * 25, "sum")
    ranks = [parent.parent_id for parent in parents if parent.score == parents[0].score]
    assert ranks == sorted(ranks, key=UUID.__int__)


def test_unreranked_passage_does_not_displace_reranked_ones() -> None:
    parents = rank_parents(make_corpus(3), (9.0, 8.0, 7.0))
    best, second, weak = (
        replace_score(parent, score, score, {})
        for parent, score in zip(parents[:1] + parents[1:2] * 2, (0.9, 0.7, 0.2), strict=True)
    )
    unreranked = replace_score(parents[2], 3.5, None, {})
    assert trim_parents([best, second, unreranked], 0.6, 0.0) == [best, second, unreranked]
    assert trim_parents([best, weak, unreranked], 0.6, 0.0) == [best]


def test_title_score_is_share_of_question_idf() -> None:
    index = MemoryIndex()
    for number, title in enumerate(["Wing flutter", "Flutters of wings at speed", "Wings", None]):
        index.add(IndexedDocument(f"d{number}", [[IndexedChild("A text.")]], title=title))
    idf = {"english": {"wing": 1.0, "flutter": 3.0}, "portuguese": {"wing": 9.0}}
    titles = score_titles("Do wings flutter at zblorts?", index.views.values(), idf)
    views = {view.chunk_id: view.external_id for view in index.views.values()}
    # The unknown word weighs as much as the rarest known one.
    assert {views[chunk_id]: share for chunk_id, share in titles.items()} == pytest.approx(
        {"d0": 4 / 7, "d1": 4 / 7, "d2": 1 / 7}
    )
    assert score_titles("What is it?", index.views.values(), idf) == {}


def test_title_weighs_less_where_words_have_little_evidence() -> None:
    index = make_corpus()
    titles = {list(index.views)[2]: 1.0}
    weights = [
        fuse_candidates(
            FusionInput(make_lexical_hits(index, count), lexical_coverage=coverage, titles=titles),
            index.views,
            FusionProfile(title=3.0, full_coverage=0.5),
        ).numbers["title"]["weight"]
        for coverage, count in ((1.0, 20), (0.25, 20), (1.0, 19))
    ]
    # Reciprocal ranks lie in 0..1 and have no weight for titles.
    assert weights == [3.0, 1.5, 0.0]


def test_lexical_channel_without_evidence_has_little_weight() -> None:
    """A paraphrase: the only shared word is in a passage that means something else."""
    index = make_corpus()
    scores = {n: n / 100 for n in range(30)}
    found: dict[Channel, list[Hit]] = {
        "lexical": make_hits(index, {**scores, 3: 2.0}),
        "semantic": make_hits(index, {**scores, 7: 0.9}),
    }
    idf = {"english": {"shared": 2.0, "missing": 9.0, "absent": 9.0}}
    coverage = compute_lexical_coverage(2.0, idf)
    assert coverage == pytest.approx(0.1)
    profile = FusionProfile(full_coverage=0.5, unnamed_semantic=1.0)
    weak = fuse_candidates(FusionInput(found, lexical_coverage=coverage), index.views, profile)
    full = fuse_candidates(FusionInput(found, lexical_coverage=0.6), index.views, profile)
    assert weak.numbers["lexical"]["weight"] == pytest.approx(0.2)
    assert full.numbers["lexical"]["weight"] == 1.0
    assert weak.candidates[0].chunk.external_id == "d7"
    assert full.candidates[0].score == pytest.approx(full.candidates[1].score, rel=0.2)


@pytest.mark.parametrize("channel", ["semantic", "graph"])
def test_weight_has_another_factor_without_a_named_document(channel: Channel) -> None:
    index = make_corpus()
    hits: dict[Channel, list[Hit]] = {channel: make_hits(index, {n: float(n) for n in range(30)})}
    profile = FusionProfile(semantic=2.0, unnamed_semantic=1.5, graph=2.0, unnamed_graph=1.5)
    named = {next(iter(index.views)): 1.0}
    unnamed_fusion = fuse_candidates(FusionInput(hits), index.views, profile)
    named_fusion = fuse_candidates(FusionInput(hits, named=named), index.views, profile)
    assert unnamed_fusion.numbers[channel]["weight"] == 3.0
    assert named_fusion.numbers[channel]["weight"] == 2.0


def test_semantic_background_is_subtracted_without_a_named_document() -> None:
    index = make_corpus()
    hits: dict[Channel, list[Hit]] = {"semantic": make_hits(index, dict.fromkeys(range(29), 0.8))}
    hits["semantic"] += make_hits(index, {29: 0.82})
    views = list(index.views)
    backgrounds = dict.fromkeys(views[:29], 0.7) | {views[29]: 0.8}
    ranked = {
        share: fuse_candidates(
            FusionInput(hits, backgrounds=backgrounds), index.views, FusionProfile(background=share)
        ).candidates
        for share in (0.0, 0.5)
    }
    assert ranked[0.0][0].chunk.external_id == "d29"
    assert ranked[0.5][-1].chunk.external_id == "d29"
    assert ranked[0.5][-1].score_parts["semantic_background"] == 0.8
    named = fuse_candidates(
        FusionInput(hits, backgrounds=backgrounds, named={views[0]: 0.0}),
        index.views,
        FusionProfile(background=0.5),
    )
    assert named.candidates[0].chunk.external_id == "d29"
