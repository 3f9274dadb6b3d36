"""Small in-memory services for tests of the routes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any
from uuid import UUID, uuid5

from api.services import Services
from api.sessions import LinkSigner
from evaluation.calibration import calibrate
from evaluation.comparison import JudgementCounts, build_comparison_report
from evaluation.exam import summarize_exam
from evaluation.judgements import build_judgement_export
from retrieval.profiles import ProfileCatalog
from schemas.errors import Forbidden, InvalidRequest, LimitExceeded, NotFound, PermanentError
from schemas.event_feed import EventCounts, FeedFilter, FeedMessage, LogPage
from schemas.exams import Exam
from schemas.facts import FactReceipt
from schemas.findings import DependencyStatus, Finding
from schemas.generations import IndexConfig
from schemas.ids import sha256_hex
from schemas.ingest import IngestReceipt, IngestRequest
from schemas.judgements import FeedbackReceipt, FeedbackRequest
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
from schemas.sources import SourceRequest
from schemas.standing_questions import SavedQuestion, StandingQuestionRequest
from schemas.values import Amendment, BlobRef
from services.ingest import Submission

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


class Stub:
    """A service whose methods return the given results, call functions, and raise errors."""

    def __init__(self, **results: Any) -> None:
        self._results = results

    def __getattr__(self, name: str) -> Any:
        if name not in self._results:
            raise AttributeError(name)
        if isinstance(self._results[name], Stub):
            return self._results[name]

        async def call(*arguments: Any, **options: Any) -> Any:
            result = self._results[name]
            if callable(result):
                result = result(*arguments, **options)
            if isinstance(result, Exception):
                raise result
            return result

        return call


def missing(*_: Any, **__: Any) -> NotFound:
    return NotFound("There is none.", remedy="List them.")


NO_PAGE: tuple[list[Any], None] = [], None


@dataclass
class StubBlobs:
    content: dict[str, bytes] = field(default_factory=dict)

    async def get(self, key: str) -> bytes:
        return self.content[key]

    async def presign_url(self, key: str, lifetime_s: float) -> str | None:
        return None

    async def get_ranges(self, key: str, ranges: Any) -> list[bytes]:
        return [self.content[key][offset : offset + length] for offset, length in ranges]


SYSTEM_BODY: Mapping[str, Any] = {
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


@dataclass
class FakeIntake:
    accepted: list[tuple[IngestRequest, BlobRef | None, Submission]] = field(default_factory=list)
    stored: dict[str, bytes] = field(default_factory=dict)
    withdrawn: list[UUID] = field(default_factory=list)
    amended: list[dict[str, Any]] = field(default_factory=list)

    @asynccontextmanager
    async def open_submission(
        self, caller: Principal, idempotency_key: str | None
    ) -> AsyncIterator[Submission]:
        submission = Submission(caller, idempotency_key or "fresh", idempotency_key is not None)
        try:
            yield submission
        except PermanentError:
            for upload in submission.uploads:
                del self.stored[upload.key]
            raise

    async def stage_upload(
        self, submission: Submission, chunks: AsyncIterator[bytes], media_type: str | None
    ) -> BlobRef:
        body = b""
        async for chunk in chunks:
            body += chunk
            if len(body) > MAX_BYTES:
                raise LimitExceeded(
                    f"over {MAX_BYTES} bytes", code="TOO_LARGE", remedy="Send less."
                )
        reference = BlobRef(
            key=f"uploads/{submission.caller.tenant}/{sha256_hex(body)}",
            sha256=sha256_hex(body),
            size=len(body),
            media_type=media_type,
        )
        self.stored[reference.key] = body
        submission.uploads.append(reference)
        return reference

    async def submit_document(
        self, submission: Submission, request: IngestRequest, upload: BlobRef | None
    ) -> IngestReceipt:
        self.accepted.append((request, upload, submission))
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


def _if_known(result: Any) -> Callable[..., Any]:
    return lambda caller, document_id, *_, **__: result if document_id == DOCUMENT_ID else None


class FakeDocuments(Stub):
    def __init__(self) -> None:
        fields: tuple[str, ...] = (
            "revision",
            "state",
            "title",
            "filename",
            "media_type",
            "content_sha256",
        )
        fields += ("source", "received_at", "ingestion_job_id", "bytes", "characters", "pages")
        revision: dict[str, Any] = {name: DOCUMENT_BODY[name] for name in fields}
        chunk: dict[str, Any] = {
            "chunk_id": str(JOB_ID),
            "parent_id": None,
            "kind": "paragraph",
            "text": "Title",
        }
        chunk |= {"section": None, "pages": [], "spans": [{"char_start": 0, "char_end": 7}]}
        chunk |= {"char_start": 0, "char_end": 7, "tokens": 2, "language": None}
        mention: dict[str, Any] = {
            "chunk_id": str(JOB_ID),
            "name": "Heron",
            "char_start": 0,
            "char_end": 5,
        }
        entity: dict[str, Any] = {"id": str(JOB_ID), "type": "ORG", "name": "Heron", "mentions": 1}
        status: dict[str, Any] = {"ingestion_job_id": str(JOB_ID), "document_id": str(DOCUMENT_ID)}
        status |= {"external_id": None, "state": "searchable", "stages": [dict(STAGE_BODY)]}
        status |= {"chunks_count": 1, "tokens_estimate": 2, "warnings": []}
        events = [{**STAGE_BODY, "revision": 1, "generation": None, "part": 1}]
        super().__init__(
            find_documents=lambda *_, **__: ([dict(DOCUMENT_BODY)], "more"),
            has_content=lambda tenant, document_id, sha256: (
                (document_id, sha256) == (DOCUMENT_ID, DOCUMENT_BODY["content_sha256"])
            ),
            fetch_document=_if_known(DOCUMENT_BODY),
            fetch_revisions=([revision | {"event_id": "e", "visible": True}], None),
            fetch_chunks=lambda *_, after, **__: ([chunk | {"ordinal": after + 1}], None),
            fetch_entities=([entity | {"occurrences": [mention]}], None),
            fetch_revision_file=lambda caller, *revision: (
                DOCUMENT_BODY if revision == (DOCUMENT_ID, 1) else None
            ),
            fetch_text=lambda caller, document_id, revision=None: (
                DocumentText(document_id, "# Title", None)
                if document_id == DOCUMENT_ID and revision in (None, 1)
                else None
            ),
            fetch_status=lambda *_, **by: status if by.get("job_id") == JOB_ID else None,
            list_document_events=lambda caller, document_id, **_: (
                events if document_id == DOCUMENT_ID else [],
                None,
            ),
            filter_readable=lambda caller, document_ids: set(document_ids),
            fetch_counts={"searchable": 1},
        )


@dataclass
class FakeGenerations:
    """g1 is live, g2 is on standby."""

    requests: list[tuple[str, Any]] = field(default_factory=list)

    async def list_generations(self, caller: Principal) -> list[dict[str, Any]]:
        common: dict[str, Any] = {
            "base": None,
            "purpose": "first",
            "created_at": RECEIVED_AT,
            "built_at": None,
        }
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


def _calibrate(caller: Principal, request: Any) -> dict[str, Any]:
    exam = make_exam(caller.tenant)
    result = calibrate(exam, [], request)
    return result.calibration.model_dump(mode="json") | {
        "default_reason": result.reason,
        "held_out": None,
        "exam": summarize_exam(exam, {}),
    }


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

    async def configure(
        self, caller: Principal, name: str, changes: Mapping[str, Any]
    ) -> dict[str, Any]:
        self.profiles[name] = changes.get("default_profile")
        return _format_collection(name, self.profiles[name])

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
        **dict.fromkeys(("chunking", "chunk", "extract")),
        "deletion": None,
    }


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


async def search(caller: Principal, request: SearchRequest) -> SearchResponse:
    raise NotFound("no generation", remedy="None.")


def _get_build(name: str, pace: Mapping[str, Any] = MappingProxyType({})) -> Any:
    """g2 is being built."""
    build = {"generation": name, "state": "building", "phase": "loading", "paused": False}
    return build | dict(pace) if name == "g2" else missing()


def _format_replay(tenant: str, replay_id: UUID, *state: str) -> dict[str, Any]:
    return {**REPLAY_BODY, "replay_id": replay_id, "state": "".join(state) or "running"}


def _add_source(tenant: str, request: SourceRequest) -> dict[str, Any]:
    ce_source = f"anabranch/source/{request.name}"
    return {"status": "accepted", "name": request.name, "ce_source": ce_source}


def _save_question(caller: Principal, request: StandingQuestionRequest) -> SavedQuestion:
    return SavedQuestion(
        question_id=JOB_ID, asked_by=caller.id, request=request, saved_at=datetime.now(UTC)
    )


async def _iterate_nothing(*_: Any, **__: Any) -> AsyncIterator[list[Any]]:
    yield []


async def query(caller: Principal, request: QueryRequest, tell: OnProgress) -> QueryResponse:
    tell(StepProgress(name="plan"))
    raise NotFound("no generation", remedy="None.")


async def feedback(caller: Principal, request: FeedbackRequest) -> FeedbackReceipt:
    return FeedbackReceipt(feedback_id=JOB_ID, judgements=len(request.list_grades()))


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

    no_key, same_index = (
        NotFound("no key"),
        InvalidRequest("same index", code="NOTHING_CHANGES", remedy="Change something."),
    )
    lineage: Any = Stub(get_document_lineage=missing, get_run_lineage=missing)
    lineage.tracer = Stub(read_text=missing)
    listings: Any = Stub(list_runs=NO_PAGE, list_facts=NO_PAGE, list_dead_letters=NO_PAGE)
    listings.iterate_telemetry = _iterate_nothing
    questions: Any = Stub(
        save=_save_question, delete=missing, list_changes=missing, redeliver=missing
    )
    questions.tables = Stub(list_page=NO_PAGE, get=missing)
    no_locks: dict[str, Any] = {"horizon": None, "locks": []}
    chat_model = {"url": None, "model": None, "is_chosen": False, "can_choose": True, "servers": []}
    estimate: dict[str, Any] = {"starts": {0: 0}, "ends": {0: 0}, "missing": []}
    entities = Stub(
        list_entities=NO_PAGE,
        get_entity=None,
        find_by_name=[],
        amend_entity=missing,
        merge_entity=missing,
        split_entity=missing,
        get_subgraph={"nodes": [], "edges": []},
    )
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
        "entities": entities,
        "entity_changes": entities,
        "graph": None,
        "collections": MemoryCollections(),
        "listings": listings,
        "sources": Stub(
            list_sources=[],
            get_source=missing,
            add_source=_add_source,
            remove_source=missing,
            reset_source=missing,
        ),
        "monitoring": Stub(
            list_topics=[{"topic": "raw", "partitions": 1, "records": 0}],
            describe_topic=missing,
            explain_waiting=None,
            describe_stages={"window_seconds": 60.0, "items": [], "circuits": {}} | no_locks,
            describe_system=SYSTEM_BODY,
        ),
        "diagnose": find_nothing,
        "erasures": Stub(request_erasure=JOB_ID, get_receipt=None, list_receipts=[]),
        "replays": Stub(
            list_causes=[],
            redrive={"events": 0, "stages": {}, "skipped": 0, "replays": []},
            discard_dead_letters={"events": 0},
            start_replay={"replay_id": None, "stage": "chunk", "topic": "t", "events_read": 0}
            | estimate,
            list_replays=[],
            get_replay=_format_replay,
            set_replay_state=_format_replay,
        ),
        "generations": FakeGenerations(),
        "exams": Stub(
            examine=lambda caller, request: summarize_exam(make_exam(caller.tenant), {}),
            calibrate=_calibrate,
            list_exams=lambda caller, limit: [summarize_exam(make_exam(caller.tenant), {})],
            get_exam=missing,
        ),
        "judgements": Stub(
            export_judgements=build_judgement_export([], []), list_candidates=[], draft_questions=[]
        ),
        "facts": Stub(
            propose=FactReceipt(fact_id=JOB_ID),
            approve=lambda caller, fact_id: FactReceipt(fact_id=fact_id),
            reject=lambda caller, fact_id, reason: FactReceipt(fact_id=fact_id),
            get=missing,
        ),
        "questions": questions,
        "experiments": Stub(
            list_reports=[],
            start=InvalidRequest("One is running.", code="EXPERIMENT_RUNNING", remedy="Stop it."),
            get_report=missing,
            stop=missing,
        ),
        "builds": Stub(
            plan_build=same_index,
            start_reindex=same_index,
            start_rebuild="g2",
            get_build=_get_build,
            get_build_or_pending=_get_build,
            change_pace=_get_build,
        ),
        "blobs": StubBlobs({"k": FILE_BYTES}),
        "profiles": ProfileCatalog({}),
        "reload_profiles": reload_profiles,
        "search": search,
        "query": query,
        "embed": Stub(embed=missing).embed,
        "chat_model": Stub(
            describe=chat_model,
            choose=NotFound("no model", code="NO_LOCAL_MODEL", remedy="None."),
            clear=chat_model,
        ),
        "record_feedback": feedback,
        "check_readiness": ready,
        "get_health": health,
        "render_metrics": lambda: (b"metric 1\n", "text/plain"),
        "list_settings": list,
        "get_config_schema": lambda: {"settings": {}, "profile": {}, "profiles": {}},
        "link_signer": LinkSigner(b"secret"),
        "runs": None,
        "run_history": Stub(
            runs=Stub(get_run=missing),
            rerun=missing,
            diff_run=missing,
            bisect=missing,
            answer_without_documents=missing,
        ),
        "lineage": lineage,
        "event_feed": MemoryFeed(),
        "api_keys": Stub(
            create=Forbidden("not here"), list_keys=NO_PAGE, rotate=no_key, revoke=no_key
        ),
        "audit": RecordingAuditLog(),
        "audit_events": Stub(list_events=NO_PAGE),
    }
    return Services(**{**parts, **replaced})
