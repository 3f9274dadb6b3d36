"""Facts that are proposed twice or at once, and names of entities."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import httpx2
import pytest
from pydantic import ValidationError

from anabranch.cli import main
from api.app import create_app
from schemas.errors import LogUnavailable
from schemas.facts import FactRequest, FactStatus
from schemas.principals import Principal
from schemas.topics import Position
from services.facts import FactService
from services.publishing import EventPublisher
from tests.fakes.failing_server import ServeAnswers, serve_answers
from tests.support.api_client import BEARER, LOCAL_CALLER, add_local_token
from tests.unit.api_fakes import Stub, make_services

NOW = datetime(2026, 11, 25, tzinfo=UTC)
ANA = FactRequest(subject="The contact for plant 3", predicate="is", object="Ana")


class LateTable:
    """Shows no fact yet, unless it is listed."""

    def __init__(self) -> None:
        self.shown: set[UUID] = set()

    async def find(self, caller: Any, fact_id: UUID) -> Any:
        await asyncio.sleep(0)
        return fact_id if fact_id in self.shown else None

    async def find_equal(self, tenant: str, request: FactRequest, now: datetime) -> UUID | None:
        await asyncio.sleep(0)
        return None


class FakeLog:
    def __init__(self) -> None:
        self.n_appended = 0
        self.is_available = True

    async def append(self, records: Sequence[Any]) -> list[Position]:
        await asyncio.sleep(0)
        if not self.is_available:
            raise LogUnavailable("The log is unavailable.")
        self.n_appended += len(records)
        return [Position("feedback", 0, self.n_appended)]


class PlainCodec:
    async def encode(self, event: Any, topic: Any, key: str) -> Any:
        return event


def build_service() -> tuple[FactService, FakeLog, LateTable]:
    log, table = FakeLog(), LateTable()
    service = FactService(EventPublisher(log, PlainCodec(), lambda: NOW), table)  # type: ignore[arg-type]
    return service, log, table


async def test_fact_proposed_twice_at_once_is_published_once() -> None:
    service, log, _ = build_service()
    first, second = await asyncio.gather(
        service.propose(LOCAL_CALLER, ANA), service.propose(LOCAL_CALLER, ANA)
    )
    assert (second.fact_id, second.duplicate) == (first.fact_id, True)
    other = await service.propose(LOCAL_CALLER, ANA.model_copy(update={"object": "Rui"}))
    assert not other.duplicate and log.n_appended == 2


async def test_rejected_fact_can_be_proposed_again_at_once() -> None:
    service, _, table = build_service()
    first = await service.propose(LOCAL_CALLER, ANA)
    table.shown.add(first.fact_id)  # not among the equal ones: it was rejected
    assert not (await service.propose(LOCAL_CALLER, ANA)).duplicate


async def test_fact_that_was_not_published_can_be_proposed_again() -> None:
    service, log, _ = build_service()
    log.is_available = False
    with pytest.raises(LogUnavailable):
        await service.propose(LOCAL_CALLER, ANA)
    log.is_available = True
    assert not (await service.propose(LOCAL_CALLER, ANA)).duplicate


@pytest.mark.parametrize(("decision", "status"), [("approve", "approved"), ("reject", "rejected")])
async def test_decision_returns_once_the_tables_show_it(decision: str, status: FactStatus) -> None:
    service, log, _ = build_service()
    looked_at: list[int] = []

    class SlowTable:
        async def find(self, caller: Any, fact_id: UUID) -> Any:
            looked_at.append(log.n_appended)
            return SimpleNamespace(status=status if len(looked_at) > 3 else "proposed")

    waiting = replace(service, facts=SlowTable())  # type: ignore[arg-type]
    arguments = (LOCAL_CALLER, uuid4(), *([None] if decision == "reject" else []))
    receipt = await getattr(waiting, decision)(*arguments)
    assert receipt.status == "applied" and looked_at == [0, 1, 1, 1]
    looked_at.clear()
    late = await getattr(replace(waiting, decision_wait_s=0.0), decision)(*arguments)
    assert late.status == "accepted"


def test_reader_that_is_no_user_or_group_is_rejected() -> None:
    with pytest.raises(ValidationError):
        FactRequest(subject="a", predicate="is", object="b", readers=["ana"])


__all__ = ["serve_answers"]
PARIS, OTHER_PARIS, MERGER = UUID(int=1), UUID(int=2), UUID(int=3)
DETAILS: dict[str, Any] = {
    "type": "LOC",
    "name": "Paris",
    "aliases": [],
    "added_aliases": [],
    "mentions": 3,
    "found_aliases": [],
    "occurrences": [],
    "relations": [],
    "claims": [],
    "parts": [],
}


NAMED_ENTITIES = [
    {"id": PARIS, "type": "LOC", "name": "Paris"},
    {"id": OTHER_PARIS, "type": "PERSON", "name": "Paris"},
    {"id": MERGER, "type": "ORG", "name": "AC/DC Müller & Co."},
]


class NamedEntities(Stub):
    def __init__(self) -> None:
        super().__init__(
            find_by_name=lambda caller, name, kind: [
                body
                for body in NAMED_ENTITIES
                if body["name"] == name and kind in (None, body["type"])
            ],
            get_entity=lambda caller, entity_id: {**DETAILS, "id": entity_id},
        )


def make_changes() -> Stub:
    applied = {**DETAILS, "status": "applied"}
    return Stub(
        amend_entity=lambda caller, entity_id, amendment: applied | {"id": entity_id},
        merge_entity=lambda caller, entity_id, into: applied | {"id": into},
        split_entity=lambda caller, entity_id, part: applied | {"id": UUID(part)},
    )


async def fetch(path: str) -> httpx2.Response:
    app = create_app(add_local_token(make_services(entities=NamedEntities())))
    async with httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app), base_url="http://localhost:8420", headers=BEARER
    ) as client:
        return await client.get(path)


@pytest.mark.parametrize(
    ("path", "entity"),
    [
        (str(MERGER), MERGER),
        ("AC%2FDC%20M%C3%BCller%20%26%20Co.", MERGER),
        ("Paris?type=LOC", PARIS),
        ("Paris?type=PERSON", OTHER_PARIS),
    ],
)
async def test_entity_is_addressed_by_name(path: str, entity: UUID) -> None:
    response = await fetch(f"/v1/entities/{path}")
    assert response.status_code == 200 and response.json()["id"] == str(entity)


async def test_ambiguous_and_unknown_names_are_explained() -> None:
    several = (await fetch("/v1/entities/Paris")).json()
    assert several["code"] == "AMBIGUOUS_NAME"
    assert f"{PARIS} (LOC)" in several["detail"] and f"{OTHER_PARIS} (PERSON)" in several["detail"]
    unknown = await fetch("/v1/entities/Pariss")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "NOT_FOUND")
    assert (await fetch(f"/v1/entities/{'x' * 1025}")).status_code == 422


@pytest.mark.parametrize(
    ("method", "path", "body", "expected"),
    [
        ("PATCH", "", {"add_aliases": ["City of Light"]}, ("entity.amended", str(PARIS))),
        ("PATCH", "", {"type": "ORG"}, ("entity.amended", str(PARIS))),
        ("POST", "/merge", {"into": str(MERGER)}, ("entity.merged", f"{PARIS} into {MERGER}")),
        ("POST", "/split", {"part": str(MERGER)}, ("entity.split", f"{MERGER} from {PARIS}")),
    ],
)
async def test_audit_records_the_id_of_an_entity_addressed_by_name(
    method: str, path: str, body: dict[str, Any], expected: tuple[str, str]
) -> None:
    recorded: list[Any] = []

    class Audit:
        async def record(self, caller: Principal, action: str, subject: Any, *_: Any) -> None:
            recorded.append((action, subject))

    services = make_services(entities=NamedEntities(), audit=Audit(), entity_changes=make_changes())
    async with httpx2.AsyncClient(
        transport=httpx2.ASGITransport(create_app(add_local_token(services))),
        base_url="http://localhost:8420",
        headers=BEARER,
    ) as client:
        response = await client.request(method, f"/v1/entities/Paris{path}?type=LOC", json=body)
    assert response.status_code == 200, response.text
    assert recorded == [expected]


def test_command_sends_a_name_with_any_character(
    serve_answers: ServeAnswers, capsys: pytest.CaptureFixture[str]
) -> None:
    serve_answers({"/v1/entities/AC/DC & Co.??type=ORG": {**DETAILS, "id": str(MERGER)}}, 1)
    assert main(["entities", "show", "AC/DC & Co.?", "--type", "ORG"]) == 0
    assert str(MERGER) in capsys.readouterr().out
