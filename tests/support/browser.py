"""Chromium and pages of the web UI for tests."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright
from playwright.sync_api import TimeoutError as PlaywrightTimeoutError

from tests.support.server_process import open_http_client

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
# Without a sandbox, because tests run as root; the others keep it from calling its maker.
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
AXE = Path(__file__).parents[2] / "web/node_modules/axe-core/axe.min.js"
WCAG = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
# A busy machine takes its time; a page that hangs still fails.
TIMEOUT_MS = 180_000
SETTLE_TIMEOUT_MS = 20_000
expect.set_options(timeout=TIMEOUT_MS)


def require_chromium() -> None:
    """Skip without Chromium or a built UI, unless ANABRANCH_REQUIRE_BROWSER is set."""
    reasons = {
        "Chromium is not installed: `apt-get install chromium`": CHROMIUM is not None,
        "The web UI is not built: `make web`": AXE.exists(),
    }
    for reason, holds in reasons.items():
        if not holds:
            (pytest.fail if os.environ.get("ANABRANCH_REQUIRE_BROWSER") else pytest.skip)(reason)


@contextmanager
def open_chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
        yield browser
        browser.close()


@dataclass(slots=True)
class Visitor:
    """A person with a browser: a context of its own, signed in by a one-time link.

    Collects what went wrong in the pages: errors of scripts and violations of the CSP.
    """

    server: dict[str, Any]
    context: BrowserContext
    errors: list[str] = field(default_factory=list)

    def open(self, path: str) -> Page:
        """Open an address below `/ui/` in a new tab."""
        page = self.context.new_page()
        page.on("pageerror", lambda error: self.errors.append(f"{path}: {error}"))
        page.on("console", lambda message: self._note(path, message.type, message.text))
        page.goto(f"{self.server['url']}/ui{path}")
        return page

    def go(self, page: Page, path: str) -> None:
        """Go to another address below `/ui/` without loading the page again, as a link does."""
        page.evaluate("path => void __TSR_ROUTER__.navigate({ href: path })", f"/ui{path}")
        page.wait_for_function(
            "path => __TSR_ROUTER__.state.status === 'idle' && location.href.endsWith(path)",
            arg=path,
        )
        wait_until_loaded(page)

    def _note(self, path: str, kind: str, text: str) -> None:
        # The browser itself reports each refused request; the page shows those.
        if kind == "error" and not text.startswith("Failed to load resource"):
            self.errors.append(f"{path}: {text}")


@contextmanager
def visit(
    browser: Browser,
    server: dict[str, Any],
    *,
    width: int = 1440,
    height: int = 900,
    key: str | None = None,
    **options: Any,
) -> Iterator[Visitor]:
    """Open a context, sign in (as the operator, or with an API key), and fail on errors in it."""
    options.setdefault("locale", "en-US")
    # Without transitions, which Chromium would draw with the processor.
    context = browser.new_context(
        viewport={"width": width, "height": height}, reduced_motion="reduce", **options
    )
    context.set_default_timeout(TIMEOUT_MS)
    visitor = Visitor(server, context)
    if key is None:
        sign_in(context, server)
    else:
        context.set_extra_http_headers({"Authorization": f"Bearer {key}"})
    try:
        yield visitor
        assert visitor.errors == []
    finally:
        context.close()


def sign_in(context: BrowserContext, server: dict[str, Any]) -> None:
    with open_http_client(server) as http:
        link = http.post("/v1/login-links", json={}).json()["url"]
    page = context.new_page()
    # The path alone: the public address of the server may be another.
    page.goto(server["url"] + re.sub(r"^https?://[^/]+", "", link))
    page.close()


def switch_theme(page: Page, scheme: Literal["light", "dark"]) -> None:
    """Let the page follow the system, and wait until its colors are final."""
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    expect(page.locator("html")).to_have_attribute("data-mantine-color-scheme", scheme)
    page.evaluate(
        "async () => { await Promise.allSettled(document.getAnimations()"
        ".filter(one => one instanceof CSSTransition).map(one => one.finished)) }"
    )


def wait_until_loaded(page: Page) -> None:
    expect(page.locator("main h1")).to_be_visible()
    expect(page.locator("main [aria-busy=true]")).to_have_count(0)


def find_violations(page: Page, rules: list[str] | None = None) -> list[str]:
    """Return the findings of axe on a page, one line each: of WCAG 2.2 AA, or of these rules."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE.read_text())
    run_only = {"type": "rule", "values": rules} if rules else {"type": "tag", "values": WCAG}
    # Else it also collects the elements that pass.
    options = json.dumps({"runOnly": run_only, "resultTypes": ["violations"]})
    results = page.evaluate(f"axe.run(document, {options})")
    return [
        f"{violation['id']}: {node['html'][:200]} ({node['failureSummary'][:300]})"
        for violation in results["violations"]
        for node in violation["nodes"]
    ]


def is_scrolled_sideways(page: Page) -> bool:
    """Return whether the page stays wider than its window: charts follow it a moment later."""
    try:
        page.wait_for_function(
            # A function, because the policy of the UI forbids to evaluate text again.
            "() => document.documentElement.scrollWidth <= document.documentElement.clientWidth",
            timeout=SETTLE_TIMEOUT_MS,
        )
    except PlaywrightTimeoutError:
        return True
    return False
