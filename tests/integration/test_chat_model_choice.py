"""An operator lets a model of this machine write the answers, and no other one."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from pathlib import Path

import httpx2
import pytest
from structlog.testing import capture_logs

from anabranch import local_models
from anabranch.composition.api import prepare_api
from anabranch.config.loader import CHOICE_FILE, load_settings
from anabranch.local_models import ChatModelChoice, find_local_models
from api.app import create_app
from schemas.errors import ConfigurationError, InvalidRequest
from schemas.principals import Principal
from services.background_tasks import run_in_background
from tests.fakes.openai_server import fake_openai
from tests.support.api_client import BEARER, add_local_token, api_client
from tests.support.eventually import eventually
from tests.support.pipeline import null_overrides, run_pipeline

PATH = "/v1/chat-model"
QUESTION = {"query": "What do herons eat?"}


async def ask(http: httpx2.AsyncClient) -> tuple[str | None, list[str]]:
    """Return the answer and the tasks that called a model server."""
    body = (await http.post("/v1/query", json=QUESTION)).json()
    return body["answer"], [use["model"] for use in body["trace"]["usage"] if not use["local"]]


async def test_chosen_model_answers_at_once_and_after_a_restart(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = load_settings(data_dir=tmp_path, sets=[f"database.url={database}"])
    with fake_openai() as fake:
        port = int(fake.url.removesuffix("/v1").rpartition(":")[2])
        monkeypatch.setattr(local_models, "TIMEOUT_S", 60)
        monkeypatch.setattr(local_models, "find_local_models", partial(find_local_models, [port]))
        async with (
            run_pipeline(tmp_path, database, settings=settings) as at_work,
            prepare_api(settings, database, overrides=null_overrides()) as services,
            api_client(add_local_token(services)) as http,
        ):
            http.headers.update(BEARER)
            await at_work.push_and_wait_until_visible({"herons": "Herons eat fish and frogs."})
            offered = (await http.get(PATH)).json()
            [server] = offered["servers"]
            assert (offered["url"], offered["can_choose"], offered["is_chosen"]) == (
                *(None, True, False),
            )
            model = server["models"][0]
            assert (await ask(http))[1] == []
            for wrong in (
                {"url": "http://169.254.169.254/v1", "model": model},
                {"url": f"{server['url']}/../x", "model": model},
                {"url": server["url"], "model": "other"},
            ):
                refused = await http.put(PATH, json=wrong)
                assert (refused.status_code, refused.json()["code"]) == (404, "NO_LOCAL_MODEL")
            assert not (tmp_path / CHOICE_FILE).exists()

            chosen = await http.put(PATH, json={"url": server["url"], "model": model})
            assert chosen.json() == offered | {
                "url": server["url"],
                "model": model,
                "is_chosen": True,
            }
            assert set((await ask(http))[1]) == {model}
            values = {item["key"]: item for item in (await http.get("/v1/config")).json()["items"]}
            assert values["chat.model"]["value"] == model
            assert values["chat.model"]["origin"] == "web UI"
            restarted = load_settings(data_dir=tmp_path)
            assert (restarted.chat.base_url, restarted.chat.model) == (server["url"], model)
            assert ChatModelChoice(restarted, lambda: None).is_chosen

            cleared = (await http.delete(PATH)).json()
            assert cleared == offered and (await ask(http))[1] == []
            assert load_settings(data_dir=tmp_path).chat.base_url is None

            async def list_actions() -> list[str]:
                page = (await http.get("/v1/audit")).json()
                return [f"{item['action']} {item['outcome']}" for item in page["items"]]

            actions = await eventually(list_actions, lambda found: len(found) == 5)
            assert sorted(actions) == [
                "chat_model.chosen NO_LOCAL_MODEL",
                "chat_model.chosen NO_LOCAL_MODEL",
                "chat_model.chosen NO_LOCAL_MODEL",
                "chat_model.chosen done",
                "chat_model.cleared done",
            ]
            for role in ("reader", "writer", "admin"):
                weaker = Principal("key:1", "default", role)

                async def authenticate(*_: object, caller: Principal = weaker) -> Principal:
                    return caller

                app = create_app(replace(services, authenticate=authenticate))
                transport = httpx2.ASGITransport(app)
                async with httpx2.AsyncClient(
                    transport=transport, base_url="http://localhost"
                ) as other:
                    for call in (other.get, other.delete):
                        assert (await call(PATH)).status_code == 403
                    body = {"url": server["url"], "model": model}
                    assert (await other.put(PATH, json=body)).status_code == 403


async def test_other_processes_of_the_data_folder_adopt_the_choice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_models, "POLL_S", 0.01)
    used = list[bool]()
    other = ChatModelChoice(load_settings(data_dir=tmp_path), lambda: used.append(other.is_chosen))
    bound = ChatModelChoice(load_settings(data_dir=tmp_path, sets=["chat.model=own"]), list)
    async with run_in_background(other.run()), run_in_background(bound.run()):
        with capture_logs() as logs:
            (tmp_path / CHOICE_FILE).write_text("[")
            await asyncio.sleep(0.2)
        # Once by each of the two, not twice a second.
        assert [line["event"] for line in logs] == ["chosen_model_refused"] * 2
        (tmp_path / CHOICE_FILE).write_text('{"base_url": "http://127.0.0.1:1/v1", "model": "m"}')
        await eventually(lambda: used, what="the choice")
        assert other.settings.chat.model == "m" and bound.settings.chat.model == "own"
        (tmp_path / CHOICE_FILE).unlink()
        await eventually(lambda: used[1:], what="the end of it")
    assert used == [True, False] and other.settings.chat.model is None


async def test_choice_gives_way_to_settings(tmp_path: Path) -> None:
    (tmp_path / CHOICE_FILE).write_text('{"base_url": "http://127.0.0.1:1/v1", "model": "m"}')
    key = load_settings(data_dir=tmp_path, sets=["chat.api_key=secret-of-another-server"])
    assert key.chat.base_url is None and key.chat.model is None
    with pytest.raises(InvalidRequest, match="The settings name a chat model"):
        await ChatModelChoice(key, lambda: None).choose("http://127.0.0.1:1/v1", "m")
    assert load_settings(data_dir=tmp_path).chat.model == "m"
    (tmp_path / CHOICE_FILE).write_text("[")
    with pytest.raises(ConfigurationError, match="Cannot read") as broken:
        load_settings(data_dir=tmp_path)
    assert broken.value.remedy == "Delete it."
