from __future__ import annotations

from datetime import date

import pytest

from retrieval.question.words import extract_word_keys
from retrieval.ranking.fusion import (
    TERM_NAMES,
    compute_entity_overlap,
    compute_freshness,
    match_labels,
)
from schemas.ports.search import EntitySeed
from schemas.profiles import FusionProfile, Profile
from schemas.questions import SearchResponse
from tests.unit.retrieval_harness import RetrievalHarness, make_harness
from tests.unit.retrieval_memory_index import IndexedChild, IndexedDocument

TODAY = date(2026, 1, 1)


def test_freshness_halves_with_every_half_life() -> None:
    assert compute_freshness(TODAY, TODAY, 100) == 1
    assert compute_freshness(date(2025, 9, 23), TODAY, 100) == pytest.approx(0.5)
    assert compute_freshness(date(2030, 1, 1), TODAY, 100) == 1, "a date in the future is no bonus"
    assert compute_freshness(None, TODAY, 100) == 0


def test_labels_match_when_the_question_holds_all_their_words() -> None:
    keys = extract_word_keys("What does the Porto site report on the spring cycle?")
    assert match_labels(["Porto"], keys) == 0.5
    assert match_labels(["Porto", "spring cycle"], keys) == 0.75
    assert match_labels(["porto", "Porto"], keys) == 0.5, "the same label counts once"
    assert match_labels(["Porto Alegre", "", "the"], keys) == 0


def test_entity_overlap_is_a_share_of_the_weights() -> None:
    seeds = [
        EntitySeed("ORG", "acme", 1.0),
        EntitySeed("LOC", "acme", 0.2),
        EntitySeed("ORG", "borealis", 0.5),
    ]
    assert compute_entity_overlap(frozenset({"acme"}), seeds) == pytest.approx(2 / 3)
    assert compute_entity_overlap(frozenset({"acme", "borealis"}), seeds) == 1
    assert (
        compute_entity_overlap(frozenset(), seeds)
        == compute_entity_overlap(frozenset({"acme"}), [])
        == 0
    )


def make_twin_harness(**weights: object) -> RetrievalHarness:
    """Two documents of equal text: only facts about them differ."""
    built = make_harness()
    text = "The dredger Anna works for Halvik in the Lower Channel."
    for name, dated, tags, names in (
        ("old", date(2020, 1, 1), (), ()),
        ("new", date(2025, 12, 1), ("fleet",), ("halvik",)),
    ):
        child = IndexedChild(f"{text} Sheet {name}.")
        built.index.add(
            IndexedDocument(
                name, [[child]], f"Sheet {name}", tags=tags, document_date=dated, names=names
            )
        )
    built.profiles = [
        Profile(
            name="terms", fusion=FusionProfile.model_validate({"near_duplicates": False, **weights})
        )
    ]
    return built


async def search(built: RetrievalHarness) -> SearchResponse:
    return await built.search(
        "Which dredger works for Halvik in the fleet?",
        mode="hybrid",
        profile="terms",
        explain=True,
        k=100,
    )


@pytest.mark.parametrize(
    ("weights", "term"),
    [
        ({"freshness": 50.0}, "freshness"),
        ({"metadata": 50.0}, "metadata"),
        ({"entity_overlap": 50.0}, "entity_overlap"),
        ({"hop": 50.0}, "hop"),
        ({"edge_types": {"knows": 50.0}}, "edge_type"),
    ],
)
@pytest.mark.parametrize("method", ["zscore", "rrf"])
async def test_each_term_lifts_its_document_and_is_explained(
    weights: dict[str, object], term: str, method: str
) -> None:
    built = make_twin_harness(**weights, method=method)
    new_id = next(
        view.document_id for view in built.index.views.values() if view.external_id == "new"
    )
    built.index.add_relation(new_id, "halvik", "coolant pump", 1.0)
    response = await search(built)
    by_id = {result.external_id: result for result in response.results}
    best = by_id["new"]
    assert best.rank < by_id["old"].rank and best.explanation is not None
    assert best.explanation[term] > 0
    assert best.explanation["weights"][term] == (1.0 if term == "edge_type" else 50.0)
    assert not (set(TERM_NAMES) - {term}) & best.explanation.keys()


async def test_terms_without_weight_cost_no_query() -> None:
    built = make_twin_harness()
    response = await search(built)
    assert built.index.call_counts["ranking_facts"] == 0
    assert response.results[0].explanation is not None
    assert not set(TERM_NAMES) & response.results[0].explanation.keys()
