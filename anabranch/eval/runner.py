"""Evaluation of test sets through the real pipeline, in tables of its own."""

from __future__ import annotations

import asyncio
import base64
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from anabranch.composition.retriever import prepare_retriever
from anabranch.composition.worker import Worker, prepare_worker
from anabranch.config.engines import prepare_engines
from anabranch.config.index_config import build_index_config
from anabranch.config.profiles import load_all_profiles
from anabranch.config.settings import DatabaseSettings, KafkaSettings, Settings, StorageSettings
from anabranch.process.database import open_database
from evaluation.answers_eval import AnswerQuestion, SetFile, evaluate_answers, read_answers_set
from evaluation.documents_eval import TestFile, evaluate_documents
from evaluation.metrics import Run
from evaluation.reports_eval import (
    CaseResult,
    ParsedFile,
    build_reports_report,
    read_report_cases,
    score_case,
)
from evaluation.retrieval_eval import TestDocument, evaluate_retrieval, read_retrieval_set
from retrieval.retriever import Retriever
from schemas.channels import Channel
from schemas.errors import FatalError, PermanentError
from schemas.events import Content, DocumentFailed, DocumentReceived
from schemas.ids import make_received_id, sha256_hex, upload_staging_prefix
from schemas.ports.engines import LocalFile, load_markdown
from schemas.principals import Principal
from schemas.questions import Filters, QueryRequest, QueryResponse, SearchRequest
from schemas.timestamps import utc_now
from schemas.topics import OUTCOMES, Record
from services.background_tasks import cancel_tasks
from services.monitoring.lag_diagnosis import fetch_stage_lags
from services.storage import Storage
from sql.catalog.documents import PgDocuments
from sql.database import close_pool, open_pool
from sql.index.search import PgSearch
from streams.publisher import build_raw_record


@dataclass(frozen=True, slots=True)
class EphemeralStack:
    """Running worker and retriever over a temporary data folder."""

    settings: Settings
    storage: Storage
    worker: Worker
    retriever: Retriever
    worker_task: asyncio.Task[None]

    def check_worker(self) -> None:
        """Raise the error that stopped the worker, or FatalError if it ended."""
        if self.worker_task.done():
            self.worker_task.result()
            raise FatalError("The worker ended unexpectedly.")


@asynccontextmanager
async def start_ephemeral_stack(settings: Settings) -> AsyncIterator[EphemeralStack]:
    """Start a stack with the engines of the settings, but its own database, log and blobs."""
    async with AsyncExitStack() as exit_stack:
        folder = Path(
            exit_stack.enter_context(
                tempfile.TemporaryDirectory(prefix="anabranch-eval-", ignore_cleanup_errors=True)
            )
        )
        # Postgres refuses to run as root: the account that runs it instead must be able to enter.
        folder.chmod(0o711)
        # Defaults for the rest, so that nothing reaches the operator's database, log or blobs.
        stack_settings = settings.model_copy(
            update={
                "data_dir": folder,
                "database": DatabaseSettings(),
                "kafka": KafkaSettings(),
                "storage": StorageSettings(),
            }
        )
        dsn = await exit_stack.enter_async_context(open_database(stack_settings, is_ephemeral=True))
        worker = await exit_stack.enter_async_context(prepare_worker(stack_settings, dsn))
        pool = await open_pool(dsn, size=stack_settings.database.api_pool, name="anabranch eval")
        exit_stack.push_async_callback(close_pool, pool)
        retriever = await exit_stack.enter_async_context(
            prepare_retriever(
                stack_settings,
                worker.storage,
                PgSearch(pool),
                worker.generation,
                load_all_profiles(stack_settings),
            )
        )
        worker_task = asyncio.create_task(worker.run())
        # Contexts are left in reverse order: the worker stops before its storage closes.
        exit_stack.push_async_callback(cancel_tasks, [worker_task])
        yield EphemeralStack(stack_settings, worker.storage, worker, retriever, worker_task)


BULK_SOURCE = "anabranch/bulk"
BATCH_SIZE = 200
POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class BulkDocument:
    """A Markdown text, or a file of any format with its bytes."""

    id: str
    title: str | None
    text: str | bytes
    filename: str | None = None
    collection: str | None = None


