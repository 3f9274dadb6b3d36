from __future__ import annotations

import pytest

from anabranch.cli.ingest_batch import IngestBatch, IngestItem, _format_summary


def make_running_source(name: str, *done: str, at: str) -> IngestItem:
    stages = [{"stage": stage, "state": "done"} for stage in done] + [
        {"stage": at, "state": "running"}
    ]
    return IngestItem(name, "file", state="running", stages=stages)


def test_progress_line_counts_documents_per_stage() -> None:
    sources = [
        make_running_source("a", "receive", at="transcribe"),
        *(make_running_source(name, "receive", "transcribe", at="embed") for name in "bc"),
    ]
    assert (
        _format_summary(IngestBatch([*sources, IngestItem("d", "file", state="searchable")]))
        == "4 documents: 3 running, 1 searchable (2 at embed, 1 at transcribe)"
    )


def test_document_without_known_stage_is_running() -> None:
    assert (
        _format_summary(IngestBatch([IngestItem("a", "file", state="running")]))
        == "1 document: 1 running"
    )


def test_progress_of_a_local_server_says_that_the_machine_is_busy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    local, remote = (
        IngestBatch([IngestItem("a.md", "file")], is_local=is_local) for is_local in (True, False)
    )
    for load, said in ((1.0, False), (6.0, False), (20.4, True)):
        monkeypatch.setattr("os.getloadavg", lambda load=load: (load, load, load))
        assert ("load 20 on 2 cores" in _format_summary(local)) == said
        assert "busy" not in _format_summary(remote)
