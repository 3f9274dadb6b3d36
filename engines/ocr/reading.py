"""What runs in the OCR child: one page image to blocks.

The engine's own orientation classifier is off (it turns good lines upside down). A page that lies on its side shows by line boxes that are
taller than wide; which way up a page is shows when its longest lines are read upside down, too, and score better.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from engines.layout import Page, Run, Word, body_of, build
from schemas.values import Box

Image = NDArray[np.uint8]

_TRIED_LINES = 6
_BENEFIT_OF_DOUBT = 0.03
_SKEW_WORTH = math.radians(0.15)
_POINTS = 842.0
"""height of A4: sizes on pages of unknown resolution are told as if they were A4"""


@dataclass(frozen=True, slots=True)
class Settings:
    """`side`: pixels of the longer side at which lines are looked for. `threads`: of this process."""

    side: int
    threads: int


@dataclass(frozen=True, slots=True)
class Found:
    """A line: its four corners (clockwise from the top left, pixels), its text, its score."""

    corners: NDArray[np.float32]
    text: str
    score: float


def read_page(image: bytes, settings: Settings) -> bytes:
    """JSON list of drafts, boxes as shares of the image as given."""
    pixels = cv2.imdecode(np.frombuffer(image, np.uint8), cv2.IMREAD_COLOR)
    if pixels is None:
        raise ValueError("the page image cannot be decoded")
    turns, found = _upright(pixels.astype(np.uint8), settings)
    drafts = _blocks(found, pixels.shape[1], pixels.shape[0], turns) if found else []
    return json.dumps([draft.record() for draft in drafts], ensure_ascii=False).encode()


def _upright(pixels: Image, settings: Settings) -> tuple[int, list[Found]]:
    """Clockwise quarter turns that set the page upright, and its lines then."""
    found = _lines(pixels, settings)
    if not found:
        return 0, []
    sideways = sum(len(line.text) for line in found if _tall(line)) > 0.5 * sum(len(line.text) for line in found)
    longest = sorted(found, key=lambda line: -max(_extent(line.corners)))[:_TRIED_LINES]
    crops = [_crop(pixels, line.corners) for line in longest]
    scores = {turn: statistics.mean(_recognised(_turned(crop, turn), settings) for crop in crops) for turn in ((1, 3) if sideways else (2,))}
    if not sideways:
        scores[0] = statistics.mean(line.score for line in longest) + _BENEFIT_OF_DOUBT
    turn = max(scores, key=lambda turn: scores[turn])
    return (0, found) if turn == 0 else (turn, _lines(_turned(pixels, turn), settings))


def _tall(line: Found) -> bool:
    width, height = _extent(line.corners)
    return height > 1.5 * width


def _extent(corners: NDArray[np.float32]) -> tuple[float, float]:
    spread = corners.max(axis=0) - corners.min(axis=0)
    return float(spread[0]), float(spread[1])


def _crop(pixels: Image, corners: NDArray[np.float32]) -> Image:
    low, high = np.maximum(corners.min(axis=0), 0).astype(int), corners.max(axis=0).astype(int) + 1
    return pixels[low[1] : high[1], low[0] : high[0]]


def _recognised(crop: Image, settings: Settings) -> float:
    if crop.size == 0:
        return 0.0
    result = _engine(settings)(np.ascontiguousarray(crop), use_det=False, use_cls=False, use_rec=True)
    return float(result.scores[0]) if result.scores and result.txts[0].strip() else 0.0


def _turned(pixels: Image, turns: int) -> Image:
    return np.ascontiguousarray(np.rot90(pixels, -turns))


def _lines(pixels: Image, settings: Settings) -> list[Found]:
    result = _engine(settings)(pixels, use_det=True, use_cls=False, use_rec=True)
    if result.boxes is None or result.txts is None:
        return []
    return [Found(np.asarray(box, np.float32), text, float(score)) for box, text, score in zip(result.boxes, result.txts, result.scores, strict=True)]


@cache
def _engine(settings: Settings) -> Any:
    from rapidocr import RapidOCR

    cv2.setNumThreads(settings.threads)
    return RapidOCR(
        params={
            "Global.use_cls": False,
            "Global.log_level": "error",
            "Det.limit_type": "max",
            "Det.limit_side_len": settings.side,
            "EngineConfig.onnxruntime.intra_op_num_threads": settings.threads,
            "EngineConfig.onnxruntime.inter_op_num_threads": 1,
        }
    )


def _blocks(found: Sequence[Found], width: int, height: int, turns: int) -> list[Any]:
    across, down = (width, height) if turns % 2 == 0 else (height, width)
    skew = _skew(found)
    cosine, sine = math.cos(-skew), math.sin(-skew)
    rotation = np.array([[cosine, -sine], [sine, cosine]], np.float32)

    def share(box: Box) -> Box:
        """Straightened pixels back to shares of the image as given."""
        corners = np.array([[box[0], box[1]], [box[2], box[1]], [box[2], box[3]], [box[0], box[3]]], np.float32) @ rotation
        points = [_back(x / across, y / down, turns) for x, y in corners]
        xs, ys = [min(max(float(x), 0.0), 1.0) for x, _ in points], [min(max(float(y), 0.0), 1.0) for _, y in points]
        return round(min(xs), 4), round(min(ys), 4), round(max(xs), 4), round(max(ys), 4)

    runs = [_run(line, rotation) for line in found]
    page = Page(runs, share, unit=_POINTS / down)
    return build(page, body_of([page]), styled=False)


def _back(x: float, y: float, turns: int) -> tuple[float, float]:
    """A point of the upright page in the page as given, both as shares."""
    for _ in range(turns):
        x, y = y, 1 - x
    return x, y


def _skew(found: Sequence[Found]) -> float:
    """Median angle of the longer lines, in radians; 0 below what matters."""
    angles = []
    for line in found:
        along = line.corners[1] - line.corners[0]
        if len(line.text) >= 8 and along[0] > 0:
            angles.append(math.atan2(float(along[1]), float(along[0])))
    angle = statistics.median(angles) if angles else 0.0
    return angle if abs(angle) > _SKEW_WORTH else 0.0


def _run(line: Found, rotation: NDArray[np.float32]) -> Run:
    corners = line.corners @ rotation.T
    low, high = corners.min(axis=0), corners.max(axis=0)
    x0, y0, x1, y1 = float(low[0]), float(low[1]), float(high[0]), float(high[1])
    size = float(np.linalg.norm(line.corners[3] - line.corners[0]))
    return Run([Word(line.text.strip(), x0, x1)], x0, y0, x1, y1, size)