async def ingest_bulk(
    stack: EphemeralStack, documents: Sequence[BulkDocument]
) -> dict[str, DocumentFailed]:
    """Publish the documents, and wait until each has an outcome and all stages are idle.

    Their ids become external ids. Returns the failures by id. Raises PermanentError with the first
    reason if every document failed.
    """
    log = stack.storage.log
    # Before publishing, so that no outcome of these documents is missed.
    bounds = await log.fetch_offset_bounds(OUTCOMES)
    next_offsets = {partition: next_offset for partition, (_, next_offset) in bounds.items()}
    for first_index in range(0, len(documents), BATCH_SIZE):
        batch = documents[first_index : first_index + BATCH_SIZE]
        await log.append([await _build_record(stack, document) for document in batch])
    failures = await _wait_for_outcomes(
        stack, {document.id for document in documents}, next_offsets
    )
    if documents and len(failures) == len(documents):
        first_failure = next(iter(failures.values()))
        raise PermanentError(
            f"All {len(documents)} documents failed; the first: {first_failure.detail}",
            code=first_failure.code or "FAILED",
            remedy=first_failure.remedy or "",
        )
    # A document's outcome does not wait for its entities.
    while any(line["lag"] for line in await fetch_stage_lags(stack.storage)):
        stack.check_worker()
        await asyncio.sleep(0.2)
    return failures


async def _build_record(stack: EphemeralStack, document: BulkDocument) -> Record:
    is_text = isinstance(document.text, str)
    payload = document.text.encode() if isinstance(document.text, str) else document.text
    if len(payload) <= stack.settings.ingest.inline_bytes:
        content = (
            Content(text=document.text)
            if isinstance(document.text, str)
            else Content(base64=base64.b64encode(payload).decode())
        )
    else:
        key = upload_staging_prefix(
            "default", make_received_id("default", BULK_SOURCE, document.id)
        ) + sha256_hex(payload)
        media_type = "text/markdown" if is_text else None
        blob = await stack.storage.blobs.put(key, payload, media_type=media_type)
        content = Content(storage_key=blob.key)
    data = DocumentReceived(
        external_id=document.id,
        title=document.title,
        collection=document.collection,
        media_type="text/markdown" if is_text else None,
        filename=document.filename or f"{sha256_hex(document.id.encode())[:16]}.md",
        content=content,
    )
    return await build_raw_record(
        data, document.id, source=BULK_SOURCE, time=utc_now(), codec=stack.storage.codec
    )


async def _wait_for_outcomes(
    stack: EphemeralStack, pending_ids: set[str], next_offsets: dict[int, int]
) -> dict[str, DocumentFailed]:
    failures: dict[str, DocumentFailed] = {}
    while pending_ids:
        # Without a worker no outcome would ever arrive.
        stack.check_worker()
        async for record in stack.storage.log.read(OUTCOMES, next_offsets):
            next_offsets[record.position.partition] = record.position.offset + 1
            data = getattr(await stack.storage.codec.decode(record), "data", None)
            if getattr(data, "source", None) != BULK_SOURCE:
                continue
            if isinstance(data, DocumentFailed) and data.event_id:
                failures[data.event_id] = data
            pending_ids.discard(str(getattr(data, "event_id", "")))
        await asyncio.sleep(POLL_S)
    return failures


CALLER = Principal("evaluation", "default")
RANKING_DEPTH = 100
MAX_DOCUMENTS_PER_FILE = 100


async def run_retrieval_eval(
    path: Path, settings: Settings, *, channels: Sequence[Channel] | None, profile: str
) -> tuple[dict[str, Any], Run]:
    """Ingest the corpus into a temporary stack, run the queries, and return the report and the
    rankings.

    Raises InvalidRequest for an invalid folder, before anything is started.
    """
    test_set = read_retrieval_set(path)
    async with start_ephemeral_stack(settings) as stack:
        failures: dict[str, str] = {}

        async def ingest(documents: Sequence[TestDocument]) -> None:
            failures.update(await ingest_documents(stack, documents))

        async def search(
            text: str, selected_channels: Sequence[Channel] | None
        ) -> list[tuple[str, float]]:
            request = SearchRequest(
                query=text,
                profile=profile,
                channels=list(selected_channels) if selected_channels else None,
            )
            return await rank_documents(stack.retriever, request)

        report, run = await evaluate_retrieval(
            test_set, ingest, search, channels=channels, clock=utc_now, profile=profile
        )
        return {**report, "failed": failures}, run


async def rank_documents(retriever: Retriever, request: SearchRequest) -> list[tuple[str, float]]:
    """Return external ids and scores, best first, before refusal and trimming."""
    ranked = await retriever.rank_documents(CALLER, request, RANKING_DEPTH)
    return [(external_id or str(document_id), score) for document_id, external_id, score in ranked]


