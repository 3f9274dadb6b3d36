"""Running headers and footers: kept once where they say what no other place does."""

from __future__ import annotations

import pytest

from engines.parse.assembly import remove_running_headers
from engines.parsed_blocks import ParsedBlock

TOP, MIDDLE, BOTTOM = (0.1, 0.02, 0.9, 0.05), (0.1, 0.3, 0.9, 0.5), (0.1, 0.95, 0.9, 0.98)


def build_pages(
    headers: list[str], footers: list[str] | None = None, body: str = "The boat leaves the basin."
) -> list[ParsedBlock]:
    blocks = []
    for page, header in enumerate(headers, 1):
        blocks.append(ParsedBlock("paragraph", header, page=page, box=TOP))
        blocks.append(ParsedBlock("paragraph", f"{body} Part {page}.", page=page, box=MIDDLE))
        if footers:
            blocks.append(ParsedBlock("paragraph", footers[page - 1], page=page, box=BOTTOM))
    return blocks


def list_kept(blocks: list[ParsedBlock]) -> list[str]:
    return [block.text for block in remove_running_headers(blocks) if block.box != MIDDLE]


@pytest.mark.parametrize(
    ("headers", "kept"),
    [
        (["Safety sheet S-14, revision 9"] * 5, ["Safety sheet S-14, revision 9"]),
        (
            [f"Ficha técnica, versão 4.2 – página {page} de 5" for page in range(1, 6)],
            ["Ficha técnica, versão 4.2"],
        ),
        (
            [
                f"Prüfbericht Nr. 7731 | Stand 2. Mai 2026 | Seite {page} von 4"
                for page in range(1, 5)
            ],
            ["Prüfbericht Nr. 7731 | Stand 2. Mai 2026"],
        ),
        (
            [f"{page} Manuel de bord, édition 12" for page in range(11, 15)],
            ["Manuel de bord, édition 12"],
        ),
        (
            [f"Charter, rev. B {numeral}" for numeral in ("i", "ii", "iii", "iv")],
            ["Charter, rev. B"],
        ),
        # The rates that apply change within the document.
        (
            ["Rates of 2025"] * 3 + ["Rates of 2026"] * 3,
            ["Rates of 2025", "Rates of 2026"],
        ),
    ],
)
def test_header_that_says_something_new_is_kept_once(headers: list[str], kept: list[str]) -> None:
    assert list_kept(build_pages(headers)) == kept
    assert list_kept(build_pages(["Quay"] * len(headers), headers)) == ["Quay", *kept]


@pytest.mark.parametrize(
    "headers",
    [
        ["THE BOAT LEAVES the basin"] * 4,
        [f"Page {page}" for page in range(1, 5)],
        [f"Seite {page} von 4" for page in range(1, 5)],
        ["– the basin –"] * 4,
        # In another order.
        ["Basin: the boat"] * 4,
    ],
)
def test_header_that_repeats_the_text_or_counts_pages_is_dropped(headers: list[str]) -> None:
    assert list_kept(build_pages(headers)) == []


def test_kept_header_is_a_paragraph_before_all_other_text() -> None:
    blocks = build_pages(["Revision 9"] * 4)
    for block in blocks[::2]:
        block.kind, block.size = "heading", 30.0
    first = remove_running_headers(blocks)[0]
    assert (first.kind, first.text, first.page, first.box) == ("paragraph", "Revision 9", 1, TOP)


def test_header_of_another_number_on_each_page_is_kept_once() -> None:
    headers = [f"Order {number} of the mill" for number in (7, 31, 5, 88, 12)]
    assert list_kept(build_pages(headers)) == ["Order 7 of the mill"]
