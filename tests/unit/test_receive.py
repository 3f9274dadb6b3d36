from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pydantic import ValidationError

from processors import receive
from schemas.errors import AnabranchError, PermanentError, TransientError
from schemas.events import AmendmentAccepted, Content, DocumentAccepted, DocumentAmended, DocumentReceived, DocumentRemoved, DocumentWithdrawn, Fact
from schemas.ids import document_id, received_id
from schemas.ports.bundle import Latest, Limits
from schemas.ports.ledger import Claim
from schemas.records import Position
from streams.partition import Bounds
from streams.stage import Counted
from tests.property.world import EPOCH, World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, [], 0, Bounds())


async def through_the_door(
    world: World,
    data: DocumentReceived | DocumentAmended | DocumentWithdrawn,
    *,
    source: str = "shop",
    topic: str = "raw",
    offset: int = 5,
    envelope: Mapping[str, Any] | None = None,
    **ports: Any,
) -> Any:
    identity = received_id(data.tenant, source, "e1")
    fact = Fact(identity, data, source, "e1", None, data.tenant, position=Position(topic, 0, offset), appended_at=EPOCH, **(envelope or {}))
    statements = await receive.react([Counted(fact, Claim.OWED)], replace(world.ports, **ports))
    return statements[0].data


async def test_bytes_are_pinned_under_tenant_document_and_hash(world: World) -> None:
    accepted: DocumentAccepted = await through_the_door(world, DocumentReceived(external_id="a", content=Content(base64=base64.b64encode(b"hello").decode())))
    assert accepted.document_id == document_id("default", "", "a")
    assert accepted.blob.key == f"default/{accepted.document_id}/{accepted.blob.sha256}"
    assert await world.ports.blobs.get(accepted.blob.key) == b"hello"
    assert accepted.order == [1, 5]


async def test_equal_bytes_without_a_name_are_one_document_and_under_a_name_another(world: World) -> None:
    one = await through_the_door(world, DocumentReceived(content=Content(text="same")))
    two = await through_the_door(world, DocumentReceived(content=Content(text="same")), offset=9)
    named = await through_the_door(world, DocumentReceived(external_id="x", content=Content(text="same")))
    assert one.document_id == two.document_id != named.document_id


async def test_a_source_that_numbers_its_changes_owns_its_documents_and_orders_them(world: World) -> None:
    numbered = await through_the_door(world, DocumentReceived(external_id="a", content=Content(text="x")), envelope={"sequence": 77})
    assert numbered.order == [1, 77, 0]
    assert numbered.document_id == document_id("default", "shop", "a")


async def test_withdrawing_a_numbered_document_without_a_number_comes_right_after_its_last_change(world: World) -> None:
    class Known:
        async def latest(self, tenant: str, document_id: UUID) -> Latest:
            return Latest(True, "a", (1, 77, 0))

    removed: DocumentRemoved = await through_the_door(world, DocumentWithdrawn(document_id=str(UUID(int=4))), revisions=Known())
    assert removed.order == [1, 77, 1]
    assert removed.external_id == "a"


@pytest.mark.parametrize(
    ("data", "limits", "code"),
    [
        (DocumentReceived(content=Content(text="")), Limits(), "EMPTY_DOCUMENT"),
        (DocumentReceived(content=Content(base64="%%%")), Limits(), "NOT_BASE64"),
        (DocumentReceived(content=Content(base64="é")), Limits(), "NOT_BASE64"),
        (DocumentReceived(content=Content(text="x" * 11)), Limits(inline_bytes=10), "INLINE_TOO_LARGE"),
        (DocumentReceived(content=Content(text="x" * 11)), Limits(max_bytes=10), "TOO_LARGE"),
        (DocumentReceived(content=Content(storage_key="uploads/other/file")), Limits(), "FORBIDDEN_KEY"),
        (DocumentReceived(content=Content(storage_key="uploads/default/../other/file")), Limits(), "FORBIDDEN_KEY"),
        (DocumentReceived(content=Content(storage_key="uploads/default/nothing")), Limits(), "NO_SUCH_BLOB"),
        (DocumentReceived(content=Content(storage_key=f"uploads/default/api/{received_id('default', 'shop', 'e2')}/x")), Limits(), "FORBIDDEN_KEY"),
        (DocumentReceived(content=Content(storage_key=f"uploads/default/api/{received_id('default', 'shop', 'e1')}/x")), Limits(), "NO_SUCH_BLOB"),
        (DocumentReceived(tenant="theirs", content=Content(text="x")), Limits(sources={"shop": frozenset({"ours"})}), "FORBIDDEN_TENANT"),
        (DocumentReceived(content=Content(text="x")), Limits(sources={"else": frozenset({"default"})}), "FORBIDDEN_TENANT"),
        (DocumentWithdrawn(document_id="no-uuid"), Limits(), "MALFORMED_EVENT"),
        (DocumentReceived(external_id="é" * 1000, content=Content(text="x")), Limits(), "MALFORMED_EVENT"),
        (DocumentWithdrawn(document_id=str(UUID(int=4))), Limits(), "NOT_FOUND"),
    ],
)
async def test_what_may_not_pass_is_refused_with_its_code(world: World, data: DocumentReceived | DocumentWithdrawn, limits: Limits, code: str) -> None:
    with pytest.raises(AnabranchError) as caught:
        await through_the_door(world, data, limits=limits)
    assert caught.value.code == code
    assert caught.value.remedy
    assert isinstance(caught.value, TransientError) == (code == "NOT_FOUND"), "an acceptance may be on its way"


