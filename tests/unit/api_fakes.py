"""Small in-memory services for tests of the routes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid5

from api.services import Services
from api.signed_links import LinkSigner
from evaluation.calibration import calibrate
from evaluation.comparison import JudgementCounts, build_comparison_report
from evaluation.exam import summarize_exam
from evaluation.judgement_export import build_judgement_export
from retrieval.profiles import ProfileCatalog
from schemas.api_keys import ApiKey, ApiKeyRequest, IssuedApiKey, RotationRequest
from schemas.entities import EntityAmendment
from schemas.errors import Forbidden, InvalidRequest, LimitExceeded, NotFound, PermanentError
from schemas.event_feed import EventCounts, FeedFilter, FeedMessage, LogPage
from schemas.events.control import Scope
from schemas.exams import Exam
from schemas.facts import Fact, FactReceipt, FactRequest, FactStatus
from schemas.findings import Finding
from schemas.generations import IndexConfig
from schemas.ids import sha256_hex
from schemas.ingest import IngestReceipt, IngestRequest, PlannedEvent
from schemas.judgements import FeedbackReceipt, FeedbackRequest
from schemas.lineage import DocumentLineage, RunLineage
from schemas.ports.search import DocumentText
from schemas.principals import Principal
from schemas.profiles import ReloadedConfig
from schemas.questions import (
    OnProgress,
    QueryRequest,
    QueryResponse,
    SearchRequest,
    SearchResponse,
    StepProgress,
)
from schemas.readiness import DependencyStatus
from schemas.replay_requests import DiscardRequest, RedriveRequest, ReplayRequest
from schemas.run_records import RunDiff
from schemas.sources import SourceRequest
from schemas.values import Amendment, BlobRef

NAMESPACE = UUID("00000000-0000-0000-0000-00000000a11a")
DOCUMENT_ID = uuid5(NAMESPACE, "document")
JOB_ID = uuid5(NAMESPACE, "job")
FILE_BYTES = bytes(range(256)) * 10
MAX_BYTES = 10_000
RECEIVED_AT = "2026-01-02T03:04:05+00:00"
DOCUMENT_BODY: Mapping[str, Any] = {
    "document_id": str(DOCUMENT_ID),
    "external_id": None,
    "source": "anabranch/api",
    "source_uri": None,
    "filename": "não.bin",
    "media_type": "application/pdf",
    "title": None,
    "language": None,
    "collection": None,
    "tags": [],
    "metadata": {},
    "document_date": None,
    "content_sha256": sha256_hex(FILE_BYTES),
    "blob": {"key": "k", "size": len(FILE_BYTES), "sha256": sha256_hex(FILE_BYTES)},
    "bytes": len(FILE_BYTES),
    "revision": 1,
    "received_at": RECEIVED_AT,
    "ingestion_job_id": str(JOB_ID),
    "visible_revision": 1,
    "state": "searchable",
    "chunks_count": 1,
    "characters": 7,
    "pages": None,
    "warnings": [],
    "error": None,
    "readers": None,
}
STAGE_BODY: Mapping[str, Any] = {
    "stage": "receive",
    "state": "done",
    "attempts": 1,
    "topic": "raw",
    "partition": 0,
    "offset": 0,
    "started_at": RECEIVED_AT,
    "duration_ms": None,
    "error": None,
}
REPLAY_BODY: Mapping[str, Any] = {
    "replay_id": str(JOB_ID),
    "tenant": "default",
    "kind": "replay",
    "stage": "chunk",
    "generation": "g1",
    "chosen": {},
    "state": "running",
    "per_second": None,
    "total": 0,
    "read": 0,
    "replayed": 0,
    "superseded": 0,
    "dead_lettered": 0,
    "error": None,
    "created_at": RECEIVED_AT,
    "started_at": None,
    "ended_at": None,
    "rate": None,
    "left": 0,
    "eta_s": None,
}


@dataclass
class StubBlobs:
    content: dict[str, bytes] = field(default_factory=dict)

    async def get(self, key: str) -> bytes:
        return self.content[key]

    async def presign_url(self, key: str, lifetime_s: float) -> str | None:
        return None

    async def get_ranges(self, key: str, ranges: Any) -> list[bytes]:
        return [self.content[key][offset : offset + length] for offset, length in ranges]


@dataclass
class FakeIntake:
    accepted: list[tuple[IngestRequest, BlobRef | None, PlannedEvent]] = field(default_factory=list)
    stored: dict[str, bytes] = field(default_factory=dict)
    withdrawn: list[UUID] = field(default_factory=list)
    amended: list[dict[str, Any]] = field(default_factory=list)

    def plan_event(self, caller: Principal, idempotency_key: str | None) -> PlannedEvent:
        return PlannedEvent(idempotency_key or "fresh", idempotency_key is not None)

    async def discard_upload(self, event: PlannedEvent, upload: BlobRef) -> None:
        del self.stored[upload.key]

    async def stage_upload(
        self, tenant: str, event: PlannedEvent, chunks: AsyncIterator[bytes], media_type: str | None
    ) -> BlobRef:
        body = b""
        async for chunk in chunks:
            body += chunk
            if len(body) > MAX_BYTES:
                raise LimitExceeded(
                    f"over {MAX_BYTES} bytes", code="TOO_LARGE", remedy="Send less."
                )
        reference = BlobRef(
            key=f"uploads/{tenant}/{sha256_hex(body)}",
            sha256=sha256_hex(body),
            size=len(body),
            media_type=media_type,
        )
        self.stored[reference.key] = body
        return reference

    async def submit_document(
        self, caller: Principal, request: IngestRequest, upload: BlobRef | None, event: PlannedEvent
    ) -> IngestReceipt:
        self.accepted.append((request, upload, event))
        return IngestReceipt(
            document_id=DOCUMENT_ID,
            ingestion_job_id=JOB_ID,
            external_id=request.external_id,
            content_sha256=upload.sha256 if upload else None,
            duplicate=False,
        )

    async def amend_document(
        self, caller: Principal, document_id: UUID, amendment: Amendment
    ) -> UUID:
        if document_id != DOCUMENT_ID:
            raise NotFound(f"no document {document_id}", remedy="List them.")
        self.amended.append(amendment.stated_fields())
        return JOB_ID

    async def withdraw_document(self, caller: Principal, document_id: UUID) -> UUID:
        if document_id != DOCUMENT_ID:
            raise NotFound(f"no document {document_id}", remedy="List them.")
        self.withdrawn.append(document_id)
        return JOB_ID


class FakeDocuments:
    async def find_documents(
        self, caller: Principal, **filters: Any
    ) -> tuple[list[dict[str, Any]], str | None]:
        return [dict(DOCUMENT_BODY)], "more"

    async def has_content(self, tenant: str, document_id: UUID, sha256: str) -> bool:
        return document_id == DOCUMENT_ID and DOCUMENT_BODY.get("content_sha256") == sha256

    async def fetch_document(self, caller: Principal, document_id: UUID) -> dict[str, Any] | None:
        if document_id != DOCUMENT_ID:
            return None
        return dict(DOCUMENT_BODY)

    async def fetch_revisions(
        self, caller: Principal, document_id: UUID, *, after: int | None, limit: int
    ) -> tuple[list[dict[str, Any]], int | None]:
        fields = (
            "revision",
            "state",
            "title",
            "filename",
            "media_type",
            "content_sha256",
            "source",
        )
        fields += ("received_at", "ingestion_job_id", "bytes", "characters", "pages")
        revision = {name: DOCUMENT_BODY[name] for name in fields}
        return [revision | {"event_id": "e", "visible": True}], None

    async def fetch_chunks(
        self, caller: Principal, document_id: UUID, *, after: int, limit: int
    ) -> tuple[list[dict[str, Any]], int | None]:
        chunk = {
            "chunk_id": str(JOB_ID),
            "parent_id": None,
            "ordinal": after + 1,
            "kind": "paragraph",
            "text": "Title",
            "section": None,
            "pages": [],
            "spans": [{"char_start": 0, "char_end": 7}],
            "char_start": 0,
            "char_end": 7,
            "tokens": 2,
            "language": None,
        }
        return [chunk], None

    async def fetch_entities(
        self, caller: Principal, document_id: UUID, *, after: str | None, limit: int
    ) -> tuple[list[dict[str, Any]], str | None]:
        mention = {"chunk_id": str(JOB_ID), "name": "Heron", "char_start": 0, "char_end": 5}
        entity = {"id": str(JOB_ID), "type": "ORG", "name": "Heron", "mentions": 1}
        return [entity | {"occurrences": [mention]}], None

    async def fetch_revision_file(
        self, caller: Principal, document_id: UUID, revision: int
    ) -> dict[str, Any] | None:
        found = document_id == DOCUMENT_ID and revision == DOCUMENT_BODY["revision"]
        return dict(DOCUMENT_BODY) if found else None

    async def fetch_text(
        self, caller: Principal, document_id: UUID, revision: int | None = None
    ) -> DocumentText | None:
        found = document_id == DOCUMENT_ID and revision in (None, DOCUMENT_BODY["revision"])
        return DocumentText(document_id, "# Title", None) if found else None

    async def fetch_status(self, caller: Principal, **by: Any) -> dict[str, Any] | None:
        return (
            {
                "ingestion_job_id": str(JOB_ID),
                "document_id": str(DOCUMENT_ID),
                "external_id": None,
                "state": "searchable",
                "stages": [dict(STAGE_BODY)],
                "chunks_count": 1,
                "tokens_estimate": 2,
                "warnings": [],
            }
            if by.get("job_id") == JOB_ID
            else None
        )

    async def list_document_events(
        self, caller: Principal, document_id: UUID, *, after: int, limit: int
    ) -> tuple[list[dict[str, Any]], int | None]:
        return (
            [{**STAGE_BODY, "revision": 1, "generation": None, "part": 1}]
            if document_id == DOCUMENT_ID
            else []
        ), None

    async def filter_readable(self, caller: Principal, document_ids: Any) -> set[UUID]:
        return set(document_ids)

    async def fetch_counts(self, tenant: str | None) -> dict[str, int]:
        return {"searchable": 1}


@dataclass
class FakeGenerations:
    """g1 is live, g2 is on standby."""

    requests: list[tuple[str, Any]] = field(default_factory=list)

    async def list_generations(self, caller: Principal) -> list[dict[str, Any]]:
        common = {"base": None, "purpose": "first", "created_at": RECEIVED_AT, "built_at": None}
        common |= {"config": IndexConfig().model_dump(), "how": {}, "topics": {}, "previous": None}
        common |= {"documents": 1, "chunks": 1, "bytes": 1, "build": None}
        return [
            {"name": "g1", "state": "live", "live": True, **common},
            {"name": "g2", "state": "standby", "live": False, **common},
        ]

    async def get_generation(self, caller: Principal, name: str) -> dict[str, Any]:
        found = next(
            (one for one in await self.list_generations(caller) if one["name"] == name), None
        )
        if found is None:
            raise NotFound(f"no generation {name}", remedy="List them.")
        return found

    async def compare(self, tenant: str, a: str, b: str, request: Any) -> dict[str, Any]:
        self.requests.append((f"{a} {b}", request))
        index_bytes = {"A": 1, "B": 1}
        return build_comparison_report(
            {"A": a, "B": b}, [], JudgementCounts(0, {"A": 0, "B": 0}), index_bytes, {}
        )

    async def promote(self, tenant: str, name: str, request: Any) -> dict[str, Any]:
        self.requests.append((name, request))
        if name == "g3":
            raise PermanentError(
                "1 documents are not settled", code="GENERATION_BEHIND", remedy="Wait."
            )
        against = ["no gain"] if request.gate else []
        return {
            "generation": name,
            "previous": None if against else "g1",
            "promoted": not against,
            "reasons": against,
            "comparison": None,
        }

    async def roll_back(self, expected_live: str | None) -> dict[str, Any]:
        return {
            "generation": "g2",
            "previous": "g1",
            "promoted": True,
            "reasons": [],
            "comparison": None,
        }

    async def drop(self, name: str) -> dict[str, Any]:
        return {"generation": name, "removed": True, "blocked_by": None, "topics": ["embedded.g2"]}


class FakeExams:
    async def examine(self, caller: Principal, request: Any) -> dict[str, Any]:
        return summarize_exam(make_exam(caller.tenant), {})

    async def calibrate(self, caller: Principal, request: Any) -> dict[str, Any]:
        exam = make_exam(caller.tenant)
        result = calibrate(exam, [], request)
        return result.calibration.model_dump(mode="json") | {
            "default_reason": result.reason,
            "held_out": None,
            "exam": summarize_exam(exam, {}),
        }

    async def list_exams(self, caller: Principal, limit: int) -> list[dict[str, Any]]:
        return [summarize_exam(make_exam(caller.tenant), {})]

    async def get_exam(self, caller: Principal, exam_id: UUID) -> dict[str, Any]:
        raise NotFound(f"no exam {exam_id}", remedy="List them.")


class NoJudgements:
    async def export_judgements(self, caller: Principal, since: Any, until: Any) -> dict[str, Any]:
        return build_judgement_export([], [])

    async def list_candidates(self, caller: Principal, limit: int) -> list[dict[str, Any]]:
        return []

    async def draft_questions(
        self, caller: Principal, questions: int, seed: int
    ) -> list[dict[str, Any]]:
        return []


def make_exam(tenant: str) -> Exam:
    return Exam(
        exam_id=UUID(int=1),
        tenant=tenant,
        generation="g1",
        profile="default",
        seed=0,
        scores="",
        completed_at=datetime.fromisoformat(RECEIVED_AT),
        items=[],
    )


@dataclass
class MemoryCollections:
    """Collections without documents."""

    profiles: dict[str, str | None] = field(default_factory=dict)

    async def list_collections(self, caller: Principal) -> list[dict[str, Any]]:
        return [_format_collection(name, self.profiles[name]) for name in self.profiles]

    async def get_collection(self, caller: Principal, name: str) -> dict[str, Any]:
        if name not in self.profiles:
            raise NotFound(f"There is no collection {name!r}.")
        return _format_collection(name, self.profiles[name])

    async def set_default_profile(
        self, caller: Principal, name: str, profile: str | None
    ) -> dict[str, Any]:
        self.profiles[name] = profile
        return _format_collection(name, profile)

    async def delete_collection(self, caller: Principal, name: str) -> UUID:
        await self.get_collection(caller, name)
        del self.profiles[name]
        return JOB_ID


def _format_collection(name: str, profile: str | None) -> dict[str, Any]:
    return {
        "name": name,
        "documents": 0,
        "chunks": 0,
        "languages": [],
        "default_profile": profile,
        "deletion": None,
    }


class NoRecords:
    async def list_runs(
        self, caller: Principal, **_: Any
    ) -> tuple[list[dict[str, Any]], str | None]:
        return [], None

    async def list_facts(
        self, caller: Principal, *, status: FactStatus | None, after: str | None, limit: int
    ) -> tuple[list[Fact], str | None]:
        return [], None

    async def list_dead_letters(
        self, tenant: str, **_: Any
    ) -> tuple[list[dict[str, Any]], str | None]:
        return [], None


class NoSources:
    async def list_sources(self, tenant: str) -> list[dict[str, Any]]:
        return []

    async def get_source(self, tenant: str, name: str) -> dict[str, Any]:
        raise NotFound(f"no source {name}", remedy="List them.")

    async def add_source(self, tenant: str, request: SourceRequest) -> dict[str, Any]:
        return {
            "status": "accepted",
            "name": request.name,
            "ce_source": f"anabranch/source/{request.name}",
        }

    async def remove_source(self, tenant: str, name: str, *, withdraw: bool) -> dict[str, Any]:
        raise NotFound(f"no source {name}", remedy="List them.")

    async def reset_source(self, caller: Principal, name: str) -> dict[str, Any]:
        raise NotFound(f"no source {name}", remedy="List them.")


class NoEntities:
    async def list_entities(
        self, caller: Principal, **_: Any
    ) -> tuple[list[dict[str, Any]], str | None]:
        return [], None

    async def get_entity(self, caller: Principal, entity_id: UUID) -> dict[str, Any] | None:
        return None

    async def find_by_name(
        self, caller: Principal, name: str, kind: str | None
    ) -> list[dict[str, Any]]:
        return []

    async def amend_entity(
        self, caller: Principal, entity_id: UUID, amendment: EntityAmendment
    ) -> dict[str, Any]:
        raise NotFound(f"Unknown entity {entity_id}.", remedy="List them.")

    async def merge_entity(self, caller: Principal, entity_id: UUID, into: UUID) -> dict[str, Any]:
        raise NotFound(f"Unknown entity {entity_id}.", remedy="List them.")

    async def split_entity(self, caller: Principal, entity_id: UUID, part: str) -> dict[str, Any]:
        raise NotFound(f"Unknown entity {entity_id}.", remedy="List them.")

    async def get_subgraph(self, caller: Principal, seeds: Any, **_: Any) -> dict[str, Any]:
        return {"nodes": [], "edges": []}


@dataclass
class MemoryFeed:
    """Yields its messages, then waits until it is stopped."""

    messages: list[FeedMessage] = field(default_factory=list)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)

    def close_streams(self) -> None:
        self.stopping.set()

    async def read_page(
        self, caller: Principal, events: FeedFilter, *, after: str, **_: Any
    ) -> LogPage:
        return LogPage(items=[], next=after, end=True, missed=0)

    async def count_events(
        self, caller: Principal, topics: Sequence[str], *, bucket_s: int, **_: Any
    ) -> EventCounts:
        return EventCounts(bucket_seconds=bucket_s, items=[])

    async def follow(
        self, caller: Principal, events: FeedFilter, *, after: str | None
    ) -> AsyncGenerator[FeedMessage, None]:
        yield FeedMessage(event="open", data={"after": after or "now"}, cursor=after)
        for message in self.messages:
            yield message
        await self.stopping.wait()
        yield FeedMessage(event="bye", data={})


class NoHistory:
    """A stream without events."""

    async def get_run(self, caller: Principal, run_id: UUID) -> dict[str, Any]:
        raise NotFound(f"no run {run_id}", remedy="List them.")

    async def rerun(self, caller: Principal, run_id: UUID) -> dict[str, Any]:
        raise NotFound(f"no run {run_id}", remedy="List them.")

    async def diff_run(self, caller: Principal, run_id: UUID, other_run_id: UUID | None) -> RunDiff:
        raise NotFound(f"no run {run_id}", remedy="List them.")

    async def get_document_lineage(self, caller: Principal, document_id: UUID) -> DocumentLineage:
        raise NotFound(f"no document {document_id}", remedy="List them.")

    @property
    def tracer(self) -> NoHistory:
        return self

    async def read_text(self, caller: Principal, document_id: UUID, revision: int) -> str:
        raise NotFound(f"Document {document_id} has no text of revision {revision}.")

    async def get_run_lineage(
        self, caller: Principal, run_id: UUID, *, sentence: int | None, citation: int | None
    ) -> RunLineage:
        raise NotFound(f"no run {run_id}", remedy="List them.")

    def to_prov(self, lineage: DocumentLineage | RunLineage) -> dict[str, Any]:
        return {}


async def search(caller: Principal, request: SearchRequest) -> SearchResponse:
    raise NotFound("no generation", remedy="None.")


class NoReplays:
    async def list_causes(self, tenant: str) -> list[dict[str, Any]]:
        return []

    async def redrive(self, tenant: str, request: RedriveRequest) -> dict[str, Any]:
        return {"events": 0, "stages": {}, "skipped": 0, "replays": []}

    async def discard_dead_letters(self, tenant: str, request: DiscardRequest) -> dict[str, Any]:
        return {"events": 0}

    async def start_replay(self, tenant: str, request: ReplayRequest) -> dict[str, Any]:
        estimate: dict[str, Any] = {"starts": {0: 0}, "ends": {0: 0}, "missing": []}
        return {"replay_id": None, "stage": "chunk", "topic": "t", "events_read": 0, **estimate}

    async def list_replays(self, tenant: str, limit: int) -> list[dict[str, Any]]:
        return []

    async def get_replay(self, tenant: str, replay_id: UUID) -> dict[str, Any]:
        return {**REPLAY_BODY, "replay_id": replay_id}

    async def set_replay_state(self, tenant: str, replay_id: UUID, state: str) -> dict[str, Any]:
        return {**REPLAY_BODY, "replay_id": replay_id, "state": state}


class FakeGenerationBuilds:
    """g2 is being built."""

    async def plan_build(self, settings: Sequence[str]) -> Any:
        raise InvalidRequest(
            "the index would be the same", code="NOTHING_CHANGES", remedy="Change something."
        )

    async def start_reindex(
        self, settings: Sequence[str], *, events_per_second: float | None = None
    ) -> Any:
        return await self.plan_build(settings)

    async def start_rebuild(
        self, *, keep_previous: bool, events_per_second: float | None = None
    ) -> str:
        return "g2"

    async def get_build(self, name: str) -> dict[str, Any]:
        if name != "g2":
            raise NotFound(f"no generation {name}", remedy="List them.")
        return {"generation": name, "state": "building", "phase": "loading", "paused": False}

    async def get_build_or_pending(self, name: str) -> dict[str, Any]:
        return await self.get_build(name)

    async def change_pace(self, name: str, pace: Mapping[str, Any]) -> dict[str, Any]:
        return await self.get_build(name) | dict(pace)


class NoErasures:
    async def request_erasure(self, tenant: str, scope: Scope, name: str) -> UUID:
        return JOB_ID

    async def get_receipt(self, tenant: str, receipt_id: UUID) -> dict[str, Any] | None:
        return None

    async def list_receipts(self, tenant: str, limit: int) -> list[dict[str, Any]]:
        return []


class NoFacts:
    """Accepts every fact, and has none."""

    async def propose(self, caller: Principal, request: FactRequest) -> FactReceipt:
        return FactReceipt(fact_id=JOB_ID)

    async def approve(self, caller: Principal, fact_id: UUID) -> FactReceipt:
        return FactReceipt(fact_id=fact_id)

    async def reject(self, caller: Principal, fact_id: UUID, reason: str | None) -> FactReceipt:
        return FactReceipt(fact_id=fact_id)

    async def get(self, caller: Principal, fact_id: UUID) -> Fact:
        raise NotFound("no fact", remedy="None.")


async def query(caller: Principal, request: QueryRequest, tell: OnProgress) -> QueryResponse:
    tell(StepProgress(name="plan"))
    raise NotFound("no generation", remedy="None.")


async def feedback(caller: Principal, request: FeedbackRequest) -> FeedbackReceipt:
    return FeedbackReceipt(feedback_id=JOB_ID, judgements=len(request.list_grades()))


class NoKeys:
    async def create(
        self, caller: Principal, request: ApiKeyRequest, request_id: str | None = None
    ) -> IssuedApiKey:
        raise Forbidden("not here")

    async def list_keys(
        self, caller: Principal, *, after: str | None, limit: int
    ) -> tuple[list[ApiKey], str | None]:
        return [], None

    async def rotate(
        self,
        caller: Principal,
        key_id: str,
        request: RotationRequest,
        request_id: str | None = None,
    ) -> IssuedApiKey:
        raise NotFound(f"no key {key_id}")

    async def revoke(self, caller: Principal, key_id: str, request_id: str | None = None) -> ApiKey:
        raise NotFound(f"no key {key_id}")


@dataclass
class RecordingAuditLog:
    entries: list[tuple[str, str, str | None, str]] = field(default_factory=list)
    """Tenant, act, subject, outcome."""

    async def record(
        self,
        caller: Principal,
        action: str,
        subject: str | None,
        request_id: str | None,
        outcome: str = "done",
    ) -> None:
        self.entries.append((caller.tenant, action, subject, outcome))

    async def record_visit(self, caller: Principal, request_id: str | None) -> None:
        await self.record(caller, "tenant.entered", caller.tenant, request_id)


class NoAuditEvents:
    async def list_events(
        self, tenant: str | None, **_: Any
    ) -> tuple[list[dict[str, Any]], str | None]:
        return [], None


class QuietMonitoring:
    async def list_topics(self) -> list[dict[str, Any]]:
        return [{"topic": "raw", "partitions": 1, "records": 0}]

    async def describe_topic(self, topic: str) -> dict[str, Any]:
        raise NotFound(f"no topic {topic}", remedy="None.")

    async def describe_stages(self, caller: Principal) -> dict[str, Any]:
        blocked: dict[str, Any] = {"horizon": None, "locks": []}
        return {"window_seconds": 60.0, "items": [], "circuits": {}} | blocked

    async def describe_system(self, caller: Principal) -> dict[str, Any]:
        return {
            "version": "0",
            "python": "3",
            "platform": "Linux",
            "started_at": datetime(2026, 1, 1, tzinfo=UTC),
            "uptime_seconds": 1.0,
            "backends": {"database": "postgres"},
            "postgres": {"version": "18", "pgvector": "0.8.1"},
            "disk": {"total_bytes": 2, "free_bytes": 1, "reserve_bytes": 1},
            "open_streams": {"events": 0, "answers": 0},
            "tenants": None,
        }


async def find_nothing() -> list[Finding]:
    return [Finding("python", "pass", "3.11")]


async def authenticate_as_operator(credential: str | None, tenant: str | None) -> Principal:
    return Principal(id="local", tenant="default", role="operator")


def make_services(**replaced: Any) -> Services:
    async def ready() -> list[DependencyStatus]:
        return [DependencyStatus("database", True, "answers")]

    async def reload_profiles() -> ReloadedConfig:
        return ReloadedConfig(changed=[], sha256=ProfileCatalog({}).sha256)

    async def health(caller: Principal) -> dict[str, Any]:
        counts = {"total": 0, "stages": {}, "list": "/v1/dead-letters"}
        return {
            "status": "ok",
            "version": "0",
            "log": "postgres",
            "generation": "g1",
            "documents": {},
            "dead_letters": counts,
            "dependencies": {"database": True},
        }

    parts: Mapping[str, Any] = {
        "authenticate": authenticate_as_operator,
        "max_failures_per_minute": 20,
        "count_failed_authentication": lambda: None,
        "sessions": None,
        "hostnames": (),
        "public_url": "",
        "max_upload_bytes": MAX_BYTES,
        "agent_feedback": False,
        "ingest": FakeIntake(),
        "documents": FakeDocuments(),
        "entities": NoEntities(),
        "entity_changes": NoEntities(),
        "graph": None,
        "collections": MemoryCollections(),
        "listings": NoRecords(),
        "sources": NoSources(),
        "monitoring": QuietMonitoring(),
        "diagnose": find_nothing,
        "erasures": NoErasures(),
        "replays": NoReplays(),
        "generations": FakeGenerations(),
        "exams": FakeExams(),
        "judgements": NoJudgements(),
        "facts": NoFacts(),
        "builds": FakeGenerationBuilds(),
        "blobs": StubBlobs({"k": FILE_BYTES}),
        "profiles": ProfileCatalog({}),
        "reload_profiles": reload_profiles,
        "search": search,
        "query": query,
        "record_feedback": feedback,
        "check_readiness": ready,
        "get_health": health,
        "render_metrics": lambda: (b"metric 1\n", "text/plain"),
        "list_settings": list,
        "get_config_schema": lambda: {"settings": {}, "profile": {}, "profiles": {}},
        "link_signer": LinkSigner(b"secret"),
        "runs": None,
        "run_history": NoHistory(),
        "lineage": NoHistory(),
        "event_feed": MemoryFeed(),
        "api_keys": NoKeys(),
        "audit": RecordingAuditLog(),
        "audit_events": NoAuditEvents(),
    }
    return Services(**{**parts, **replaced})
