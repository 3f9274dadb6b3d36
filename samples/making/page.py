"""Text as a picture of a page, clean or as if it had been scanned (Pillow, with the font that reportlab carries)."""

from __future__ import annotations

import io
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import reportlab
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from samples.making.blocks import Block

DPI = 150
WIDTH, HEIGHT, MARGIN = 1240, 1754, 130
SIZES = {0: 25, 1: 42, 2: 31}
FONTS = Path(reportlab.__file__).parent / "fonts"


def pages(blocks: Sequence[Block]) -> list[Image.Image]:
    """Grey A4 pages, filled from the top; headings and paragraphs only."""
    done: list[Image.Image] = []
    y = HEIGHT
    for block in blocks:
        size = SIZES[block.level]
        lines = list(_wrapped(block, _font(block)))
        if y + len(lines) * size * 1.5 > HEIGHT - MARGIN:
            done.append(Image.new("L", (WIDTH, HEIGHT), 255))
            y = MARGIN
        for line in lines:
            ImageDraw.Draw(done[-1]).text((MARGIN, y), line, fill=15, font=_font(block))
            y += int(size * 1.5)
        y += size
    return done


def png(page: Image.Image) -> bytes:
    out = io.BytesIO()
    page.quantize(16).save(out, "PNG", optimize=True)
    return out.getvalue()


def scanned(page: Image.Image, *, degrees: float, seed: int) -> bytes:
    """The page a little askew, soft, uneven in light and grainy, as JPEG."""
    askew = page.rotate(degrees, resample=Image.Resampling.BICUBIC, fillcolor=255).filter(ImageFilter.GaussianBlur(0.7))
    light = Image.linear_gradient("L").resize(page.size).point(lambda value: 236 + value // 14)
    grain = Image.frombytes("L", (WIDTH // 2, HEIGHT // 2), random.Random(seed).randbytes(WIDTH // 2 * (HEIGHT // 2))).resize(page.size)
    shaded = Image.composite(askew, Image.new("L", page.size, 0), light)
    out = io.BytesIO()
    Image.blend(shaded, grain, 0.06).save(out, "JPEG", quality=55, dpi=(DPI, DPI))
    return out.getvalue()


def _font(block: Block) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(FONTS / ("VeraBd.ttf" if block.level else "Vera.ttf"), SIZES[block.level])


def _wrapped(block: Block, font: ImageFont.FreeTypeFont) -> Iterator[str]:
    line = ""
    for word in block.text.split():
        longer = f"{line} {word}".strip()
        if font.getlength(longer) > WIDTH - 2 * MARGIN:
            yield line
            longer = word
        line = longer
    yield line
