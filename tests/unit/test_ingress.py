from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pydantic import ValidationError

from engines.blobs import open_blobs
from engines.ocr.rapidocr import RapidOcr
from engines.parse.local import LocalParser
from engines.parsed_blocks import ParsedPart
from processors import receive
from schemas.errors import AnabranchError, PermanentError, TransientError
from schemas.events import (
    AmendmentAccepted,
    Content,
    DocumentAccepted,
    DocumentAmended,
    DocumentReceived,
    DocumentRemoved,
    DocumentWithdrawn,
    Event,
)
from schemas.ids import make_document_id, make_received_id
from schemas.ports.engines import BlobStore, FetchedFile, LocalFile
from schemas.ports.ledger import ClaimStatus
from schemas.ports.stage_ports import Admission, IngressLimits, LatestRevision
from schemas.topics import Position
from streams.partition_sink import PartitionLimits
from streams.stage import PendingEvent
from tests.support.simulated_pipeline import EPOCH, MemoryOwners, SimulatedPipeline


@pytest.fixture
def world(tmp_path: Path) -> SimulatedPipeline:
    return SimulatedPipeline(tmp_path, [], 0, PartitionLimits())


async def run_ingress(
    world: SimulatedPipeline,
    data: DocumentReceived | DocumentAmended | DocumentWithdrawn,
    *,
    source: str = "shop",
    topic: str = "raw",
    offset: int = 5,
    envelope: Mapping[str, Any] | None = None,
    **ports: Any,
) -> Any:
    identity = make_received_id(data.tenant, source, "e1")
    event = Event(
        identity,
        data,
        source,
        "e1",
        None,
        data.tenant,
        position=Position(topic, 0, offset),
        appended_at=EPOCH,
        **(envelope or {}),
    )
    statements = await receive.react(
        [PendingEvent(event, ClaimStatus.PENDING)], replace(world.ports, **ports)
    )
    return statements[0].data


def make_document(text: str = "x", name: str | None = "a") -> DocumentReceived:
    return DocumentReceived(external_id=name, content=Content(text=text))


def make_upload(storage_key: str) -> DocumentReceived:
    return DocumentReceived(content=Content(storage_key=storage_key))


def make_staged_key(event_id: str) -> str:
    return f"uploads/default/api/{make_received_id('default', 'shop', event_id)}/x"


@dataclass
class FixedRevision:
    latest: LatestRevision

    async def fetch_latest(self, tenant: str, document_id: UUID) -> LatestRevision:
        return self.latest


NUMBERED = FixedRevision(LatestRevision(True, "a", (1, 77, 0, 3)))
UNNUMBERED = FixedRevision(LatestRevision(False, "a", (1, 3)))


async def test_content_is_stored_under_tenant_document_and_hash(world: SimulatedPipeline) -> None:
    accepted: DocumentAccepted = await run_ingress(
        world,
        DocumentReceived(
            external_id="a", content=Content(base64=base64.b64encode(b"hello").decode())
        ),
    )
    assert accepted.document_id == make_document_id("default", "", "a")
    assert accepted.blob.key == f"default/{accepted.document_id}/{accepted.blob.sha256}"
    assert await world.ports.blobs.get(accepted.blob.key) == b"hello"
    assert accepted.order == [1, 5]


async def test_content_identifies_document_without_external_id(world: SimulatedPipeline) -> None:
    one = await run_ingress(world, DocumentReceived(content=Content(text="same")))
    two = await run_ingress(world, DocumentReceived(content=Content(text="same")), offset=9)
    named = await run_ingress(
        world, DocumentReceived(external_id="x", content=Content(text="same"))
    )
    assert one.document_id == two.document_id != named.document_id


async def test_numbered_source_owns_and_orders_its_documents(world: SimulatedPipeline) -> None:
    numbered = await run_ingress(
        world,
        DocumentReceived(external_id="a", content=Content(text="x")),
        envelope={"sequence": 77},
    )
    assert numbered.order == [1, 77, 0]
    assert numbered.document_id == make_document_id("default", "shop", "a")


async def test_unnumbered_withdrawal_sorts_after_last_numbered_change(
    world: SimulatedPipeline,
) -> None:
    removed: DocumentRemoved = await run_ingress(
        world, DocumentWithdrawn(document_id=str(UUID(int=4))), latest_revisions=NUMBERED
    )
    assert removed.order == [1, 77, 1]
    assert removed.external_id == "a"


