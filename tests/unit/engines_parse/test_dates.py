from __future__ import annotations

from datetime import UTC, date, datetime

import pytest

from engines.parse import html, markdown
from engines.parse.assembly import assemble_transcript
from engines.parse.dates import parse_document_date
from engines.parsed_blocks import ParsedPart


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-03-01", date(2026, 3, 1)),
        ("2026-03-01T23:30:00-08:00", date(2026, 3, 1)),
        ("20260301", date(2026, 3, 1)),
        ("2026/03/01 10:00", date(2026, 3, 1)),
        ("D:20260301103000+02'00'", date(2026, 3, 1)),
        ("Sun, 1 Mar 2026 23:30:00 -0800", date(2026, 3, 1)),
        ("1 Mar 2026 10:00:00", date(2026, 3, 1)),
        (" 0999-12-31 ", date(999, 12, 31)),
        ("2026-03", None),
        ("2026", None),
        ("2026-13-01", None),
        ("2026-0301", None),
        ("yesterday", None),
        ("", None),
        (None, None),
        ("9" * 1000, None),
        (datetime(2026, 3, 1, 23, tzinfo=UTC), date(2026, 3, 1)),
        (date(2026, 3, 1), date(2026, 3, 1)),
    ],
)
def test_stored_dates_are_read_by_day(text: str | date | None, expected: date | None) -> None:
    assert parse_document_date(text) == expected


def test_first_part_with_date_gives_that_of_document() -> None:
    parts = [ParsedPart(), ParsedPart(document_date=date(2026, 3, 1)), ParsedPart()]
    parts = [ParsedPart.decode(part.encode()) for part in parts]
    assert assemble_transcript(parts, pages=None).document_date == date(2026, 3, 1)
    assert assemble_transcript([ParsedPart()], pages=None).document_date is None


def test_date_in_front_matter_is_found() -> None:
    assert markdown.read(b"---\ndate: 2026-03-01\n---\nText.").document_date == date(2026, 3, 1)


def test_date_in_meta_elements_is_found() -> None:
    page = b'<meta property="article:published_time" content="2026-03-01T10:00:00Z"><p>Text.</p>'
    assert html.read(page).document_date == date(2026, 3, 1)
