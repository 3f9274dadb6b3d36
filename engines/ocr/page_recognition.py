"""OCR of one page image, run in the sandbox child.

The engine's orientation classifier is off, because it turns correct lines upside down. A sideways
page is detected by line boxes that are taller than wide. An upside-down page is detected by reading
its longest lines both ways and comparing the scores.
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

from engines.layout import LayoutPage, LayoutWord, TextRun, build_blocks, compute_pages_body_height
from engines.ocr import DETECTION_SIDE_PX
from engines.parsed_blocks import ParsedBlock, clamp_box
from schemas.values import Box

Image = NDArray[np.uint8]

_MAX_TRIED_LINES = 6
# In doubt the page stays as it is.
_UPRIGHT_BONUS = 0.03
_MIN_SKEW_RADIANS = math.radians(0.15)
_PAGE_HEIGHT_POINTS = 842.0
"""Height of A4, which pages of unknown resolution are assumed to have."""


@dataclass(frozen=True, slots=True)
class RecognizedLine:
    """A line with its four corners, clockwise from the top left in pixels."""

    corners: NDArray[np.float32]
    text: str
    score: float


def read_page(image: bytes) -> bytes:
    """Read a page image and return its blocks as JSON, with boxes as shares of the image."""
    pixels = cv2.imdecode(np.frombuffer(image, np.uint8), cv2.IMREAD_COLOR)
    if pixels is None:
        raise ValueError("The page image cannot be decoded.")
    turns, lines = _find_upright(pixels.astype(np.uint8))
    blocks = _build_blocks(lines, pixels.shape[1], pixels.shape[0], turns) if lines else []
    return json.dumps([block.to_record() for block in blocks], ensure_ascii=False).encode()


def _find_upright(pixels: Image) -> tuple[int, list[RecognizedLine]]:
    """Return the clockwise quarter turns that make the page upright, and its lines then."""
    lines = _recognize_lines(pixels)
    if not lines:
        return 0, []
    tall_characters = 0
    for line in lines:
        width, height = _compute_extent(line.corners)
        if height > 1.5 * width:
            tall_characters += len(line.text)
    sideways = tall_characters > 0.5 * sum(len(line.text) for line in lines)
    # Long lines distinguish the directions best, and a few are enough.
    longest = sorted(lines, key=lambda line: -max(_compute_extent(line.corners)))[:_MAX_TRIED_LINES]
    crops = []
    for line in longest:
        left, top = np.maximum(line.corners.min(axis=0), 0).astype(int)
        right, bottom = line.corners.max(axis=0).astype(int) + 1
        crops.append(pixels[top:bottom, left:right])
    scores = {
        turn: statistics.mean(_score_recognition(_rotate(crop, turn)) for crop in crops)
        for turn in ((1, 3) if sideways else (2,))
    }
    if not sideways:
        scores[0] = statistics.mean(line.score for line in longest) + _UPRIGHT_BONUS
    turn = max(scores, key=lambda turn: scores[turn])
    return (0, lines) if turn == 0 else (turn, _recognize_lines(_rotate(pixels, turn)))


def _compute_extent(corners: NDArray[np.float32]) -> tuple[float, float]:
    spread = corners.max(axis=0) - corners.min(axis=0)
    return float(spread[0]), float(spread[1])


def _score_recognition(crop: Image) -> float:
    if crop.size == 0:
        return 0.0
    result = get_engine()(np.ascontiguousarray(crop), use_det=False, use_cls=False, use_rec=True)
    return float(result.scores[0]) if result.scores and result.txts[0].strip() else 0.0


def _rotate(pixels: Image, turns: int) -> Image:
    return np.ascontiguousarray(np.rot90(pixels, -turns))


def _recognize_lines(pixels: Image) -> list[RecognizedLine]:
    result = get_engine()(pixels, use_det=True, use_cls=False, use_rec=True)
    if result.boxes is None or result.txts is None:
        return []
    return [
        RecognizedLine(np.asarray(box, np.float32), text, float(score))
        for box, text, score in zip(result.boxes, result.txts, result.scores, strict=True)
    ]


@cache
def get_engine() -> Any:
    from rapidocr import RapidOCR

    # By default OpenCV uses every core in every child.
    cv2.setNumThreads(1)
    return RapidOCR(
        params={
            "Global.use_cls": False,
            "Global.log_level": "error",
            "Det.limit_type": "max",
            "Det.limit_side_len": DETECTION_SIDE_PX,
            "EngineConfig.onnxruntime.intra_op_num_threads": 1,
            "EngineConfig.onnxruntime.inter_op_num_threads": 1,
        }
    )


def _build_blocks(
    lines: Sequence[RecognizedLine], width: int, height: int, turns: int
) -> list[ParsedBlock]:
    upright_width, upright_height = (width, height) if turns % 2 == 0 else (height, width)
    skew = _estimate_skew(lines)
    cosine, sine = math.cos(-skew), math.sin(-skew)
    rotation = np.array([[cosine, -sine], [sine, cosine]], np.float32)

    def to_page_box(box: Box) -> Box:
        """Convert a box from deskewed pixels to shares of the given image."""
        corners = (
            np.array(
                [[box[0], box[1]], [box[2], box[1]], [box[2], box[3]], [box[0], box[3]]], np.float32
            )
            @ rotation
        )
        points = corners / np.array([upright_width, upright_height], np.float32)
        for _ in range(turns):
            points = np.column_stack([points[:, 1], 1 - points[:, 0]])
        return clamp_box((*points.min(axis=0).tolist(), *points.max(axis=0).tolist()))

    runs = [_build_run(line, rotation) for line in lines]
    page = LayoutPage(runs, to_page_box, unit=_PAGE_HEIGHT_POINTS / upright_height)
    return build_blocks(page, compute_pages_body_height([page]), has_fonts=False)


def _estimate_skew(lines: Sequence[RecognizedLine]) -> float:
    """Return the median angle of the longer lines in radians, or 0 if it is negligible."""
    angles = []
    for line in lines:
        direction = line.corners[1] - line.corners[0]
        if len(line.text) >= 8 and direction[0] > 0:
            angles.append(math.atan2(float(direction[1]), float(direction[0])))
    angle = statistics.median(angles) if angles else 0.0
    return angle if abs(angle) > _MIN_SKEW_RADIANS else 0.0


def _build_run(line: RecognizedLine, rotation: NDArray[np.float32]) -> TextRun:
    corners = line.corners @ rotation.T
    low, high = corners.min(axis=0), corners.max(axis=0)
    x0, y0, x1, y1 = float(low[0]), float(low[1]), float(high[0]), float(high[1])
    # By its corners: the box around a skewed line is taller than its letters.
    size = float(np.linalg.norm(line.corners[3] - line.corners[0]))
    return TextRun([LayoutWord(line.text.strip(), x0, x1)], x0, y0, x1, y1, size)
