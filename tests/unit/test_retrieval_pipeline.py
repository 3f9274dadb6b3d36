from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest

from retrieval import retriever
from schemas.answer_profiles import AnswerProfile
from schemas.channels import CHANNELS, GraphProfile, GraphStrategy
from schemas.errors import DatabaseUnavailable, NotFound
from schemas.events import QueryAnswered, QueryReceived
from schemas.ports.engines import QueryEmbedding, RerankPassage, RerankScore, TokenWeighting
from schemas.ports.search import EntitySeed
from schemas.profiles import FusionProfile, Profile, RerankProfile
from schemas.questions import Filters, QueryRequest, SearchRequest
from tests.support.api_client import LOCAL_CALLER
from tests.support.channels import DEFAULT_CHANNELS
from tests.unit.retrieval_fakes import ScriptedChat, WordReranker, write_reply
from tests.unit.retrieval_harness import (
    COST_QUESTION,
    LEASE,
    PUMP,
    RUN_ID,
    RetrievalHarness,
    make_harness,
)

SCRIPTED_CHANNELS = ["lexical", "semantic", "graph"]
"""Channels whose calls `MemoryIndex` counts and can fail; tests of those calls search no others."""
GONE = DatabaseUnavailable("gone")


async def explain_scores(
    built: RetrievalHarness, question: str, **overrides: dict[str, Any]
) -> dict[str, dict[str, Any]]:
    response = await built.search(question, explain=True, k=100, overrides=overrides)
    return {item.external_id or "": item.explanation or {} for item in response.results}


async def rank_documents(built: RetrievalHarness, **options: Any) -> list[tuple[UUID, str | None]]:
    request = SearchRequest(query=COST_QUESTION, channels=options.pop("channels", None))
    ranked = await built.make_retriever().rank_documents(LOCAL_CALLER, request, **options)
    return [(document_id, external_id) for document_id, external_id, _ in ranked]


async def test_search_ranks_answering_passage_first() -> None:
    response = await make_harness().search(mode="hybrid")
    best = response.results[0]
    assert best.external_id == "pump"
    assert best.channels["lexical"].rank == 1 and best.channels["semantic"].rank <= 2
    assert response.trace.channels_used == DEFAULT_CHANNELS and response.trace.lexical == "exact"


async def test_explained_parts_sum_to_score() -> None:
    response = await make_harness().search(explain=True)
    for result in response.results:
        parts = result.explanation
        assert parts is not None
        assert {"lexical_z", "semantic_z"} <= parts.keys()
        weights = parts["weights"]
        fused = sum(weights.get(name, 0.0) * parts.get(f"{name}_z", 0.0) for name in CHANNELS)
        assert parts["fused"] == pytest.approx(fused)
        assert result.score == pytest.approx(fused + weights["rerank"] * parts["rerank_z"])


async def test_query_answers_with_verified_quote_and_highlighted_value() -> None:
    built = make_harness()
    response = await built.query()
    assert not response.refused and response.answer is not None
    assert response.answer.startswith("The replacement costs **18,740 euros**. [1]")
    lead = response.citations[0]
    markdown = built.index.markdown[lead.document_id]
    assert lead.quote == "The replacement costs 18,740 euros."
    assert markdown[lead.spans[0].char_start : lead.spans[-1].char_end] == lead.quote
    assert lead.pages == [1] and lead.n == 1


async def test_quotes_are_scored_by_stored_states_without_embedding() -> None:
    built = RetrievalHarness()
    # Without a title: the stored states of the fakes leave it out.
    built.add("pump", PUMP)
    response = await built.query()
    assert response.citations[0].quote == "The replacement costs 18,740 euros."
    assert built.embedder.embedded_texts == []


async def test_quotes_are_embedded_when_stored_states_do_not_suit() -> None:
    built = RetrievalHarness()
    # Without a title: the stored states of the fakes leave it out.
    built.add("pump", PUMP)
    built.embedder.is_locating = False
    response = await built.query()
    assert response.citations[0].quote == "The replacement costs 18,740 euros."
    assert "The replacement costs 18,740 euros." in built.embedder.embedded_texts


async def test_at_most_24_sentences_are_embedded() -> None:
    built = RetrievalHarness()
    built.add("pump", " ".join(f"The replacement number {n} costs {n} euros." for n in range(30)))
    built.embedder.is_locating = False
    await built.query()
    assert len(built.embedder.embedded_texts) == 24


