"""The first five minutes: one command, documents turn green, a question, the sentence on its page.

With `UI_PICTURES=FOLDER` each step is stored there as a picture.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pypdfium2
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.support.browser import TIMEOUT_MS
from tests.support.eventually import STALL_TIMEOUT_S, StallDeadline
from tests.support.server_process import run_up

QUESTION = "How much silt did Halvik Dredging remove?"
ANSWER = "148,000 cubic metres"
FILE = "annual-report-2025.pdf"
CORPUS = Path(__file__).parents[2] / "samples/corpus"
DOCUMENTS = len(list(CORPUS.iterdir()))
# Of the page's width or height: the ink of a line reaches over its letters.
TOLERANCE = 0.02


@contextmanager
def open_up(folder: Path) -> Iterator[tuple[dict[str, Any], str]]:
    """Run `anabranch up --sample --open`. Yields the server and the link that the browser gets."""
    link = folder / "link"
    program = folder / "browser"
    program.write_text(f'#!/bin/sh\nprintf %s "$1" > {link}.part && mv {link}.part {link}\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    with run_up(folder / "data", "--sample", "--open", BROWSER=f"{program} %s") as (_, server):
        deadline = StallDeadline("the link in the browser", STALL_TIMEOUT_S)
        while not link.exists():
            time.sleep(deadline.check(None))
        yield server, link.read_text()


def test_first_five_minutes(browser: Browser, tmp_path: Path) -> None:
    with open_up(tmp_path) as (server, link):
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


@pytest.mark.parametrize("place", [(0.1, 0.1, 0.3, 0.2)])
def test_words_beside_the_boxes_are_noticed(
    browser: Browser, place: tuple[float, float, float, float]
) -> None:
    page = browser.new_page()
    style = "position: absolute; left: 50px; top: 50px; width: 20px; height: 10px"
    page.set_content(
        "<div id=d style='position: relative'><canvas width=100 height=100></canvas>"
        f"<div data-evidence-box=lines style='{style}'></div></div>"
    )
    with pytest.raises(AssertionError):
        assert_boxes_cover(page.locator("#d"), place)
    page.close()
