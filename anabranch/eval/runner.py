"""Evaluation of test sets through the real pipeline."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from anabranch.composition.engines import prepare_engines
from anabranch.config.index_config import build_index_config
from anabranch.config.overrides import NO_OVERRIDES, Overrides
from anabranch.config.settings import Settings
from anabranch.eval.bulk_producer import BulkDocument, BulkProducer, raise_if_all_failed
from anabranch.eval.ephemeral_stack import EphemeralStack, start_ephemeral_stack
from evaluation.documents_eval import evaluate_documents
from evaluation.documents_set import TestFile
from evaluation.metrics import Run
from evaluation.retrieval_eval import evaluate_retrieval
from evaluation.retrieval_set import TestDocument
from schemas.ports.engines import LocalFile, Parser
from schemas.principals import Principal
from schemas.questions import Channel, SearchRequest
from services.monitoring.consumer_lag import fetch_stage_lags

CALLER = Principal("evaluation", "default")
RANKING_DEPTH = 100


async def run_retrieval_eval(
    path: Path,
    settings: Settings,
    *,
    channels: Sequence[Channel] | None,
    profile: str,
    overrides: Overrides = NO_OVERRIDES,
) -> tuple[dict[str, Any], Run]:
    """Ingest the corpus into a temporary stack, run the queries, and return the report and the
    rankings.
    """
    async with start_ephemeral_stack(settings, overrides) as stack:
        failures: dict[str, str] = {}

        async def ingest(documents: Sequence[TestDocument]) -> None:
            failures.update(await ingest_documents(stack, documents, overrides))

        async def search(
            text: str, selected_channels: Sequence[Channel] | None
        ) -> list[tuple[str, float]]:
            return await rank_documents(stack, text, selected_channels, profile)

        report, run = await evaluate_retrieval(
            path, ingest, search, channels=channels, clock=overrides.clock, profile=profile
        )
        return {**report, "failed": failures}, run


async def rank_documents(
    stack: EphemeralStack, text: str, channels: Sequence[Channel] | None, profile: str
) -> list[tuple[str, float]]:
    """Return external ids and scores, best first, before refusal and trimming."""
    request = SearchRequest(
        query=text, profile=profile, channels=list(channels) if channels else None
    )
    ranked = await stack.retriever.rank_documents(CALLER, request, RANKING_DEPTH)
    return [(external_id or str(document_id), score) for document_id, external_id, score in ranked]


async def ingest_documents(
    stack: EphemeralStack, documents: Sequence[TestDocument], overrides: Overrides = NO_OVERRIDES
) -> dict[str, str]:
    """Ingest the documents and wait until all stages are idle.

    Returns the error code of each failed document by id.
    """
    producer = BulkProducer(
        stack.storage.log,
        stack.storage.blobs,
        stack.storage.codec,
        overrides.clock,
        stack.settings.ingest.inline_bytes,
        stack.check_worker,
    )
    bulk_documents = [
        BulkDocument(document.id, document.title, document.text) for document in documents
    ]
    await producer.ingest(bulk_documents)
    raise_if_all_failed(producer, bulk_documents)
    while any(line["lag"] for line in await fetch_stage_lags(stack.storage)):
        stack.check_worker()
        await asyncio.sleep(0.2)
    return {document_id: failure.code or "" for document_id, failure in producer.failures.items()}


async def run_documents_eval(
    path: Path, settings: Settings, *, overrides: Overrides = NO_OVERRIDES
) -> dict[str, Any]:
    """Parse every file, with child processes and OCR, and compare the results with the ground
    truth.
    """
    async with prepare_engines(settings, build_index_config(settings), overrides) as engines:

        async def transcribe(file: TestFile) -> str:
            return await _parse_to_markdown(engines.parser, file)

        return await evaluate_documents(path, transcribe, clock=overrides.clock)


async def _parse_to_markdown(parser: Parser, test_file: TestFile) -> str:
    file = LocalFile(
        test_file.path, test_file.path.name, test_file.media_type, test_file.path.stat().st_size
    )
    plan = await parser.plan(file)
    parts = [await parser.parse(file, plan, part) for part in plan.parts]
    return parser.assemble(file, plan, parts).markdown
