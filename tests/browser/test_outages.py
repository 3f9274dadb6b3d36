"""A server that is away, refuses or is unavailable: each screen says so and recovers by itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from playwright.sync_api import Browser, Page, Route, expect

from tests.support.browser import visit
from tests.support.eventually import STALL_TIMEOUT_S, StallDeadline
from tests.support.server_process import open_http_client

UNAVAILABLE = {
    "type": "about:blank",
    "title": "Service Unavailable",
    "status": 503,
    "detail": "The database does not answer.",
    "code": "DATABASE_UNAVAILABLE",
    "remedy": "Retry in a few seconds.",
    "instance": "/v1/documents",
    "request_id": "0",
}
ROWS = 100_000
PAGE_ROWS = 200


def test_lost_server_is_announced_until_it_is_back(
    browser: Browser, server: dict[str, Any]
) -> None:
    with visit(browser, server) as visitor:
        page = visitor.open("/documents")
        row = page.get_by_text("ferry-service-agreement.docx").first
        expect(row).to_be_visible()
        visitor.context.set_offline(True)
        expect(page.get_by_role("alert").first).to_be_visible()
        # What was there stays there.
        expect(row).to_be_visible()
        visitor.context.set_offline(False)
        expect(page.get_by_role("alert")).to_have_count(0)
        # Requests that failed meanwhile are errors of the network, not of the page.
        visitor.errors.clear()


def test_unavailable_database_shows_code_and_remedy_and_recovers(
    browser: Browser, server: dict[str, Any]
) -> None:
    with visit(browser, server) as visitor:
        page = visitor.open("/query")
        page.route("**/v1/documents?*", _refuse)
        page.get_by_role("link", name="Documents").first.click()
        expect(page.get_by_text("DATABASE_UNAVAILABLE")).to_be_visible()
        expect(page.get_by_text("Retry in a few seconds.")).to_be_visible()
        page.unroute("**/v1/documents?*")
        expect(page.get_by_text("ferry-service-agreement.docx").first).to_be_visible()


def test_expired_session_leads_to_the_sign_in_page(
    browser: Browser, server: dict[str, Any]
) -> None:
    with visit(browser, server) as visitor:
        visitor.context.clear_cookies()
        page = visitor.open("/documents")
        expect(page.get_by_text("anabranch open")).to_be_visible()
        page.get_by_label("API key").fill("wrong")
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_text("UNAUTHENTICATED")).to_be_visible()
        page.get_by_label("API key").fill(server["token"])
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_text("ferry-service-agreement.docx").first).to_be_visible()


def test_hundred_thousand_documents_stay_a_short_page(
    browser: Browser, server: dict[str, Any]
) -> None:
    with open_http_client(server) as http:
        template = http.get("/v1/documents").json()["items"][0]
    with visit(browser, server) as visitor:
        page = visitor.open("/query")
        page.route("**/v1/documents?*", _serve_rows(template))
        page.get_by_role("link", name="Documents").first.click()
        expect(page.get_by_text("document-000000.txt")).to_be_visible()
        table = page.locator("section", has=page.locator("table")).first
        seen = _scroll_to(page, table, 2000)
        # Up to here all rows are in the page, where the browser finds them.
        assert seen <= PAGE_ROWS, "rows out of view are in the page"


def test_seven_tabs_stay_live(browser: Browser, server: dict[str, Any]) -> None:
    """Browsers allow six connections to a server: a stream for each tab would hang the seventh."""
    with visit(browser, server) as visitor:
        pages = [visitor.open("/documents") for _ in range(7)]
        for page in pages:
            expect(page.get_by_text("ferry-service-agreement.docx").first).to_be_visible()
        files = {"file": ("seven-tabs.txt", b"The seventh tab is live as well.", "text/plain")}
        with open_http_client(server) as http:
            assert http.post("/v1/ingest", files=files).status_code == 202
        for page in pages:
            expect(page.get_by_text("seven-tabs.txt").first).to_be_visible()


def _refuse(route: Route) -> None:
    route.fulfill(status=503, content_type="application/problem+json", body=json.dumps(UNAVAILABLE))


def _serve_rows(template: dict[str, Any]) -> Callable[[Route], None]:
    """Answer requests for documents with made-up rows, page by page."""

    def serve(route: Route) -> None:
        after = route.request.url.partition("after=")[2].partition("&")[0]
        start = int(after or 0)
        numbers = range(start, min(start + PAGE_ROWS, ROWS))
        items = [
            template
            | {
                "document_id": f"00000000-0000-4000-8000-{number:012d}",
                "filename": f"document-{number:06d}.txt",
                "title": None,
            }
            for number in numbers
        ]
        route.fulfill(json={"items": items, "next": str(numbers.stop) if numbers else None})

    return serve


def _scroll_to(page: Page, table: Any, number: int) -> int:
    """Scroll down until this row or one after it is in the page. Returns the most rows in it."""
    most = 0
    deadline = StallDeadline(f"row {number}", STALL_TIMEOUT_S)
    while True:
        rows = page.locator("tbody tr[data-index]")
        most = max(most, rows.count())
        last = int(rows.last.get_attribute("data-index") or 0)
        if last >= number:
            return most
        deadline.check(last)
        table.evaluate("element => element.scrollBy(0, 20 * element.clientHeight)")
        page.wait_for_timeout(50)
