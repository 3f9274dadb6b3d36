"""Images, also of several pages (TIFF, GIF, WebP), by Pillow: counted, and drawn upright for OCR."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image, ImageOps, UnidentifiedImageError

from engines.parse.archive import corrupt
from schemas.errors import LimitExceeded

MAX_PIXELS = 120_000_000
LONGEST_SIDE = 4000
Image.MAX_IMAGE_PIXELS = MAX_PIXELS


def look(path: Path) -> int:
    """Number of frames. Raises UnreadableDocument (CORRUPT_DOCUMENT), LimitExceeded (IMAGE_TOO_LARGE)."""
    with _opened(path) as picture:
        frames = getattr(picture, "n_frames", 1)
        return int(frames) if picture.format in ("TIFF", "MPO") else 1


def draw(path: Path, page: int) -> bytes:
    """Frame `page` (1-based) as PNG, turned as its EXIF data says, on white, at most 4,000 pixels long. Raises as `look` does."""
    with _opened(path) as picture:
        picture.seek(page - 1)
        upright = ImageOps.exif_transpose(picture)
        upright.thumbnail((LONGEST_SIDE, LONGEST_SIDE))
        out = io.BytesIO()
        _on_white(upright).save(out, "PNG", compress_level=1)
        return out.getvalue()


def _on_white(picture: Image.Image) -> Image.Image:
    if picture.mode in ("1", "L", "I;16"):
        return picture.convert("L")
    if "A" in picture.getbands() or "transparency" in picture.info:
        layer = picture.convert("RGBA")
        paper = Image.new("RGBA", layer.size, "white")
        return Image.alpha_composite(paper, layer).convert("RGB")
    return picture.convert("RGB")


@contextmanager
def _opened(path: Path) -> Iterator[Image.Image]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with Image.open(path) as picture:
                if picture.width * picture.height > MAX_PIXELS:
                    raise _huge(f"{picture.width} x {picture.height} pixels")
                yield picture
        except Image.DecompressionBombError as error:
            raise _huge(str(error)) from error
        except (UnidentifiedImageError, OSError, SyntaxError, EOFError, ValueError) as error:
            raise corrupt(f"the image cannot be read: {error}") from error


def _huge(what: str) -> LimitExceeded:
    return LimitExceeded(f"the image is too large: {what}", code="IMAGE_TOO_LARGE", remedy=f"Send it with at most {MAX_PIXELS // 10**6} megapixels.")
