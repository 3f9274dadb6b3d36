"""OCR by vision models on OpenAI-compatible servers.

DeepSeek-OCR on vLLM returns boxes; other models return plain Markdown.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from engines.layout.text_runs import merge_boxes
from engines.ocr.rapidocr import RapidOcr
from engines.openai_server import OpenAIServer, parse_completion
from engines.parse import markdown
from engines.parsed_blocks import OcrEngine, ParsedBlock, clamp_box
from engines.server_settings import ServerRetryPolicy, ServerSettings
from schemas.ids import fingerprint
from schemas.values import Box

VERSION = 1
END_OF_SENTENCE = "<｜end▁of▁sentence｜>"
_BLOCK = re.compile(
    r"<\|ref\|>((?:(?!<\|/?ref\|>).)*+)<\|/ref\|>"
    r"<\|det\|>((?:(?!<\|/?(?:ref|det)\|>).)*+)<\|/det\|>",
    re.S,
)
_TAG = re.compile(r"<\|/?(?:ref|det|grounding)\|>")
_REPLACEMENTS = {END_OF_SENTENCE: "", "\\coloneqq": ":=", "\\eqqcolon": "=:"}
_CAPTION_LABELS = frozenset({"image_caption", "table_caption", "figure_caption"})
_COORDINATE_SCALE = 999.0
_LAYOUT_PROMPT = "<|grounding|>Convert the document to markdown."
_NO_LAYOUT_PROMPT = "Free OCR."
_PLAIN_PROMPT = (
    "Transcribe this page as Markdown. Keep headings, lists and tables (as pipe tables). Write "
    "nothing that is not on the page."
)
_MAX_TOKENS = 4096
_TABLE_CELL_TOKEN_IDS = [128821, 128822]
"""<td> and </td>, which may repeat without counting as runaway repetition."""


class OpenAIOcr:
    """OcrEngine on a server.

    If the model returns nothing or endless repetition, the request is repeated without layout; then
    `fallback` reads the page, the local engine by default.
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
        await self._fallback.aclose()

    async def _request_text(self, image_url: str, prompt: str) -> str:
        """Return the model's text, or '' for a reply that is empty or did not finish."""
        # DeepSeek-OCR expects the image before the text.
        content = [
            {"type": "image_url", "image_url": {"url": image_url}},
            {"type": "text", "text": prompt},
        ]
        body: dict[str, Any] = {"messages": [{"role": "user", "content": content}]}
        if self._is_grounded:
            # By default vLLM drops special tokens, and with them the layout marks.
            body |= {"temperature": 0.0, "max_tokens": _MAX_TOKENS, "skip_special_tokens": False}
            # For the server's logits processor, which stops runaway repetition.
            body["vllm_xargs"] = {
                "ngram_size": 30,
                "window_size": 90,
                "whitelist_token_ids": _TABLE_CELL_TOKEN_IDS,
            }
        reply = await self._server.post("/chat/completions", body, "ocr")
        choice = parse_completion(reply).first_choice
        text = choice.message_or_delta.content or ""
        # A reply that reaches the token limit is usually endless repetition.
        is_finished = choice.finish_reason == "stop" or text.rstrip().endswith(END_OF_SENTENCE)
        return text if is_finished and text.replace(END_OF_SENTENCE, "").strip() else ""


def parse_blocks(answer: str) -> list[ParsedBlock]:
    """Parse the blocks of DeepSeek-OCR's output with their boxes, without images.

    They are marked `<|ref|>label<|/ref|><|det|>[[x0, y0, x1, y1], …]<|/det|>`, with coordinates
    from 0 to 999.

    HTML tables become pipe tables, text before the first mark has no box.
    """
    for token, replacement in _REPLACEMENTS.items():
        answer = answer.replace(token, replacement)
    marks = list(_BLOCK.finditer(answer))
    edges = [*(mark.start() for mark in marks), len(answer)]
    blocks = list(_parse_section(answer[: edges[0]], "text", None))
    for mark, end in zip(marks, edges[1:], strict=True):
        blocks += _parse_section(answer[mark.end() : end], mark[1].strip(), _parse_box(mark[2]))
    return blocks


def _parse_section(text: str, label: str, box: Box | None) -> Iterator[ParsedBlock]:
    if label == "image":
        return
    for block in markdown.read(_TAG.sub("", text).strip().encode()).blocks:
        kind = "caption" if label in _CAPTION_LABELS and block.kind == "paragraph" else block.kind
        is_heading = label in ("title", "sub_title") and block.kind in ("paragraph", "heading")
        level = (
            (1 if label == "title" else 2)
            if is_heading and block.kind == "paragraph"
            else block.level
        )
        yield replace(block, kind="heading" if is_heading else kind, level=level, box=box)


def _parse_box(encoded: str) -> Box | None:
    """Return the rectangle around all stated ones, or None if they cannot be parsed."""
    try:
        corners = [
            [float(value) / _COORDINATE_SCALE for value in corner[:4]]
            for corner in json.loads(encoded)
        ]
        return clamp_box(merge_boxes(corners))
    except (ValueError, TypeError):
        return None
