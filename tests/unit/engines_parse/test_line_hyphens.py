"""Hyphens at the ends of lines, decided by the words of the document."""

from __future__ import annotations

import pytest

from engines.layout.text_blocks import join_lines
from engines.parse.assembly import assemble_transcript
from engines.parsed_blocks import ParsedBlock, ParsedPart, format_table


def join(*lines: str, elsewhere: str = "") -> str:
    """Join the lines in a document that also has the text `elsewhere`."""
    blocks = [ParsedBlock("paragraph", join_lines(lines)), ParsedBlock("paragraph", elsewhere)]
    return assemble_transcript([ParsedPart(blocks=blocks)], pages=None).markdown.split("\n\n")[0]


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        (("the seal AX-", "400 fits"), "the seal AX-400 fits"),
        (("filter KX-7-", "20 fits"), "filter KX-7-20 fits"),
        (("type B-", "x fits"), "type B-x fits"),
        (("the non-", "EU depot"), "the non-EU depot"),
        (("the Haupt-", "Bahnhof"), "the Haupt-Bahnhof"),
        (("within twenty-", "one days"), "within twenty-one days"),
        (("the years 1990-", "1995 are"), "the years 1990-1995 are"),
        (("a well-", "known supplier"), "a well-known supplier"),
        (("the pre-", "and postwar years"), "the pre- and postwar years"),
        (("open daily -", "bring a hat"), "open daily - bring a hat"),
        (("its mainte-", "nance costs"), "its maintenance costs"),
        (("its mainte\xad", "nance 4\xad", "00"), "its maintenance 400"),
        (("a manuten\u2010", "ção anual"), "a manutenção anual"),
        (("o guarda-", "-chuva e disse-", "-lhe"), "o guarda-chuva e disse-lhe"),
        (("a taxa de 3-", "-5 euros"), "a taxa de 3- -5 euros"),
    ],
)
def test_hyphen_is_kept_in_codes_and_compounds(lines: tuple[str, ...], text: str) -> None:
    assert join(*lines) == text


@pytest.mark.parametrize(
    ("elsewhere", "text"),
    [
        ("The workhour is paid.", "a workhour"),
        ("The work-hour is paid.", "a work-hour"),
        ("Two work-hours, each hour of work.", "a work-hour"),
        ("Nothing of the kind.", "a workhour"),
    ],
)
def test_document_decides_about_hyphen(elsewhere: str, text: str) -> None:
    assert join("a work-", "hour", elsewhere=elsewhere) == text


def test_header_of_table_ends_at_its_rows_after_joining() -> None:
    text, end, _ = format_table([[join_lines(["mainte-", "nance"]), "price"], ["yearly", "5"]])
    part = ParsedPart(blocks=[ParsedBlock("table", text, header_end=end)])
    found = assemble_transcript([part], pages=None)
    assert found.markdown[: found.blocks[0].header_end] == "| maintenance | price |\n| --- | --- |"