@pytest.mark.parametrize(
    ("data", "limits", "code"),
    [
        (DocumentReceived(content=Content(text="")), IngressLimits(), "EMPTY_DOCUMENT"),
        (DocumentReceived(content=Content(base64="%%%")), IngressLimits(), "NOT_BASE64"),
        (DocumentReceived(content=Content(base64="é")), IngressLimits(), "NOT_BASE64"),
        (make_document("x" * 11), IngressLimits(inline_bytes=10), "INLINE_TOO_LARGE"),
        (make_document("x" * 11), IngressLimits(max_bytes=10), "TOO_LARGE"),
        (make_upload("uploads/other/file"), IngressLimits(), "FORBIDDEN_KEY"),
        (make_upload("uploads/default/../other/file"), IngressLimits(), "FORBIDDEN_KEY"),
        (make_upload("uploads/default/nothing"), IngressLimits(), "NO_SUCH_BLOB"),
        (make_upload(make_staged_key("e2")), IngressLimits(), "FORBIDDEN_KEY"),
        (make_upload(make_staged_key("e1")), IngressLimits(), "NO_SUCH_BLOB"),
        (
            DocumentReceived(tenant="theirs", content=Content(text="x")),
            IngressLimits(tenants_by_source={"shop": frozenset({"ours"})}),
            "FORBIDDEN_TENANT",
        ),
        (
            make_document(),
            IngressLimits(tenants_by_source={"else": frozenset({"default"})}),
            "FORBIDDEN_TENANT",
        ),
        (DocumentWithdrawn(document_id="no-uuid"), IngressLimits(), "MALFORMED_EVENT"),
        (make_document(name="é" * 1000), IngressLimits(), "MALFORMED_EVENT"),
        (DocumentWithdrawn(document_id=str(UUID(int=4))), IngressLimits(), "NOT_FOUND"),
        (DocumentAmended(document_id=str(UUID(int=4)), title="t"), IngressLimits(), "NOT_FOUND"),
    ],
)
async def test_invalid_event_is_refused_with_code(
    world: SimulatedPipeline,
    data: DocumentReceived | DocumentAmended | DocumentWithdrawn,
    limits: IngressLimits,
    code: str,
) -> None:
    with pytest.raises(AnabranchError) as caught:
        await run_ingress(world, data, limits=limits)
    assert caught.value.code == code
    assert caught.value.remedy
    assert isinstance(caught.value, TransientError) == (code == "NOT_FOUND"), (
        "an acceptance may be on its way"
    )


@pytest.mark.parametrize(
    "tenant", ["", "\0", "a\0b", "default/uploads", "a\\b", "..", ".hidden", "é" * 200, "a\n"]
)
def test_invalid_tenant_name_is_rejected(tenant: str) -> None:
    """An event is sealed with a key of its tenant, and no keystore can have a key of this name."""
    for make in (
        lambda: DocumentReceived(tenant=tenant, content=Content(text="x")),
        lambda: DocumentWithdrawn(tenant=tenant, external_id="a"),
    ):
        with pytest.raises(ValidationError):
            make()


async def test_amendment_contains_only_given_fields(world: SimulatedPipeline) -> None:
    amended: AmendmentAccepted = await run_ingress(
        world, DocumentAmended(external_id="a", tags=[], metadata={"k": None}), offset=9
    )
    assert (amended.document_id, amended.order) == (make_document_id("default", "", "a"), [1, 9])
    assert amended.stated_fields() == {"tags": [], "metadata": {"k": None}}


async def test_unnumbered_amendment_sorts_between_correction_and_withdrawal(
    world: SimulatedPipeline,
) -> None:
    by_id = DocumentAmended(document_id=str(UUID(int=4)), title="t")
    first, second = [
        (await run_ingress(world, by_id, offset=offset, latest_revisions=NUMBERED)).order
        for offset in (5, 6)
    ]
    assert [1, 77, 0, 3] < first < second < [1, 77, 1]
    assert (
        await run_ingress(world, by_id, envelope={"sequence": 78}, latest_revisions=NUMBERED)
    ).order == [1, 78, 0]


async def expect_refusal(world: SimulatedPipeline, data: Any, **given: Any) -> str:
    with pytest.raises(PermanentError) as caught:
        await run_ingress(world, data, **given)
    assert caught.value.remedy
    return caught.value.code


async def test_epoch_above_declared_is_refused(world: SimulatedPipeline) -> None:
    numbers = {"sequence": 1, "epoch": 2**63 - 2}
    assert await expect_refusal(world, make_document(), envelope=numbers) == "FORBIDDEN_SEQUENCE"
    assert (
        await expect_refusal(
            world, make_document(), envelope={"sequence": 1, "epoch": 3}, source_epochs={"shop": 2}
        )
        == "FORBIDDEN_SEQUENCE"
    )
    assert (
        await expect_refusal(world, make_document(), envelope={"sequence": 1, "step": 1})
        == "FORBIDDEN_SEQUENCE"
    )
    assert (
        await run_ingress(
            world, make_document(), envelope={"sequence": 1, "epoch": 2}, source_epochs={"shop": 2}
        )
    ).order == [2, 1, 0]


