"""Local OCR engine: RapidOCR (PP-OCRv6 small, in its wheel) in a sandbox child.

Rotation and skew are handled by `engines.ocr.page_recognition`.
"""

from __future__ import annotations

from functools import partial
from importlib.metadata import version

from engines.parsed_blocks import ParsedBlock, decode_blocks
from engines.sandbox import Sandbox, SandboxLimits, decode_reply
from schemas.ids import fingerprint

VERSION = 1
_ENGINE_MODULE = "engines.ocr.page_recognition"
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
        self._sandbox = Sandbox(
            workers,
            SandboxLimits(deadline_s, memory_bytes),
            (_ENGINE_MODULE,),
            # A fork would lack the engine's further threads: then each page loads its own engine.
            partial(_load_engine, DETECTION_SIDE_PX) if threads == 1 else None,
        )

    async def read(self, image: bytes, *, subject: str) -> list[ParsedBlock]:
        data = await self._sandbox.run(
            _read_page, image, DETECTION_SIDE_PX, self._threads, subject=subject
        )
        return decode_reply(decode_blocks, data, subject)

    async def aclose(self) -> None:
        await self._sandbox.aclose()


def _load_engine(side: int) -> None:
    from engines.ocr.page_recognition import RapidOcrSettings, get_engine

    get_engine(RapidOcrSettings(side, 1))


def _read_page(image: bytes, side: int, threads: int) -> bytes:
    # Imported in the child only: the engine and OpenCV are heavy.
    from engines.ocr.page_recognition import RapidOcrSettings, read_page

    return read_page(image, RapidOcrSettings(side, threads))
