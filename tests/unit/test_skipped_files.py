"""Files that are no documents, in folders that are ingested once and in watched ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.cli import main
from anabranch.cli.ingest_batch import expand_paths
from schemas.file_names import is_skipped
from tests.fakes.failing_server import ServeAnswers, serve_answers
from tests.support.watched_folder import WatchedFolder

__all__ = ["serve_answers"]
JOB_ID = "7d4f1c9e-0b1c-8f6e-9a51-2f0c6f7f2f11"
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
    serve_answers(
        {"/v1/ingest": {"document_id": JOB_ID, "ingestion_job_id": JOB_ID, "duplicate": False}}, 1
    )
    for name in ("a.md", "b.py", "c.tmp"):
        (tmp_path / name).write_text("x")
    main(["ingest", str(tmp_path)])
    stderr = capsys.readouterr().err
    assert "skipped 2 files that are no documents: b.py, c.tmp" in stderr and "--include" in stderr