async def test_own_source_may_set_epoch_and_step(world: SimulatedPipeline) -> None:
    numbers = {"sequence": 1, "epoch": 9, "step": 4, "is_ours": True}
    assert (
        await run_ingress(world, make_document(), source="anabranch/source/crm", envelope=numbers)
    ).order == [9, 1, 0, 4]


@pytest.mark.parametrize("source", ["anabranch/api", "anabranch/source/crm", "anabranch/bulk"])
async def test_unsigned_event_of_own_source_is_refused(
    world: SimulatedPipeline, source: str
) -> None:
    assert await expect_refusal(world, make_document(), source=source) == "FORGED_SOURCE"


@pytest.mark.parametrize("change", [DocumentWithdrawn, DocumentAmended])
async def test_change_of_unnumbered_document_ignores_sequence(
    world: SimulatedPipeline, change: Any
) -> None:
    named = {"title": "t"} if change is DocumentAmended else {}
    found = await run_ingress(
        world,
        change(document_id=str(UUID(int=4)), **named),
        envelope={"sequence": 2**62},
        latest_revisions=UNNUMBERED,
        offset=9,
    )
    assert (found.order, found.numbered) == ([1, 9], False)


@pytest.mark.parametrize("name", ["a", None])
async def test_document_of_another_source_is_not_overwritten(
    world: SimulatedPipeline, name: str | None
) -> None:
    """Also where only its bytes name it."""
    await run_ingress(world, make_document(name=name))
    assert (
        await expect_refusal(world, make_document(name=name), source="evil", offset=6)
        == "FOREIGN_DOCUMENT"
    )
    await run_ingress(world, make_document(name=name), offset=7)


async def test_document_of_another_source_is_not_changed(world: SimulatedPipeline) -> None:
    identity = (await run_ingress(world, make_document())).document_id
    for data in (
        DocumentWithdrawn(document_id=str(identity)),
        DocumentWithdrawn(external_id="a"),
        DocumentAmended(external_id="a", title="t"),
    ):
        assert (
            await expect_refusal(world, data, source="evil", latest_revisions=UNNUMBERED)
            == "FOREIGN_DOCUMENT"
        )
    assert isinstance(
        await run_ingress(world, DocumentWithdrawn(external_id="a"), latest_revisions=UNNUMBERED),
        DocumentRemoved,
    )


async def test_source_with_takeover_grant_overwrites_document(world: SimulatedPipeline) -> None:
    await run_ingress(world, make_document())
    for grant in ("shop", "*"):
        limits = IngressLimits(takeover_by_source={"crm": frozenset({grant})})
        assert (
            await run_ingress(world, make_document("y"), source="crm", limits=limits)
        ).origin.source == "crm"
        assert (
            await expect_refusal(world, make_document(), limits=IngressLimits())
            == "FOREIGN_DOCUMENT"
        ), "it belongs to the source that it came by last"
        await run_ingress(
            world,
            make_document(),
            limits=IngressLimits(takeover_by_source={"shop": frozenset({"crm"})}),
        )


async def test_api_may_change_documents_of_any_source(world: SimulatedPipeline) -> None:
    await run_ingress(world, make_document())
    api: dict[str, Any] = {"source": "anabranch/api", "envelope": {"is_ours": True}}
    await run_ingress(
        world,
        DocumentAmended(external_id="a", title="t"),
        **api,
        latest_revisions=UNNUMBERED,
    )
    await run_ingress(world, make_document("z"), offset=6)
    await run_ingress(world, make_document("y"), **api)
    assert await expect_refusal(world, make_document()) == "FOREIGN_DOCUMENT", (
        "an upload belongs to the API"
    )


async def test_refused_document_claims_no_ownership(world: SimulatedPipeline) -> None:
    assert await expect_refusal(world, make_document(""), source="evil") == "EMPTY_DOCUMENT"
    await run_ingress(world, make_document())


async def test_producer_topic_accepts_only_its_sources(world: SimulatedPipeline) -> None:
    limits = IngressLimits(sources_by_topic={"raw.shop": frozenset({"shop"})})
    assert await expect_refusal(world, make_document(), limits=limits) == "FORBIDDEN_TOPIC"
    assert (
        await expect_refusal(
            world, make_document(name="b"), source="crm", topic="raw.shop", limits=limits
        )
        == "FORBIDDEN_TOPIC"
    )
    await run_ingress(world, make_document(), topic="raw.shop", limits=limits)
    await run_ingress(world, make_document(name="b"), source="crm", limits=limits)


