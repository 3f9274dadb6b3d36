"""What the parser asks of an OCR engine."""

from __future__ import annotations

from typing import Protocol

from engines.parsed_blocks import ParsedBlock


class OcrEngine(Protocol):
    """Page images to blocks in reading order. `fingerprint` changes when the output may."""

    fingerprint: str

    async def read(self, image: bytes, *, subject: str) -> list[ParsedBlock]:
        """Blocks of one page (PNG), boxes as shares of the image as it was given, `page` unset. No text gives no blocks.

        Raises EngineUnavailable, LimitExceeded (DEADLINE_EXCEEDED, MEMORY_EXCEEDED) or UnreadableDocument (PARSER_CRASHED)."""
        ...

    async def aclose(self) -> None: ...