@pytest.mark.parametrize("tenant", ["", "\0", "a\0b", "default/uploads", "a\\b", "..", ".hidden", "é" * 200, "a\n"])
def test_a_tenant_whose_name_is_no_folder_is_nobody_at_all(tenant: str) -> None:
    """Before it is a fact: what is said of a fact is sealed with a key of its tenant, and no keystore holds such a name."""
    for make in (lambda: DocumentReceived(tenant=tenant, content=Content(text="x")), lambda: DocumentWithdrawn(tenant=tenant, external_id="a")):
        with pytest.raises(ValidationError):
            make()


async def test_what_amends_a_document_goes_on_with_an_order_of_its_own_and_says_only_what_it_was_given(world: World) -> None:
    amended: AmendmentAccepted = await through_the_door(world, DocumentAmended(external_id="a", tags=[], metadata={"k": None}), offset=9)
    assert (amended.document_id, amended.order) == (document_id("default", "", "a"), [1, 9])
    assert amended.said() == {"tags": [], "metadata": {"k": None}}


async def test_amending_a_numbered_document_without_a_number_comes_behind_its_corrections_and_before_a_withdrawal(world: World) -> None:
    class Known:
        async def latest(self, tenant: str, document_id: UUID) -> Latest:
            return Latest(True, "a", (1, 77, 0, 3))

    by_id = DocumentAmended(document_id=str(UUID(int=4)), title="t")
    first, second = [(await through_the_door(world, by_id, offset=offset, revisions=Known())).order for offset in (5, 6)]
    assert [1, 77, 0, 3] < first < second < [1, 77, 1]
    assert (await through_the_door(world, by_id, envelope={"sequence": 78}, revisions=Known())).order == [1, 78, 0]


async def test_amending_an_unknown_document_by_its_id_waits_for_it(world: World) -> None:
    with pytest.raises(TransientError) as raised:
        await through_the_door(world, DocumentAmended(document_id=str(UUID(int=4)), title="t"))
    assert raised.value.code == "NOT_FOUND"


async def refused(world: World, data: Any, **given: Any) -> str:
    with pytest.raises(PermanentError) as caught:
        await through_the_door(world, data, **given)
    assert caught.value.remedy
    return caught.value.code


def document(text: str = "x", name: str | None = "a") -> DocumentReceived:
    return DocumentReceived(external_id=name, content=Content(text=text))


class Uploaded:
    """A document without numbers."""

    async def latest(self, tenant: str, document_id: UUID) -> Latest:
        return Latest(False, "a", (1, 3))


async def test_foreign_epoch_above_the_declared_one_is_refused(world: World) -> None:
    numbers = {"sequence": 1, "epoch": 2**63 - 2}
    assert await refused(world, document(), envelope=numbers) == "FORBIDDEN_SEQUENCE"
    assert await refused(world, document(), envelope={"sequence": 1, "epoch": 3}, source_epochs={"shop": 2}) == "FORBIDDEN_SEQUENCE"
    assert await refused(world, document(), envelope={"sequence": 1, "step": 1}) == "FORBIDDEN_SEQUENCE"
    assert (await through_the_door(world, document(), envelope={"sequence": 1, "epoch": 2}, source_epochs={"shop": 2})).order == [2, 1, 0]


async def test_own_sources_may_name_epoch_and_step(world: World) -> None:
    numbers = {"sequence": 1, "epoch": 9, "step": 4, "ours": True}
    assert (await through_the_door(world, document(), source="anabranch/source/crm", envelope=numbers)).order == [9, 1, 0, 4]


@pytest.mark.parametrize("source", ["anabranch/api", "anabranch/source/crm", "anabranch/bulk"])
async def test_unsigned_event_of_an_own_source_is_refused(world: World, source: str) -> None:
    assert await refused(world, document(), source=source) == "FORGED_SOURCE"


