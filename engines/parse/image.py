"""Images by Pillow, including multi-page TIFF: frame count, and upright rendering for OCR."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image, ImageOps, UnidentifiedImageError

from engines.parse.notices import check_pages, make_corrupt_error
from engines.parsed_blocks import ParsedPart
from schemas.errors import LimitExceeded

MAX_PIXELS = 120_000_000
MAX_SIDE_PX = 4000
# Pillow raises only beyond twice this limit, so `_open_image` checks it too.
Image.MAX_IMAGE_PIXELS = MAX_PIXELS


def inspect_pages(path: Path, max_pages: int) -> tuple[int, bool]:
    """Count the pages, all of which need OCR; an animation counts as one.

    Raises UnreadableDocument (CORRUPT_DOCUMENT), LimitExceeded (IMAGE_TOO_LARGE, TOO_MANY_PAGES).
    """
    with _open_image(path) as picture:
        # Frames of GIF and WebP are no pages.
        pages = getattr(picture, "n_frames", 1) if picture.format in ("TIFF", "MPO") else 1
    check_pages(pages, max_pages)
    return pages, True


def read(path: Path, pages: range) -> ParsedPart:
    return ParsedPart(unread=list(pages))


def render_page(path: Path, number: int) -> bytes:
    """Render page `number` (1-based) upright (EXIF) as PNG on white, within 4,000 pixels.

    Raises UnreadableDocument (CORRUPT_DOCUMENT), LimitExceeded (IMAGE_TOO_LARGE).
    """
    with _open_image(path) as picture:
        picture.seek(number - 1)
        upright = ImageOps.exif_transpose(picture)
        upright.thumbnail((MAX_SIDE_PX, MAX_SIDE_PX))
        buffer = io.BytesIO()
        _flatten_on_white(upright).save(buffer, "PNG", compress_level=1)
        return buffer.getvalue()


def _flatten_on_white(picture: Image.Image) -> Image.Image:
    if picture.mode in ("1", "L", "I;16"):
        return picture.convert("L")
    if "A" in picture.getbands() or "transparency" in picture.info:
        layer = picture.convert("RGBA")
        paper = Image.new("RGBA", layer.size, "white")
        return Image.alpha_composite(paper, layer).convert("RGB")
    return picture.convert("RGB")


@contextmanager
def _open_image(path: Path) -> Iterator[Image.Image]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with Image.open(path) as picture:
                if picture.width * picture.height > MAX_PIXELS:
                    raise _make_too_large_error(f"{picture.width} x {picture.height} pixels")
                yield picture
        except Image.DecompressionBombError as error:
            raise _make_too_large_error(str(error)) from error
        # Pillow's plugins raise any of these for damaged files.
        except (UnidentifiedImageError, OSError, SyntaxError, EOFError, ValueError) as error:
            raise make_corrupt_error(f"The image cannot be read: {error}") from error


def _make_too_large_error(description: str) -> LimitExceeded:
    return LimitExceeded(
        f"The image is too large: {description}.",
        code="IMAGE_TOO_LARGE",
        remedy=f"Scale it down to at most {MAX_PIXELS // 10**6} megapixels.",
    )
