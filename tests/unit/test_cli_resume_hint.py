"""Ingestion by the command line: files that are no documents, progress, and the way to resume."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from anabranch.cli import main
from anabranch.cli.ingest_batch import IngestBatch, IngestItem, _format_summary, expand_paths
from schemas.file_names import is_skipped
from tests.fakes.failing_server import ServeAnswers, serve_answers
from tests.support.watched_folder import WatchedFolder

__all__ = ["serve_answers"]

JOB_ID = "7d4f1c9e-0b1c-8f6e-9a51-2f0c6f7f2f11"
ACCEPTED = {"document_id": JOB_ID, "ingestion_job_id": JOB_ID, "duplicate": False}
RUNNING_REPLAY = {"stage": "chunk", "read": 7, "total": 20, "state": "running", "eta_s": None}


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    for name in "abcde":
        (tmp_path / f"{name}.md").write_text(name)
    return [str(tmp_path / f"{name}.md") for name in "abcde"]


@pytest.fixture
def accepting(serve_answers: ServeAnswers) -> None:
    serve_answers({"/v1/ingest": ACCEPTED}, 2)


@pytest.mark.usefixtures("accepting")
def test_accepted_documents_are_printed_when_server_dies(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ingest", *files, "--concurrency", "1", "--quiet"]) == 7
    captured = capsys.readouterr()
    assert [line.split()[0] for line in captured.out.splitlines()] == ["path", *files[:2]]
    assert (
        "2 of 5 documents were accepted; run the same command again" in captured.err
        and "SERVER_UNREACHABLE" in captured.err
    )


@pytest.mark.usefixtures("accepting")
def test_interrupted_ingest_json_lists_state_of_each_document(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ingest", *files, "--concurrency", "1", "--json"]) == 7
    documents = json.loads(capsys.readouterr().out)["documents"]
    states = [*["accepted"] * 2, "sending", *["waiting"] * 2]
    assert [one["state"] for one in documents] == states


def test_stopped_wait_says_what_is_in_progress_and_asks_for_no_second_run(
    files: list[str], serve_answers: ServeAnswers, capsys: pytest.CaptureFixture[str]
) -> None:
    running = {"state": "running", "document_id": JOB_ID}
    serve_answers({"/v1/ingest": ACCEPTED, f"/v1/ingest/status/{JOB_ID}": running}, 3)
    assert main(["ingest", *files[:2], "--concurrency", "1", "--wait", "--quiet"]) == 7
    stderr = capsys.readouterr().err
    assert "run the same command again" not in stderr
    assert "2 in progress" in stderr and "anabranch documents list" in stderr


@pytest.mark.parametrize(
    ("command", "answers", "n_answers", "expected"),
    [
        (
            ["replay", "start", "--stage", "chunk"],
            {"/v1/replays": {"replay_id": JOB_ID}, f"/v1/replays/{JOB_ID}": RUNNING_REPLAY},
            2,
            f"anabranch replay show {JOB_ID}",
        ),
        (
            ["dlq", "redrive", "--all"],
            {"/v1/dead-letters/redrive": {"replays": [JOB_ID]}},
            1,
            f"anabranch replay show {JOB_ID}",
        ),
        (
            ["reindex", "--wait"],
            {"/v1/generations": {"generation": "g2"}},
            1,
            "anabranch generations list",
        ),
        (
            ["erase", "document", JOB_ID, "--yes"],
            {"/v1/erasures": {"receipt_id": JOB_ID}},
            1,
            "anabranch erase receipts",
        ),
        (
            ["documents", "amend", JOB_ID, "--title", "x"],
            {f"/v1/documents/{JOB_ID}": {"ingestion_job_id": JOB_ID, "document_id": JOB_ID}},
            1,
            f"anabranch documents show {JOB_ID}",
        ),
        (
            ["watch", "--from", "begin"],
            {"/v1/events": {"items": [], "next": "7.1", "end": False, "missed": 0}},
            1,
            "--from 7.1",
        ),
    ],
    ids=["replay", "redrive", "reindex", "erase", "amend", "watch"],
)
def test_interrupted_wait_prints_resume_command(
    serve_answers: ServeAnswers,
    command: list[str],
    answers: dict[str, Any],
    n_answers: int,
    expected: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    serve_answers(answers, n_answers)
    assert main(command) == 7
    stderr = capsys.readouterr().err
    assert expected in stderr and "SERVER_UNREACHABLE" in stderr


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
    unknown = IngestBatch([IngestItem("a", "file", state="running")])
    assert _format_summary(unknown) == "1 document: 1 running"


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


DOCUMENTS = [
    "report.docx",
    "notes.md",
    "figures.xlsx",
    "data.json",
    "table.csv",
    "config.yaml",
    "letter.eml",
    "Makefile",
    "py",
    "part",
    "temp.txt",
    "lock.pdf",
    "partial results.txt",
    "Thumbs.db.pdf",
    "C# (#1).md",
    "~ approx.txt",
    "src/readme.md",
]
NO_DOCUMENTS = [
    "~$report.docx",
    "~$\u00dcbersicht.pptx",
    ".~lock.report.odt#",
    "x.txt~",
    "#draft.md#",
    "paper.pdf.crdownload",
    "paper.pdf.part",
    "paper.pdf.filepart",
    "paper.pdf.!qB",
    "@eaDir/scan.jpg",
    "#recycle/old.docx",
    "Paper.PDF.Download",
    "upload.TMP",
    "Thumbs.db",
    "desktop.ini",
    "Desktop.ini",
    ".DS_Store",
    "main.py",
    "App.TSX",
    "lib.so",
    "poetry.lock",
    "package-lock.json",
    "Link to report.lnk",
    "node_modules/left-pad/README.md",
    "a/__MACOSX/report.docx",
]


def write_all(folder: Path) -> None:
    for name in DOCUMENTS + NO_DOCUMENTS:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"A document about {name}.")


def list_found(folder: Path, glob: str = "*", include: tuple[str, ...] = ()) -> list[str]:
    items, _ = expand_paths([str(folder)], glob=glob, recursive=True, include=include)
    return [Path(item.path).relative_to(folder).as_posix() for item in items]


def test_ingested_folder_skips_what_is_no_document(tmp_path: Path) -> None:
    write_all(tmp_path)
    assert list_found(tmp_path) == sorted(DOCUMENTS)
    _, skipped = expand_paths([str(tmp_path)], glob="*", recursive=True)
    hidden = [name for name in NO_DOCUMENTS if name.startswith(".")]
    assert len(skipped) == len(NO_DOCUMENTS) - len(hidden)


async def test_watched_folder_skips_the_same_files(tmp_path: Path) -> None:
    watched = WatchedFolder(tmp_path / "library")
    write_all(watched.folder)
    assert await watched.poll() == (set(DOCUMENTS), {})
    status = (await watched.store.fetch_notes("library"))["status"]
    hidden = [name for name in NO_DOCUMENTS if name.startswith(".")]
    assert status["skipped"] == len(NO_DOCUMENTS) - len(hidden)


@pytest.mark.parametrize(
    ("glob", "include", "found"),
    [
        ("*.py", (), ["main.py"]),
        ("*", ("*.py", "~$*"), ["main.py", "~$report.docx", "~$\u00dcbersicht.pptx"]),
        ("*.docx", (), []),
        ("*", ("*.TSX",), ["App.TSX"]),
    ],
)
def test_glob_of_an_extension_and_include_override(
    tmp_path: Path, glob: str, include: tuple[str, ...], found: list[str]
) -> None:
    write_all(tmp_path)
    assert sorted(set(list_found(tmp_path, glob, include)) - set(DOCUMENTS)) == found


def test_named_file_is_sent_whatever_its_name(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("print()")
    items, skipped = expand_paths([str(tmp_path / "main.py")], glob="*", recursive=False)
    assert len(items) == 1 and not skipped


async def test_document_of_a_file_that_is_skipped_by_now_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = WatchedFolder(tmp_path / "library")
    watched.write_file("main.py")
    watched.write_file("a.md")
    monkeypatch.setattr("streams.sources.folder_scan.is_skipped", lambda *_: False)
    assert await watched.poll() == ({"main.py", "a.md"}, {})
    monkeypatch.setattr("streams.sources.folder_scan.is_skipped", is_skipped)
    assert await watched.poll() == ({"main.py", "a.md"}, {})
    (watched.folder / "main.py").unlink()
    assert await watched.poll() == ({"a.md"}, {})


def test_ingest_says_how_many_files_it_skipped(
    tmp_path: Path, serve_answers: ServeAnswers, capsys: pytest.CaptureFixture[str]
) -> None:
    serve_answers({"/v1/ingest": ACCEPTED}, 1)
    for name in ("a.md", "b.py", "c.tmp"):
        (tmp_path / name).write_text("x")
    main(["ingest", str(tmp_path)])
    stderr = capsys.readouterr().err
    assert "skipped 2 files that are no documents: b.py, c.tmp" in stderr and "--include" in stderr
