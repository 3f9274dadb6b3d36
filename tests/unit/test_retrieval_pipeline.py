from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from uuid import UUID

import pytest

from schemas.errors import DatabaseUnavailable, EngineUnavailable, InvalidRequest
from schemas.events import QueryAnswered, QueryReceived
from schemas.ports.engines import EmbeddedQuery, Passage
from schemas.ports.search import Seed
from schemas.profiles import AnswerProfile, GraphProfile, Profile, RerankProfile
from schemas.questions import Filters, QueryRequest, SearchRequest
from tests.callers import LOCAL
from tests.unit.retrieval_corpus import LEASE, house
from tests.unit.retrieval_fakes import ScriptedChat, WordMaxSim

RUN = UUID(int=7)
COST = "How much does the replacement of the bearing cost?"


async def test_a_search_puts_the_passage_that_answers_first_and_explains_each_channel() -> None:
    response = await house().retriever().search(LOCAL, SearchRequest(query=COST, explain=True), RUN)
    best = response.results[0]
    assert best.external_id == "pump"
    assert best.channels["lexical"].rank == 1 and best.channels["semantic"].rank <= 2
    assert best.explanation is not None and {"lexical_z", "semantic_z", "rerank_z", "fused", "score"} <= best.explanation.keys()
    assert response.trace.channels_used == ["lexical", "semantic", "graph"] and response.trace.lexical == "exact"


async def test_the_explained_addends_make_the_score() -> None:
    response = await house().retriever().search(LOCAL, SearchRequest(query=COST, explain=True), RUN)
    for result in response.results:
        parts = result.explanation
        assert parts is not None
        fused = parts["lexical_z"] + parts["semantic_z"] + 0.5 * parts.get("graph_z", 0.0)
        assert parts["fused"] == pytest.approx(fused)
        assert result.score == pytest.approx(fused + 2.0 * parts["rerank_z"])


async def test_a_query_answers_with_a_verified_quote_and_the_value_marked() -> None:
    built = house()
    response = await built.retriever().query(LOCAL, QueryRequest(query=COST), RUN)
    assert not response.refused and response.answer is not None
    assert response.answer.startswith("The replacement costs **18,740 euros**. [1]")
    lead = response.citations[0]
    markdown = built.index.markdown[lead.document_id]
    assert lead.quote == "The replacement costs 18,740 euros."
    assert markdown[lead.spans[0].char_start : lead.spans[-1].char_end] == lead.quote
    assert lead.pages == [1] and lead.n == 1


async def test_every_quote_is_where_its_span_says() -> None:
    built = house()
    for question in (COST, "When does the lease of the warehouse end?", "Who keeps the training records?", "Quantos dias de férias têm os trabalhadores?"):
        response = await built.retriever().query(LOCAL, QueryRequest(query=question), RUN)
        assert response.citations, question
        for citation in response.citations:
            markdown = built.index.markdown[citation.document_id]
            assert markdown[citation.spans[0].char_start : citation.spans[-1].char_end] == citation.quote


async def test_a_table_row_is_quoted_with_its_header() -> None:
    response = await house().retriever().query(LOCAL, QueryRequest(query="What is the price of the impeller from Borealis?"), RUN)
    assert response.citations[0].quote == "| Impeller | 310 EUR | Borealis |"
    assert response.citations[0].header == ["Part", "Price", "Supplier"]
    assert response.answer is not None and "Price: **310 EUR**" in response.answer


@pytest.mark.parametrize(
    ("question", "language", "begins"),
    [
        ("Who was the first emperor of ancient Rome?", "en", "The documents hold nothing"),
        ("Quem foi o primeiro imperador da Roma antiga?", "pt", "Os documentos não contêm"),
        ("¿Quién fue el primer emperador de la antigua Roma?", "es", "Los documentos no contienen"),
        ("Qui était le premier empereur de la Rome antique ?", "fr", "Les documents ne contiennent"),
        ("Wer war der erste Kaiser des antiken Rom?", "de", "Die Dokumente enthalten nichts"),
    ],
)
async def test_what_the_corpus_does_not_hold_is_refused_in_the_questions_language_without_a_model_call(question: str, language: str, begins: str) -> None:
    built = house()
    built.reranker.threshold = 0.9  # type: ignore[union-attr]
    built.chat = ScriptedChat({"sufficient": True, "sentences": [], "assumptions": [], "limitations": []})
    response = await built.retriever().query(LOCAL, QueryRequest(query=question), RUN)
    assert response.refused and response.answer is None and response.code == "NO_SUITABLE_CONTEXT"
    assert response.language == language and response.message is not None and response.message.startswith(begins)
    assert built.chat.seen == [] and response.trace.model_calls == 0 and not response.trace.calibrated
    assert response.trace.max_rerank_score is not None and response.trace.threshold is not None and response.trace.max_rerank_score < response.trace.threshold


