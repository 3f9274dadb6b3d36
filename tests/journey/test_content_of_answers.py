"""Answers quote what the author wrote, under the heading where it stands and by a name that a person knows."""

from __future__ import annotations

import io

from tests.journey.conftest import World

LEASE = """# Lease

## Premises

The tenant rents the warehouse at Hamn Street 14, with a floor area of 3,450 square metres.

## Rent

The monthly rent is SEK 287,500.
"""


async def test_short_document_is_cited_by_its_own_heading(world: World) -> None:
    await world.searchable(LEASE, "d.md")
    answer = await world.ask("What is the monthly rent?")
    assert {citation["section"] for citation in answer["citations"] if "287,500" in citation["quote"]} == {"Lease > Rent"}


async def test_words_of_the_parser_are_never_quoted(world: World) -> None:
    receipt = await world.searchable("Name;Qty\nApple;3\nPear;5\n", "c.csv")
    answer = await world.ask("What are the columns Name and Qty?")
    assert not [citation["quote"] for citation in answer["citations"] if "Columns" in citation["quote"]]
    markdown = (await world.http.get(f"/v1/documents/{receipt['document_id']}/markdown")).text
    assert markdown.startswith("<!-- 2 rows, 2 columns. Columns: Name, Qty. -->")


async def test_text_without_a_name_is_cited_by_what_is_known_of_it(world: World) -> None:
    for body in ({"text": "The gate code of the north gate is 1111.", "external_id": "gate-note"}, {"text": "The pump in hall four was replaced in May."}):
        response = await world.http.post("/v1/ingest", json=body)
        assert response.status_code == 202
        assert (await world.ended(response.json()))["state"] == "searchable"
    found = [*await world.search("gate code of the north gate"), *await world.search("pump in hall four")]
    assert {result["title"] for result in found} >= {"gate-note", "The pump in hall four was replaced in May."}
    assert "document.md" not in {result["title"] for result in found}


async def test_numbers_of_a_workbook_are_quoted_as_shown(world: World) -> None:
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
    await world.searchable(stream.getvalue(), "prices.xlsx")
    answer = await world.ask("What is the price of the Bolt M8?")
    assert "21.30" in answer["answer"]
