"""OCR engine for tests."""

from __future__ import annotations

from engines.parsed_blocks import ParsedBlock


class FakeOcr:
    """OcrEngine that returns the same paragraph for every page, or nothing without words."""

    def __init__(self, words: str = "") -> None:
        self.fingerprint = f"fake-ocr:{words}"
        self.pages_read = 0
        self._words = words

    async def read(self, image: bytes, *, subject: str) -> list[ParsedBlock]:
        self.pages_read += 1
        return (
            [ParsedBlock("paragraph", self._words, box=(0.1, 0.1, 0.9, 0.2))] if self._words else []
        )

    async def aclose(self) -> None: ...
