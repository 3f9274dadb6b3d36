"""When text in an office file cannot be seen: tiny letters, no contrast, or off the page.

One rule for every format; a color that is not known hides nothing.
"""

from __future__ import annotations

import re

MIN_POINTS = 1.5
_MIN_CONTRAST = 20
_MIN_OPACITY = 0.05
_HEX_COLOR = re.compile(r"#?([0-9a-f]{6})", re.I)

Color = tuple[int, int, int]
WHITE: Color = (255, 255, 255)
Bounds = tuple[float, float, float, float]
"""Left, top, right and bottom."""


def parse_color(value: str | None) -> Color | None:
    """Return the color of six hexadecimal digits, None for anything else."""
    match = _HEX_COLOR.fullmatch(value or "")
    if match is None:
        return None
    red, green, blue = bytes.fromhex(match[1])
    return red, green, blue


def is_unseen(
    color: Color | None,
    ground: Color | None,
    points: float | None = None,
    opacity: float = 1.0,
) -> bool:
    """Return whether letters of this color and size cannot be seen on their ground."""
    if opacity < _MIN_OPACITY or (points is not None and 0 < points < MIN_POINTS):
        return True
    return (
        color is not None
        and ground is not None
        and max(abs(one - other) for one, other in zip(color, ground, strict=True)) < _MIN_CONTRAST
    )


def is_off_page(bounds: Bounds, width: float, height: float) -> bool:
    """Return whether a box has no part on a page or slide of this size."""
    left, top, right, bottom = bounds
    return right <= 0 or bottom <= 0 or left >= width or top >= height