async def test_unknown_collection_is_named_by_the_refusal_and_by_the_answer() -> None:
    built = house()
    built.index.collections = {"plans"}
    only = QueryRequest(query=COST, filters=Filters(collections=["typo"], external_ids=["none"]))
    refused = await built.retriever().query(LOCAL, only, RUN)
    assert (refused.refused, refused.code, refused.message) == (True, "NO_SUCH_COLLECTION", "There is no collection 'typo'.")
    assert "There is no collection 'typo'." in refused.limitations
    both = await built.retriever().query(LOCAL, QueryRequest(query=COST, filters=Filters(collections=["plans", "typo"])), RUN)
    assert not both.refused and "There is no collection 'typo'." in both.limitations
    searched = await built.retriever().search(LOCAL, SearchRequest(query=COST, filters=Filters(collections=["typo"])), RUN)
    assert searched.trace.notes == ["There is no collection 'typo'."]


async def test_the_background_is_taken_off_before_the_threshold() -> None:
    built = house()
    built.embedder.background = 0.9
    response = await built.retriever().query(LOCAL, QueryRequest(query=COST), RUN)
    assert response.code == "NO_SUITABLE_CONTEXT"


async def test_a_question_in_another_language_than_the_passage_needs_a_lower_score() -> None:
    built = house()
    own = await built.retriever().query(LOCAL, QueryRequest(query=COST), RUN)
    foreign = await built.retriever().query(LOCAL, QueryRequest(query=COST, language="de"), RUN)
    assert own.trace.threshold == pytest.approx(0.375), "all words are held, so less than the engine's .5 is enough"
    assert foreign.trace.threshold == pytest.approx(0.425), "words say nothing"


async def test_a_near_miss_is_refused_for_the_words_that_no_passage_holds() -> None:
    built = house()
    built.reranker = WordMaxSim(threshold=0.6)
    held = await built.retriever().query(LOCAL, QueryRequest(query=COST), RUN)
    missed = await built.retriever().query(LOCAL, QueryRequest(query="Which mechanic greased the bearing of the coolant pump in Oslo?"), RUN)
    assert not held.refused and missed.code == "NO_SUITABLE_CONTEXT"
    assert missed.trace.max_rerank_score is not None and missed.trace.max_rerank_score > 0.6, "by its score alone it would be answered"


async def test_a_long_question_is_refused_for_its_words_less_easily_and_never_far_above_the_threshold() -> None:
    retriever = house().retriever()
    short = await retriever.query(LOCAL, QueryRequest(query="Which zebra ate the bearing?"), RUN)
    long = await retriever.query(LOCAL, QueryRequest(query="Which zebra, lion, gnu, crow, newt, moth, wasp, toad, carp or hare ate the bearing?"), RUN)
    assert short.trace.threshold is not None and long.trace.threshold is not None
    assert 0.5 < long.trace.threshold < short.trace.threshold == pytest.approx(0.65)


async def test_words_do_not_move_the_threshold_of_a_reranker_that_reads_both_texts() -> None:
    built = house()
    built.reranker = WordMaxSim(role="replaces", threshold=0.3)
    response = await built.retriever().query(LOCAL, QueryRequest(query="Which mechanic greased the bearing of the coolant pump in Oslo?"), RUN)
    assert response.trace.threshold == 0.3


@pytest.mark.parametrize(("question", "begins"), [("What is it?", "The documents hold nothing"), ("O que é isso?", "Os documentos não contêm")])
async def test_function_words_alone_are_refused_however_close_a_passage_is(question: str, begins: str) -> None:
    built = house()
    built.reranker = WordMaxSim(threshold=-1.0)
    response = await built.retriever().query(LOCAL, QueryRequest(query=question), RUN)
    assert response.code == "NO_SUITABLE_CONTEXT" and response.message is not None and response.message.startswith(begins)
    assert response.contexts, "what is close is shown all the same"