async def test_other_tenants_require_permission(world: SimulatedPipeline) -> None:
    theirs = DocumentReceived(tenant="theirs", external_id="a", content=Content(text="x"))
    assert await expect_refusal(world, theirs) == "FORBIDDEN_TENANT"
    await run_ingress(
        world, theirs, limits=IngressLimits(tenants_by_source={"*": frozenset({"theirs"})})
    )
    assert (
        await expect_refusal(
            world,
            make_document(),
            limits=IngressLimits(tenants_by_source={"*": frozenset({"theirs"})}),
        )
        == "FORBIDDEN_TENANT"
    )


async def test_url_with_credentials_is_refused_without_echo(world: SimulatedPipeline) -> None:
    for data in (
        DocumentReceived(content=Content(url="http://user:s3cret@192.0.2.1/a")),
        DocumentReceived(source_uri="http://user:s3cret@192.0.2.1/a", content=Content(text="x")),
    ):
        with pytest.raises(AnabranchError) as caught:
            await run_ingress(world, data)
        assert (caught.value.code, "s3cret" in caught.value.detail) == ("CREDENTIALS_IN_URL", False)


async def test_accepted_source_uri_has_signature_redacted(world: SimulatedPipeline) -> None:
    accepted: DocumentAccepted = await run_ingress(
        world,
        DocumentReceived(
            source_uri="https://h.example/a?sig=s3cret&p=1", content=Content(text="x")
        ),
    )
    assert accepted.source_uri == "https://h.example/a?sig=REDACTED&p=1"
    assert "s3cret" not in accepted.model_dump_json()


@pytest.mark.parametrize(
    ("url", "expected"),
    [("http://H.example:8/a", "h.example:8"), (None, None), ("http://[::1", None)],
)
def test_fetches_are_grouped_by_host(url: str | None, expected: str | None) -> None:
    content = Content(url=url) if url else Content(text="x")
    assert (
        receive.get_host(
            Event(
                make_received_id("default", "shop", "e"),
                DocumentReceived(content=content),
                "shop",
                "e",
                None,
                "default",
            )
        )
        == expected
    )


class ShiftJisFetcher:
    """Serves a page whose character set only the header of the response tells."""

    def __init__(self, blobs: BlobStore) -> None:
        self.blobs = blobs

    async def fetch(self, url: str, key_prefix: str) -> FetchedFile:
        media_type = "text/html; charset=shift_jis"
        page = "<p>入場料は八百円です。</p>".encode("shift_jis")
        blob = await self.blobs.put(f"{key_prefix}page", page, media_type=media_type)
        return FetchedFile(blob, url, media_type, None)


async def test_charset_of_response_reaches_the_parser(
    world: SimulatedPipeline, tmp_path: Path
) -> None:
    blobs = open_blobs((tmp_path / "blobs").as_uri())
    async with aclosing(LocalParser(RapidOcr())) as parser:
        accepted: DocumentAccepted = await run_ingress(
            world,
            DocumentReceived(external_id="p", content=Content(url="http://192.0.2.1/p")),
            blobs=blobs,
            fetcher=ShiftJisFetcher(blobs),
            parser=parser,
        )
        assert accepted.media_type == "text/html"
        assert accepted.blob.media_type == "text/html; charset=shift_jis"
        async with blobs.open_local(accepted.blob.key) as path:
            file = LocalFile(path, None, accepted.blob.media_type, accepted.blob.size)
            plan = await parser.plan(file)
            part = ParsedPart.decode(await parser.parse(file, plan, plan.parts[0]))
    assert [block.text for block in part.blocks] == ["入場料は八百円です。"]
    assert part.notices == []


@dataclass
class SlowFirstOwners(MemoryOwners):
    """Admits the first event after those that arrive meanwhile."""

    admitted: list[UUID] = field(default_factory=list)
    n_calls: int = 0

    async def admit(self, admission: Admission) -> str | None:
        self.n_calls += 1
        if self.n_calls == 1:
            await asyncio.sleep(0.05)
        self.admitted.append(admission.document_id)
        return await super().admit(admission)


async def test_events_about_one_document_are_admitted_in_order_of_the_log(tmp_path: Path) -> None:
    owners = SlowFirstOwners()
    world = SimulatedPipeline(tmp_path, [], 0, PartitionLimits(), owners=owners)
    await world.create_generation()
    await world.push(DocumentReceived(external_id="a", content=Content(text="one")), "e1")
    await world.push(DocumentWithdrawn(external_id="a"), "e2")
    await world.push(DocumentReceived(external_id="b", content=Content(text="other")), "e3")
    await world.run()
    accepted = [await world.codec.decode(stored) for stored in world.log.topics["accepted"]]
    about_a = [event for event in accepted if event.data.external_id == "a"]
    assert [event.data.origin.event_id for event in about_a] == ["e1", "e2"]
    # Another document does not wait.
    assert owners.admitted.index(accepted[0].data.document_id) == 0
    assert accepted[0].data.external_id == "b"