async def test_table_row_is_quoted_with_header() -> None:
    response = await make_harness().query("What is the price of the impeller from Borealis?")
    assert response.citations[0].quote == "| Impeller | 310 EUR | Borealis |"
    assert response.citations[0].header == ["Part", "Price", "Supplier"]
    assert response.answer is not None and "Price: **310 EUR**" in response.answer


@pytest.mark.parametrize(
    ("question", "language", "begins"),
    [
        ("Who was the first emperor of ancient Rome?", "en", "The documents contain nothing"),
        ("Quem foi o primeiro imperador da Roma antiga?", "pt", "Os documentos não contêm"),
        ("¿Quién fue el primer emperador de la antigua Roma?", "es", "Los documentos no contienen"),
        (
            "Qui était le premier empereur de la Rome antique ?",
            "fr",
            "Les documents ne contiennent",
        ),
        ("Wer war der erste Kaiser des antiken Rom?", "de", "Die Dokumente enthalten nichts"),
    ],
)
async def test_unanswerable_question_is_refused_in_its_language(
    question: str, language: str, begins: str
) -> None:
    built = make_harness()
    built.reranker.threshold = 0.9  # type: ignore[union-attr]
    built.chat = ScriptedChat(write_reply(sufficient=True))
    response = await built.query(question)
    assert response.refused and response.answer is None and response.code == "NO_SUITABLE_CONTEXT"
    assert (
        response.language == language
        and response.message is not None
        and response.message.startswith(begins)
    )
    assert (
        built.chat.prompts == []
        and response.trace.model_calls == 0
        and not response.trace.calibrated
    )
    assert (
        response.trace.max_rerank_score is not None
        and response.trace.threshold is not None
        and response.trace.max_rerank_score < response.trace.threshold
    )


async def test_unknown_collection_is_reported() -> None:
    built = make_harness()
    built.add("pump", PUMP, title="Maintenance plan", names=("coolant pump",), collection="plans")
    refused = await built.query(
        COST_QUESTION, filters=Filters(collections=["typo"], external_ids=["none"])
    )
    assert (refused.refused, refused.code, refused.message) == (
        True,
        "NO_SUCH_COLLECTION",
        "There is no collection 'typo'.",
    )
    assert "There is no collection 'typo'." in refused.limitations
    both = await built.query(filters=Filters(collections=["plans", "typo"]))
    assert not both.refused and "There is no collection 'typo'." in both.limitations
    searched = await built.search(filters=Filters(collections=["typo"]))
    assert searched.trace.notes == ["There is no collection 'typo'."]


async def test_unread_parts_of_found_documents_are_limitations() -> None:
    built = make_harness()
    codes = ["ATTACHMENT_NOT_INDEXED", "HIDDEN_TEXT", "PAGE_WITHOUT_TEXT"]
    built.add("pump", PUMP, title="Maintenance plan", warning_codes=codes)
    built.add("roof", "The roof was sealed in May.", title="Roof", warning_codes=["MISSING_PART"])
    question = "What does the replacement of the bearing cost?"
    answered = await built.query(question)
    expected = (
        "Parts of Maintenance plan were not read: ATTACHMENT_NOT_INDEXED, PAGE_WITHOUT_TEXT. "
        "The warnings of the document say which."
    )
    assert {citation.external_id for citation in answered.citations} == {"pump"}
    assert [text for text in answered.limitations if text.startswith("Parts of")] == [expected]
    refused = await built.query("Which paint covers the roof?")
    named = {text.split(" were")[0] for text in refused.limitations if text.startswith("Parts of")}
    assert refused.refused and "Parts of Roof" in named


async def test_background_score_is_subtracted_before_threshold() -> None:
    built = make_harness()
    built.embedder.background = 0.9
    response = await built.query()
    assert response.code == "NO_SUITABLE_CONTEXT"


async def test_cross_language_question_has_its_own_threshold() -> None:
    built = make_harness()
    own = await built.query()
    foreign = await built.query(language="de")
    assert own.trace.threshold == pytest.approx(0.375), (
        "the passages contain all words, so less than the engine's .5 is enough"
    )
    assert foreign.trace.threshold == pytest.approx(0.425), "words of another language do not count"


async def test_words_missing_from_every_passage_raise_threshold() -> None:
    built = make_harness()
    built.reranker = WordReranker(threshold=0.6)
    answered = await built.query()
    missed = await built.query("Which mechanic greased the bearing of the coolant pump in Oslo?")
    assert not answered.refused and missed.code == "NO_SUITABLE_CONTEXT"
    assert missed.trace.max_rerank_score is not None and missed.trace.max_rerank_score > 0.6, (
        "its score alone would pass"
    )