async def test_one_passage_that_suits_is_enough() -> None:
    built = house()
    built.add("bearings", "Bearing oil, bearing grease, bearing seals.", language="de")
    response = await built.retriever().query(LOCAL, QueryRequest(query=COST), RUN)
    assert response.answer is not None and "18,740" in response.answer


async def test_a_profile_may_forbid_refusing() -> None:
    built = house()
    built.embedder.background = 0.9
    built.profiles = [Profile(name="bold", answer=AnswerProfile(refuse=False))]
    response = await built.retriever().query(LOCAL, QueryRequest(query=COST, profile="bold"), RUN)
    assert response.answer is not None and response.confidence.level == "low"


async def test_without_a_reranker_words_decide_what_is_refused() -> None:
    built = house()
    built.profiles = [Profile(name="plain", rerank=RerankProfile(reranker="none"))]
    retriever = built.retriever()
    assert (await retriever.query(LOCAL, QueryRequest(query=COST, profile="plain"), RUN)).answer is not None
    stranger = await retriever.query(LOCAL, QueryRequest(query="Which emperor conquered Gaul and Britannia?", profile="plain"), RUN)
    assert stranger.code == "NO_SUITABLE_CONTEXT" and stranger.trace.reranker is None


@pytest.mark.parametrize("channel", ["lexical", "semantic", "graph"])
async def test_a_failing_channel_costs_only_itself_and_is_named(channel: str) -> None:
    built = house()
    built.index.broken["link" if channel == "graph" else channel] = DatabaseUnavailable("the server closed the connection")
    response = await built.retriever().search(LOCAL, SearchRequest(query=COST), RUN)
    assert response.results[0].external_id == "pump"
    assert list(response.trace.channels_failed) == [channel] and "closed the connection" in response.trace.channels_failed[channel]  # type: ignore[comparison-overlap,index]
    assert channel not in response.trace.channels_used


async def test_a_bug_in_a_channel_costs_only_that_channel() -> None:
    built = house()
    built.index.broken["lexical"] = RuntimeError("index out of range")
    response = await built.retriever().query(LOCAL, QueryRequest(query=COST), RUN)
    assert response.citations[0].external_id == "pump"
    assert response.trace.channels_failed == {"lexical": "CHANNEL_FAILED: RuntimeError: index out of range"}
    assert "Channel lexical did not answer." in response.limitations and response.confidence.level == "low"


async def test_a_channel_that_does_not_answer_in_time_costs_only_that_channel() -> None:
    built = house()
    never = asyncio.Event()

    async def link(tenant: str, keys: object) -> list[Seed]:
        await never.wait()
        return []

    built.index.link = link  # type: ignore[method-assign]
    built.profiles = [Profile(name="hasty", graph=GraphProfile(timeout_s=0.01))]
    response = await built.retriever().search(LOCAL, SearchRequest(query=COST, profile="hasty"), RUN)
    assert response.results[0].external_id == "pump"
    assert response.trace.channels_failed == {"graph": "TIMED_OUT: no answer within 0.01 s"}


async def test_an_embedder_with_a_bug_leaves_words_to_answer() -> None:
    built = house()
    built.embedder.embed_query = _broken  # type: ignore[method-assign]
    response = await built.retriever().search(LOCAL, SearchRequest(query=COST), RUN)
    assert response.results[0].external_id == "pump" and list(response.trace.channels_failed) == ["semantic"]


async def _broken(text: str) -> EmbeddedQuery:
    raise RuntimeError("no session")


async def test_the_question_fails_when_no_channel_answers() -> None:
    built = house()
    for call in ("lexical", "semantic", "link"):
        built.index.broken[call] = DatabaseUnavailable("gone")
    with pytest.raises(DatabaseUnavailable):
        await built.retriever().search(LOCAL, SearchRequest(query=COST), RUN)


async def test_an_embedder_that_is_away_leaves_words_and_names_to_answer() -> None:
    built = house()
    built.embedder.away = True
    response = await built.retriever().query(LOCAL, QueryRequest(query=COST), RUN)
    assert response.citations[0].external_id == "pump"
    assert "semantic" in response.trace.channels_failed and response.trace.reranker is None
    assert any("not reranked" in note for note in response.trace.notes)


