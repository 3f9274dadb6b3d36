"""Shared tables reveal nothing across tenants: names, counts, memos, external ids."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from anabranch.composition.api import prepare_api
from anabranch.config.loader import load_settings
from anabranch.config.overrides import Overrides
from api.services import Services
from schemas.errors import InvalidRequest
from schemas.events import SourceAdded
from schemas.ids import content_id, sha256_hex
from schemas.ingest import IngestRequest
from schemas.principals import Principal, is_valid_tenant
from schemas.rows import EventRow
from schemas.sources import SourceSpec
from services.generations.service import GenerationService
from sql.catalog.sources import PgSources
from sql.database import connect
from sql.inbox.ledger import PgEngineResultCache
from sql.inbox.shared_rows import write_shared_rows
from streams.stage import build_memo_key
from tests.fakes.null_embedder import NullEmbedder
from tests.support.api_client import LOCAL_CALLER, make_caller
from tests.support.document_rows import SampleDocument, insert_accepted, insert_documents
from tests.support.search_stack import SearchStack
from tests.support.submissions import submit

ANA, BEN = (
    make_caller(name="jwt:ana", readers=("user:ana",)),
    make_caller(name="jwt:ben", readers=("user:ben",)),
)
FOLDER_SOURCE = {"kind": "folder", "path": "/library"}


@pytest.fixture
async def services(tmp_path: Path, database: str) -> AsyncIterator[Services]:
    settings = load_settings(data_dir=tmp_path / "data", sets=["logging.level=error"])
    async with prepare_api(
        settings, database, overrides=Overrides(embedder=NullEmbedder(64, 16))
    ) as prepared:
        yield prepared


@pytest.fixture
async def connection(database: str) -> AsyncIterator[asyncpg.Connection]:
    opened = await connect(database, name="rows")
    yield opened
    await opened.close()


def make_source_row(tenant: str) -> EventRow:
    spec = SourceSpec.model_validate({"name": "crm", "tenant": tenant, "connector": FOLDER_SOURCE})
    return EventRow(SourceAdded(source=spec))


async def test_source_name_belongs_to_the_first_tenant(stack: SearchStack) -> None:
    for tenant in ("acme", "bolt"):
        await write_shared_rows(stack.connection, [make_source_row(tenant)])
    [source] = await PgSources(stack.pool).list_overview()
    assert source["spec"]["tenant"] == "acme"


async def test_source_count_excludes_other_tenants(stack: SearchStack) -> None:
    await write_shared_rows(stack.connection, [make_source_row("acme")])
    await insert_documents(
        stack.connection,
        SampleDocument("mine", ["heron"], tenant="acme"),
        SampleDocument("theirs", ["heron"], tenant="bolt"),
    )
    await stack.connection.execute("update documents set source = 'anabranch/source/crm'")
    [source] = await PgSources(stack.pool).list_overview()
    assert source["documents"] == 1


def make_generation_service(found: SearchStack) -> GenerationService:
    return GenerationService(found.pool, None, None, None, None)  # type: ignore[arg-type]


async def test_generation_counts_cover_only_the_admins_tenant(stack: SearchStack) -> None:
    await insert_documents(
        stack.connection,
        SampleDocument("mine", ["heron", "stork"], tenant="acme"),
        *(SampleDocument(f"theirs-{number}", ["heron"], tenant="bolt") for number in range(3)),
    )
    desk = make_generation_service(stack)
    counts = {}
    for tenant, role in (
        ("acme", "admin"),
        ("bolt", "admin"),
        ("outsider", "admin"),
        ("acme", "operator"),
    ):
        who = replace(make_caller(tenant), role=role)
        [listed] = await desk.list_generations(who)
        assert await desk.get_generation(who, "g1") == listed
        counts[tenant, role] = (
            listed["documents"],
            listed["chunks"],
            listed["bytes"] is not None,
            listed["build"],
        )
    assert counts == {
        ("acme", "admin"): (1, 2, False, None),
        ("bolt", "admin"): (3, 3, False, None),
        ("outsider", "admin"): (0, 0, False, None),
        ("acme", "operator"): (4, 5, True, None),
    }


async def test_build_progress_is_visible_to_operators_only(stack: SearchStack) -> None:
    await stack.connection.execute("update generations set state = 'shadow'")
    await stack.connection.execute("insert into generation_builds (generation) values ('g1')")
    assert (await make_generation_service(stack).get_generation(LOCAL_CALLER, "g1"))[
        "build"
    ] is not None
    assert (
        await make_generation_service(stack).get_generation(
            replace(LOCAL_CALLER, role="admin"), "g1"
        )
    )["build"] is None


async def test_external_id_of_unreadable_document_is_rejected(
    services: Services, connection: asyncpg.Connection
) -> None:
    for doc in (
        SampleDocument("secret", ["herons nest in the vault"], readers=ANA.readers),
        SampleDocument("open", ["herons nest on the weir"]),
    ):
        await insert_accepted(connection, doc)
    sent = "select count(*) from events where topic = 'raw'"
    for who, external_id, taken in (
        (BEN, "secret", True),
        (BEN, "open", False),
        (BEN, "fresh", False),
        (ANA, "secret", False),
        (LOCAL_CALLER, "secret", False),
    ):
        before = await connection.fetchval(sent)
        request = IngestRequest(
            text="herons nest in the vault", external_id=external_id, readers=who.readers
        )
        offered = submit(services.ingest, who, request)
        if taken:
            with pytest.raises(InvalidRequest) as refused:
                await offered
            assert (refused.value.code, refused.value.detail) == (
                "EXTERNAL_ID_TAKEN",
                "external_id 'secret' cannot be used.",
            )
        else:
            assert (await offered).external_id == external_id
        assert await connection.fetchval(sent) == before + (not taken)


async def test_ingest_does_not_reveal_duplicates_of_unreadable_documents(
    services: Services, connection: asyncpg.Connection
) -> None:
    text = "The bid is 4,100 euros."

    async def sent(who: Principal, **fields: Any) -> tuple[UUID, bool]:
        receipt = await submit(
            services.ingest, who, IngestRequest(text=text, readers=who.readers, **fields)
        )
        return receipt.document_id, receipt.duplicate

    for name, fields in (
        (sha256_hex(text.encode()), {}),
        ("https://bids.example/1", {"source_uri": "https://bids.example/1"}),
    ):
        shared = SampleDocument(name, [text], language=None)
        await insert_accepted(connection, shared)
        answers = {
            who.id: [await sent(who, **fields) for _ in range(2)]
            for who in (LOCAL_CALLER, ANA, BEN)
        }
        assert answers[LOCAL_CALLER.id] == [(shared.id, True)] * 2
        assert len({document for answer in answers.values() for document, _ in answer}) == 3
        assert all(first == second for first, second in answers.values())
        assert not any(duplicate for who in (ANA, BEN) for _, duplicate in answers[who.id])


async def test_memoized_vectors_belong_to_one_tenant_and_document(stack: SearchStack) -> None:
    memo = PgEngineResultCache(stack.pool)
    document, other = (
        content_id("document", "acme", "", "a"),
        content_id("document", "acme", "", "b"),
    )
    mine = build_memo_key("acme", document, "null/64", b"heron")
    await memo.store({mine: b"vector"})
    others = [
        build_memo_key("bolt", document, "null/64", b"heron"),
        build_memo_key("acme", other, "null/64", b"heron"),
        build_memo_key("acme", document, "e5", b"heron"),
    ]
    assert await memo.fetch([mine, *others]) == {mine: b"vector"}
    await memo.store({others[0]: b"theirs"})
    assert await memo.fetch([mine, others[0]]) == {mine: b"vector", others[0]: b"theirs"}


@pytest.mark.parametrize(
    "name",
    [
        *(
            "Acme",
            "ACME",
            "aCme",
            "uploads",
            "",
            ".",
            "..",
            "-acme",
            "_acme",
            ".acme",
            "a" * 65,
            "a/b",
            "a\\b",
            "a b",
            "a\0",
            "a\n",
            "acme\n",
        ),
        *(
            "default ",
            " default",
            "default\u200b",
            "default\u202e",
            "\u202edefault",
            "d\u0435fault",
            "ａcme",
            "\u00e4cme",
            "a:b",
            "a%2fb",
            "*",
        ),
        *("0190d3c7-6f5e-7c11-9d0a-3f1c2b4a5d6e", "00000000-0000-0000-0000-000000000000"),
    ],
)
async def test_ambiguous_tenant_name_is_rejected(name: str) -> None:
    assert not is_valid_tenant(name)
    with pytest.raises(InvalidRequest) as refused:
        LOCAL_CALLER.for_tenant(name)
    assert refused.value.detail.isprintable()


@pytest.mark.parametrize(
    "name", ["default", "a", "0", "acme.eu-1_b", "a" * 64, "upload", "0190d3c7-6f5e-7c11-9d0a"]
)
def test_plain_tenant_name_is_accepted(name: str) -> None:
    assert is_valid_tenant(name) and LOCAL_CALLER.for_tenant(name).tenant == name
