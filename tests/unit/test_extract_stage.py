"""Stage `extract`: how often the memo and the engine are asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from processors import extract
from schemas.ports.ledger import Claim, MemoKey
from schemas.values import Extraction, ParentChunk
from streams.stage import Counted
from tests.contract.ledger_facts import chunked


class Memo:
    def __init__(self) -> None:
        self.kept: dict[MemoKey, bytes] = {}
        self.recalled: list[int] = []

    async def recall(self, keys: Sequence[MemoKey]) -> Mapping[MemoKey, bytes]:
        self.recalled.append(len(keys))
        return {key: self.kept[key] for key in keys if key in self.kept}

    async def store(self, answers: Mapping[MemoKey, bytes]) -> None:
        self.kept |= answers


class Extractor:
    """Fails at a word."""

    fingerprint = "counting"

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def extract(self, parents: Sequence[ParentChunk], language: str | None) -> Extraction:
        self.asked += [parent.text for parent in parents]
        if any("fails" in parent.text for parent in parents):
            raise ValueError("not this one")
        return Extraction()


def group(*texts: tuple[str, int, str]) -> list[Counted]:
    return [Counted(chunked(name, order, [word]), Claim.OWED) for name, order, word in texts]


async def test_a_group_asks_the_memo_once_and_the_engine_once_for_each_different_passage() -> None:
    ports: Any = SimpleNamespace(memo=Memo(), extractor=Extractor())
    said = await extract.react(group(("a", 1, "heron"), ("a", 2, "heron"), ("a", 3, "stork"), ("b", 1, "heron")), ports)
    assert len(said) == 4
    assert sorted(ports.extractor.asked) == ["heron", "heron", "stork"], "a document's passages are its own"
    assert ports.memo.recalled == [3]
    await extract.react(group(("a", 4, "stork")), ports)
    assert len(ports.extractor.asked) == 3


async def test_what_was_answered_before_another_one_failed_is_kept() -> None:
    ports: Any = SimpleNamespace(memo=Memo(), extractor=Extractor())
    with pytest.raises(ValueError, match="not this one"):
        await extract.react(group(("a", 1, "heron"), ("b", 1, "fails")), ports)
    ports.extractor.asked.clear()
    await extract.react(group(("a", 1, "heron")), ports)
    assert ports.extractor.asked == []
