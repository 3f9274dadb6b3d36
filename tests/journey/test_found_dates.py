"""A date found in a document is its date, unless the producer states one."""

from __future__ import annotations

from tests.support.api_world import ApiWorld

LETTER = "---\ndate: 2019-05-04\n---\n# Letter\n\nThe ferry to Cacilhas leaves pier six at noon.\n"


async def test_found_date_is_shown_and_filters(world: ApiWorld) -> None:
    found = await world.ingest_until_searchable(LETTER, external_id="found")
    stated = await world.ingest_until_searchable(
        LETTER, external_id="stated", document_date="2021-01-02"
    )
    plain = await world.ingest_until_searchable(
        "The ferry to Cacilhas has no timetable.", external_id="plain"
    )
    dates = [
        (await world.fetch_json(f"/v1/documents/{receipt['document_id']}"))["document_date"]
        for receipt in (found, stated, plain)
    ]
    assert dates == ["2019-05-04", "2021-01-02", None]
    for date_from, date_to, names in (
        ("2019-05-04", "2019-05-04", {"found"}),
        ("2021-01-02", "2021-01-02", {"stated"}),
        ("2022-01-01", None, {"plain"}),
    ):
        filters = {"date_from": date_from, "date_to": date_to}
        hits = await world.search("ferry to Cacilhas", filters=filters)
        assert {hit["external_id"] for hit in hits} == names
