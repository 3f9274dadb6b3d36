"""Counterfactual citations: the answer with each cited document left out."""

from __future__ import annotations

import pytest

from retrieval.runs.counterfactual import answer_without_each_document
from retrieval.runs.recorded_run import parse_run
from retrieval.runs.rerun import fetch_run_texts
from schemas.errors import InvalidRequest
from schemas.run_records import CounterfactualAnswer
from tests.support.api_client import LOCAL_CALLER
from tests.unit.retrieval_fakes import ScriptedChat, write_reply
from tests.unit.retrieval_harness import COST_QUESTION, LEASE, PUMP, STAFF, RetrievalHarness
from tests.unit.run_rows import FakeRecordedTexts, make_run_row

SAME_PRICE = "In the budget, the replacement of the bearing costs 18,740 euros in all."
OTHER_PRICE = PUMP.replace("18,740", "21,300")


def build(**texts: str) -> RetrievalHarness:
    built = RetrievalHarness()
    for name, text in ({"lease": LEASE, "staff": STAFF} | texts).items():
        built.add(name, text, title=name.title())
    return built


async def leave_out_each(built: RetrievalHarness) -> CounterfactualAnswer:
    await built.query(COST_QUESTION)
    record = parse_run({"run_record": None, **make_run_row(built)})
    texts = await fetch_run_texts(record, LOCAL_CALLER, FakeRecordedTexts(built))
    return await answer_without_each_document(record, LOCAL_CALLER, texts)


async def test_answer_of_one_document_is_unsupported_without_it() -> None:
    found = await leave_out_each(build(pump=PUMP))
    assert found.verdict == "one_document" and "rests on one document: Pump" in found.summary
    [pump] = [one for one in found.documents if one.title == "Pump"]
    assert (pump.outcome, pump.answer) == ("unsupported", None)


async def test_documents_with_the_same_value_confirm_the_answer() -> None:
    found = await leave_out_each(build(pump=PUMP, budget=SAME_PRICE))
    assert found.verdict == "confirmed" and "confirmed by 2 documents" in found.summary
    assert len(found.confirming) == 2
    assert {one.outcome for one in found.documents} == {"unchanged"}
    assert all("18,740" in (one.answer or "") for one in found.documents)


async def test_document_with_another_value_says_otherwise() -> None:
    found = await leave_out_each(build(pump=PUMP, pump2021=OTHER_PRICE))
    assert found.verdict == "contested"
    values = {one.title: one.value for one in found.documents if one.outcome == "other_value"}
    assert "21,300 euros" in (values.get("Pump") or "") or "18,740 euros" in (
        values.get("Pump2021") or ""
    )
    assert "says otherwise" in found.summary


async def test_written_answer_is_compared_by_quotes_without_a_call() -> None:
    built = build(pump=PUMP)
    built.chat = ScriptedChat(
        write_reply(("The replacement of the bearing costs 18,740 euros.", [1]))
    )
    await built.query(COST_QUESTION)
    record = parse_run({"run_record": None, **make_run_row(built)})
    built.chat.answer = RuntimeError("no model is called")
    texts = await fetch_run_texts(record, LOCAL_CALLER, FakeRecordedTexts(built))
    found = await answer_without_each_document(record, LOCAL_CALLER, texts)
    assert not found.is_quoted and [one.outcome for one in found.documents] == ["unsupported"]


async def test_run_without_citations_is_rejected() -> None:
    built = build()
    await built.search(COST_QUESTION)
    record = parse_run({"run_record": None, **make_run_row(built)})
    with pytest.raises(InvalidRequest) as raised:
        await answer_without_each_document(record, LOCAL_CALLER, {})
    assert raised.value.code == "NO_CITATIONS"
