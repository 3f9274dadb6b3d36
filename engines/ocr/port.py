"""Port for OCR engines."""

from __future__ import annotations

from typing import Protocol

from engines.parsed_blocks import ParsedBlock


class OcrEngine(Protocol):
    """Reads page images. `fingerprint` changes when the output may change."""

    fingerprint: str

    async def read(self, image: bytes, *, subject: str) -> list[ParsedBlock]:
        """Read the blocks of one page (PNG) in reading order.

        Boxes are shares of the given image; `page` is unset.

        Raises EngineUnavailable, LimitExceeded (DEADLINE_EXCEEDED, MEMORY_EXCEEDED) or
        UnreadableDocument (PARSER_CRASHED).
        """
        ...

    async def aclose(self) -> None: ...