async def ingest_documents(
    stack: EphemeralStack, documents: Sequence[TestDocument]
) -> dict[str, str]:
    """Ingest the documents as `ingest_bulk` does. Returns the error code of each failed one."""
    failures = await ingest_bulk(
        stack, [BulkDocument(document.id, document.title, document.text) for document in documents]
    )
    return _list_codes(failures)


def _list_codes(failures: Mapping[str, DocumentFailed]) -> dict[str, str]:
    return {document_id: failure.code or "" for document_id, failure in failures.items()}


async def run_answers_eval(
    path: Path, settings: Settings, *, profile: str
) -> tuple[dict[str, Any], list[tuple[AnswerQuestion, QueryResponse]]]:
    """Ingest the files into a temporary stack, ask every question, and return the report and the
    responses.
    """
    files, questions = read_answers_set(path)
    async with start_ephemeral_stack(settings) as stack:
        failures = await ingest_bulk(stack, [_read_file(file) for file in files])

        async def ask(question: str) -> QueryResponse:
            return await stack.retriever.query(
                CALLER, QueryRequest(query=question, profile=profile), uuid4()
            )

        report, responses = await evaluate_answers(questions, ask)
    return {
        **report,
        "set": path.name,
        "profile": profile,
        "failed": _list_codes(failures),
    }, responses


async def run_reports_eval(
    path: Path, settings: Settings, *, profile: str
) -> tuple[dict[str, Any], list[CaseResult]]:
    """Ingest each file into a collection of its own, in a temporary stack, and check every case.

    Raises InvalidRequest for an invalid folder, before anything is started.
    """
    cases = read_report_cases(path)
    files = list(dict.fromkeys(case.file for case in cases))
    async with start_ephemeral_stack(settings) as stack:
        failures = await ingest_bulk(
            stack,
            [
                BulkDocument(
                    file, None, (path / file).read_bytes(), Path(file).name, _name_collection(file)
                )
                for file in files
            ],
        )
        parsed = {file: await _fetch_parsed_file(stack, file, failures.get(file)) for file in files}
        results = []
        for case in cases:
            response = None
            if case.question:
                request = QueryRequest(
                    query=case.question,
                    profile=profile,
                    filters=Filters(collections=[_name_collection(case.file)]),
                )
                response = await stack.retriever.query(CALLER, request, uuid4())
            results.append(score_case(case, parsed[case.file], response))
    return {"set": path.name, "profile": profile, **build_reports_report(results)}, results


def _name_collection(file: str) -> str:
    return sha256_hex(file.encode())[:16]


async def _fetch_parsed_file(
    stack: EphemeralStack, file: str, failure: DocumentFailed | None
) -> ParsedFile:
    """Fetch the Markdown and the warnings of a file, also of the documents that it contains."""
    documents, blobs = PgDocuments(stack.storage.pool), stack.storage.blobs
    page, _ = await documents.find_documents(
        CALLER,
        external_id=None,
        collection=_name_collection(file),
        tag=None,
        state=None,
        after=None,
        limit=MAX_DOCUMENTS_PER_FILE,
    )
    texts, warnings = [], [failure.detail or ""] if failure else []
    for document in page:
        warnings += [f"{notice['code']}: {notice['detail']}" for notice in document["warnings"]]
        if text := await documents.fetch_text(CALLER, document["document_id"]):
            texts.append(await load_markdown(text.markdown, text.blob_key, blobs))
    return ParsedFile("\n\n".join(texts), tuple(warnings), failure.code if failure else None)


def _read_file(file: SetFile) -> BulkDocument:
    return BulkDocument(file.external_id, None, file.path.read_bytes(), file.path.name)


async def run_documents_eval(path: Path, settings: Settings) -> dict[str, Any]:
    """Parse every file, with child processes and OCR, and compare the results with the ground
    truth.
    """
    async with prepare_engines(settings, build_index_config(settings)) as engines:

        async def transcribe(test_file: TestFile) -> str:
            size = test_file.path.stat().st_size
            file = LocalFile(test_file.path, test_file.path.name, test_file.media_type, size)
            plan = await engines.parser.plan(file)
            parts = [await engines.parser.parse(file, plan, part) for part in plan.parts]
            return engines.parser.assemble(file, plan, parts).markdown

        return await evaluate_documents(path, transcribe, clock=utc_now)
