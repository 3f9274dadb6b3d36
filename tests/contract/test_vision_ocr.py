"""DeepSeek-OCR and other vision models against a server that answers as vLLM does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from fastapi import FastAPI, Request

from engines.ocr.openai import END_OF_SENTENCE, OpenAIOcr, parse_blocks
from engines.parsed_blocks import ParsedBlock
from engines.server_settings import ServerRetryPolicy, ServerSettings
from schemas.errors import EngineUnavailable
from tests.fakes.failing_server import run_asgi_app
from tests.fakes.ocr import FakeOcr

FAST_RETRIES = ServerRetryPolicy(first_wait_s=0, max_wait_s=0.05, jitter_s=0, circuit_open_s=3600)
PAGE = (
    "<|ref|>title<|/ref|><|det|>[[100, 50, 899, 99]]<|/det|>\n# Price list\n\n"
    "<|ref|>text<|/ref|><|det|>[[100, 120, 500, 200], [100, 210, 600, 300]]<|/det|>\n"
    "All prices \\coloneqq net.\n\n"
    "<|ref|>image<|/ref|><|det|>[[0, 300, 999, 400]]<|/det|>\n\n"
    "<|ref|>table_caption<|/ref|><|det|>[[1, 400, 2, 410]]<|/det|>\nParts and prices\n\n"
    "<|ref|>table<|/ref|><|det|>[[100, 420, 900, 600]]<|/det|>\n"
    "<table><tr><td>part</td><td>price</td></tr><tr><td>seal</td><td>12</td></tr></table>\n"
    f"{END_OF_SENTENCE}"
)


class VisionServer:
    """Answer in turn with (text, finish reason) or a status code, and record the requests."""

    def __init__(self, *answers: tuple[str, str] | int) -> None:
        self.answers, self.requests = list(answers), list[dict[str, Any]]()
        self.app = FastAPI()
        self.app.post("/v1/chat/completions")(self.complete)

    async def complete(self, request: Request) -> Any:
        from fastapi.responses import JSONResponse

        self.requests.append(await request.json())
        answer = self.answers.pop(0)
        if isinstance(answer, int):
            return JSONResponse({"message": "busy"}, status_code=answer)
        return {
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": answer[0]},
                    "finish_reason": answer[1],
                }
            ]
        }


@asynccontextmanager
async def run_vision_ocr(
    server: VisionServer, fallback: FakeOcr, model: str = "deepseek-ai/DeepSeek-OCR"
) -> AsyncIterator[OpenAIOcr]:
    with run_asgi_app(server.app) as url:
        engine = OpenAIOcr(
            ServerSettings(base_url=f"{url}/v1", model=model, kind="vllm"), fallback, FAST_RETRIES
        )
        try:
            yield engine
        finally:
            await engine.aclose()


@pytest.fixture
def local() -> Iterator[FakeOcr]:
    yield FakeOcr("read locally")


def summarize_blocks(blocks: list[ParsedBlock]) -> list[tuple[str, str, object]]:
    return [(draft.kind, draft.text, draft.box) for draft in blocks]


def test_boxes_tables_and_captions_are_parsed() -> None:
    assert summarize_blocks(parse_blocks(PAGE)) == [
        ("heading", "Price list", (0.1001, 0.0501, 0.8999, 0.0991)),
        ("paragraph", "All prices := net.", (0.1001, 0.1201, 0.6006, 0.3003)),
        ("caption", "Parts and prices", (0.001, 0.4004, 0.002, 0.4104)),
        (
            "table",
            "| part | price |\n| --- | --- |\n| seal | 12 |",
            (0.1001, 0.4204, 0.9009, 0.6006),
        ),
    ]


@pytest.mark.parametrize(
    "stated", ["[[1, 2, 3]]", "not a list", "[]", "__import__('os')", "[[1, 2, null, 4]]"]
)
def test_malformed_box_drops_only_the_box(stated: str) -> None:
    assert summarize_blocks(parse_blocks(f"<|ref|>text<|/ref|><|det|>{stated}<|/det|>\nwords")) == [
        ("paragraph", "words", None)
    ]


async def test_request_matches_deepseek_ocr_format(local: FakeOcr) -> None:
    server = VisionServer((PAGE, "stop"))
    async with run_vision_ocr(server, local) as engine:
        assert len(await engine.read(b"png", subject="a page")) == 4
    request = server.requests[0]
    picture, prompt = request["messages"][0]["content"]
    assert picture["image_url"]["url"] == "data:image/png;base64,cG5n"
    assert prompt["text"] == "<|grounding|>Convert the document to markdown."
    assert (request["temperature"], request["skip_special_tokens"], request["max_tokens"]) == (
        0.0,
        False,
        4096,
    )
    assert request["vllm_xargs"] == {
        "ngram_size": 30,
        "window_size": 90,
        "whitelist_token_ids": [128821, 128822],
    }
    assert local.pages_read == 0


async def test_runaway_output_is_retried_without_layout(local: FakeOcr) -> None:
    server = VisionServer(("and and and", "length"), (f"Just the words.{END_OF_SENTENCE}", "stop"))
    async with run_vision_ocr(server, local) as engine:
        assert summarize_blocks(await engine.read(b"png", subject="a page")) == [
            ("paragraph", "Just the words.", None)
        ]
    assert server.requests[1]["messages"][0]["content"][1]["text"] == "Free OCR."
    assert local.pages_read == 0


@pytest.mark.parametrize(
    "second", [("and and and", "length"), ("", "stop"), (END_OF_SENTENCE, "stop")]
)
async def test_second_failure_falls_back_to_local_ocr(
    local: FakeOcr, second: tuple[str, str]
) -> None:
    async with run_vision_ocr(VisionServer(("and and and", "length"), second), local) as engine:
        assert summarize_blocks(await engine.read(b"png", subject="a page")) == [
            ("paragraph", "read locally", (0.1, 0.1, 0.9, 0.2))
        ]


async def test_other_models_receive_plain_markdown_prompt(local: FakeOcr) -> None:
    server = VisionServer(("# Title\n\nWords.", "stop"))
    async with run_vision_ocr(server, local, model="gpt-vision") as engine:
        assert summarize_blocks(await engine.read(b"png", subject="a page")) == [
            ("heading", "Title", None),
            ("paragraph", "Words.", None),
        ]
    assert set(server.requests[0]) == {"model", "messages"}


async def test_unavailable_server_raises_engine_unavailable(local: FakeOcr) -> None:
    async with run_vision_ocr(VisionServer(503, 503, 503), local) as engine:
        with pytest.raises(EngineUnavailable):
            await engine.read(b"png", subject="a page")
    assert local.pages_read == 0
