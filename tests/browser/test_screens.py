"""Every screen at every width, in both themes and languages, and for a reader."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Browser, Route, expect

from tests.support.browser import (
    find_violations,
    is_scrolled_sideways,
    switch_theme,
    visit,
    wait_until_loaded,
)
from tests.support.server_process import open_http_client

SCREENS = (
    "query",
    "runs",
    "questions",
    "documents",
    "graph",
    "facts",
    "events",
    "pipeline",
    "dead-letters",
    "generations",
    "replays",
    "sources",
    "profiles",
    "settings",
    "evaluation",
    "keys",
    "audit",
    "system",
)
ADMIN_SCREENS = ("dead-letters", "generations", "replays", "sources", "keys", "audit")
RUN_TABS = ("answer", "retrieval", "fusion", "context", "judge", "trace")
DOCUMENT_TABS = ("overview", "pages", "chunks", "entities", "revisions", "lineage", "events")


@pytest.fixture(scope="module")
def addresses(server: dict[str, Any]) -> list[str]:
    """Every address of the UI, with a run and a document where it names one."""
    with open_http_client(server) as http:
        runs = http.get("/v1/runs").json()["items"]
        documents = http.get("/v1/documents").json()["items"]
    run = next(one["run_id"] for one in runs if one["refused"] is False)
    document = next(
        one["document_id"] for one in documents if one["media_type"] == "application/pdf"
    )
    return [
        *(f"/{name}" for name in SCREENS),
        *(f"/runs/{run}/{tab}" for tab in RUN_TABS),
        *(f"/documents/{document}/{tab}" for tab in DOCUMENT_TABS),
    ]


def test_every_screen_is_accessible_in_both_themes(
    browser: Browser, server: dict[str, Any], addresses: list[str]
) -> None:
    findings, wide = [], []
    with visit(browser, server) as visitor:
        page = visitor.open("/query")
        for address in addresses:
            visitor.go(page, address)
            found = find_violations(page)
            # The theme changes nothing but colors.
            switch_theme(page, "dark")
            found += find_violations(page, rules=["color-contrast"])
            findings += [f"{address} {finding}" for finding in found]
            page.set_viewport_size({"width": 768, "height": 900})
            if is_scrolled_sideways(page):
                wide.append(address)
            page.set_viewport_size({"width": 1440, "height": 900})
            switch_theme(page, "light")
    assert findings == []
    assert wide == []


def test_every_screen_fits_a_phone_in_portuguese(
    browser: Browser, server: dict[str, Any], addresses: list[str]
) -> None:
    wide, titles = [], set()
    with visit(browser, server, width=390, locale="pt-BR") as visitor:
        page = visitor.open("/query")
        for address in addresses:
            visitor.go(page, address)
            titles.add(page.title())
            if is_scrolled_sideways(page):
                wide.append(address)
    assert wide == []
    assert "Documentos · Anabranch" in titles


def test_reader_sees_what_the_role_allows(browser: Browser, server: dict[str, Any]) -> None:
    with open_http_client(server) as http:
        issued = http.post("/v1/keys", json={"name": "screens", "role": "reader"})
        assert issued.status_code == 201, issued.text
    with visit(browser, server, key=issued.json()["key"]) as visitor:
        page = visitor.open("/documents")
        expect(page.get_by_text("ferry-service-agreement.docx").first).to_be_visible()
        for name in ("Upload", "Delete", "Erase"):
            expect(page.get_by_role("button", name=name)).to_have_count(0)
        rail = page.get_by_role("navigation").first
        expect(rail.get_by_role("link", name="Keys")).to_have_count(0)
        for screen in ADMIN_SCREENS:
            visitor.go(page, f"/{screen}")
            expect(page.get_by_text("needs the role admin")).to_be_visible()


@pytest.mark.parametrize("screen", ["runs", "documents", "events", "profiles", "audit"])
def test_text_typed_last_takes_nobody_back(
    browser: Browser, server: dict[str, Any], screen: str
) -> None:
    held: list[Route] = []
    with visit(browser, server) as visitor:
        page = visitor.open(f"/{screen}")
        wait_until_loaded(page)
        # The next screen takes longer to load than typed text to reach the address.
        page.route("**/settings-page*", lambda route: held.append(route))
        page.locator("main input:visible").first.press_sequentially("x")
        page.get_by_role("link", name="Settings").click()
        page.wait_for_timeout(1_000)
        assert held
        for route in held:
            route.continue_()
        expect(page.get_by_role("heading", level=1, name="Settings")).to_be_visible()
        assert page.url.endswith("/ui/settings")


def test_operator_chooses_a_model_of_this_machine_by_one_click(
    browser: Browser, server: dict[str, Any]
) -> None:
    url, model = "http://127.0.0.1:11434/v1", "qwen3:8b<b>"
    free: dict[str, Any] = {"url": None, "model": None, "is_chosen": False, "can_choose": True}
    free |= {"servers": [{"url": url, "models": [model]}]}
    sent: list[tuple[str, Any]] = []

    def answer(route: Route) -> None:
        request = route.request
        sent.append((request.method, request.post_data_json))
        chosen = {"url": url, "model": model, "is_chosen": True}
        route.fulfill(json=free | (chosen if request.method == "PUT" else {}))

    with visit(browser, server) as visitor:
        page = visitor.open("/query")
        page.route("**/v1/chat-model", answer)
        visitor.go(page, "/system")
        panel = page.get_by_role("region", name="Chat model")
        panel.get_by_role("button", name=f"Use {model}").click()
        expect(panel.get_by_text(f"{model} at {url} writes the answers.")).to_be_visible()
        assert find_violations(page) == []
        panel.get_by_role("button", name="Stop using it").click()
        expect(panel.get_by_text("No chat model")).to_be_visible()
    assert [entry for entry in sent if entry[0] != "GET"] == [
        ("PUT", {"url": url, "model": model}),
        ("DELETE", None),
    ]
