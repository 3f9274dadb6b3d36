"""Run the local OCR engine on straight, rotated, skewed and empty pages."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from PIL import Image

from engines.ocr.rapidocr import RapidOcr
from tests.unit.engines_parse.sample_files import render_text_image

pytestmark = pytest.mark.asyncio(loop_scope="module")
WORDS = "The pump is oiled every week"


@pytest.fixture(scope="module")
def upright_page() -> Image.Image:
    paper = Image.new("RGB", (1000, 600), "white")
    for i in range(3):
        paper.paste(
            Image.open(io.BytesIO(render_text_image(WORDS))).crop((0, 80, 1000, 230)),
            (0, 50 + 160 * i),
        )
    return paper


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ocr() -> AsyncIterator[RapidOcr]:
    engine = RapidOcr()
    yield engine
    await engine.aclose()


def encode_png(picture: Image.Image) -> bytes:
    out = io.BytesIO()
    picture.save(out, "PNG")
    return out.getvalue()


async def test_page_is_read_in_any_rotation(ocr: RapidOcr, upright_page: Image.Image) -> None:
    for degrees in (90, 180, 270, 3):
        await check_page_text(ocr, upright_page.rotate(degrees, expand=True, fillcolor="white"))


async def check_page_text(ocr: RapidOcr, page: Image.Image) -> None:
    found = await ocr.read(encode_png(page), subject="a page")
    words = " ".join(draft.text for draft in found).lower().split()
    assert words == (WORDS.lower().split() * 3)
    for draft in found:
        assert draft.box
        x0, y0, x1, y1 = draft.box
        inside = page.crop(
            (
                int(x0 * page.width),
                int(y0 * page.height),
                int(x1 * page.width),
                int(y1 * page.height),
            )
        ).convert("L")
        assert inside.getextrema()[0] < 80, "the box shows where the words stand"


async def test_empty_page_has_no_blocks(ocr: RapidOcr) -> None:
    assert await ocr.read(encode_png(Image.new("RGB", (800, 600), "white")), subject="a page") == []
