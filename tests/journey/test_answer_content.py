"""Answers quote the author's text under its heading and with a readable source name."""

from __future__ import annotations

import io

from tests.support.api_world import ApiWorld

LEASE = """# Lease

## Premises

The tenant rents the warehouse at Hamn Street 14, with a floor area of 3,450 square metres.

## Rent

The monthly rent is SEK 287,500.
"""


async def test_short_document_citation_has_its_section(world: ApiWorld) -> None:
    await world.ingest_until_searchable(LEASE, "d.md")
    answer = await world.ask("What is the monthly rent?")
    assert {
        citation["section"] for citation in answer["citations"] if "287,500" in citation["quote"]
    } == {"Lease > Rent"}


async def test_parser_comments_are_not_quoted(world: ApiWorld) -> None:
    receipt = await world.ingest_until_searchable("Name;Qty\nApple;3\nPear;5\n", "c.csv")
    answer = await world.ask("What are the columns Name and Qty?")
    assert not [
        citation["quote"] for citation in answer["citations"] if "Columns" in citation["quote"]
    ]
    markdown = (await world.http.get(f"/v1/documents/{receipt['document_id']}/markdown")).text
    assert markdown.startswith("<!-- 2 rows, 2 columns. Columns: Name, Qty. -->")


async def test_untitled_text_gets_external_id_or_sentence_as_title(world: ApiWorld) -> None:
    for body in (
        {"text": "The gate code of the north gate is 1111.", "external_id": "gate-note"},
        {"text": "The pump in hall four was replaced in May."},
    ):
        response = await world.http.post("/v1/ingest", json=body)
        assert response.status_code == 202
        assert (await world.wait_until_final(response.json()))["state"] == "searchable"
    found = [
        *await world.search("gate code of the north gate"),
        *await world.search("pump in hall four"),
    ]
    assert {result["title"] for result in found} >= {
        "gate-note",
        "The pump in hall four was replaced in May.",
    }
    assert "document.md" not in {result["title"] for result in found}


async def test_workbook_numbers_are_quoted_as_formatted(world: ApiWorld) -> None:
    import openpyxl

    book = openpyxl.Workbook()
    sheet = book.active
    assert sheet is not None
    for row in (["Part", "Price"], ["Bolt M8", 21.3], ["Nut M8", 4.05]):
        sheet.append(row)
    for cell in ("B2", "B3"):
        sheet[cell].number_format = "0.00"
    stream = io.BytesIO()
    book.save(stream)
    await world.ingest_until_searchable(stream.getvalue(), "prices.xlsx")
    answer = await world.ask("What is the price of the Bolt M8?")
    assert "21.30" in answer["answer"]
