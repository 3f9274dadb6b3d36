"""Render text as page images, clean or as if scanned (Pillow, with reportlab's fonts)."""

from __future__ import annotations

import io
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import reportlab
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from samples.renderers.blocks import SampleBlock

DPI = 150
WIDTH, HEIGHT, MARGIN = 1240, 1754, 130
FONT_SIZES = {0: 25, 1: 42, 2: 31}
FONTS_FOLDER = Path(reportlab.__file__).parent / "fonts"


def render_pages(blocks: Sequence[SampleBlock]) -> list[Image.Image]:
    """Render headings and paragraphs on gray A4 pages."""
    page_images: list[Image.Image] = []
    y = HEIGHT
    for block in blocks:
        size = FONT_SIZES[block.level]
        lines = list(_wrap_lines(block, _load_font(block)))
        if y + len(lines) * size * 1.5 > HEIGHT - MARGIN:
            page_images.append(Image.new("L", (WIDTH, HEIGHT), 255))
            y = MARGIN
        for line in lines:
            ImageDraw.Draw(page_images[-1]).text((MARGIN, y), line, fill=15, font=_load_font(block))
            y += int(size * 1.5)
        y += size
    return page_images


def encode_png(page: Image.Image) -> bytes:
    out = io.BytesIO()
    page.quantize(16).save(out, "PNG", optimize=True)
    return out.getvalue()


def simulate_scan(page: Image.Image, *, degrees: float, seed: int) -> bytes:
    """Rotate, blur, shade and add grain to the page. Returns a JPEG."""
    rotated = page.rotate(degrees, resample=Image.Resampling.BICUBIC, fillcolor=255).filter(
        ImageFilter.GaussianBlur(0.7)
    )
    light = Image.linear_gradient("L").resize(page.size).point(lambda value: 236 + value // 14)
    grain = Image.frombytes(
        "L", (WIDTH // 2, HEIGHT // 2), random.Random(seed).randbytes(WIDTH // 2 * (HEIGHT // 2))
    ).resize(page.size)
    shaded = Image.composite(rotated, Image.new("L", page.size, 0), light)
    out = io.BytesIO()
    Image.blend(shaded, grain, 0.06).save(out, "JPEG", quality=55, dpi=(DPI, DPI))
    return out.getvalue()


def _load_font(block: SampleBlock) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(
        FONTS_FOLDER / ("VeraBd.ttf" if block.level else "Vera.ttf"), FONT_SIZES[block.level]
    )


def _wrap_lines(block: SampleBlock, font: ImageFont.FreeTypeFont) -> Iterator[str]:
    line = ""
    for word in block.text.split():
        longer = f"{line} {word}".strip()
        if font.getlength(longer) > WIDTH - 2 * MARGIN:
            yield line
            longer = word
        line = longer
    yield line
