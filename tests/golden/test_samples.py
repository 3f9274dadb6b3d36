"""The sample documents: what the demo relies on, and that they can be made again."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import docx
import pypdfium2
import pytest
import yaml
from PIL import Image

from samples import make

ROOT = Path(__file__).parents[2]
CORPUS = ROOT / "samples/corpus"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("samples")
    make.main(folder)
    return folder


@pytest.fixture(scope="module")
def questions() -> list[dict[str, Any]]:
    return list(yaml.safe_load((ROOT / "samples/questions.yaml").read_text(encoding="utf-8")))


def texts(path: Path) -> list[str]:
    document = pypdfium2.PdfDocument(path)
    try:
        return [_page_text(document, number) for number in range(len(document))]
    finally:
        document.close()


def _page_text(document: pypdfium2.PdfDocument, number: int) -> str:
    page = document[number]
    layer = page.get_textpage()
    found = str(layer.get_text_range())
    layer.close()
    page.close()
    return found


def test_there_is_a_document_of_every_kind_and_together_they_are_small() -> None:
    kinds = {path.suffix for path in CORPUS.iterdir()}
    assert kinds >= {".pdf", ".docx", ".html", ".md", ".csv", ".txt", ".png"}
    assert sum(path.stat().st_size for path in CORPUS.iterdir()) < 1_500_000


def test_the_text_pdf_has_pages_of_text_and_the_scan_has_none() -> None:
    pages = texts(CORPUS / "annual-report-2025.pdf")
    assert len(pages) >= 3
    assert all("Ostrel" in page or "Authority" in page for page in pages)
    assert [page.strip() for page in texts(CORPUS / "contrato-ponte-sao-telmo.pdf")] == ["", ""]


def test_the_documents_hold_what_their_sources_say(made: Path) -> None:
    assert set(make.MADE) == {path.name for path in made.iterdir()}
    assert texts(made / "annual-report-2025.pdf") == texts(CORPUS / "annual-report-2025.pdf")
    assert words(made / "ferry-service-agreement.docx") == words(CORPUS / "ferry-service-agreement.docx")
    assert (made / "regulamento-mercado.html").read_bytes() == (CORPUS / "regulamento-mercado.html").read_bytes()
    with Image.open(made / "notice-to-mariners.png") as ours, Image.open(CORPUS / "notice-to-mariners.png") as committed:
        assert ours.size == committed.size


def test_making_them_twice_gives_the_same_bytes(made: Path, tmp_path: Path) -> None:
    make.main(tmp_path)
    assert [path.name for path in made.iterdir() if path.read_bytes() != (tmp_path / path.name).read_bytes()] == []


def words(path: Path) -> list[str]:
    document = docx.Document(str(path))
    cells = [cell.text for table in document.tables for row in table.rows for cell in row.cells]
    return [paragraph.text for paragraph in document.paragraphs] + cells


def test_two_questions_have_an_answer_in_their_language_and_the_last_has_none(questions: list[dict[str, Any]]) -> None:
    assert [question["language"] for question in questions] == ["en", "pt", "en"]
    assert [question["document"] is None for question in questions] == [False, False, True]
    for question in questions[:2]:
        source = (ROOT / "samples/source" / question["document"]).with_suffix(".md")
        assert question["says"] in source.read_text(encoding="utf-8")


def test_the_question_without_an_answer_shares_no_rare_word_with_the_corpus(questions: list[dict[str, Any]]) -> None:
    texts_of_ours = [
        path.read_text(encoding="utf-8").lower() for path in [*CORPUS.glob("*.[mct]*"), *(ROOT / "samples/source").glob("*.md")] if path.suffix != ".png"
    ]
    rare = {word for word in re.findall(r"[a-z]{6,}", questions[-1]["question"].lower()) if word not in ("temperature",)}
    assert rare and not any(word in text for word in rare for text in texts_of_ours)
