from __future__ import annotations

from anabranch.cli.progress import _summary
from anabranch.ingestion import Ingestion, Source


def on_its_way(name: str, *done: str, at: str) -> Source:
    stages = [{"stage": stage, "state": "done"} for stage in done] + [{"stage": at, "state": "running"}]
    return Source(name, "file", state="running", stages=stages)


def test_the_line_says_at_which_stage_documents_are() -> None:
    sources = [on_its_way("a", "receive", at="transcribe"), *(on_its_way(name, "receive", "transcribe", at="embed") for name in "bc")]
    assert _summary(Ingestion([*sources, Source("d", "file", state="searchable")])) == "4 documents: 3 running, 1 searchable (2 at embed, 1 at transcribe)"


def test_one_document_whose_stage_is_not_known_yet_is_only_running() -> None:
    assert _summary(Ingestion([Source("a", "file", state="running")])) == "1 document: 1 running"
