"""The first five minutes of a user, then every action of the graph and stream screens.

One file, and so one server for all of them. With `UI_PICTURES=FOLDER` each step of the first five
minutes is stored there as a picture.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pypdfium2
import pytest
from playwright.sync_api import Browser, Locator, Page, expect
from playwright.sync_api import TimeoutError as PlaywrightTimeoutError

from tests.support.browser import TIMEOUT_MS, Visitor, visit
from tests.support.eventually import STALL_TIMEOUT_S, StallDeadline, eventually_blocking
from tests.support.server_process import open_http_client, run_up

QUESTION = "How much silt did Halvik Dredging remove?"
ANSWER = "148,000 cubic metres"
FILE = "annual-report-2025.pdf"
CORPUS = Path(__file__).parents[2] / "samples/corpus"
DOCUMENTS = len(list(CORPUS.iterdir()))
# Of the page's width or height: the ink of a line reaches over its letters.
TOLERANCE = 0.02
LIVE, NEXT = "g1", "g2"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder that the server may watch."""
    return tmp_path_factory.mktemp("journeys")


@pytest.fixture(scope="module")
def opened(folder: Path) -> Iterator[tuple[dict[str, Any], str]]:
    """Run `anabranch up --sample --open`. Yields the server and the link that the browser gets."""
    link = folder / "link"
    program = folder / "browser"
    program.write_text(f'#!/bin/sh\nprintf %s "$1" > {link}.part && mv {link}.part {link}\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    settings = {"BROWSER": f"{program} %s", "ANABRANCH_INGEST__FOLDERS": str(folder / "watched")}
    with run_up(folder / "data", "--sample", "--open", **settings) as (_, server):
        deadline = StallDeadline("the link in the browser", STALL_TIMEOUT_S)
        while not link.exists():
            time.sleep(deadline.check(None))
        yield server, link.read_text()


@pytest.fixture(scope="module")
def server(opened: tuple[dict[str, Any], str]) -> dict[str, Any]:
    return opened[0]


@pytest.fixture(scope="module")
def operator(browser: Browser, server: dict[str, Any]) -> Iterator[tuple[Visitor, Page]]:
    with open_http_client(server) as http:

        def count_searchable() -> int:
            found = http.get("/v1/documents", params={"state": "searchable", "limit": 100})
            return len(found.json()["items"])

        eventually_blocking(count_searchable, lambda count: count == DOCUMENTS)
    with visit(browser, server) as visitor:
        yield visitor, visitor.open("/query")


@pytest.fixture
def organizations(server: dict[str, Any]) -> tuple[str, str]:
    """Return the names of two organizations in the documents."""
    with open_http_client(server) as http:
        found = http.get("/v1/entities", params={"limit": 100}).json()["items"]
    first, second, *_ = [one["name"] for one in found if one["type"] == "ORG"]
    return first, second


def test_first_five_minutes(browser: Browser, opened: tuple[dict[str, Any], str]) -> None:
    server, link = opened
    context = browser.new_context(viewport={"width": 1440, "height": 900}, locale="en-US")
    context.set_default_timeout(TIMEOUT_MS)
    page = context.new_page()
    page.goto(link)
    # The browser is signed in, and the one-time code is out of its address.
    page.wait_for_url(f"{server['url']}/ui/**")
    expect(page.get_by_role("textbox").first).to_be_visible()

    page.get_by_role("link", name="Documents").first.click()
    expect(page.locator("tbody tr[data-index]")).to_have_count(DOCUMENTS)
    store_picture(page, "documents")
    expect(page.locator("tbody tr", has_text="Searchable")).to_have_count(DOCUMENTS)

    page.get_by_role("link", name="Query").first.click()
    page.get_by_role("textbox").first.fill(QUESTION)
    page.keyboard.press("Enter")
    expect(page.get_by_text(ANSWER).first).to_be_visible()
    marker = page.get_by_role("button", name="Open source 1").first
    marker.hover()
    expect(page.locator(".mantine-HoverCard-dropdown")).to_contain_text(ANSWER)
    store_picture(page, "answer")

    marker.click()
    drawer = page.get_by_role("dialog")
    box = drawer.locator("[data-evidence-box=lines]").first
    expect(box).to_be_visible()
    expect(drawer.locator("canvas").first).to_be_visible()
    store_picture(page, "evidence")
    number = int(drawer.get_by_label("Page", exact=True).input_value())
    assert_boxes_cover(drawer, find_words(number, ANSWER))
    context.close()


def test_pages_of_each_kind_of_document_are_shown(
    operator: tuple[Visitor, Page], server: dict[str, Any]
) -> None:
    visitor, page = operator
    with open_http_client(server) as http:
        listed = http.get("/v1/documents", params={"limit": 100}).json()["items"]
    ids = {one["filename"]: one["document_id"] for one in listed}
    main = page.locator("main")
    contents = {
        "contrato-ponte-sao-telmo.pdf": main.get_by_label(re.compile("^Page 1 of ")),
        "notice-to-mariners.png": main.get_by_label(re.compile("^Image ")),
        "crossings-2025.csv": main.get_by_text("first month of Merrin Ferries"),
        "regulamento-mercado.html": main.get_by_text("O mercado tem 48 bancas."),
        "plano-de-cheias.md": main.get_by_text("Responsável: Tiago Lameiras"),
    }
    for filename, content in contents.items():
        visitor.go(page, f"/documents/{ids[filename]}/pages")
        expect(content.first).to_be_visible()


def test_corrections_of_an_entity_survive_a_reload(
    operator: tuple[Visitor, Page], organizations: tuple[str, str]
) -> None:
    visitor, page = operator
    kept, merged = organizations
    visitor.go(page, "/graph?view=table")
    _click_row(page, merged)
    panel = page.locator("section", has=page.get_by_role("heading", name=merged, exact=True)).last
    panel.get_by_label("Add a name").fill("The Other Firm")
    panel.get_by_role("button", name="Add", exact=True).click()
    expect(panel.get_by_role("button", name="Remove the name The Other Firm")).to_be_visible()
    panel.get_by_role("button", name="Change type…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Type").fill("SUPPLIER")
    dialog.get_by_role("button", name=f"Change the type of {merged}").click()
    expect(panel.get_by_text("SUPPLIER · Mentioned")).to_be_visible()
    page.reload()
    expect(panel.get_by_text("SUPPLIER · Mentioned")).to_be_visible()
    panel.get_by_role("button", name="Remove the name The Other Firm").click()
    expect(panel.get_by_text("The Other Firm")).to_have_count(0)

    panel.get_by_role("button", name="Merge into another…").click()
    dialog.get_by_label("Into").fill(kept)
    page.get_by_role("option", name=f"{kept} (ORG)").click()
    dialog.get_by_role("button", name=f"Merge {merged}").click()
    whole = page.locator("section", has=page.get_by_role("heading", name=kept, exact=True)).last
    split = whole.get_by_role("button", name=f"Split off {merged}")
    expect(split).to_be_visible()
    page.reload()
    split.click()
    dialog.get_by_role("button", name=f"Split off {merged}").click()
    expect(dialog).to_have_count(0)
    expect(split).to_have_count(0)
    page.reload()
    expect(whole.get_by_role("button", name="Merge into another…")).to_be_visible()
    expect(split).to_have_count(0)


def test_dead_letters_are_redriven_and_discarded_after_their_plan(
    operator: tuple[Visitor, Page], server: dict[str, Any]
) -> None:
    visitor, page = operator
    visitor.go(page, "/dead-letters")
    expect(page.get_by_text("No dead letters.")).to_be_visible()
    with open_http_client(server) as http:
        files = {"file": ("broken.pdf", b"%PDF-1.4 but no more", "application/pdf")}
        assert http.post("/v1/ingest", files=files).status_code == 202
    page.get_by_role("region", name="Causes").locator("tbody tr").click()
    _click_row(page.get_by_role("region", name="Dead letters"), "broken.pdf")
    drawer = page.get_by_role("dialog", name="broken.pdf")
    drawer.get_by_role("button", name="Redrive 1").click()
    plan = page.get_by_role("dialog", name="Redrive 1 dead letter")
    expect(plan.get_by_text("1 event is processed again: Receive 1.")).to_be_visible()
    plan.get_by_role("button", name="Redrive 1 dead letter").click()
    expect(plan).to_have_count(0)
    page.get_by_role("link", name="Follow the replays").click()
    redrive = page.locator("tbody tr", has_text="Redrive").first
    expect(redrive.get_by_text("1 failed again")).to_be_visible()
    expect(redrive.get_by_text("Done")).to_be_visible()

    visitor.go(page, "/dead-letters")
    page.get_by_role("button", name="Discard all").click()
    plan = page.get_by_role("dialog", name="Discard 1 dead letter")
    expect(plan.get_by_text("1 dead letter is closed.")).to_be_visible()
    confirm = plan.get_by_role("button", name="Discard 1 dead letter")
    expect(confirm).to_be_disabled()
    plan.get_by_label("Reason").fill("No such file was meant.")
    confirm.click()
    expect(page.get_by_text("No dead letters.")).to_be_visible()


def test_replay_is_planned_paused_resumed_and_cancelled(operator: tuple[Visitor, Page]) -> None:
    visitor, page = operator
    visitor.go(page, "/replays")
    # An empty list offers it, too.
    page.get_by_role("button", name="Start a replay").first.click()
    dialog = page.get_by_role("dialog")
    _choose(page, dialog.get_by_label("Stage"), "Chunk")
    # So slow that it does not end by itself.
    dialog.get_by_label("Events per second").fill("0.1")
    expect(dialog.get_by_text("match and are processed again.")).to_be_visible()
    dialog.get_by_role("button", name="Replay").click()
    expect(dialog).to_have_count(0)
    replay = page.locator("tbody tr", has_text="Chunk")
    for action, state in (("Pause", "Paused"), ("Resume", "Running")):
        replay.get_by_role("button", name=f"{action} the replay of Chunk").click()
        expect(replay.get_by_text(state)).to_be_visible()
    replay.get_by_role("button", name="Cancel the replay of Chunk").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel the replay of Chunk").click()
    expect(replay.get_by_text("Cancelled")).to_be_visible()


def test_generation_is_built_promoted_rolled_back_and_dropped(
    operator: tuple[Visitor, Page],
) -> None:
    visitor, page = operator
    visitor.go(page, "/generations")
    page.get_by_role("button", name="Build a generation").click()
    dialog = page.get_by_role("dialog")
    _choose(page, dialog.get_by_label("Setting"), "lexical.k1")
    dialog.get_by_label("Value").fill("1.6")
    expect(dialog.get_by_text("No model call: all results come from the cache.")).to_be_visible()
    dialog.get_by_role("button", name="Build with these settings").click()
    expect(dialog).to_have_count(0)
    live, built = (page.get_by_role("article", name=name) for name in (LIVE, NEXT))
    expect(built.get_by_text("Built: ready to compare and promote")).to_be_visible()
    expect(built.get_by_text("lexical.k1")).to_be_visible()

    built.get_by_role("button", name=f"Promote {NEXT}").click()
    dialog.get_by_label("Promote only if a comparison meets these limits").uncheck()
    dialog.get_by_label("Promote without its own calibration").check()
    dialog.get_by_role("button", name=f"Promote {NEXT}").click()
    expect(built.get_by_text("Live: answers questions")).to_be_visible()
    live.get_by_role("button", name=f"Roll back to {LIVE}").click()
    dialog.get_by_role("button", name=f"Roll back to {LIVE}").click()
    expect(live.get_by_text("Live: answers questions")).to_be_visible()

    built.get_by_role("button", name=f"Drop {NEXT}").click()
    confirm = dialog.get_by_role("button", name=f"Drop {NEXT}")
    expect(confirm).to_be_disabled()
    dialog.get_by_label(f"Type {NEXT} to confirm.").fill(NEXT)
    confirm.click()
    expect(built.get_by_role("button")).to_have_count(0)


def test_source_is_added_watched_reset_and_removed(
    operator: tuple[Visitor, Page], folder: Path
) -> None:
    visitor, page = operator
    watched = folder / "watched"
    watched.mkdir()
    visitor.go(page, "/sources")
    page.get_by_role("button", name="Add a source").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("textbox", name="Name", exact=True).fill("locks")
    dialog.get_by_role("textbox", name="Path", exact=True).fill(str(watched))
    dialog.get_by_role("button", name="Add locks").click()
    source = page.get_by_role("article", name="locks")
    expect(source.get_by_text("Watching")).to_be_visible()
    expect(source.get_by_text(str(watched))).to_be_visible()
    source.get_by_role("button", name="Reset locks").click()
    dialog.get_by_role("button", name="Reset locks").click()
    expect(page.get_by_text("locks is reset.")).to_be_visible()
    (watched / "lock.md").write_text("The keeper of the lock raises the sluice at six.")
    expect(page.get_by_text("1 source · 1 document")).to_be_visible()

    source.get_by_role("button", name="Remove locks").click()
    dialog.get_by_label("Also withdraw 1 document").check()
    confirm = dialog.get_by_role("button", name="Remove locks")
    expect(confirm).to_be_disabled()
    dialog.get_by_label("Type locks to confirm.").fill("locks")
    confirm.click()
    expect(page.get_by_text("No sources yet.")).to_be_visible()
    visitor.go(page, "/documents")
    expect(page.get_by_role("row", name="lock.md")).to_have_count(0)


def find_words(page_number: int, words: str) -> tuple[float, float, float, float]:
    """Return the place of words on a page by another program, as shares from the top left."""
    pdf = pypdfium2.PdfDocument(CORPUS / FILE)
    page = pdf[page_number - 1]
    text = page.get_textpage()
    found = text.search(words).get_next()
    assert found is not None, f"{words!r} is not on page {page_number}"
    start, count = found
    boxes = [text.get_charbox(index) for index in range(start, start + count)]
    width, height = page.get_size()
    left, bottom = min(box[0] for box in boxes), min(box[1] for box in boxes)
    right, top = max(box[2] for box in boxes), max(box[3] for box in boxes)
    pdf.close()
    return left / width, 1 - top / height, right / width, 1 - bottom / height


def assert_boxes_cover(drawer: Locator, place: tuple[float, float, float, float]) -> None:
    """The boxes cover the words, and are lines of a sentence rather than a passage."""
    canvas = drawer.locator("canvas").first.bounding_box()
    assert canvas is not None
    boxes = []
    for one in drawer.locator("[data-evidence-box=lines]").all():
        area = one.bounding_box()
        assert area is not None
        left = (area["x"] - canvas["x"]) / canvas["width"]
        top = (area["y"] - canvas["y"]) / canvas["height"]
        boxes.append(
            (
                left,
                top,
                left + area["width"] / canvas["width"],
                top + area["height"] / canvas["height"],
            )
        )
    assert any(
        box[0] <= place[0] + TOLERANCE
        and box[1] <= place[1] + TOLERANCE
        and box[2] >= place[2] - TOLERANCE
        and box[3] >= place[3] - TOLERANCE
        for box in boxes
    ), (boxes, place)
    assert sum((box[2] - box[0]) * (box[3] - box[1]) for box in boxes) < 0.15, boxes


def store_picture(page: Page, name: str) -> None:
    if folder := os.environ.get("UI_PICTURES"):
        page.screenshot(path=f"{folder}/{name}.png")


def _click_row(place: Page | Locator, text: str) -> None:
    place.locator("tbody tr", has_text=text).first.click()


def _choose(page: Page, select: Locator, option: str) -> None:
    wanted = page.get_by_role("option", name=option, exact=True)
    select.click()
    try:
        wanted.click(timeout=5_000)
    except PlaywrightTimeoutError:
        # A dialog that was still opening has taken the focus, which closes the list.
        select.click()
        wanted.click()


def test_words_beside_the_boxes_are_noticed(browser: Browser) -> None:
    page = browser.new_page()
    style = "position: absolute; left: 50px; top: 50px; width: 20px; height: 10px"
    page.set_content(
        "<div id=d style='position: relative'><canvas width=100 height=100></canvas>"
        f"<div data-evidence-box=lines style='{style}'></div></div>"
    )
    with pytest.raises(AssertionError):
        assert_boxes_cover(page.locator("#d"), (0.1, 0.1, 0.3, 0.2))
    page.close()