async def test_long_question_raises_threshold_less() -> None:
    retriever = make_harness().make_retriever()
    short = await retriever.query(
        LOCAL_CALLER, QueryRequest(query="Which zebra ate the bearing?"), RUN_ID
    )
    long = await retriever.query(
        LOCAL_CALLER,
        QueryRequest(
            query="Which zebra, lion, gnu, crow, newt, moth, wasp, toad, carp or hare ate the "
            "bearing?"
        ),
        RUN_ID,
    )
    assert short.trace.threshold is not None and long.trace.threshold is not None
    assert 0.5 < long.trace.threshold < short.trace.threshold == pytest.approx(0.65)


async def test_word_coverage_ignored_for_replacing_reranker() -> None:
    built = make_harness()
    built.reranker = WordReranker(role="replaces", threshold=0.3)
    response = await built.query("Which mechanic greased the bearing of the coolant pump in Oslo?")
    assert response.trace.threshold == 0.3


@pytest.mark.parametrize(
    ("question", "begins"),
    [
        ("What is it?", "The documents contain nothing"),
        ("O que é isso?", "Os documentos não contêm"),
    ],
)
async def test_question_of_function_words_is_refused(question: str, begins: str) -> None:
    built = make_harness()
    built.reranker = WordReranker(threshold=-1.0)
    response = await built.query(question)
    assert (
        response.code == "NO_SUITABLE_CONTEXT"
        and response.message is not None
        and response.message.startswith(begins)
    )
    assert response.contexts, "close passages are returned all the same"


async def test_one_relevant_passage_is_enough() -> None:
    built = make_harness()
    built.add("bearings", "Bearing oil, bearing grease, bearing seals.", language="de")
    response = await built.query()
    assert response.answer is not None and "18,740" in response.answer


async def test_profile_can_disable_refusal() -> None:
    built = make_harness()
    built.embedder.background = 0.9
    built.profiles = [Profile(name="bold", answer=AnswerProfile(refuse=False))]
    response = await built.query(profile="bold")
    assert response.answer is not None and response.confidence.level == "low"


async def test_relevance_uses_word_coverage_without_reranker() -> None:
    built = make_harness()
    built.profiles = [Profile(name="plain", rerank=RerankProfile(reranker="none"))]
    assert (await built.query(COST_QUESTION, profile="plain")).answer is not None
    stranger = await built.query("Which emperor conquered Gaul and Britannia?", profile="plain")
    assert stranger.code == "NO_SUITABLE_CONTEXT" and stranger.trace.reranker is None


@pytest.mark.parametrize(
    ("channel", "call", "error", "reason"),
    [
        ("lexical", "lexical", GONE, "DATABASE_UNAVAILABLE: gone"),
        ("semantic", "semantic", GONE, "DATABASE_UNAVAILABLE: gone"),
        ("graph", "link", GONE, "DATABASE_UNAVAILABLE: gone"),
        ("lexical", "lexical", RuntimeError("bug"), "CHANNEL_FAILED: RuntimeError: bug"),
    ],
)
async def test_failing_channel_is_reported_and_others_answer(
    channel: str, call: str, error: Exception, reason: str
) -> None:
    built = make_harness()
    built.index.channel_errors[call] = error
    response = await built.query(channels=SCRIPTED_CHANNELS)
    assert response.citations[0].external_id == "pump"
    assert response.trace.channels_failed == {channel: reason}
    assert channel not in response.trace.channels_used
    assert f"Channel {channel} did not answer." in response.limitations
    assert response.confidence.level == "low"


async def test_channel_timeout_affects_only_that_channel() -> None:
    built = make_harness()
    never = asyncio.Event()

    async def link(tenant: str, keys: object) -> list[EntitySeed]:
        await never.wait()
        return []

    built.index.link_entities = link  # type: ignore[method-assign]
    built.profiles = [Profile(name="hasty", graph=GraphProfile(timeout_s=0.01))]
    response = await built.search(profile="hasty")
    assert response.results[0].external_id == "pump"
    assert response.trace.channels_failed == {"graph": "TIMED_OUT: Timed out after 0.01 s."}


async def test_embedder_bug_leaves_other_channels() -> None:
    built = make_harness()
    built.embedder.embed_query = _raise_runtime_error  # type: ignore[method-assign]
    response = await built.search()
    assert response.results[0].external_id == "pump" and list(response.trace.channels_failed) == [
        "semantic"
    ]


