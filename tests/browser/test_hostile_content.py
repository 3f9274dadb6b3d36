"""Documents, names, titles and entities are hostile: none of their scripts runs in the UI."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Browser

from tests.support.browser import visit
from tests.support.server_process import open_http_client

SCRIPT = "<script>window.attacked = 1</script>"
IMAGE = "<img src=x onerror='window.attacked = 1'>"
VECTOR = "<svg onload='window.attacked = 1'><script>window.attacked = 1</script></svg>"
LINK = "<a href='javascript:window.attacked=1'>the harbour rules</a>"
STYLE = "<style>@import url(http://192.0.2.1/x.css); body { display: none }</style>"
FRAME = "<iframe srcdoc='<script>parent.attacked = 1</script>'></iframe>"
SENTENCE = "The Nettlebank ferry carries 481 passengers."
SCRIPT_OF_PDF = b"window.attacked = 1"
PDF_WITH_ACTION = b"""%%PDF-1.7
1 0 obj<</Type/Catalog/Pages 2 0 R/OpenAction<</S/JavaScript/JS(%s)>>>>endobj
2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj
3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 500 200]/Contents 4 0 R
/Resources<</Font<</F 5 0 R>>>>/Annots[6 0 R]>>endobj
4 0 obj<</Length 66>>stream
BT /F 14 Tf 30 120 Td (The Ashford tunnel is 2317 metres long.) Tj ET
endstream endobj
5 0 obj<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>endobj
6 0 obj<</Type/Annot/Subtype/Link/Rect[0 0 500 200]/A<</S/URI/URI(javascript:%s)>>>>endobj
trailer<</Root 1 0 R>>
""" % (SCRIPT_OF_PDF, SCRIPT_OF_PDF)


@pytest.fixture(scope="module")
def hostile_documents(server: dict[str, Any]) -> dict[str, str]:
    """Ingest the attacks. Returns ids by file name."""
    page = f"<h1>Nettlebank {IMAGE}</h1>{SCRIPT}{VECTOR}{LINK}{STYLE}{FRAME}<p>{SENTENCE}</p>"
    markdown = (
        f"# Nettlebank\n\n{SCRIPT}\n\n{VECTOR}\n\n[x](javascript:window.attacked=1)\n\n{SENTENCE}\n"
    )
    files = {
        "page.html": (page.encode(), "text/html"),
        "notes.md": (markdown.encode(), "text/markdown"),
        f"{IMAGE}.txt": (SENTENCE.encode(), "text/plain"),
        "action.pdf": (PDF_WITH_ACTION, "application/pdf"),
    }
    ids = {}
    with open_http_client(server) as http:
        for name, (content, media_type) in files.items():
            receipt = http.post(
                "/v1/ingest",
                files={"file": (name, content, media_type)},
                data={"title": f"{IMAGE}{SCRIPT}"},
            )
            assert receipt.status_code == 202, receipt.text
            ids[name] = receipt.json()["document_id"]
    return ids


def test_nothing_of_a_hostile_document_runs(
    browser: Browser, server: dict[str, Any], hostile_documents: dict[str, str]
) -> None:
    requests: list[str] = []
    with visit(browser, server) as visitor:
        visitor.context.on("request", lambda request: requests.append(request.url))
        page = visitor.open("/documents")
        page.on("dialog", lambda dialog: visitor.errors.append(f"dialog {dialog.message}"))
        for path in _addresses(hostile_documents):
            visitor.go(page, path)
            assert page.evaluate("window.attacked") is None, path
            assert page.locator("a[href^='javascript']").count() == 0, path
    # pdf.js makes blobs of its own.
    foreign = [url for url in requests if not url.startswith((server["url"], "blob:", "data:"))]
    assert foreign == []


def _addresses(documents: dict[str, str]) -> list[str]:
    tabs = ("overview", "pages", "chunks", "entities", "revisions", "lineage", "events")
    return [
        "/documents",
        "/graph",
        "/events",
        *(f"/documents/{one}/{tab}" for one in documents.values() for tab in tabs),
    ]
