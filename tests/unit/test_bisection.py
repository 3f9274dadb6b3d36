"""Bisection: the change between two runs that flipped the answer."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from math import ceil, log2
from typing import Any
from uuid import UUID

import pytest

from retrieval.runs.bisection import bisect_runs
from retrieval.runs.recorded_run import RecordedRun, parse_run
from retrieval.runs.rerun import fetch_run_texts
from schemas.errors import InvalidRequest
from schemas.ids import make_document_id
from schemas.ports.lineage import RevisionArrival
from schemas.profiles import Profile, RedactionProfile
from schemas.questions import QueryRequest
from schemas.run_records import Bisection
from schemas.topics import Position
from tests.support.api_client import LOCAL_CALLER
from tests.unit.retrieval_harness import COST_QUESTION, LEASE, PUMP, STAFF, RetrievalHarness
from tests.unit.run_rows import FakeRecordedTexts, make_run_row

START = datetime(2026, 1, 1, tzinfo=UTC)
FILLERS = [f"The replacement of bearing number {n} was postponed again." for n in range(6)]


def build(**texts: str) -> RetrievalHarness:
    built = RetrievalHarness()
    for name, text in texts.items():
        built.add(name, text, title=name.title())
    return built


async def record(
    built: RetrievalHarness,
    number: int,
    question: str = COST_QUESTION,
    profile: str = "default",
    **options: Any,
) -> tuple[RecordedRun, dict[UUID, str]]:
    built.published_events.clear()
    request = QueryRequest(query=question, profile=profile, **options)
    await built.make_retriever().query(LOCAL_CALLER, request, UUID(int=number))
    run = parse_run({"run_record": None, **make_run_row(built)})
    run = replace(run, answered_at=(START + timedelta(days=number)).isoformat())
    return run, dict(await fetch_run_texts(run, LOCAL_CALLER, FakeRecordedTexts(built)))


def arrive(name: str, day: float, *, is_withdrawn: bool = False) -> RevisionArrival:
    return RevisionArrival(
        make_document_id("default", "", name),
        *(1, name.title(), name, START + timedelta(days=day)),
        Position("accepted", 0, int(day * 100)),
        name,
        is_withdrawn,
    )


async def bisect(
    earlier: tuple[RecordedRun, dict[UUID, str]],
    later: tuple[RecordedRun, dict[UUID, str]],
    *arrivals: RevisionArrival,
) -> Bisection:
    texts = earlier[1] | later[1]
    return await bisect_runs(earlier[0], later[0], LOCAL_CALLER, texts, arrivals)


async def test_added_document_among_many_is_named_in_log_n_reruns() -> None:
    base = {"lease": LEASE, "staff": STAFF}
    more = {f"filler{n}": text for n, text in enumerate(FILLERS)}
    earlier = await record(build(**base), 1)
    names = list(more)
    later = await record(build(**base, **more, pump=PUMP), 3)
    days = {name: 1.1 + n / 10 for n, name in enumerate([*names[:3], "pump", *names[3:]])}
    arrivals = [arrive(name, 0.5) for name in base] + [arrive(*pair) for pair in days.items()]
    found = await bisect(earlier, later, *arrivals)
    assert found.document is not None and found.document.title == "Pump"
    assert (found.document.revision_then, found.document.revision_now) == (None, 1)
    assert found.document.offset == int(days["pump"] * 100)
    assert found.reason.cause == "document" and "18,740" in (found.after or "")
    assert "18,740" not in (found.before or "")
    assert found.changes == 8 and found.reruns <= ceil(log2(found.changes))


async def test_withdrawn_document_is_named() -> None:
    earlier = await record(build(lease=LEASE, staff=STAFF, pump=PUMP), 1)
    later = await record(build(lease=LEASE, staff=STAFF), 3)
    arrivals = [arrive("lease", 0.1), arrive("staff", 0.2), arrive("pump", 0.3, is_withdrawn=True)]
    found = await bisect(earlier, later, *arrivals)
    assert found.reason.detail == "Pump is no longer searchable" and found.after is None


async def test_changed_profile_is_named() -> None:
    pump = PUMP.replace("euros", "euros, says ana@example.com")
    built = build(lease=LEASE, staff=STAFF, pump=pump)
    built.profiles = [Profile(name="strict", redaction=RedactionProfile(kinds=["email"]))]
    arrivals = [arrive(name, 0.5) for name in ("lease", "staff", "pump")]
    earlier = await record(built, 1)
    later = await record(built, 3, profile="strict")
    if earlier[0].response.answer == later[0].response.answer:  # type: ignore[union-attr]
        pytest.fail("the profiles must answer differently")
    assert (await bisect(earlier, later, *arrivals)).reason.cause == "profile"


async def test_same_answers_and_other_questions_are_rejected() -> None:
    built = build(lease=LEASE, pump=PUMP)
    earlier, later = await record(built, 1), await record(built, 3)
    other = await record(built, 4, "When does the lease end?")
    # What such a question leaves out is filled in from the conversation.
    turn = {"role": "user", "text": "When does the lease end?"}
    continued = await record(built, 5, history=[turn])
    different = "DIFFERENT_QUESTIONS"
    for second, code in ((later, "SAME_ANSWER"), (other, different), (continued, different)):
        with pytest.raises(InvalidRequest) as raised:
            await bisect(earlier, second, arrive("lease", 0.5), arrive("pump", 0.5))
        assert raised.value.code == code