async def test_a_reranker_that_is_away_leaves_the_fused_order_and_says_so() -> None:
    built = house()
    built.reranker.away = True  # type: ignore[union-attr]
    response = await built.retriever().search(LOCAL, SearchRequest(query=COST), RUN)
    assert response.results[0].external_id == "pump" and response.trace.notes == ["not reranked: the reranker does not answer"]


async def test_what_a_replacing_reranker_did_not_see_follows_with_falling_scores() -> None:
    built = house()
    built.reranker = WordMaxSim(role="replaces")
    built.profiles = [Profile(name="few", rerank=RerankProfile(parents=3))]
    response = await built.retriever().search(LOCAL, SearchRequest(query=COST, profile="few", explain=True), RUN)
    scores = [result.score for result in response.results]
    seen = [result.explanation["rerank_score"] for result in response.results if result.explanation]
    assert scores == sorted(scores, reverse=True) and len(scores) == 10
    assert seen[:3] == scores[:3] and seen[3:] == [None] * 7


async def test_a_reranker_that_does_not_answer_in_time_leaves_the_fused_order_and_is_not_asked_for_the_quotes() -> None:
    class Silent(WordMaxSim):
        async def rerank(self, question: str, query: EmbeddedQuery | None, passages: Sequence[Passage]) -> list[float]:
            self.offered = [*self.offered, *passages]
            await asyncio.Event().wait()
            raise AssertionError

    built = house()
    built.reranker = Silent(role="replaces")
    built.profiles = [Profile(name="quick", rerank=RerankProfile(timeout_s=0.01))]
    response = await built.retriever().query(LOCAL, QueryRequest(query=COST, profile="quick"), RUN)
    assert response.answer is not None and "18,740" in response.answer and response.trace.reranker is None
    assert response.trace.notes == ["not reranked: words gave no answer within 0.01 s"]
    assert len(built.reranker.offered) <= 50, "asked once"


async def test_passages_without_states_are_ranked_all_the_same_and_counted() -> None:
    built = house()
    del built.blobs.data["states/lease"]
    response = await built.retriever().search(LOCAL, SearchRequest(query="When does the lease of the warehouse end?"), RUN)
    assert "lease" in [result.external_id for result in response.results]
    assert any("without token states" in note for note in response.trace.notes)


async def test_a_search_without_reranker_reads_each_chunk_and_all_parents_once() -> None:
    built = house()
    built.profiles = [Profile(name="plain", rerank=RerankProfile(reranker="none"))]
    await built.retriever().search(LOCAL, SearchRequest(query="How much does the bearing of the coolant pump cost?", profile="plain"), RUN)
    assert built.index.asked - Counter(chunks=3) == {"snapshot": 1, "lexical": 1, "semantic": 1, "link": 1, "graph": 1, "parents": 1}
    assert set(built.index.read.values()) == {1}


async def test_only_the_requested_channels_are_asked() -> None:
    built = house()
    response = await built.retriever().search(LOCAL, SearchRequest(query=COST, channels=["lexical"]), RUN)
    assert response.trace.channels_used == ["lexical"] and built.index.asked["semantic"] == built.index.asked["link"] == 0


async def test_the_requested_mode_decides_and_is_named() -> None:
    response = await house().retriever().search(LOCAL, SearchRequest(query=COST, mode="vector"), RUN)
    assert (response.trace.route.mode, response.trace.route.decided_by) == ("vector", "request")
    assert "graph" not in response.trace.channels_used


async def test_a_mode_that_a_rule_chose_widens_to_hybrid_when_nothing_suits() -> None:
    question = 'What is the relationship between "Unknown Alpha" and "Unknown Beta"?'
    response = await house().retriever().search(LOCAL, SearchRequest(query=question), RUN)
    assert response.trace.route.mode == "hybrid" and response.trace.route.escalated_from == "graph"
    asked = await house().retriever().search(LOCAL, SearchRequest(query=question, mode="graph"), RUN)
    assert asked.trace.route.mode == "graph" and asked.results == []


async def test_an_unknown_profile_names_the_known_ones() -> None:
    with pytest.raises(InvalidRequest, match="'nope'") as error:
        await house().retriever().search(LOCAL, SearchRequest(query="x", profile="nope"), RUN)
    assert "default" in error.value.remedy


