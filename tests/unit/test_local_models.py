from __future__ import annotations

import asyncio
import gzip
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.responses import JSONResponse, RedirectResponse, Response, StreamingResponse

from anabranch import local_models
from anabranch.cli.options import CommonOptions
from anabranch.cli.up import _choose_local_model
from anabranch.config.loader import load_settings
from anabranch.doctor import connections
from anabranch.local_models import LocalModels, find_local_models
from schemas.errors import NotFound
from tests.fakes.failing_server import run_asgi_app

OLLAMA = {"data": [{"id": "nomic-embed-text"}, {"id": "qwen3:8b"}, {"id": "42"}]}


@pytest.fixture(autouse=True)
def wait_for_a_busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_models, "TIMEOUT_S", 60)


@contextmanager
def run_server(respond: Callable[[], Response]) -> Iterator[tuple[int, list[str]]]:
    """Yield the port and the paths of the requests."""
    app, paths = FastAPI(), list[str]()

    @app.get("/{path:path}")
    async def answer(path: str) -> Response:
        paths.append(path)
        return respond()

    with run_asgi_app(app) as url:
        yield int(url.rpartition(":")[2]), paths


async def test_models_that_can_write_are_found() -> None:
    with run_server(lambda: JSONResponse(OLLAMA)) as (port, paths):
        found = await find_local_models([port, 9])
    assert found == [LocalModels(f"http://127.0.0.1:{port}/v1", ["qwen3:8b", "42"])]
    assert paths == ["v1/models"]


async def send_forever(pause_s: float, part: bytes) -> AsyncIterator[bytes]:
    while True:
        yield part
        await asyncio.sleep(pause_s)


BOMB = gzip.compress(b'{"data": [' + b" " * 50_000_000 + b'{"id": "bomb"}]}')
ATTACKS: dict[str, Callable[[], Response]] = {
    "another kind of server": lambda: Response("<html>Welcome</html>", media_type="text/html"),
    "another shape": lambda: JSONResponse({"data": {"id": "x"}}),
    "entries of another shape": lambda: JSONResponse({"data": ["x", None, {"id": 7}, {}]}),
    "a list": lambda: JSONResponse([OLLAMA]),
    "refused": lambda: JSONResponse(OLLAMA, 401),
    "names that control a terminal": lambda: JSONResponse({"data": [{"id": "a\x1b[2J\n--set"}]}),
    "a name too long": lambda: JSONResponse({"data": [{"id": "a" * 300}]}),
    "deep nesting": lambda: Response("[" * 100_000),
    "an endless reply": lambda: StreamingResponse(send_forever(0, b"x" * 65_536)),
    "a slow reply": lambda: StreamingResponse(send_forever(0.05, b" ")),
    "a compressed bomb": lambda: Response(BOMB, headers={"content-encoding": "gzip"}),
    "no JSON number": lambda: Response(b"\xff\xfe"),
}


@pytest.mark.parametrize("attack", ATTACKS)
async def test_other_servers_are_no_models(attack: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_models, "TIMEOUT_S", 1.0)
    with run_server(ATTACKS[attack]) as (port, paths):
        started_at = time.monotonic()
        assert await find_local_models([port]) == []
        assert time.monotonic() - started_at < 30
    assert len(paths) <= 1


async def test_redirect_is_not_followed() -> None:
    with (
        run_server(lambda: JSONResponse(OLLAMA)) as (target, target_paths),
        run_server(lambda: RedirectResponse(f"http://127.0.0.1:{target}/v1/models")) as (port, _),
    ):
        assert await find_local_models([port]) == []
    assert target_paths == []


async def test_proxy_of_the_environment_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    with run_server(lambda: JSONResponse(OLLAMA)) as (port, paths):
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{port}")
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        assert await find_local_models([9]) == []
    assert paths == []


async def test_server_that_is_no_http_server_is_skipped() -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example.com ESMTP\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    async with server:
        assert await find_local_models([server.sockets[0].getsockname()[1]]) == []


@pytest.fixture
def ollama(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with run_server(lambda: JSONResponse(OLLAMA)) as (port, _):
        find = partial(find_local_models, [port])
        for module in (local_models, connections):
            monkeypatch.setattr(module, "find_local_models", find)
        yield f"http://127.0.0.1:{port}/v1"


def test_up_uses_the_first_model_and_keeps_the_rules_of_a_new_index(
    ollama: str, tmp_path: Path
) -> None:
    chosen = _choose_local_model(CommonOptions(data=tmp_path / "data"))
    settings = chosen.load_settings()
    assert (settings.chat.base_url, settings.chat.model) == (ollama, "qwen3:8b")
    assert settings.extract.engine == "rules"
    assert f"chat.base_url={ollama}" in chosen.to_arguments()


def test_up_keeps_a_model_and_a_server_that_are_set(ollama: str, tmp_path: Path) -> None:
    named = CommonOptions(data=tmp_path / "data", set=("chat.model=42",))
    assert _choose_local_model(named).load_settings().chat.model == "42"
    other = CommonOptions(data=tmp_path / "data", set=("chat.base_url=http://127.0.0.1:9/v1",))
    assert _choose_local_model(other) is other


def test_up_without_a_local_model_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def find_none() -> list[LocalModels]:
        return []

    monkeypatch.setattr(local_models, "find_local_models", find_none)
    with pytest.raises(NotFound, match=r"No model server answers on 127\.0\.0\.1") as error:
        _choose_local_model(CommonOptions(data=tmp_path / "data"))
    assert "CHAT__BASE_URL" in error.value.remedy


async def test_doctor_offers_the_local_model_unless_a_server_is_set(
    ollama: str, tmp_path: Path
) -> None:
    async def list_details(*sets: str) -> list[Any]:
        settings = load_settings(data_dir=tmp_path / "data", sets=list(sets))
        return [one.detail for one in await connections.check_local_models(settings)]

    (offer,) = await list_details()
    assert offer.startswith(f"{ollama} has qwen3:8b, 42;") and "up --local-model" in offer
    assert await list_details("chat.base_url=http://127.0.0.1:9/v1") == []
