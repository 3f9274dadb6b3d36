"""Parser of local files: plans, reads parts in sandbox children, runs OCR and assembles."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import version
from typing import Literal

from engines.parse import sandbox_jobs
from engines.parse.assembly import assemble_transcript
from engines.parse.formats import FORMATS
from engines.parse.notices import check_characters
from engines.parsed_blocks import OcrEngine, ParsedBlock, ParsedPart
from engines.sandbox import Sandbox, SandboxLimits, decode_reply
from engines.sandbox_child import DESCRIPTOR_PATH
from schemas.batching import map_parallel
from schemas.errors import AnabranchError
from schemas.ids import fingerprint
from schemas.ports.engines import LocalFile, ParsePlan
from schemas.values import Notice, Transcript

VERSION = 6
_LIBRARIES = tuple(
    dict.fromkeys(file_format.library for file_format in FORMATS if file_format.library)
)
_PRELOADED_MODULES = ("engines.parse.sandbox_jobs",)
_MAX_PARALLEL_PAGES = 4
_MIN_CHARACTER_LIMIT = 1_000_000
"""Characters that even the smallest file may have."""
_DESCRIPTOR_PATTERN = DESCRIPTOR_PATH.format(r"\d+")
"""Path under which a child sees the file."""


class LocalParser:
    """Parser that starts its sandbox children with the first file.

    `aclose` ends them, but not those of the OCR engine.
    """

    def __init__(
        self,
        ocr: OcrEngine,
        *,
        max_pages: int = 3000,
        max_characters: int = 20_000_000,
        characters_per_byte: int = 100,
        hidden_text: Literal["drop", "keep"] = "drop",
        deadline_s: float = 120.0,
        memory_bytes: int = 2 * 1024**3,
        workers: int = 1,
    ) -> None:
        # Another version of a library may read differently, so its memoized parts are not reused.
        self.fingerprint = fingerprint(
            "parse",
            VERSION,
            [version(name) for name in _LIBRARIES],
            ocr.fingerprint,
            *(["keep hidden text"] if hidden_text == "keep" else []),
        )
        self._ocr = ocr
        self._max_pages = max_pages
        self._max_characters, self._characters_per_byte = max_characters, characters_per_byte
        self._is_hidden_text_kept = hidden_text == "keep"
        self._sandbox = Sandbox(
            workers,
            SandboxLimits(deadline_s, memory_bytes),
            _PRELOADED_MODULES,
            sandbox_jobs.load_readers,
        )

    async def aclose(self) -> None:
        await self._sandbox.aclose()

    async def warm(self) -> None:
        """Start a child now instead of with the first document."""
        await self._sandbox.warm()

    async def plan(self, file: LocalFile) -> ParsePlan:
        plan = await self._run_in_sandbox(
            sandbox_jobs.plan_document,
            file,
            file.name,
            file.media_type,
            self._max_pages,
            subject=_get_display_name(file),
        )
        return decode_reply(sandbox_jobs.PLAN_ADAPTER.validate_json, plan, _get_display_name(file))

    async def parse(self, file: LocalFile, plan: ParsePlan, part: str) -> bytes:
        subject = f"{_get_display_name(file)}, {part}"
        data = await self._run_in_sandbox(
            sandbox_jobs.read_part,
            file,
            plan.media_type,
            part,
            self._get_max_characters(file),
            file.media_type,
            self._is_hidden_text_kept,
            subject=subject,
        )
        parsed_part = decode_reply(ParsedPart.decode, data, subject)
        if not parsed_part.unread:
            return data
        return (await self._read_by_ocr(file, plan, parsed_part)).encode()

    async def _run_in_sandbox(
        self, job: Callable[..., bytes], file: LocalFile, *arguments: object, subject: str
    ) -> bytes:
        try:
            return await self._sandbox.run(job, *arguments, file=file.path, subject=subject)
        except AnabranchError as error:
            # Libraries quote the path on this machine; users may see only the name that they gave
            # the file.
            error.detail = re.sub(
                rf"{_DESCRIPTOR_PATTERN}|{re.escape(str(file.path))}",
                lambda _: _get_display_name(file),
                error.detail,
            )
            error.args = (error.detail,)
            raise

    def assemble(self, file: LocalFile, plan: ParsePlan, parts: Sequence[bytes]) -> Transcript:
        parsed_parts = [ParsedPart.decode(part) for part in parts]
        check_characters(
            sum(len(block.text) for parsed_part in parsed_parts for block in parsed_part.blocks),
            self._get_max_characters(file),
        )
        return assemble_transcript(parsed_parts, pages=plan.pages)

    def _get_max_characters(self, file: LocalFile) -> int:
        # Related to the file's size: a small file that repeats itself must not fill the index.
        return min(
            self._max_characters,
            max(_MIN_CHARACTER_LIMIT, file.size_bytes * self._characters_per_byte),
        )

    async def _read_by_ocr(
        self, file: LocalFile, plan: ParsePlan, parsed_part: ParsedPart
    ) -> ParsedPart:
        """Read the unread pages, a few at a time; the first failure cancels the others."""
        pages = list(parsed_part.unread)
        read = partial(self._read_page_by_ocr, file, plan)
        page_blocks = await map_parallel(read, pages, _MAX_PARALLEL_PAGES)
        for page, blocks in zip(pages, page_blocks, strict=True):
            if not any(block.text.strip() for block in blocks):
                detail = f"Page {page} is an image in which no text was found."
                parsed_part.notices.append(Notice(code="PAGE_WITHOUT_TEXT", detail=detail))
            parsed_part.insert_page_blocks(page, blocks)
        return parsed_part

    async def _read_page_by_ocr(
        self, file: LocalFile, plan: ParsePlan, page: int
    ) -> list[ParsedBlock]:
        subject = f"{_get_display_name(file)}, page {page}"
        page_image = await self._run_in_sandbox(
            sandbox_jobs.render_page, file, plan.media_type, page, subject=subject
        )
        return await self._ocr.read(page_image, subject=subject)


def _get_display_name(file: LocalFile) -> str:
    return file.name or "the document"
