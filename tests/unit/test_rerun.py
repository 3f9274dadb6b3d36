"""Reruns and comparisons of recorded runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pytest

from retrieval.answering import answer_drafts, conflicts, evidence, judge
from retrieval.ranking import (
    candidate_retrieval,
    entity_aliases,
    fusion,
    graph_facts,
    passages,
    relevance,
)
from retrieval.ranking.channels import graph
from retrieval.runs.recorded_run import RecordedRun, parse_run
from retrieval.runs.rerun import rerun_run
from retrieval.runs.run_diff import DiffContext, compare_runs
from schemas.answer_profiles import AnswerProfile
from schemas.errors import DatabaseUnavailable, EngineUnavailable, NotFound
from schemas.events import QueryAnswered
from schemas.generations import Generation, IndexConfig
from schemas.ids import make_document_id
from schemas.planning import IntentProfile, PlanProfile
from schemas.profiles import FusionProfile, Profile, RerankProfile
from schemas.questions import Filters, QueryRequest
from schemas.run_records import FORMER_SETTINGS, CurrentDocument, RunDiff, RunRecord
from services.query.standing_questions import list_failures
from sql.index import search
from tests.support.api_client import LOCAL_CALLER
from tests.unit.retrieval_fakes import ScriptedChat, WordReranker, write_reply
from tests.unit.retrieval_harness import (
    COST_QUESTION,
    LEASE,
    PUMP,
    STAFF,
    VACATION_PT,
    RetrievalHarness,
    make_harness,
)
from tests.unit.run_rows import FakeRecordedTexts, make_run_row, rerun_query

NO_CONTEXT = DiffContext({}, {})
# Constants that are not named after the setting that they were.
RENAMED = {
    "fuzzy_letters": "MIN_LETTERS",
    "named_documents": "MAX_SHARING_NAME",
    "passages": "JUDGED_PASSAGES",
    "sentences": "MAX_EMBEDDED",
}


def make_corpus(**texts: str) -> RetrievalHarness:
    built = RetrievalHarness()
    for name, text in texts.items():
        built.add(name, text, title=name.title())
    return built


async def query_and_record(built: RetrievalHarness, run: int = 1, **options: Any) -> RecordedRun:
    built.published_events.clear()
    await built.make_retriever().query(
        LOCAL_CALLER, QueryRequest(query=COST_QUESTION, **options), UUID(int=run)
    )
    return parse_run(make_run_row(built))


def list_reasons(diff: RunDiff) -> set[tuple[str, str]]:
    return {(reason.cause, reason.detail) for reason in diff.reasons}


async def test_run_without_contents_was_erased_only_if_it_was_answered() -> None:
    built = make_corpus(pump=PUMP)
    await query_and_record(built)
    empty = make_run_row(built) | {"request": None, "response": None, "run_record": None}
    with pytest.raises(NotFound) as erased:
        parse_run(empty)
    with pytest.raises(NotFound) as started:
        parse_run(empty | {"answered_at": None})
    assert (erased.value.code, started.value.code) == ("RUN_ERASED", "RUN_INCOMPLETE")


async def test_identical_runs_have_no_differences() -> None:
    built = make_corpus(pump=PUMP, lease=LEASE, staff=STAFF)
    diff = compare_runs(await query_and_record(built), await query_and_record(built, 2), NO_CONTEXT)
    assert diff.same and not diff.reasons and diff.then.run_id != diff.now.run_id


async def test_withdrawn_document_is_a_reason_for_different_answer() -> None:
    then, now = (
        await query_and_record(make_corpus(pump=PUMP, lease=LEASE, staff=STAFF)),
        await query_and_record(make_corpus(lease=LEASE, staff=STAFF), 2),
    )
    diff = compare_runs(
        then,
        now,
        DiffContext(
            {},
            {
                make_document_id("default", "", "pump"): CurrentDocument(
                    visible_revision=None, state="withdrawn"
                )
            },
        ),
    )
    assert diff.answer_changed and diff.citations_changed and not diff.same
    assert [(one.external_id, one.rank_now) for one in diff.removed] == [("pump", None)]
    assert ("document", "Pump is no longer searchable (withdrawn)") in list_reasons(diff)


async def test_new_document_is_a_reason_for_moved_ranks() -> None:
    then, now = (
        await query_and_record(make_corpus(lease=LEASE, staff=STAFF)),
        await query_and_record(make_corpus(pump=PUMP, lease=LEASE, staff=STAFF), 2),
    )
    diff = compare_runs(then, now, NO_CONTEXT)
    assert [(one.external_id, one.rank_then, one.rank_now) for one in diff.added] == [
        ("pump", None, 1)
    ]
    assert ("document", "Pump was not retrieved then: it is new or has changed") in list_reasons(
        diff
    )


async def test_profile_change_is_first_reason_with_changed_settings() -> None:
    built = make_corpus(pump=PUMP, lease=LEASE, staff=STAFF, ferias=VACATION_PT)
    built.profiles = [Profile(name="narrow", answer=AnswerProfile(trim=1.0))]
    diff = compare_runs(
        await query_and_record(built),
        await query_and_record(built, 2, profile="narrow"),
        NO_CONTEXT,
    )
    assert diff.profile_changes["answer.trim"] == (0.6, 1.0)
    assert diff.request_changes == {"profile": ("default", "narrow")}
    assert [reason.cause for reason in diff.reasons][:2] == ["request", "profile"]


async def test_only_generations_with_different_stages_are_a_reason() -> None:
    built = make_corpus(pump=PUMP, lease=LEASE)
    then = await query_and_record(built)
    for fingerprints, expected in (
        ({"embed": "b"}, {("generation", "generation g2 differs from g1 in embed")}),
        ({"embed": "a"}, set()),
    ):
        built.index.generation = Generation(
            name="g2", config=IndexConfig(), how=fingerprints, topics={}, state="live"
        )
        generations = {
            "g1": Generation(name="g1", config=IndexConfig(), how={"embed": "a"}, topics={}),
            "g2": built.index.generation,
        }
        assert (
            list_reasons(
                compare_runs(then, await query_and_record(built, 2), DiffContext(generations, {}))
            )
            == expected
        )


UNANSWERABLE_QUESTION = "Who was the first emperor of ancient Rome?"
GENERATED_ANSWER = write_reply(
    ("The replacement of the bearing costs 18,740 euros.", [1]),
    ("It is green.", [1]),
    assumptions=["The price is current."],
)


REQUESTS: list[tuple[str, Mapping[str, Any]]] = [
    (COST_QUESTION, {}),
    (COST_QUESTION, {"explain": True, "k": 3}),
    ("When does the lease of the warehouse end?", {}),
    ("Quantos dias de férias têm os trabalhadores?", {}),
    ("What is the price of the impeller from Borealis?", {"return_context": False}),
    (COST_QUESTION, {"mode": "vector"}),
    ("topic 3 with figures", {"filters": Filters(external_ids=["report-3", "report-4"])}),
    ("annual report figures about region", {"k": 40}),
    # Named documents, as an address that is cut and within the sentence.
    ("Price list: what is the price of the impeller from Borealis?", {"explain": True}),
    ("What does the Price list say about the impeller?", {"explain": True}),
    (UNANSWERABLE_QUESTION, {}),
    ("What is it?", {}),
]


@pytest.mark.parametrize(("question", "options"), REQUESTS)
async def test_rerun_reproduces_run_byte_for_byte(question: str, options: dict[str, Any]) -> None:
    built = make_harness()
    built.add("lease", "The lease of the warehouse ends in 2031.", warning_codes=["EMBEDDED_FILE"])
    response = await built.query(question, **options)
    made = await rerun_query(built)
    assert made.same and made.differences == () and made.missing == ()
    assert made.response.model_dump_json() == response.model_dump_json()
    built.published_events.clear()
    searched = {name: value for name, value in options.items() if name != "return_context"}
    found = await built.search(question, **searched)
    assert (await rerun_query(built)).response.model_dump_json() == found.model_dump_json()


@pytest.mark.parametrize(
    "profile",
    [
        Profile(rerank=RerankProfile(reranker="none")),
        Profile(rerank=RerankProfile(parents=3)),
        Profile(fusion=FusionProfile(method="rrf")),
        Profile(fusion=FusionProfile(near_duplicates=False, per_document=1)),
        Profile(rerank=RerankProfile(expand="sum")),
        Profile(rerank=RerankProfile(word_idf="always")),
        Profile(fusion=FusionProfile(unnamed_semantic=2.0)),
        Profile(rerank=RerankProfile(named_factor=3.0)),
        Profile(
            fusion=FusionProfile(
                freshness=2.0, metadata=1.0, entity_overlap=1.0, hop=3.0, edge_types={"knows": 2.0}
            )
        ),
        Profile(plan=PlanProfile(intents={"factoid": IntentProfile(weights={"lexical": 3.0})})),
    ],
)
@pytest.mark.parametrize("role", ["added", "replaces"])
async def test_rerun_uses_recorded_profile(profile: Profile, role: Any) -> None:
    built = make_harness()
    built.reranker = WordReranker(role=role)
    built.profiles = [profile.model_copy(update={"name": "then"})]
    response = await built.query(profile="then")
    built.profiles = []
    assert (await rerun_query(built)).response.model_dump_json() == response.model_dump_json()


async def test_rerun_reproduces_answer_after_failures() -> None:
    built = make_harness()
    built.embedder.unavailable = True
    built.chat = ScriptedChat({"nonsense": True})
    response = await built.query()
    assert response.trace.channels_failed and "gave no usable answer" in response.limitations[0]
    assert (await rerun_query(built)).response == response


async def test_rerun_reproduces_generated_answer_without_model() -> None:
    built = make_harness()
    built.chat = ScriptedChat(GENERATED_ANSWER)
    response = await built.query()
    assert response.answer and "green" not in response.answer
    built.chat.answer = RuntimeError("a rerun calls no model")
    made = await rerun_query(built)
    assert made.same and made.response == response


async def test_rerun_tolerates_missing_unread_candidate() -> None:
    built = make_harness()
    response = await built.query(k=1)
    made = await rerun_query(built, without=["report-3"])
    assert made.response == response and len(made.missing) == 1


async def test_rerun_names_document_of_missing_passage() -> None:
    built = make_harness()
    response = await built.query()
    with pytest.raises(NotFound, match=str(response.citations[0].document_id)) as raised:
        await rerun_query(built, without=["pump"])
    assert raised.value.code == "PASSAGE_GONE"


async def test_rerun_detects_tampered_answer() -> None:
    built = make_harness()
    await built.query()
    row = {"run_record": None, **make_run_row(built)}
    # A field that an older record lacks is no difference.
    del row["response"]["language"]
    made = await rerun_run(row, LOCAL_CALLER, FakeRecordedTexts(built))
    assert made.same and made.response.language == "en"
    row["response"]["answer"] += "!"
    made = await rerun_run(row, LOCAL_CALLER, FakeRecordedTexts(built))
    assert not made.same and made.differences == ("answer",)


async def record_with_former_settings(**changes: Any) -> tuple[RetrievalHarness, dict[str, Any]]:
    """Return the row of a run that a version with all former settings projected."""
    built = make_harness()
    await built.query()
    row = {"run_record": None, **make_run_row(built)}
    del row["run_record"]["former_settings"]
    row["candidates"][0]["neighbor_mean"] = 0.5
    for name, value in {**FORMER_SETTINGS, **changes}.items():
        *sections, key = name.split(".")
        settings = row["run_record"]["profile"]
        for section in sections:
            settings = settings.setdefault(section, {})
        settings[key] = value
    return built, row


async def test_run_with_the_values_of_constants_is_rerun_alike() -> None:
    built, row = await record_with_former_settings()
    assert (await rerun_run(row, LOCAL_CALLER, FakeRecordedTexts(built))).same


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("answer.max_quotes", 5),
        ("answer.relevance.clear_factor", 2.0),
        ("judge.bias.model_threshold", 0.7),
        ("rerank.smoothing", 0.3),
    ],
)
async def test_rerun_names_a_former_setting_of_another_value(name: str, value: Any) -> None:
    built, row = await record_with_former_settings(**{name: value})
    with pytest.raises(NotFound, match=f"recorded with {name} = {value},") as raised:
        await rerun_run(row, LOCAL_CALLER, FakeRecordedTexts(built))
    assert raised.value.code == "RUN_INCOMPLETE"
    # The event of that version says the same as its row.
    payload = {"run_record": row["run_record"]}
    upcast = QueryAnswered.upcast_payload(payload, 1)["run_record"]
    assert upcast["former_settings"] == {name: value}
    assert RunRecord.model_validate(upcast) == parse_run(row).run_record
    assert QueryAnswered.upcast_payload({"run_record": upcast}, 1)["run_record"] == upcast


async def test_diff_shows_a_former_setting_of_another_value() -> None:
    (_, then), (_, now) = [
        await record_with_former_settings(**changes) for changes in ({"answer.max_quotes": 5}, {})
    ]
    diff = compare_runs(parse_run(then), parse_run(now), NO_CONTEXT)
    assert diff.profile_changes == {"answer.max_quotes": (5, 3)}


def test_former_settings_have_the_values_of_the_program() -> None:
    modules = (fusion, graph, graph_facts, entity_aliases, search, candidate_retrieval, evidence)
    modules += (conflicts, answer_drafts, passages, judge)
    constants = {name: value for module in modules for name, value in vars(module).items()}
    # Smoothing was off.
    values: dict[str, Any] = {"rerank.smoothing": 0.0, "rerank.neighbors": 5}
    for name in FORMER_SETTINGS.keys() - values.keys():
        section, _, key = name.rpartition(".")
        found = vars(relevance) if section == "answer.relevance" else constants
        values[name] = found[RENAMED.get(key, key.upper())]
    assert values == FORMER_SETTINGS


async def test_rerun_requires_recorded_response() -> None:
    built = make_harness()
    await built.query()
    built.published_events.pop()
    with pytest.raises(NotFound, match="has no recorded response and no run_record"):
        await rerun_query(built)


async def test_run_record_contains_hashes_instead_of_text() -> None:
    built = make_harness()
    await built.query(k=1)
    row = make_run_row(built)
    assert "Two technicians" not in json.dumps(
        [row["run_record"], row["candidates"], row["numbers"]]
    )


async def test_whole_passages_are_returned_but_not_recorded() -> None:
    built = make_harness()
    built.add("long", "The pump is green. " * 40)
    response = await built.query("Which pump is green?", return_text=True)
    passage = response.contexts[0]
    assert passage.text is not None and len(passage.text) > len(passage.snippet)
    assert make_run_row(built)["response"]["contexts"][0]["text"] is None
    assert (await rerun_query(built)).same


async def test_failed_engines_of_a_recorded_run_are_listed() -> None:
    built = make_harness()
    built.chat = ScriptedChat(EngineUnavailable("away"))
    built.index.channel_errors["semantic"] = DatabaseUnavailable("away")
    await built.query(mode="hybrid")
    run = parse_run({"run_record": None, **make_run_row(built)})
    assert list_failures(run) == {"channel semantic", "the chat model"}
    built = make_harness()
    await built.query(mode="hybrid")
    assert not list_failures(parse_run({"run_record": None, **make_run_row(built)}))
