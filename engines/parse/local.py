"""The parser of files on this machine's disk: plans, reads parts in child processes, sends unread pages to OCR, joins the parts."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from importlib.metadata import version
from types import TracebackType

from engines.drafts import Draft, Piece
from engines.ocr.port import Ocr
from engines.parse import worker
from engines.parse.assemble import assemble
from engines.parse.limits import check_characters
from engines.sandbox import Sandbox, SandboxLimits
from engines.sandbox_child import FILE
from schemas.errors import AnabranchError
from schemas.ids import fingerprint
from schemas.ports.engines import File, ParsePlan
from schemas.values import Notice, Transcript

VERSION = 2
_LIBRARIES = ("pypdfium2", "docling-rs", "markdown-it-py", "python-calamine", "pillow")
_WARM = ("engines.parse.pdf", "engines.parse.markdown", "engines.parse.worker")
_PAGES_AT_ONCE = 4
_FLOOR = 1_000_000
"""Characters that any file may have, however small it is."""
_HANDED_IN = FILE.format(r"\d+")
"""The file as a child sees it."""


class LocalParser:
    """Implements Parser. Its children start with the first file; `aclose` (or leaving its context) ends them, not the OCR engine's."""

    def __init__(
        self,
        ocr: Ocr,
        *,
        max_pages: int = 3000,
        max_characters: int = 20_000_000,
        characters_per_byte: int = 100,
        deadline_s: float = 120.0,
        memory_bytes: int = 2 * 1024**3,
        workers: int = 1,
    ) -> None:
        self.fingerprint = fingerprint("parse", VERSION, [version(name) for name in _LIBRARIES], ocr.fingerprint)
        self._ocr = ocr
        self._max_pages = max_pages
        self._max_characters, self._characters_per_byte = max_characters, characters_per_byte
        self._sandbox = Sandbox(workers, SandboxLimits(deadline_s, memory_bytes), _WARM)

    async def __aenter__(self) -> LocalParser:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self._sandbox.aclose()

    async def warm(self) -> None:
        """Start a child before the first document needs it."""
        await self._sandbox.warm()

    async def plan(self, file: File) -> ParsePlan:
        found = json.loads(await self._run(worker.plan, file, file.name, file.media_type, self._max_pages, about=_name(file)))
        notices = tuple(Notice(**notice) for notice in found["notices"])
        return ParsePlan(found["media_type"], tuple(found["parts"]), found["pages"], notices)

    async def parse(self, file: File, plan: ParsePlan, part: str) -> bytes:
        data = await self._run(worker.read_part, file, plan.media_type, part, self._most(file), about=f"{_name(file)}, {part}")
        piece = Piece.decode(data)
        if not piece.unread:
            return data
        return (await self._read_by_ocr(file, plan, piece)).encode()

    async def _run(self, job: Callable[..., bytes], file: File, *arguments: object, about: str) -> bytes:
        """Raises what the job raises, with the name that the user gave the file in place of its path on this machine: libraries quote the path."""
        try:
            return await self._sandbox.run(job, *arguments, file=file.path, about=about)
        except AnabranchError as error:
            error.detail = re.sub(rf"{_HANDED_IN}|{re.escape(str(file.path))}", lambda _: _name(file), error.detail)
            error.args = (error.detail,)
            raise

    def assemble(self, file: File, plan: ParsePlan, parts: Sequence[bytes]) -> Transcript:
        pieces = [Piece.decode(part) for part in parts]
        check_characters(sum(len(draft.text) for piece in pieces for draft in piece.drafts), self._most(file))
        return assemble(pieces, pages=plan.pages)

    def _most(self, file: File) -> int:
        """Characters that the file may have."""
        return min(self._max_characters, max(_FLOOR, file.size * self._characters_per_byte))

    async def _read_by_ocr(self, file: File, plan: ParsePlan, piece: Piece) -> Piece:
        """A few pages at a time; the first page that fails stops the others."""
        places = asyncio.Semaphore(_PAGES_AT_ONCE)
        tasks = {page: asyncio.ensure_future(self._read_page(places, file, plan, page)) for page in piece.unread}
        try:
            await asyncio.gather(*tasks.values())
        except BaseException:
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)
            raise
        for page, task in tasks.items():
            piece.place(page, task.result())
        return piece

    async def _read_page(self, places: asyncio.Semaphore, file: File, plan: ParsePlan, page: int) -> list[Draft]:
        async with places:
            about = f"{_name(file)}, page {page}"
            drawn = await self._run(worker.draw, file, plan.media_type, page, about=about)
            return await self._ocr.read(drawn, about=about)


def _name(file: File) -> str:
    return file.name or "the document"
