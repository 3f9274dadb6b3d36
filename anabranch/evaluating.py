"""`eval`: test sets through the real pipeline."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from anabranch.background.lag import stage_lags
from anabranch.bulk import Bulk, Text, all_failed
from anabranch.composition.engines import prepare_engines
from anabranch.composition.overrides import NONE, Overrides
from anabranch.indexing import wanted_config
from anabranch.settings import Settings
from anabranch.throwaway import Trial, trial
from evaluation.documents_eval import evaluate_documents
from evaluation.documents_set import TestFile
from evaluation.metrics import Run
from evaluation.retrieval_eval import evaluate_retrieval
from evaluation.retrieval_set import TestDocument
from schemas.ports.engines import File, Parser
from schemas.principals import Principal
from schemas.questions import Channel, SearchRequest

CALLER = Principal("evaluation", "default")
DEPTH = 100


async def retrieval_report(
    path: Path, settings: Settings, *, channels: Sequence[Channel] | None, profile: str, overrides: Overrides = NONE
) -> tuple[dict[str, Any], Run]:
    """Ingests through log and stages into a throw-away data folder, asks through the retrieval pipeline."""
    async with trial(settings, overrides) as running:
        failed: dict[str, str] = {}

        async def ingest(documents: Sequence[TestDocument]) -> None:
            failed.update(await ingested(running, documents, overrides))

        async def ask(text: str, wanted: Sequence[Channel] | None) -> list[tuple[str, float]]:
            return await ranked_documents(running, text, wanted, profile)

        report, run = await evaluate_retrieval(path, ingest, ask, channels=channels, clock=overrides.clock, profile=profile)
        return {**report, "failed": failed}, run


async def ranked_documents(running: Trial, text: str, channels: Sequence[Channel] | None, profile: str) -> list[tuple[str, float]]:
    """External ids and scores, best first, before refusal and trimming."""
    request = SearchRequest(query=text, profile=profile, channels=list(channels) if channels else None)
    ranked = await running.retriever.rank_documents(CALLER, request, DEPTH)
    return [(external_id or str(document), score) for document, external_id, score in ranked]


async def ingested(running: Trial, documents: Sequence[TestDocument], overrides: Overrides = NONE) -> dict[str, str]:
    """Why a document is not there, by its id. Returns when the graph has settled too."""
    bulk = Bulk(running.storage.log, running.storage.blobs, running.storage.codec, overrides.clock, running.settings.ingest.inline_bytes, running.check)
    texts = [Text(document.id, document.title, document.text) for document in documents]
    await bulk.ingest(texts)
    all_failed(bulk, texts)
    while any(line["lag"] for line in await stage_lags(running.storage)):
        running.check()
        await asyncio.sleep(0.2)
    return {identity: failure.code or "" for identity, failure in bulk.failures.items()}


async def documents_report(path: Path, settings: Settings, *, overrides: Overrides = NONE) -> dict[str, Any]:
    """Every file through the parser, child processes and OCR included."""
    async with prepare_engines(settings, wanted_config(settings), overrides) as engines:

        async def transcribe(file: TestFile) -> str:
            return await _markdown(engines.parser, file)

        return await evaluate_documents(path, transcribe, clock=overrides.clock)


async def _markdown(parser: Parser, test: TestFile) -> str:
    file = File(test.path, test.path.name, test.media_type, test.path.stat().st_size)
    plan = await parser.plan(file)
    parts = [await parser.parse(file, plan, part) for part in plan.parts]
    return parser.assemble(file, plan, parts).markdown
