"""Vision models on OpenAI-compatible servers: DeepSeek-OCR on vLLM with its grounding boxes, any other model by a plain request for Markdown."""

from __future__ import annotations

import base64
from typing import Any

from engines.completions import completion
from engines.drafts import Draft
from engines.ocr.grounding import END, drafts
from engines.ocr.port import Ocr
from engines.ocr.rapidocr import RapidOcr
from engines.openai_server import OpenAIServer
from engines.parse import markdown
from engines.resilience import Patience
from engines.server_settings import ServerSettings
from schemas.ids import fingerprint

VERSION = 1
_LAYOUT = "<|grounding|>Convert the document to markdown."
_NO_LAYOUT = "Free OCR."
_PLAIN = "Transcribe this page as Markdown. Keep headings, lists and tables (as pipe tables). Write nothing that is not on the page."
_MOST_TOKENS = 4096
_TABLE_CELLS = [128821, 128822]
"""<td> and </td>: may repeat without being taken for a runaway"""


class OpenAIOcr:
    """Implements Ocr. A page that the model answers with endless repetition or not at all is asked for once more without layout, then read
    by `fallback` (the local engine unless another is given, which then is the caller's to close)."""

    def __init__(self, settings: ServerSettings, fallback: Ocr | None = None, patience: Patience | None = None) -> None:
        self._server = OpenAIServer(settings, patience)
        self._grounded = "deepseek" in settings.model.lower()
        self._fallback: Ocr = fallback or RapidOcr()
        self._owned = None if fallback else self._fallback
        self.fingerprint = fingerprint("openai-ocr", VERSION, settings.model, _LAYOUT if self._grounded else _PLAIN, self._fallback.fingerprint)

    async def read(self, image: bytes, *, about: str) -> list[Draft]:
        picture = f"data:image/png;base64,{base64.b64encode(image).decode()}"
        for prompt in (_LAYOUT, _NO_LAYOUT) if self._grounded else (_PLAIN,):
            answer = await self._ask(picture, prompt)
            if answer:
                return drafts(answer) if self._grounded else markdown.read(answer.encode()).drafts
        return await self._fallback.read(image, about=about)

    async def aclose(self) -> None:
        await self._server.close()
        if self._owned is not None:
            await self._owned.aclose()

    async def _ask(self, picture: str, prompt: str) -> str:
        """What the model says, or nothing where it ran away."""
        content = [{"type": "image_url", "image_url": {"url": picture}}, {"type": "text", "text": prompt}]
        body: dict[str, Any] = {"messages": [{"role": "user", "content": content}]}
        if self._grounded:
            body |= {"temperature": 0.0, "max_tokens": _MOST_TOKENS, "skip_special_tokens": False}
            body["vllm_xargs"] = {"ngram_size": 30, "window_size": 90, "whitelist_token_ids": _TABLE_CELLS}
        return _said(await self._server.post("/chat/completions", body))


def _said(answer: dict[str, Any]) -> str:
    choice = completion(answer).choice
    text = choice.said.content or ""
    finished = choice.finish_reason == "stop" or text.rstrip().endswith(END)
    return text if finished and text.replace(END, "").strip() else ""
