"""Local OCR engine: RapidOCR (PP-OCRv6 small, in its wheel) in a sandbox child.

Rotation and skew are handled by `engines.ocr.page_recognition`.
"""

from __future__ import annotations

from importlib.metadata import version

from engines.ocr import DETECTION_SIDE_PX
from engines.parsed_blocks import ParsedBlock, decode_blocks
from engines.sandbox import Sandbox, SandboxLimits, decode_reply
from schemas.ids import fingerprint

VERSION = 1
_ENGINE_MODULE = "engines.ocr.page_recognition"


class RapidOcr:
    """OcrEngine in sandbox children with one thread each; `aclose` ends them."""

    def __init__(self, *, workers: int = 1) -> None:
        self.fingerprint = fingerprint(
            "rapidocr", VERSION, version("rapidocr"), version("onnxruntime"), DETECTION_SIDE_PX
        )
        limits = SandboxLimits(deadline_s=600, memory_bytes=4 * 1024**3)
        self._sandbox = Sandbox(workers, limits, (_ENGINE_MODULE,), _load_engine)

    async def read(self, image: bytes, *, subject: str) -> list[ParsedBlock]:
        data = await self._sandbox.run(_read_page, image, subject=subject)
        return decode_reply(decode_blocks, data, subject)

    async def aclose(self) -> None:
        await self._sandbox.aclose()


# Imported in the child only: the engine and OpenCV are heavy.
def _load_engine() -> None:
    from engines.ocr.page_recognition import get_engine

    get_engine()


def _read_page(image: bytes) -> bytes:
    from engines.ocr.page_recognition import read_page

    return read_page(image)
