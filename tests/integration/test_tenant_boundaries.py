"""What tenants share on a server and must not learn of each other by it: names, counts, memos, external ids."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from anabranch.composition.api import prepare_api
from anabranch.composition.overrides import Overrides
from anabranch.desk.generations import GenerationDesk
from anabranch.settings_loading import load_settings
from api.services import IngestRequest, Services
from engines.embed.null import NullEmbedder
from schemas.errors import InvalidRequest
from schemas.events.raw import is_tenant
from schemas.ids import content_id, sha256_hex
from schemas.principals import Principal
from schemas.rows import SourceRow
from schemas.sources import SourceSpec
from sql.memo import PgMemo
from sql.pool import connect
from sql.source_decisions import declare
from sql.sources import PgSources
from streams.memo import memo_key
from tests.callers import LOCAL, caller
from tests.rows import Doc, accept, add
from tests.searching import Stand, stand

ANA, BEN = caller(name="jwt:ana", readers=("user:ana",)), caller(name="jwt:ben", readers=("user:ben",))
FOLDER = {"kind": "folder", "path": "/library"}


@pytest.fixture
async def services(tmp_path: Path, database: str) -> AsyncIterator[Services]:
    settings = load_settings(data_dir=tmp_path / "data", sets=["logging.level=error"])
    async with prepare_api(settings, database, overrides=Overrides(embedder=NullEmbedder(64, 16))) as prepared:
        yield prepared


@pytest.fixture
async def connection(database: str) -> AsyncIterator[asyncpg.Connection]:
    opened = await connect(database, name="rows")
    yield opened
    await opened.close()


async def test_of_two_tenants_that_take_a_name_at_once_the_first_has_it(database: str) -> None:
    async with stand(database) as desk:
        for tenant in ("acme", "bolt"):
            await declare(desk.connection, SourceRow(SourceSpec(name="crm", tenant=tenant, takes=FOLDER), 1))  # type: ignore[arg-type]
        [source] = await PgSources(desk.pool).overview()
        assert source["spec"]["tenant"] == "acme"


async def test_source_counts_no_documents_of_another_tenant(database: str) -> None:
    async with stand(database) as desk:
        await declare(desk.connection, SourceRow(SourceSpec(name="crm", tenant="acme", takes=FOLDER), 1))  # type: ignore[arg-type]
        await add(desk.connection, Doc("mine", ["heron"], tenant="acme"), Doc("theirs", ["heron"], tenant="bolt"))
        await desk.connection.execute("update documents set source = 'anabranch/source/crm'")
        [source] = await PgSources(desk.pool).overview()
        assert source["documents"] == 1


def desk_over(found: Stand) -> GenerationDesk:
    return GenerationDesk(found.pool, None, None, None)  # type: ignore[arg-type]


async def test_generations_tell_an_admin_of_its_own_tenant_only(database: str) -> None:
    async with stand(database) as found:
        await add(found.connection, Doc("mine", ["heron", "stork"], tenant="acme"), *(Doc(f"theirs-{number}", ["heron"], tenant="bolt") for number in range(3)))
        desk = desk_over(found)
        counts = {}
        for tenant, role in (("acme", "admin"), ("bolt", "admin"), ("nobody", "admin"), ("acme", "operator")):
            who = replace(caller(tenant), role=role)
            [listed] = await desk.all(who)
            assert await desk.one(who, "g1") == listed
            counts[tenant, role] = (listed["documents"], listed["chunks"], listed["bytes"] is not None, listed["build"])
        assert counts == {
            ("acme", "admin"): (1, 2, False, None),
            ("bolt", "admin"): (3, 3, False, None),
            ("nobody", "admin"): (0, 0, False, None),
            ("acme", "operator"): (4, 5, True, None),
        }


async def test_progress_of_a_build_is_for_operators(database: str) -> None:
    async with stand(database) as found:
        await found.connection.execute("update generations set state = 'shadow'")
        await found.connection.execute("insert into generation_builds (generation) values ('g1')")
        assert (await desk_over(found).one(LOCAL, "g1"))["build"] is not None
        assert (await desk_over(found).one(replace(LOCAL, role="admin"), "g1"))["build"] is None


async def test_external_id_of_an_unreadable_document_is_refused_and_nothing_sent(services: Services, connection: asyncpg.Connection) -> None:
    for doc in (Doc("secret", ["herons nest in the vault"], readers=ANA.readers), Doc("open", ["herons nest on the weir"])):
        await accept(connection, doc)
    sent = "select count(*) from events where topic = 'raw'"
    for who, external_id, taken in ((BEN, "secret", True), (BEN, "open", False), (BEN, "fresh", False), (ANA, "secret", False), (LOCAL, "secret", False)):
        before = await connection.fetchval(sent)
        request = IngestRequest(text="herons nest in the vault", external_id=external_id, readers=who.readers)
        offered = services.intake.accept(who, request, None, services.intake.begin(who, None))
        if taken:
            with pytest.raises(InvalidRequest) as refused:
                await offered
            assert (refused.value.code, refused.value.detail) == ("EXTERNAL_ID_TAKEN", "external_id 'secret' cannot be used.")
        else:
            assert (await offered).external_id == external_id
        assert await connection.fetchval(sent) == before + (not taken)


async def test_limited_callers_do_not_learn_who_else_has_the_same_bytes(services: Services, connection: asyncpg.Connection) -> None:
    text = "The bid is 4,100 euros."

    async def sent(who: Principal, **fields: Any) -> tuple[UUID, bool]:
        receipt = await services.intake.accept(who, IngestRequest(text=text, readers=who.readers, **fields), None, services.intake.begin(who, None))
        return receipt.document_id, receipt.duplicate

    for name, fields in ((sha256_hex(text.encode()), {}), ("https://bids.example/1", {"source_uri": "https://bids.example/1"})):
        shared = Doc(name, [text], language=None)
        await accept(connection, shared)
        answers = {who.id: [await sent(who, **fields) for _ in range(2)] for who in (LOCAL, ANA, BEN)}
        assert answers[LOCAL.id] == [(shared.id, True)] * 2
        assert len({document for told in answers.values() for document, _ in told}) == 3
        assert all(first == second for first, second in answers.values())
        assert not any(duplicate for who in (ANA, BEN) for _, duplicate in answers[who.id])


async def test_remembered_vectors_are_of_one_tenant_and_document(database: str) -> None:
    async with stand(database) as desk:
        memo = PgMemo(desk.pool)
        document, other = content_id("document", "acme", "", "a"), content_id("document", "acme", "", "b")
        mine = memo_key("acme", document, "null/64", b"heron")
        await memo.store({mine: b"vector"})
        others = [memo_key("bolt", document, "null/64", b"heron"), memo_key("acme", other, "null/64", b"heron"), memo_key("acme", document, "e5", b"heron")]
        assert await memo.recall([mine, *others]) == {mine: b"vector"}
        await memo.store({others[0]: b"theirs"})
        assert await memo.recall([mine, others[0]]) == {mine: b"vector", others[0]: b"theirs"}


@pytest.mark.parametrize(
    "name",
    [
        *("Acme", "ACME", "aCme", "uploads", "", ".", "..", "-acme", "_acme", ".acme", "a" * 65, "a/b", "a\\b", "a b", "a\0", "a\n", "acme\n"),
        *("default ", " default", "default\u200b", "default\u202e", "\u202edefault", "d\u0435fault", "ａcme", "\u00e4cme", "a:b", "a%2fb", "*"),
        *("0190d3c7-6f5e-7c11-9d0a-3f1c2b4a5d6e", "00000000-0000-0000-0000-000000000000"),
    ],
)
async def test_name_that_could_pass_for_another_tenant_is_refused(name: str) -> None:
    assert not is_tenant(name)
    with pytest.raises(InvalidRequest) as refused:
        LOCAL.acting_for(name)
    assert refused.value.detail.isprintable()


@pytest.mark.parametrize("name", ["default", "a", "0", "acme.eu-1_b", "a" * 64, "upload", "0190d3c7-6f5e-7c11-9d0a"])
def test_plain_name_is_a_tenant(name: str) -> None:
    assert is_tenant(name) and LOCAL.acting_for(name).tenant == name
