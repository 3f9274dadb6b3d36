"""An API caller tries to send keys and texts to an address of its own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from anabranch.config.loader import MODEL_SECTIONS, load_settings
from anabranch.config.settings import Settings
from tests.support.api_world import ApiWorld

API_KEY_SETTINGS = [
    f"{section}.api_key=sk-real-{section}" for section in ("embed", "rerank", "ocr")
]


class RequestRecorder:
    """Listen on a port and record everything received."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        taken = self.requests

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                taken.append(
                    bytes(self.headers)
                    + self.rfile.read(int(self.headers.get("Content-Length", 0)))
                )
                self.send_error(500)

            do_GET = do_POST

            def log_message(self, *_: object) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"


@pytest.fixture
def request_recorder() -> Iterator[RequestRecorder]:
    found = RequestRecorder()
    thread = threading.Thread(target=found.server.serve_forever, daemon=True)
    thread.start()
    yield found
    found.server.shutdown()
    found.server.server_close()
    thread.join()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings(
        data_dir=tmp_path / "data", sets=["logging.level=error", *API_KEY_SETTINGS]
    )


async def test_caller_cannot_redirect_model_requests(
    world: ApiWorld, request_recorder: RequestRecorder
) -> None:
    await world.ingest_until_searchable("The vault opens at noon.", external_id="vault")
    for section in MODEL_SECTIONS:
        sets = [
            f"{section}.base_url={request_recorder.url}",
            f"{section}.model=x",
            *(["embed.dimension=4"] if section == "embed" else []),
        ]
        for given in (
            sets,
            [*sets, "extract.engine=openai"],
            [f" {sets[0]}"],
            ["chunk.child_tokens=100", *sets],
        ):
            for path, body in (
                ("/v1/generations", {"purpose": "reindex", "set": given}),
                ("/v1/generations/plan", {"set": given}),
            ):
                response = await world.http.post(path, json=body)
                assert (response.status_code, response.json()["code"]) == (
                    422,
                    "SETTING_NOT_APPROVED",
                )
                assert (
                    f"{section}.base_url" in response.json()["detail"]
                    and "--data" in response.json()["remedy"]
                )
    assert [one["name"] for one in (await world.http.get("/v1/generations")).json()["items"]] == [
        "g1"
    ]
    assert request_recorder.requests == []


async def test_caller_cannot_choose_folder_or_database(world: ApiWorld, tmp_path: Path) -> None:
    (tmp_path / "id_ed25519.txt").write_text("The private key is swordfish.")
    table = {"kind": "postgres", "mapping": {"body": ["wrapped"]}}
    for takes, code in (
        ({"kind": "folder", "path": str(tmp_path)}, "FORBIDDEN_FOLDER"),
        (table | {"table": "keystore.keys"}, "FORBIDDEN_TABLE"),
        (
            table | {"table": "keystore.keys", "dsn": "postgresql://postgres@127.0.0.1:1/postgres"},
            "DSN_IN_REQUEST",
        ),
        (table | {"table": "notes", "dsn": "postgresql://192.0.2.1/postgres"}, "DSN_IN_REQUEST"),
    ):
        response = await world.http.post("/v1/sources", json={"name": "pwn", "connector": takes})
        assert (response.status_code, response.json()["code"]) == (422, code)
    assert (await world.http.get("/v1/sources")).json()["items"] == []