@pytest.mark.parametrize("change", [DocumentWithdrawn, DocumentAmended])
async def test_change_of_an_unnumbered_document_takes_no_number(world: World, change: Any) -> None:
    named = {"title": "t"} if change is DocumentAmended else {}
    found = await through_the_door(world, change(document_id=str(UUID(int=4)), **named), envelope={"sequence": 2**62}, revisions=Uploaded(), offset=9)
    assert (found.order, found.numbered) == ([1, 9], False)


@pytest.mark.parametrize("name", ["a", None])
async def test_document_of_another_source_is_not_overwritten(world: World, name: str | None) -> None:
    """Also where only its bytes name it."""
    await through_the_door(world, document(name=name))
    assert await refused(world, document(name=name), source="evil", offset=6) == "FOREIGN_DOCUMENT"
    await through_the_door(world, document(name=name), offset=7)


async def test_document_of_another_source_is_neither_withdrawn_nor_amended(world: World) -> None:
    identity = (await through_the_door(world, document())).document_id
    for data in (DocumentWithdrawn(document_id=str(identity)), DocumentWithdrawn(external_id="a"), DocumentAmended(external_id="a", title="t")):
        assert await refused(world, data, source="evil", revisions=Uploaded()) == "FOREIGN_DOCUMENT"
    assert isinstance(await through_the_door(world, DocumentWithdrawn(external_id="a"), revisions=Uploaded()), DocumentRemoved)


async def test_granted_source_takes_a_document_over(world: World) -> None:
    await through_the_door(world, document())
    for grant in ("shop", "*"):
        limits = Limits(takeover={"crm": frozenset({grant})})
        assert (await through_the_door(world, document("y"), source="crm", limits=limits)).origin.source == "crm"
        assert await refused(world, document(), limits=Limits()) == "FOREIGN_DOCUMENT", "it belongs to the source that it came by last"
        await through_the_door(world, document(), limits=Limits(takeover={"shop": frozenset({"crm"})}))


async def test_api_changes_documents_of_any_source(world: World) -> None:
    await through_the_door(world, document())
    api: dict[str, Any] = {"source": "anabranch/api", "envelope": {"ours": True}}
    await through_the_door(world, DocumentAmended(external_id="a", title="t"), **api, revisions=Uploaded())
    await through_the_door(world, document("z"), offset=6)
    await through_the_door(world, document("y"), **api)
    assert await refused(world, document()) == "FOREIGN_DOCUMENT", "an upload belongs to the API"


async def test_refused_document_owns_nothing(world: World) -> None:
    assert await refused(world, document(""), source="evil") == "EMPTY_DOCUMENT"
    await through_the_door(world, document())


async def test_own_topic_of_a_producer_carries_its_sources_only(world: World) -> None:
    limits = Limits(topics={"raw.shop": frozenset({"shop"})})
    assert await refused(world, document(), limits=limits) == "FORBIDDEN_TOPIC"
    assert await refused(world, document(name="b"), source="crm", topic="raw.shop", limits=limits) == "FORBIDDEN_TOPIC"
    await through_the_door(world, document(), topic="raw.shop", limits=limits)
    await through_the_door(world, document(name="b"), source="crm", limits=limits)


async def test_foreign_tenants_need_permission(world: World) -> None:
    theirs = DocumentReceived(tenant="theirs", external_id="a", content=Content(text="x"))
    assert await refused(world, theirs) == "FORBIDDEN_TENANT"
    await through_the_door(world, theirs, limits=Limits(sources={"*": frozenset({"theirs"})}))
    assert await refused(world, document(), limits=Limits(sources={"*": frozenset({"theirs"})})) == "FORBIDDEN_TENANT"


async def test_url_with_a_password_is_refused_without_repeating_it(world: World) -> None:
    for data in (
        DocumentReceived(content=Content(url="http://user:s3cret@192.0.2.1/a")),
        DocumentReceived(source_uri="http://user:s3cret@192.0.2.1/a", content=Content(text="x")),
    ):
        with pytest.raises(AnabranchError) as caught:
            await through_the_door(world, data)
        assert (caught.value.code, "s3cret" in caught.value.detail) == ("CREDENTIALS_IN_URL", False)


async def test_accepted_source_uri_has_no_signature(world: World) -> None:
    accepted: DocumentAccepted = await through_the_door(world, DocumentReceived(source_uri="https://h.example/a?sig=s3cret&p=1", content=Content(text="x")))
    assert accepted.source_uri == "https://h.example/a?sig=REDACTED&p=1"
    assert "s3cret" not in accepted.model_dump_json()


@pytest.mark.parametrize(("url", "expected"), [("http://H.example:8/a", "h.example:8"), (None, None), ("http://[::1", None)])
def test_fetches_take_turns_by_host(url: str | None, expected: str | None) -> None:
    content = Content(url=url) if url else Content(text="x")
    assert receive.host(Fact(received_id("default", "shop", "e"), DocumentReceived(content=content), "shop", "e", None, "default")) == expected
