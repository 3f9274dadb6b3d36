"""Documents and runs by id, first digits of it, external id, title or file name."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast
from uuid import UUID

import pytest

from anabranch.cli.http_client import ApiClient
from anabranch.cli.names import DOCUMENTS, RUNS, NamedResource, call_with_id, find_id
from schemas.errors import AnabranchError, InvalidRequest, NotFound
from schemas.ids import find_id_range

LEASE = {
    "document_id": "7d4f1c9e-0b1c-8f6e-9a51-2f0c6f7f2f11",
    "external_id": "lease-1",
    "title": "Lease of the mill",
    "filename": "lease.pdf",
}
RENEWED_LEASE = LEASE | {
    "document_id": "7d4f2222-0b1c-8f6e-9a51-2f0c6f7f2f11",
    "external_id": "9a51ffff-0000-4000-8000-000000000001",
    "filename": "renewed.pdf",
}
RUN = {"run_id": "abcd1c9e-0b1c-4f6e-9a51-2f0c6f7f2f11", "query": "Where is the mill?"}


@dataclass
class ListClient:
    """Answers lists as the API does."""

    documents: list[dict[str, Any]] = field(default_factory=lambda: [LEASE, RENEWED_LEASE])
    next: str | None = None

    async def get(self, path: str, **parameters: Any) -> dict[str, Any]:
        if path == RUNS.path:
            return {"items": [item for item in [RUN] if has_prefix(item, parameters)], "next": None}
        items = [item for item in self.documents if matches(item, parameters)]
        return {"items": items, "next": self.next}


def has_prefix(item: dict[str, Any], parameters: dict[str, Any]) -> bool:
    return "id_prefix" not in parameters or item["run_id"].startswith(parameters["id_prefix"])


def matches(item: dict[str, Any], parameters: dict[str, Any]) -> bool:
    names = [item["external_id"], item["title"], item["filename"]]
    if text := parameters.get("text"):
        return any(text.lower() in name.lower() for name in names)
    if name := parameters.get("name"):
        first, last = find_id_range(name)
        in_range = first and last and first <= UUID(item["document_id"]) <= last
        return name in names or bool(in_range)
    return True


async def find(name: str, resource: NamedResource = DOCUMENTS, **options: Any) -> str:
    client = cast("ApiClient", options.pop("client", ListClient()))
    return await find_id(client, resource, name, **options)


async def fail_to_find(name: str, error: type[AnabranchError], **options: Any) -> AnabranchError:
    with pytest.raises(error) as raised:
        await find(name, **options)
    return raised.value


@pytest.mark.parametrize(
    ("name", "document"),
    [
        (LEASE["document_id"].upper(), LEASE),
        ("7d4f1", LEASE),
        ("7D4F1C9E-0B", LEASE),
        ("7d4f2222", RENEWED_LEASE),
        ("lease-1", LEASE),
        ("renewed.pdf", RENEWED_LEASE),
    ],
)
async def test_document_is_found_by_id_prefix_or_name(name: str, document: dict[str, Any]) -> None:
    assert await find(name) == document["document_id"]


async def test_run_is_found_by_first_digits_of_its_id() -> None:
    assert await find("abcd", RUNS) == RUN["run_id"]
    assert RUN["query"] in (await fail_to_find("mill", NotFound, resource=RUNS)).remedy


@pytest.mark.parametrize("name", ["7d4f", "Lease of the mill"])
async def test_ambiguous_name_lists_its_candidates(name: str) -> None:
    error = await fail_to_find(name, InvalidRequest)
    assert error.code == "AMBIGUOUS_NAME"
    assert LEASE["document_id"] in error.remedy and RENEWED_LEASE["document_id"] in error.remedy


async def test_name_with_more_matches_than_a_page_is_ambiguous() -> None:
    client = ListClient([LEASE], next="more")
    assert (await fail_to_find("lease-1", InvalidRequest, client=client)).code == "AMBIGUOUS_NAME"


@pytest.mark.parametrize("name", ["renewed", "RENEWED.PDF", "renewd.pdf"])
async def test_unknown_name_suggests_similar_documents(name: str) -> None:
    error = await fail_to_find(name, NotFound)
    assert RENEWED_LEASE["document_id"] in error.remedy.splitlines()[1]


async def test_unknown_name_unlike_any_refers_to_list() -> None:
    assert "documents list" in (await fail_to_find("zzzzzz", NotFound)).remedy


async def test_exact_name_wins_over_first_digits_of_an_id() -> None:
    named = RENEWED_LEASE | {"external_id": "7d4f1c9e"}
    client = ListClient([LEASE, named])
    assert await find("7d4f1c9e", client=client) == named["document_id"]


async def test_deletion_takes_no_first_digits_of_an_id() -> None:
    assert (await fail_to_find("7d4f1", InvalidRequest, is_exact=True)).code == "NOT_EXACT"
    assert await find("lease-1", is_exact=True) == LEASE["document_id"]


async def test_external_id_may_have_the_form_of_an_id() -> None:
    async def fetch(client: ApiClient, document_id: str) -> str:
        if document_id != RENEWED_LEASE["document_id"]:
            raise NotFound(f"Unknown document {document_id}.")
        return document_id

    client = cast("ApiClient", ListClient())
    external_id = RENEWED_LEASE["external_id"]
    assert (
        await call_with_id(client, DOCUMENTS, external_id, fetch, True)
        == RENEWED_LEASE["document_id"]
    )
    with pytest.raises(NotFound):
        await call_with_id(client, DOCUMENTS, str(UUID(int=7)), fetch, True)
