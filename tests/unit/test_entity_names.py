"""Address entities by name over HTTP and by the command line."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import httpx2
import pytest

from anabranch.cli import main
from api.app import create_app
from schemas.entities import EntityAmendment
from schemas.principals import Principal
from tests.fakes.failing_server import ServeAnswers, serve_answers
from tests.support.api_client import BEARER, add_local_token
from tests.unit.api_fakes import NoEntities, make_services

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


class NamedEntities(NoEntities):
    async def find_by_name(
        self, caller: Principal, name: str, kind: str | None
    ) -> list[dict[str, Any]]:
        known = [
            {"id": PARIS, "type": "LOC", "name": "Paris"},
            {"id": OTHER_PARIS, "type": "PERSON", "name": "Paris"},
            {"id": MERGER, "type": "ORG", "name": "AC/DC Müller & Co."},
        ]
        return [body for body in known if body["name"] == name and kind in (None, body["type"])]

    async def get_entity(self, caller: Principal, entity_id: UUID) -> dict[str, Any] | None:
        return {**DETAILS, "id": entity_id}


class AppliedChanges(NoEntities):
    async def amend_entity(
        self, caller: Principal, entity_id: UUID, amendment: EntityAmendment
    ) -> dict[str, Any]:
        return {**DETAILS, "id": entity_id, "status": "applied"}

    async def merge_entity(self, caller: Principal, entity_id: UUID, into: UUID) -> dict[str, Any]:
        return {**DETAILS, "id": into, "status": "applied"}

    async def split_entity(self, caller: Principal, entity_id: UUID, part: str) -> dict[str, Any]:
        return {**DETAILS, "id": UUID(part), "status": "applied"}


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

    services = make_services(
        entities=NamedEntities(), audit=Audit(), entity_changes=AppliedChanges()
    )
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
    serve_answers({"/v1/entities/AC/DC & Co.?": {**DETAILS, "id": str(MERGER)}}, 1)
    assert main(["entities", "show", "AC/DC & Co.?"]) == 0
    assert str(MERGER) in capsys.readouterr().out