async def _raise_runtime_error(text: str) -> QueryEmbedding:
    raise RuntimeError("no session")


async def test_query_fails_when_every_channel_fails() -> None:
    built = make_harness()
    for call in ("lexical", "semantic", "link"):
        built.index.channel_errors[call] = GONE
    with pytest.raises(DatabaseUnavailable):
        await built.search(channels=SCRIPTED_CHANNELS)


async def test_embedder_outage_leaves_lexical_and_graph_channels() -> None:
    built = make_harness()
    built.embedder.unavailable = True
    response = await built.query()
    assert response.citations[0].external_id == "pump"
    assert "semantic" in response.trace.channels_failed and response.trace.reranker is None
    assert any("not reranked" in note for note in response.trace.notes)


async def test_candidates_beyond_rerank_depth_follow_with_lower_scores() -> None:
    built = make_harness()
    built.reranker = WordReranker(role="replaces")
    built.profiles = [Profile(name="few", rerank=RerankProfile(parents=3))]
    response = await built.search(profile="few", explain=True)
    scores = [result.score for result in response.results]
    seen = [result.explanation["rerank_score"] for result in response.results if result.explanation]
    assert scores == sorted(scores, reverse=True) and len(scores) == 10
    assert seen[:3] == scores[:3] and seen[3:] == [None] * 7


async def test_reranker_timeout_keeps_fused_order_and_skips_quote_reranking() -> None:
    class Silent(WordReranker):
        async def rerank(
            self,
            question: str,
            query: QueryEmbedding | None,
            passages: Sequence[RerankPassage],
            weighting: TokenWeighting | None = None,
        ) -> list[RerankScore]:
            self.passages = [*self.passages, *passages]
            await asyncio.Event().wait()
            raise AssertionError

    built = make_harness()
    built.reranker = Silent(role="replaces")
    built.profiles = [Profile(name="quick", rerank=RerankProfile(timeout_s=0.01))]
    response = await built.query(profile="quick")
    assert (
        response.answer is not None
        and "18,740" in response.answer
        and response.trace.reranker is None
    )
    assert response.trace.notes == ["not reranked: words timed out after 0.01 s"]
    assert len(built.reranker.passages) <= 50, "one call"


@pytest.mark.parametrize(
    ("question", "word_idf", "is_weighed"),
    [
        (COST_QUESTION, "never", False),
        (COST_QUESTION, "unnamed", True),
        ("Price list: how much does the impeller cost?", "unnamed", False),
        ("Price list: how much does the impeller cost?", "always", True),
    ],
)
async def test_word_idf_changes_order_but_not_rerank_score(
    question: str, word_idf: str, is_weighed: bool
) -> None:
    built = make_harness()
    plain = await explain_scores(built, question, rerank={"word_idf": "never"})
    weighed = await explain_scores(built, question, rerank={"word_idf": word_idf})
    assert plain.keys() == weighed.keys()
    for name, parts in weighed.items():
        assert parts["rerank_score"] == plain[name]["rerank_score"]
        assert ("rerank_order" in parts) == (parts["rerank_score"] is not None)
    has_changed = any(parts["score"] != plain[name]["score"] for name, parts in weighed.items())
    assert has_changed == is_weighed


async def test_word_idf_counts_by_the_evidence_of_words() -> None:
    built = make_harness()
    none, full, partial = [
        await explain_scores(
            built,
            COST_QUESTION,
            fusion={"full_coverage": full_coverage},
            rerank={"word_idf": word_idf, "parents": 100},
        )
        for word_idf, full_coverage in (("never", 2.0), ("always", 0.0), ("always", 2.0))
    ]
    share = partial["pump"]["weights"]["lexical"]
    assert 0 < share < 1
    for name, parts in partial.items():
        assert parts["rerank_order"] == pytest.approx(
            share * full[name]["rerank_order"] + (1 - share) * none[name]["rerank_order"]
        )


@pytest.mark.parametrize(
    ("question", "weight"),
    [(COST_QUESTION, 2.0), ("Price list: how much does the impeller cost?", 0.5)],
)
async def test_reranking_weighs_less_within_a_named_document(question: str, weight: float) -> None:
    for parts in (await explain_scores(make_harness(), question)).values():
        assert parts["score"] == pytest.approx(parts["fused"] + weight * parts["rerank_z"])


