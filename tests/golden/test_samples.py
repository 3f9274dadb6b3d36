"""The sample documents: properties that the demo relies on, and reproducible bytes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import docx
import pypdfium2
import pytest
import yaml
from PIL import Image

from samples import generate

ROOT = Path(__file__).parents[2]
CORPUS = ROOT / "samples/corpus"


@pytest.fixture(scope="module")
def generated_samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("samples")
    generate.main(folder)
    return folder


@pytest.fixture(scope="module")
def questions() -> list[dict[str, Any]]:
    return list(yaml.safe_load((ROOT / "samples/questions.yaml").read_text(encoding="utf-8")))


def read_pdf_pages(path: Path) -> list[str]:
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


def test_corpus_has_every_format_and_is_small() -> None:
    kinds = {path.suffix for path in CORPUS.iterdir()}
    assert kinds >= {".pdf", ".docx", ".html", ".md", ".csv", ".txt", ".png"}
    assert sum(path.stat().st_size for path in CORPUS.iterdir()) < 1_500_000


def test_text_pdf_has_text_and_scan_has_none() -> None:
    pages = read_pdf_pages(CORPUS / "annual-report-2025.pdf")
    assert len(pages) >= 3
    assert all("Ostrel" in page or "Authority" in page for page in pages)
    assert [page.strip() for page in read_pdf_pages(CORPUS / "contrato-ponte-sao-telmo.pdf")] == [
        "",
        "",
    ]


def test_generated_samples_match_committed_corpus(generated_samples: Path) -> None:
    assert set(generate.RENDERERS) == {path.name for path in generated_samples.iterdir()}
    assert read_pdf_pages(generated_samples / "annual-report-2025.pdf") == read_pdf_pages(
        CORPUS / "annual-report-2025.pdf"
    )
    assert read_docx_text(generated_samples / "ferry-service-agreement.docx") == read_docx_text(
        CORPUS / "ferry-service-agreement.docx"
    )
    assert (generated_samples / "regulamento-mercado.html").read_bytes() == (
        CORPUS / "regulamento-mercado.html"
    ).read_bytes()
    with (
        Image.open(generated_samples / "notice-to-mariners.png") as ours,
        Image.open(CORPUS / "notice-to-mariners.png") as committed,
    ):
        assert ours.size == committed.size


def test_sample_generation_is_deterministic(generated_samples: Path, tmp_path: Path) -> None:
    generate.main(tmp_path)
    assert [
        path.name
        for path in generated_samples.iterdir()
        if path.read_bytes() != (tmp_path / path.name).read_bytes()
    ] == []


def read_docx_text(path: Path) -> list[str]:
    document = docx.Document(str(path))
    cells = [cell.text for table in document.tables for row in table.rows for cell in row.cells]
    return [paragraph.text for paragraph in document.paragraphs] + cells


def test_first_two_questions_are_answerable_last_is_not(questions: list[dict[str, Any]]) -> None:
    assert [question["language"] for question in questions] == ["en", "pt", "en"]
    assert [question["document"] is None for question in questions] == [False, False, True]
    for question in questions[:2]:
        source = (ROOT / "samples/source" / question["document"]).with_suffix(".md")
        assert question["says"] in source.read_text(encoding="utf-8")


def test_unanswerable_question_shares_no_rare_word_with_corpus(
    questions: list[dict[str, Any]],
) -> None:
    texts_of_ours = [
        path.read_text(encoding="utf-8").lower()
        for path in [*CORPUS.glob("*.[mct]*"), *(ROOT / "samples/source").glob("*.md")]
        if path.suffix != ".png"
    ]
    rare = {
        word
        for word in re.findall(r"[a-z]{6,}", questions[-1]["question"].lower())
        if word not in ("temperature",)
    }
    assert rare and not any(word in text for word in rare for text in texts_of_ours)