async def test_filters_reach_every_channel() -> None:
    response = await house().retriever().search(LOCAL, SearchRequest(query=COST, filters=Filters(external_ids=["lease"])), RUN)
    assert {result.external_id for result in response.results} == {"lease"}


async def test_a_question_is_published_with_every_number() -> None:
    built = house()
    await built.retriever().query(LOCAL, QueryRequest(query=COST), RUN)
    came, went = built.published
    assert isinstance(came, QueryReceived) and isinstance(went, QueryAnswered)
    assert came.run_id == went.run_id == RUN and came.kind == "query"
    assert went.response["citations"] and went.numbers["fusion"]["lexical"]["deviation"] > 0
    best = max(went.candidates, key=lambda candidate: candidate.get("parent_score", -99))
    assert {"lexical_z", "semantic_z", "word_pairs"} <= best["parts"].keys() and best["rerank_score"] is not None
    assert went.numbers["refusal"]["threshold"] == pytest.approx(0.375) and went.numbers["idf"]["english"]


async def test_contexts_stay_within_the_token_budget_and_one_that_is_too_long_gives_its_best_child() -> None:
    built = house()
    built.profiles = [Profile(name="small", answer=AnswerProfile(context_tokens=100, trim=0.0))]
    built.add("long", "word " * 2000 + "The zebra eats grass.")
    short = await built.retriever().query(LOCAL, QueryRequest(query=COST, profile="small"), RUN)
    assert 1 <= len(short.contexts) <= 3
    long = await built.retriever().query(LOCAL, QueryRequest(query="What does the zebra eat?", profile="small"), RUN)
    assert [context.external_id for context in long.contexts] == ["long"]


async def test_a_chat_model_that_fails_leaves_the_quoted_answer_and_says_so() -> None:
    built = house()
    built.chat = ScriptedChat(EngineUnavailable("connection refused"))
    response = await built.retriever().query(LOCAL, QueryRequest(query=COST), RUN)
    assert response.answer is not None and "18,740" in response.answer
    assert "connection refused" in response.limitations[0] and response.trace.models["answer"] == "extractive"


async def test_an_insufficient_context_is_a_refusal_of_its_own() -> None:
    built = house()
    built.chat = ScriptedChat({"sufficient": False, "sentences": [], "assumptions": [], "limitations": ["no price is given"]})
    response = await built.retriever().query(LOCAL, QueryRequest(query=COST), RUN)
    assert response.code == "INSUFFICIENT_CONTEXT" and response.answer is None and response.limitations == ["Stated by the model: no price is given"]


async def test_results_carry_the_place_of_the_best_child() -> None:
    response = await house().retriever().search(LOCAL, SearchRequest(query="When does the lease of the warehouse end?"), RUN)
    best = response.results[0]
    assert best.external_id == "lease" and best.snippet == LEASE and best.section == "Part 1"
    assert best.link == f"/v1/documents/{best.document_id}/file#page=1"


async def test_debugging_a_query_shows_the_candidates_and_numbers_that_are_published_and_nothing_otherwise() -> None:
    plain = await house().retriever().query(LOCAL, QueryRequest(query=COST), RUN)
    shown = await house().retriever().query(LOCAL, QueryRequest(query=COST, debug=True), RUN)
    assert plain.debug is None
    assert shown.debug is not None
    assert {str(citation.chunk_id) for citation in shown.citations} <= {candidate["chunk_id"] for candidate in shown.debug.candidates}
    assert "fusion" in shown.debug.numbers


async def test_a_rehearsal_ranks_as_a_search_refuses_as_a_query_and_tells_nobody() -> None:
    built = house()
    for question in (COST, "Which emperor conquered Gaul and Britannia?"):
        found = await built.retriever().search(LOCAL, SearchRequest(query=question), RUN)
        answer = await built.retriever().query(LOCAL, QueryRequest(query=question), RUN)
        told = len(built.published)
        searched = await built.retriever().rehearse(LOCAL, SearchRequest(query=question))
        asked = await built.retriever().rehearse(LOCAL, QueryRequest(query=question))
        assert [item.parent_id for item in searched.ranked] == [item.parent_id for item in asked.ranked] == [result.parent_id for result in found.results]
        assert searched.refused == asked.refused == answer.refused == (question != COST)
        assert asked.trace.models == answer.trace.models and len(built.published) == told > 0