async def test_passages_without_token_states_are_ranked_and_counted() -> None:
    built = make_harness()
    del built.blobs.data["states/lease"]
    response = await built.search("When does the lease of the warehouse end?")
    assert "lease" in [result.external_id for result in response.results]
    assert any("without token states" in note for note in response.trace.notes)


async def test_search_without_reranker_reads_each_chunk_once() -> None:
    built = make_harness()
    built.profiles = [Profile(name="plain", rerank=RerankProfile(reranker="none"))]
    await built.search(
        "How much does the bearing of the coolant pump cost?",
        profile="plain",
        channels=SCRIPTED_CHANNELS,
    )
    assert built.index.call_counts - Counter(chunks=3) == {
        "snapshot": 1,
        "lexical": 1,
        "semantic": 1,
        "link": 1,
        "graph": 1,
        "aliases": 1,
        # Names in the question, and names in the best passages.
        "names": 2,
        "parents": 1,
    }
    assert set(built.index.chunk_reads.values()) == {1}


async def test_only_requested_channels_are_queried() -> None:
    built = make_harness()
    response = await built.search(channels=["lexical"])
    assert (
        response.trace.channels_used == ["lexical"]
        and built.index.call_counts["semantic"] == built.index.call_counts["link"] == 0
    )


async def test_graph_mode_escalates_to_hybrid_when_nothing_relevant() -> None:
    question = 'What is the relationship between "Unknown Alpha" and "Unknown Beta"?'
    response = await make_harness().search(question)
    assert response.trace.route.mode == "hybrid" and response.trace.route.escalated_from == "graph"
    graph_only = await make_harness().search(question, mode="graph")
    assert graph_only.trace.route.mode == "graph" and graph_only.results == []


async def test_title_counts_only_without_a_named_document() -> None:
    built = make_harness()
    unnamed = (await explain_scores(built, "How often is maintenance due?"))["pump"]
    question = "How often is the pump serviced by the Maintenance plan?"
    named = (await explain_scores(built, question))["pump"]
    assert unnamed["title"] > 0 and "named" not in unnamed
    assert named["named"] > 0 and "title" not in named


async def test_filters_apply_to_every_channel() -> None:
    response = await make_harness().search(filters=Filters(external_ids=["lease"]))
    assert {result.external_id for result in response.results} == {"lease"}


async def test_query_events_contain_all_scores() -> None:
    built = make_harness()
    await built.query()
    came, went = built.published_events
    assert isinstance(came, QueryReceived) and isinstance(went, QueryAnswered)
    assert came.run_id == went.run_id == RUN_ID and came.kind == "query"
    assert went.response["citations"] and went.numbers["fusion"]["lexical"]["deviation"] > 0
    best = max(went.candidates, key=lambda candidate: candidate.get("parent_score", -99))
    assert {"lexical_z", "semantic_z", "word_pairs"} <= best["parts"].keys() and best[
        "rerank_score"
    ] is not None
    assert (
        went.numbers["refusal"]["threshold"] == pytest.approx(0.375)
        and went.numbers["idf"]["english"]
    )


async def test_contexts_fit_token_budget() -> None:
    built = make_harness()
    built.profiles = [Profile(name="small", answer=AnswerProfile(context_tokens=100, trim=0.0))]
    built.add("long", "word " * 2000 + "The zebra eats grass.")
    short = await built.query(profile="small")
    assert 1 <= len(short.contexts) <= 3
    long = await built.query("What does the zebra eat?", profile="small")
    assert [context.external_id for context in long.contexts] == ["long"]


async def test_insufficient_context_is_a_refusal() -> None:
    built = make_harness()
    built.chat = ScriptedChat(write_reply(limitations=["no price is given"]))
    response = await built.query()
    assert (
        response.code == "INSUFFICIENT_CONTEXT"
        and response.answer is None
        and response.limitations == ["Stated by the model: no price is given"]
    )


async def test_results_carry_location_of_best_child() -> None:
    response = await make_harness().search("When does the lease of the warehouse end?")
    best = response.results[0]
    assert best.external_id == "lease" and best.snippet == LEASE and best.section == "Part 1"
    assert best.link == f"/v1/documents/{best.document_id}/file#page=1"


async def test_debug_query_returns_candidates_and_numbers() -> None:
    plain = await make_harness().query()
    response = await make_harness().query(debug=True)
    assert plain.debug is None
    assert response.debug is not None
    assert {str(citation.chunk_id) for citation in response.citations} <= {
        candidate["chunk_id"] for candidate in response.debug.candidates
    }
    assert "fusion" in response.debug.numbers


