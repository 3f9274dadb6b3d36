"""Draw the pictures of the web UI in docs/assets from a server with sample documents.

`make pictures` runs it: a few minutes, with Chromium.
"""

from __future__ import annotations

import io
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Browser, Page, expect

from tests.support.browser import open_chromium, visit
from tests.support.server_process import open_http_client, run_anabranch, run_up

ROOT = Path(__file__).parents[1]
CORPUS, ASSETS = ROOT / "samples/corpus", ROOT / "docs/assets"
MINUTES = "harbour-committee-minutes.md"
COLLECTIONS = {
    "contracts": "*contra*",
    "agreements": "*agreement*",
    "statistics": "crossings*",
    "harbour": "[!cf]*",
}
SPEED = "What is the speed limit in the inner harbour?"
SILT = "How much silt did Halvik Dredging remove?"
NOTICE = "How many days of notice must Merrin Ferries give before it changes the winter timetable?"
QUESTIONS = (
    SPEED,
    "Qual é o prazo de execução da obra da ponte de São Telmo?",
    "At what temperature does tungsten melt?",
    "When is the next meeting of the harbour committee?",
    SILT,
    NOTICE,
)
MAX_BYTES = 120_000


def prepare_server(server: dict[str, Any], folder: Path) -> None:
    """Ingest the samples, ask, change a document, and examine a second generation."""

    def run(*arguments: str, codes: tuple[int, ...] = (0,)) -> None:
        done = run_anabranch(*arguments, "--data", str(folder / "data"))
        assert done.returncode in codes, (arguments, done.stdout, done.stderr)

    def ask(question: str) -> None:
        with open_http_client(server) as http:
            http.post("/v1/query", json={"query": question}).raise_for_status()

    documents = shutil.copytree(CORPUS, folder / "documents")
    (documents / "tide-tables-2026.pdf").write_bytes(b"%PDF-1.7 cut off")
    for collection, glob in COLLECTIONS.items():
        arguments = ("--glob", glob, "--collection", collection, "--wait")
        # The file that was cut off fails, which is exit code 5.
        run("ingest", str(documents), *arguments, codes=(0, 5))
    ask(SPEED)
    minutes = (CORPUS / MINUTES).read_text()
    (documents / MINUTES).write_text(minutes.replace("from 5 to 4 knots", "from 5 to 3 knots"))
    run("ingest", str(documents / MINUTES), "--collection", "harbour", "--wait")
    for question in QUESTIONS:
        ask(question)
    run("exam", "--questions", "40")
    run("reindex", "--set", "chunk.child_tokens=120", "--wait")
    run("exam", "--questions", "40", "--generation", "g2")


@dataclass(frozen=True, slots=True)
class Studio:
    browser: Browser
    server: dict[str, Any]

    @contextmanager
    def draw(
        self, name: str, address: str, width: int = 1440, scheme: str = "light"
    ) -> Iterator[Page]:
        """Open the address, let the caller act, and store the picture."""
        height = 900 if width > 900 else 844
        options = {"color_scheme": scheme, "device_scale_factor": 1 if width > 900 else 2}
        with visit(self.browser, self.server, width=width, height=height, **options) as visitor:
            page = visitor.open(address)
            expect(page.locator("main h1")).to_be_visible()
            yield page
            expect(page.locator("main [aria-busy=true]")).to_have_count(0)
            page.wait_for_timeout(1500)
            image = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
        for quality in range(90, 20, -5):
            image.save(ASSETS / f"ui-{name}.webp", quality=quality, method=6)
            if (ASSETS / f"ui-{name}.webp").stat().st_size <= MAX_BYTES:
                return
        raise SystemExit(f"ui-{name}.webp is larger than {MAX_BYTES:,} bytes.")


def draw_pictures(studio: Studio) -> None:
    with open_http_client(studio.server) as http:
        runs = http.get("/v1/runs").json()["items"]
        documents = http.get("/v1/documents").json()["items"]
    run = next(f"/runs/{run['run_id']}" for run in runs if run["query"] == NOTICE)
    report = next(
        f"/documents/{document['document_id']}"
        for document in documents
        if document["filename"] == "annual-report-2025.pdf"
    )

    def ask(page: Page, question: str) -> None:
        page.get_by_role("textbox").first.fill(question)
        page.keyboard.press("Enter")
        expect(page.get_by_role("button", name="Open source 1").first).to_be_visible()

    with studio.draw("answer", "/query") as page:
        ask(page, NOTICE)
        page.get_by_role("button", name="Open source 1").first.hover()
        expect(page.locator(".mantine-HoverCard-dropdown")).to_be_visible()
    with studio.draw("evidence", "/query") as page:
        ask(page, SILT)
        page.get_by_role("button", name="Open source 1").first.click()
        expect(page.locator("[data-evidence-box=lines]").first).to_be_visible()
    addresses = {
        "documents": "/documents",
        "lineage": f"{report}/lineage",
        "retrieval": f"{run}/retrieval",
        "fusion": f"{run}/fusion",
        "trace": f"{run}/trace",
        "events": f"/events?key={report.split('/')[-1]}",
    }
    for name, address in addresses.items():
        with studio.draw(name, address):
            pass
    with studio.draw("graph", f"/graph?run={run.split('/')[-1]}", scheme="dark"):
        pass
    with studio.draw("generations", "/generations") as page:
        page.get_by_role("button", name="Compare g2").click()
        page.get_by_role("button", name="Compare on up to").click()
        expect(page.get_by_role("heading", name="g2 compared with g1")).to_be_visible()
        page.wait_for_timeout(2000)
    with studio.draw("evaluation", "/evaluation") as page:
        for row in (0, 2):
            page.locator("tbody input[type=checkbox]").nth(row).check()
        page.get_by_role("button", name="Compare the two selected").click()
    with studio.draw("system", "/system", width=390):
        pass


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="anabranch-pictures-") as name:
        folder = Path(name)
        with run_up(folder / "data") as (_, server), open_chromium() as browser:
            prepare_server(server, folder)
            draw_pictures(Studio(browser, server))


if __name__ == "__main__":
    main()
