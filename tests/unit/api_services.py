"""Services for the routes alone: small, in memory, obeying the same promises."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID, uuid5

from api.feeds import LogPage, Told
from api.links import Links
from api.replays import DiscardRequest, RedriveRequest, ReplayRequest
from api.services import Dependency, IngestRequest, Receipt, Services, Upcoming
from schemas.api_keys import ApiKey, ApiKeyRequest, IssuedApiKey, RotationRequest
from schemas.errors import Forbidden, InvalidRequest, LimitExceeded, NotFound, PermanentError
from schemas.events.erasure import Scope
from schemas.ids import sha256_hex
from schemas.judgements import FeedbackReceipt, FeedbackRequest
from schemas.lineage import DocumentLineage, RunLineage
from schemas.ports.search import DocumentText
from schemas.principals import Principal
from schemas.profiles import Profile
from schemas.questions import QueryRequest, QueryResponse, SearchRequest, SearchResponse, Step, Tell
from schemas.run_diffs import RunDiff
from schemas.sources import SourceRequest
from schemas.values import Amendment, BlobRef

SPACE = UUID("00000000-0000-0000-0000-00000000a11a")
DOCUMENT = uuid5(SPACE, "document")
JOB = uuid5(SPACE, "job")
FILE = bytes(range(256)) * 10
MAX_BYTES = 10_000


@dataclass
class MemoryBlobs:
    content: dict[str, bytes] = field(default_factory=dict)

    async def get(self, key: str) -> bytes:
        return self.content[key]

    async def link(self, key: str, lifetime_s: float) -> str | None:
        return None

    async def get_ranges(self, key: str, ranges: Any) -> list[bytes]:
        return [self.content[key][offset : offset + length] for offset, length in ranges]


@dataclass
class FakeIntake:
    accepted: list[tuple[IngestRequest, BlobRef | None, Upcoming]] = field(default_factory=list)
    stored: dict[str, bytes] = field(default_factory=dict)
    withdrawn: list[UUID] = field(default_factory=list)
    amended: list[dict[str, Any]] = field(default_factory=list)

    def begin(self, caller: Principal, idempotency_key: str | None) -> Upcoming:
        return Upcoming(idempotency_key or "fresh", idempotency_key is not None)

    async def discard(self, event: Upcoming, upload: BlobRef) -> None:
        del self.stored[upload.key]

    async def store(self, tenant: str, event: Upcoming, chunks: AsyncIterator[bytes], media_type: str | None) -> BlobRef:
        body = b""
        async for chunk in chunks:
            body += chunk
            if len(body) > MAX_BYTES:
                raise LimitExceeded(f"over {MAX_BYTES} bytes", code="TOO_LARGE", remedy="Send less.")
        reference = BlobRef(key=f"uploads/{tenant}/{sha256_hex(body)}", sha256=sha256_hex(body), size=len(body), media_type=media_type)
        self.stored[reference.key] = body
        return reference

    async def accept(self, caller: Principal, request: IngestRequest, upload: BlobRef | None, event: Upcoming) -> Receipt:
        self.accepted.append((request, upload, event))
        return Receipt(
            document_id=DOCUMENT, ingestion_job_id=JOB, external_id=request.external_id, content_sha256=upload.sha256 if upload else None, duplicate=False
        )

    async def amend(self, caller: Principal, document_id: UUID, amendment: Amendment) -> UUID:
        if document_id != DOCUMENT:
            raise NotFound(f"no document {document_id}", remedy="List them.")
        self.amended.append(amendment.said())
        return JOB

    async def withdraw(self, caller: Principal, document_id: UUID) -> UUID:
        if document_id != DOCUMENT:
            raise NotFound(f"no document {document_id}", remedy="List them.")
        self.withdrawn.append(document_id)
        return JOB


class FakeDocuments:
    async def find(self, caller: Principal, **filters: Any) -> tuple[list[dict[str, Any]], str | None]:
        return [{"document_id": str(DOCUMENT)}], "more"

    async def get(self, caller: Principal, document_id: UUID) -> dict[str, Any] | None:
        if document_id != DOCUMENT:
            return None
        blob = {"key": "k", "size": len(FILE), "sha256": sha256_hex(FILE)}
        return {
            "document_id": str(DOCUMENT),
            "filename": "não.bin",
            "media_type": "application/pdf",
            "content_sha256": sha256_hex(FILE),
            "blob": blob,
            "revision": 1,
        }

    async def revisions(self, caller: Principal, document_id: UUID, *, after: int | None, limit: int) -> tuple[list[dict[str, Any]], int | None]:
        return [{"revision": 1}], None

    async def chunks(self, caller: Principal, document_id: UUID, *, after: int, limit: int) -> tuple[list[dict[str, Any]], int | None]:
        return [{"ordinal": after + 1}], None

    async def text(self, caller: Principal, document_id: UUID) -> DocumentText | None:
        return DocumentText(document_id, "# Title", None) if document_id == DOCUMENT else None

    async def status(self, caller: Principal, **by: Any) -> dict[str, Any] | None:
        return {"ingestion_job_id": str(JOB), "state": "searchable"} if by.get("job_id") == JOB else None

    async def readable(self, caller: Principal, documents: Any) -> set[UUID]:
        return set(documents)

    async def counts(self, tenant: str | None) -> dict[str, int]:
        return {"searchable": 1}


@dataclass
class FakeDesk:
    """g1 answers, g2 stands by."""

    asked: list[tuple[str, Any]] = field(default_factory=list)

    async def all(self, caller: Principal) -> list[dict[str, Any]]:
        return [{"name": "g1", "state": "live"}, {"name": "g2", "state": "standby"}]

    async def one(self, caller: Principal, name: str) -> dict[str, Any]:
        found = next((one for one in await self.all(caller) if one["name"] == name), None)
        if found is None:
            raise NotFound(f"no generation {name}", remedy="List them.")
        return found

    async def compare(self, tenant: str, a: str, b: str, wanted: Any) -> dict[str, Any]:
        self.asked.append((f"{a} {b}", wanted))
        return {"generations": {"A": a, "B": b}, "queries": 0}

    async def promote(self, tenant: str, name: str, wanted: Any) -> dict[str, Any]:
        self.asked.append((name, wanted))
        if name == "g3":
            raise PermanentError("1 documents are not settled", code="GENERATION_BEHIND", remedy="Wait.")
        against = ["no gain"] if wanted.gate else []
        return {"generation": name, "previous": None if against else "g1", "promoted": not against, "reasons": against, "comparison": None}

    async def roll_back(self, expected: str | None) -> dict[str, Any]:
        return {"generation": "g2", "previous": "g1", "promoted": True, "reasons": [], "comparison": None}

    async def drop(self, name: str) -> dict[str, Any]:
        return {"generation": name, "removed": True, "held_by": None, "topics": ["embedded.g2"]}


class NoRecords:
    async def collections(self, caller: Principal) -> list[dict[str, Any]]:
        return []

    async def runs(self, caller: Principal, **_: Any) -> tuple[list[dict[str, Any]], str | None]:
        return [], None

    async def run(self, caller: Principal, run_id: UUID) -> dict[str, Any] | None:
        return None

    async def dead_letters(self, tenant: str, **_: Any) -> tuple[list[dict[str, Any]], str | None]:
        return [], None


class NoSources:
    async def find(self, tenant: str) -> list[dict[str, Any]]:
        return []

    async def get(self, tenant: str, name: str) -> dict[str, Any]:
        raise NotFound(f"no source {name}", remedy="List them.")

    async def add(self, tenant: str, request: SourceRequest) -> dict[str, Any]:
        return {"status": "accepted", "name": request.name, "ce_source": f"anabranch/source/{request.name}"}

    async def remove(self, tenant: str, name: str, *, withdraw: bool) -> dict[str, Any]:
        raise NotFound(f"no source {name}", remedy="List them.")

    async def reset(self, caller: Principal, name: str) -> dict[str, Any]:
        raise NotFound(f"no source {name}", remedy="List them.")


class NoEntities:
    async def find(self, caller: Principal, **_: Any) -> tuple[list[dict[str, Any]], str | None]:
        return [], None

    async def get(self, caller: Principal, entity_id: UUID) -> dict[str, Any] | None:
        return None

    async def subgraph(self, caller: Principal, seeds: Any, **_: Any) -> dict[str, Any]:
        return {"nodes": [], "edges": []}


@dataclass
class MemoryFeed:
    """Tells what it holds, then waits until it is stopped."""

    told: list[Told] = field(default_factory=list)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)

    def stop(self) -> None:
        self.stopping.set()

    async def of_document(self, caller: Principal, document_id: UUID, *, after: int, limit: int) -> tuple[list[dict[str, Any]], int | None]:
        return ([{"stage": "receive", "state": "done"}] if document_id == DOCUMENT else []), None

    async def page(
        self, caller: Principal, *, after: str, topics: list[str] | None, document: UUID | None, limit: int, since: datetime | None = None
    ) -> LogPage:
        return LogPage(items=[], next=after, end=True, missed=0)

    async def follow(self, caller: Principal, *, after: str | None, topics: list[str] | None, document: UUID | None) -> AsyncGenerator[Told, None]:
        yield Told(event="open", data={"after": after or "now"}, cursor=after)
        for message in self.told:
            yield message
        await self.stopping.wait()
        yield Told(event="bye", data={})


class NoPast:
    """Nothing was asked and nothing came in."""

    async def rerun(self, caller: Principal, run_id: UUID) -> dict[str, Any]:
        raise NotFound(f"no run {run_id}", remedy="List them.")

    async def diff(self, caller: Principal, run_id: UUID, other: UUID | None) -> RunDiff:
        raise NotFound(f"no run {run_id}", remedy="List them.")

    async def of_document(self, caller: Principal, document_id: UUID) -> DocumentLineage:
        raise NotFound(f"no document {document_id}", remedy="List them.")

    async def of_run(self, caller: Principal, run_id: UUID, *, sentence: int | None, citation: int | None) -> RunLineage:
        raise NotFound(f"no run {run_id}", remedy="List them.")

    def prov(self, found: DocumentLineage | RunLineage) -> dict[str, Any]:
        return {}


async def search(caller: Principal, request: SearchRequest) -> SearchResponse:
    raise NotFound("no generation", remedy="None.")


class NoReplays:
    async def causes(self, tenant: str) -> list[dict[str, Any]]:
        return []

    async def redrive(self, tenant: str, wanted: RedriveRequest) -> dict[str, Any]:
        return {"events": 0}

    async def discard(self, tenant: str, wanted: DiscardRequest) -> dict[str, Any]:
        return {"events": 0}

    async def replay(self, tenant: str, wanted: ReplayRequest) -> dict[str, Any]:
        return {"replay_id": None}

    async def all(self, tenant: str, limit: int) -> list[dict[str, Any]]:
        return []

    async def one(self, tenant: str, replay: UUID) -> dict[str, Any]:
        return {"replay_id": replay}

    async def set_state(self, tenant: str, replay: UUID, wanted: str) -> dict[str, Any]:
        return {"replay_id": replay, "state": wanted}


class NoBuilds:
    """g2 is being built."""

    async def plan(self, sets: Sequence[str]) -> Any:
        raise InvalidRequest("the index would be the same", code="NOTHING_CHANGES", remedy="Change something.")

    async def start(self, sets: Sequence[str], *, events_per_second: float | None = None) -> Any:
        return await self.plan(sets)

    async def rebuild(self, *, keep: bool, events_per_second: float | None = None) -> str:
        return "g2"

    async def show(self, name: str) -> dict[str, Any]:
        if name != "g2":
            raise NotFound(f"no generation {name}", remedy="List them.")
        return {"generation": name, "state": "building", "phase": "loading", "paused": False}

    async def show_soon(self, name: str) -> dict[str, Any]:
        return await self.show(name)

    async def pace(self, name: str, pace: Mapping[str, Any]) -> dict[str, Any]:
        return await self.show(name) | dict(pace)


class NoErasures:
    async def request(self, tenant: str, scope: Scope, name: str) -> UUID:
        return JOB

    async def receipt(self, tenant: str, receipt_id: UUID) -> dict[str, Any] | None:
        return None

    async def receipts(self, tenant: str, limit: int) -> list[dict[str, Any]]:
        return []


async def query(caller: Principal, request: QueryRequest, tell: Tell) -> QueryResponse:
    tell(Step(name="plan"))
    raise NotFound("no generation", remedy="None.")


async def feedback(caller: Principal, said: FeedbackRequest) -> FeedbackReceipt:
    return FeedbackReceipt(feedback_id=JOB, judgements=len(said.graded()))


class NoKeys:
    async def create(self, caller: Principal, request: ApiKeyRequest, request_id: str | None = None) -> IssuedApiKey:
        raise Forbidden("not here")

    async def list_keys(self, caller: Principal, *, after: str | None, limit: int) -> tuple[list[ApiKey], str | None]:
        return [], None

    async def rotate(self, caller: Principal, key_id: str, request: RotationRequest, request_id: str | None = None) -> IssuedApiKey:
        raise NotFound(f"no key {key_id}")

    async def revoke(self, caller: Principal, key_id: str, request_id: str | None = None) -> ApiKey:
        raise NotFound(f"no key {key_id}")


@dataclass
class MemoryAudit:
    recorded: list[tuple[str, str, str | None, str]] = field(default_factory=list)
    """Tenant, act, subject, outcome."""

    async def record(self, caller: Principal, what: str, subject: str | None, request_id: str | None, outcome: str = "done") -> None:
        self.recorded.append((caller.tenant, what, subject, outcome))

    async def visit(self, caller: Principal, request_id: str | None) -> None:
        await self.record(caller, "tenant.entered", caller.tenant, request_id)


class NoAuditEvents:
    async def list_events(self, tenant: str | None, *, after: str | None, limit: int) -> tuple[list[dict[str, Any]], str | None]:
        return [], None


async def authenticate(credential: str | None, tenant: str | None) -> Principal:
    return Principal(id="local", tenant="default", role="operator")


def services(**replaced: Any) -> Services:
    async def ready() -> list[Dependency]:
        return [Dependency("database", True, "answers")]

    async def health(caller: Principal) -> dict[str, Any]:
        return {"status": "ok"}

    parts: Mapping[str, Any] = {
        "authenticate": authenticate,
        "max_failures": 20,
        "authentication_failed": lambda: None,
        "sessions": None,
        "hosts": (),
        "public_url": "",
        "max_bytes": MAX_BYTES,
        "intake": FakeIntake(),
        "documents": FakeDocuments(),
        "entities": NoEntities(),
        "records": NoRecords(),
        "sources": NoSources(),
        "erasures": NoErasures(),
        "replays": NoReplays(),
        "desk": FakeDesk(),
        "builds": NoBuilds(),
        "blobs": MemoryBlobs({"k": FILE}),
        "profiles": lambda: [Profile()],
        "search": search,
        "query": query,
        "feedback": feedback,
        "ready": ready,
        "health": health,
        "metrics": lambda: (b"metric 1\n", "text/plain"),
        "config_schema": lambda: {"settings": {}},
        "links": Links(b"secret"),
        "history": NoPast(),
        "lineage": NoPast(),
        "feed": MemoryFeed(),
        "keys": NoKeys(),
        "audit": MemoryAudit(),
        "audit_events": NoAuditEvents(),
    }
    return Services(**{**parts, **replaced})
