"""Local OCR engine: RapidOCR (PP-OCRv6 small, in its wheel) in a sandbox child.

Rotation and skew are handled by `engines.ocr.page_recognition`.
"""

from __future__ import annotations

import json
from importlib.metadata import version

from engines.parsed_blocks import ParsedBlock
from engines.sandbox import Sandbox, SandboxLimits
from schemas.ids import fingerprint

VERSION = 1
DETECTION_SIDE_PX = 1280
"""Pixels of the longer side for line detection; lines are read at full size."""


class RapidOcr:
    """OcrEngine in sandbox children with `threads` threads each; `aclose` ends them."""

    def __init__(
        self,
        *,
        workers: int = 1,
        threads: int = 1,
        deadline_s: float = 600.0,
        memory_bytes: int = 4 * 1024**3,
    ) -> None:
        self.fingerprint = fingerprint(
            "rapidocr", VERSION, version("rapidocr"), version("onnxruntime"), DETECTION_SIDE_PX
        )
        self._threads = threads
        self._sandbox = Sandbox(workers, SandboxLimits(deadline_s, memory_bytes))

    async def read(self, image: bytes, *, subject: str) -> list[ParsedBlock]:
        data = await self._sandbox.run(
            _read_page, image, DETECTION_SIDE_PX, self._threads, subject=subject
        )
        return [ParsedBlock.from_record(record) for record in json.loads(data)]

    async def aclose(self) -> None:
        await self._sandbox.aclose()


def _read_page(image: bytes, side: int, threads: int) -> bytes:
    # Imported in the child only: the engine and OpenCV are heavy.
    from engines.ocr.page_recognition import RapidOcrSettings, read_page

    return read_page(image, RapidOcrSettings(side, threads))
