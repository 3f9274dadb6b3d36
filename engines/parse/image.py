"""Images, also of several pages (TIFF, GIF, WebP), by Pillow: counted, and drawn upright for OCR."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image, ImageOps, UnidentifiedImageError

from engines.parse.archive import make_corrupt_error
from schemas.errors import LimitExceeded

MAX_PIXELS = 120_000_000
MAX_SIDE_PX = 4000
Image.MAX_IMAGE_PIXELS = MAX_PIXELS


def count_frames(path: Path) -> int:
    """Number of frames. Raises UnreadableDocument (CORRUPT_DOCUMENT), LimitExceeded (IMAGE_TOO_LARGE)."""
    with _open_image(path) as picture:
        frames = getattr(picture, "n_frames", 1)
        return int(frames) if picture.format in ("TIFF", "MPO") else 1


def render_frame(path: Path, page: int) -> bytes:
    """Frame `page` (1-based) as PNG, turned as its EXIF data says, on white, at most 4,000 pixels long. Raises as `look` does."""
    with _open_image(path) as picture:
        picture.seek(page - 1)
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
        except (UnidentifiedImageError, OSError, SyntaxError, EOFError, ValueError) as error:
            raise make_corrupt_error(f"the image cannot be read: {error}") from error


def _make_too_large_error(description: str) -> LimitExceeded:
    return LimitExceeded(f"the image is too large: {description}", code="IMAGE_TOO_LARGE", remedy=f"Send it with at most {MAX_PIXELS // 10**6} megapixels.")
