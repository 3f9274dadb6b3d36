"""OCR by vision models on OpenAI-compatible servers.

DeepSeek-OCR on vLLM returns boxes; other models return plain Markdown.
"""

from __future__ import annotations

import base64
from typing import Any

from engines.completions import parse_completion
from engines.ocr.grounding import END_OF_SENTENCE, parse_blocks
from engines.ocr.port import OcrEngine
from engines.ocr.rapidocr import RapidOcr
from engines.openai_server import OpenAIServer
from engines.parse import markdown
from engines.parsed_blocks import ParsedBlock
from engines.resilience import ServerRetryPolicy
from engines.server_settings import ServerSettings
from schemas.ids import fingerprint

VERSION = 1
_LAYOUT_PROMPT = "<|grounding|>Convert the document to markdown."
_NO_LAYOUT_PROMPT = "Free OCR."
_PLAIN_PROMPT = "Transcribe this page as Markdown. Keep headings, lists and tables (as pipe tables). Write nothing that is not on the page."
_MAX_TOKENS = 4096
_TABLE_CELL_TOKEN_IDS = [128821, 128822]
"""<td> and </td>, which may repeat without counting as runaway repetition."""


class OpenAIOcr:
    """OcrEngine on a server.

    If the model returns nothing or endless repetition, the request is repeated without layout; then
    `fallback` reads the page. The caller closes a given `fallback`; the default is the local
    engine.
    """

    def __init__(
        self,
        settings: ServerSettings,
        fallback: OcrEngine | None = None,
        retry_policy: ServerRetryPolicy | None = None,
    ) -> None:
        self._server = OpenAIServer(settings, retry_policy)
        self._is_grounded = "deepseek" in settings.model.lower()
        self._fallback: OcrEngine = fallback or RapidOcr()
        self._owned_fallback = None if fallback else self._fallback
        self.fingerprint = fingerprint(
            "openai-ocr",
            VERSION,
            settings.model,
            _LAYOUT_PROMPT if self._is_grounded else _PLAIN_PROMPT,
            self._fallback.fingerprint,
        )

    async def read(self, image: bytes, *, subject: str) -> list[ParsedBlock]:
        image_url = f"data:image/png;base64,{base64.b64encode(image).decode()}"
        for prompt in (
            (_LAYOUT_PROMPT, _NO_LAYOUT_PROMPT) if self._is_grounded else (_PLAIN_PROMPT,)
        ):
            answer = await self._request_text(image_url, prompt)
            if answer:
                return (
                    parse_blocks(answer)
                    if self._is_grounded
                    else markdown.read(answer.encode()).blocks
                )
        return await self._fallback.read(image, subject=subject)

    async def aclose(self) -> None:
        await self._server.close()
        if self._owned_fallback is not None:
            await self._owned_fallback.aclose()

    async def _request_text(self, image_url: str, prompt: str) -> str:
        """Return the model's text, or '' for a reply that is empty or did not finish."""
        content = [
            {"type": "image_url", "image_url": {"url": image_url}},
            {"type": "text", "text": prompt},
        ]
        body: dict[str, Any] = {"messages": [{"role": "user", "content": content}]}
        if self._is_grounded:
            body |= {"temperature": 0.0, "max_tokens": _MAX_TOKENS, "skip_special_tokens": False}
            body["vllm_xargs"] = {
                "ngram_size": 30,
                "window_size": 90,
                "whitelist_token_ids": _TABLE_CELL_TOKEN_IDS,
            }
        return _extract_text(await self._server.post("/chat/completions", body))


def _extract_text(reply: dict[str, Any]) -> str:
    choice = parse_completion(reply).first_choice
    text = choice.message_or_delta.content or ""
    is_finished = choice.finish_reason == "stop" or text.rstrip().endswith(END_OF_SENTENCE)
    return text if is_finished and text.replace(END_OF_SENTENCE, "").strip() else ""
