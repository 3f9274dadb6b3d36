"""A reader sees no writer's buttons, and screens of other roles say which role they need."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.support.browser import Visitor, visit
from tests.support.server_process import open_http_client

ADMIN_SCREENS = ("dead-letters", "generations", "replays", "sources", "keys", "audit")


@pytest.fixture(scope="module")
def reader(browser: Browser, server: dict[str, Any]) -> Iterator[Visitor]:
    with open_http_client(server) as http:
        issued = http.post("/v1/keys", json={"name": "screens", "role": "reader"})
        assert issued.status_code == 201, issued.text
    with visit(browser, server, key=issued.json()["key"]) as visitor:
        yield visitor


def test_reader_sees_no_buttons_of_writers(reader: Visitor) -> None:
    page = reader.open("/documents")
    expect(page.get_by_text("ferry-service-agreement.docx").first).to_be_visible()
    for name in ("Upload", "Delete", "Erase"):
        expect(page.get_by_role("button", name=name)).to_have_count(0)
    rail = page.get_by_role("navigation").first
    expect(rail.get_by_role("link", name="Keys")).to_have_count(0)


@pytest.mark.parametrize("screen", ADMIN_SCREENS)
def test_reader_learns_which_role_a_screen_needs(reader: Visitor, screen: str) -> None:
    page = reader.open(f"/{screen}")
    expect(page.get_by_text("needs the role admin")).to_be_visible()
    page.close()
