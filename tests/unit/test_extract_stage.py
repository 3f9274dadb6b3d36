"""Stage `extract`: calls of the engine and of the engine result cache."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from processors import extract
from schemas.ports.ledger import ClaimStatus, MemoKey
from schemas.values import Extraction, ParentChunk
from streams.stage import PendingEvent
from tests.support.ledger_events import make_chunked


class InMemoryEngineResults:
    def __init__(self) -> None:
        self.stored_results: dict[MemoKey, bytes] = {}
        self.recalled: list[int] = []

    async def fetch(self, keys: Sequence[MemoKey]) -> Mapping[MemoKey, bytes]:
        self.recalled.append(len(keys))
        return {key: self.stored_results[key] for key in keys if key in self.stored_results}

    async def store(self, results: Mapping[MemoKey, bytes]) -> None:
        self.stored_results |= results


class RecordingExtractor:
    """An extractor that fails at a certain word."""

    fingerprint = "counting"

    def __init__(self) -> None:
        self.requested_texts: list[str] = []
        self.n_running = self.most_running = 0

    async def extract(self, parents: Sequence[ParentChunk], language: str | None) -> Extraction:
        self.requested_texts += [parent.text for parent in parents]
        self.n_running += 1
        self.most_running = max(self.most_running, self.n_running)
        await asyncio.sleep(0)
        self.n_running -= 1
        if any("fails" in parent.text for parent in parents):
            raise ValueError("not this one")
        return Extraction()


def make_pending_events(*texts: tuple[str, int, str]) -> list[PendingEvent]:
    return [
        PendingEvent(make_chunked(name, order, [word]), ClaimStatus.PENDING)
        for name, order, word in texts
    ]


async def test_duplicate_passages_are_extracted_once_per_document() -> None:
    ports: Any = SimpleNamespace(
        memo=InMemoryEngineResults(), extractor=RecordingExtractor(), parallel_extractions=4
    )
    emissions = await extract.react(
        make_pending_events(
            ("a", 1, "heron"), ("a", 2, "heron"), ("a", 3, "stork"), ("b", 1, "heron")
        ),
        ports,
    )
    assert len(emissions) == 4
    assert sorted(ports.extractor.requested_texts) == ["heron", "heron", "stork"], (
        "a document's passages are its own"
    )
    assert ports.memo.recalled == [3]
    await extract.react(make_pending_events(("a", 4, "stork")), ports)
    assert len(ports.extractor.requested_texts) == 3


async def test_results_before_a_failure_are_stored() -> None:
    ports: Any = SimpleNamespace(
        memo=InMemoryEngineResults(), extractor=RecordingExtractor(), parallel_extractions=4
    )
    with pytest.raises(ValueError, match="not this one"):
        await extract.react(make_pending_events(("a", 1, "heron"), ("b", 1, "fails")), ports)
    ports.extractor.requested_texts.clear()
    await extract.react(make_pending_events(("a", 1, "heron")), ports)
    assert ports.extractor.requested_texts == []


@pytest.mark.parametrize("parallel", [1, 3])
async def test_ports_limit_the_passages_extracted_at_a_time(parallel: int) -> None:
    ports: Any = SimpleNamespace(
        memo=InMemoryEngineResults(), extractor=RecordingExtractor(), parallel_extractions=parallel
    )
    words = ["heron", "stork", "crane", "swan", "goose"]
    await extract.react([PendingEvent(make_chunked("a", 1, words), ClaimStatus.PENDING)], ports)
    assert sorted(ports.extractor.requested_texts) == sorted(words)
    assert ports.extractor.most_running == parallel
