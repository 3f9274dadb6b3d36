"""The local OCR engine: RapidOCR (PP-OCRv6 small, in its wheel) in a child process, with our own handling of turned and skewed pages."""

from __future__ import annotations

import json
from importlib.metadata import version

from engines.drafts import Draft
from engines.sandbox import Sandbox, SandboxLimits
from schemas.ids import fingerprint

VERSION = 1
DETECTION_SIDE = 1280
"""Pixels of the longer side at which lines are looked for; they are read at full size."""


class RapidOcr:
    """Implements Ocr. `threads` is per child; `aclose` ends the children."""

    def __init__(self, *, workers: int = 1, threads: int = 1, deadline_s: float = 600.0, memory_bytes: int = 4 * 1024**3) -> None:
        self.fingerprint = fingerprint("rapidocr", VERSION, version("rapidocr"), version("onnxruntime"), DETECTION_SIDE)
        self._threads = threads
        self._sandbox = Sandbox(workers, SandboxLimits(deadline_s, memory_bytes))

    async def read(self, image: bytes, *, about: str) -> list[Draft]:
        data = await self._sandbox.run(_read_page, image, DETECTION_SIDE, self._threads, about=about)
        return [Draft.of(record) for record in json.loads(data)]

    async def aclose(self) -> None:
        await self._sandbox.aclose()


def _read_page(image: bytes, side: int, threads: int) -> bytes:
    """In the child alone: the engine and OpenCV are heavy."""
    from engines.ocr.reading import Settings, read_page

    return read_page(image, Settings(side, threads))