async def test_dry_run_matches_search_and_query_without_events() -> None:
    built = make_harness()
    for question in (COST_QUESTION, "Which emperor conquered Gaul and Britannia?"):
        found = await built.search(question)
        answer = await built.query(question)
        n_published = len(built.published_events)
        searched = await built.make_retriever().dry_run(LOCAL_CALLER, SearchRequest(query=question))
        dry_run = await built.make_retriever().dry_run(LOCAL_CALLER, QueryRequest(query=question))
        assert (
            [item.parent_id for item in searched.passages]
            == [item.parent_id for item in dry_run.passages]
            == [result.parent_id for result in found.results]
        )
        assert searched.refused == dry_run.refused == answer.refused == (question != COST_QUESTION)
        assert (
            dry_run.trace.models == answer.trace.models
            and len(built.published_events) == n_published > 0
        )


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("entity_search", ["ada"]),
        ("traversal", ["bob"]),
        ("hybrid", ["ada", "bob"]),
        ("pagerank", ["ada", "bob"]),
    ],
)
async def test_graph_strategy_selects_named_or_related_entities(
    strategy: GraphStrategy, expected: list[str]
) -> None:
    built = make_harness()
    for name in ("ada", "bob"):
        built.add(name, f"Wholly other words of {name}.", names=(name,))
    document_id = next(view.document_id for view in built.index.views.values())
    built.index.add_relation(document_id, "ada", "bob", 0.8)
    built.profiles = [Profile(name="walk", graph=GraphProfile(strategy=strategy, hops=1))]
    response = await built.search("Who knows Ada?", profile="walk", channels=["graph"])
    assert sorted(str(result.external_id) for result in response.results) == expected


async def test_duplicates_are_shown_once_with_their_documents() -> None:
    built = make_harness()
    built.add("pump-copy", PUMP, title="Maintenance plan (copy)")
    response = await built.search()
    ids = [result.external_id for result in response.results]
    assert (
        len({"pump", "pump-copy"}.intersection(ids)) == 1
        and len(response.results[0].duplicates) == 1
    )


async def test_ranked_documents_include_duplicates_after_the_best() -> None:
    built = make_harness()
    built.add("pump-copy", PUMP, title="Maintenance plan (copy)")
    ranked = [external_id for _, external_id in await rank_documents(built)]
    assert set(ranked[:2]) == {"pump", "pump-copy"} and len(ranked) == len(set(ranked))


async def test_ranked_documents_reach_requested_depth() -> None:
    built = make_harness()
    built.add("bearings", *[f"Bearing replacement number {n} cost something." for n in range(150)])
    ranked = await rank_documents(built, depth=30)
    assert len(ranked) == 30 and built.index.call_counts["semantic"] > 1


async def test_single_channel_ranking_keeps_channel_order() -> None:
    built = make_harness()
    ranked = await rank_documents(built, channels=["lexical"])
    hits = (
        await built.index.search_lexical(
            "default", COST_QUESTION, language="en", filters=Filters(), k=100, budget=5000
        )
    ).hits
    assert [document for document, _ in ranked] == list(
        dict.fromkeys(hit.document_id for hit in hits)
    )


async def test_results_per_document_are_limited() -> None:
    built = make_harness()
    built.add("bearings", *[f"Bearing replacement number {n} cost something." for n in range(20)])
    built.profiles = [Profile(name="diverse", fusion=FusionProfile(per_document=2))]
    response = await built.search(profile="diverse")
    assert [result.external_id for result in response.results].count("bearings") == 2


@pytest.mark.parametrize("quick_ms", [0.0, 1e9])
async def test_slow_answer_from_an_erased_document_is_not_recorded(
    monkeypatch: pytest.MonkeyPatch, quick_ms: float
) -> None:
    monkeypatch.setattr(retriever, "QUICK_MS", quick_ms)
    built = make_harness()
    # Read before the erasure, as by a chat model that took its time.
    monkeypatch.setattr(built.index, "find_erased", find_all)
    outcome = await asyncio.gather(built.query(), return_exceptions=True)
    answers = [event for event in built.published_events if isinstance(event, QueryAnswered)]
    assert len(answers) == (quick_ms > 0) != isinstance(outcome[0], NotFound)


async def find_all(documents: Sequence[UUID]) -> Sequence[UUID]:
    return documents
