"""Find model servers of this machine, Ollama, llama.cpp and vLLM at their usual ports, and choose
one.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import httpx2
import structlog
from pydantic import ValidationError

from anabranch.config.loader import CHOICE_FILE, CHOICE_ORIGIN, read_choice
from anabranch.config.settings import ModelSettings, Settings
from engines.disk import write_private
from schemas.errors import ConfigurationError, InvalidRequest, NotFound

log = structlog.get_logger(__name__)
PORTS = (11434, 8080, 8000)
"""Default ports of Ollama, llama.cpp and vLLM. All serve OpenAI's API."""
TIMEOUT_S = 0.5
POLL_S = 0.5
MAX_REPLY_BYTES = 256 * 1024
MAX_NAME_CHARACTERS = 200
# Models that cannot write; Ollama lists them with the others.
_OTHER_TASKS = ("embed", "rerank")


@dataclass(frozen=True, slots=True)
class LocalModels:
    """The models of a server that may write answers."""

    url: str
    models: Sequence[str]


async def find_local_models(ports: Sequence[int] = PORTS) -> Sequence[LocalModels]:
    """Return the servers on 127.0.0.1 that list models, within `TIMEOUT_S`."""
    found = await asyncio.gather(*map(_probe, ports))
    return [server for server in found if server.models]


async def _probe(port: int) -> LocalModels:
    """Return the models; none for a port that is closed, or of another kind of server."""
    url = f"http://127.0.0.1:{port}/v1"
    body = bytearray()
    try:
        # Neither redirects nor a proxy may lead to another host. Certificates would take 20 ms.
        async with (
            asyncio.timeout(TIMEOUT_S),
            httpx2.AsyncClient(trust_env=False, follow_redirects=False, verify=False) as client,
            client.stream("GET", f"{url}/models") as response,
        ):
            # Not decompressed, so that a small reply cannot become a large one.
            async for part in response.aiter_raw():
                body += part
                if len(body) > MAX_REPLY_BYTES:
                    return LocalModels(url, ())
        return LocalModels(url, _list_models(json.loads(body)) if response.is_success else ())
    except (httpx2.HTTPError, TimeoutError, ValueError, RecursionError):
        return LocalModels(url, ())


def _list_models(reply: Any) -> Sequence[str]:
    entries = reply.get("data") if isinstance(reply, dict) else None
    names = [
        entry.get("id")
        for entry in (entries if isinstance(entries, list) else ())
        if isinstance(entry, dict)
    ]
    return [
        name
        for name in names
        # A name is printed, and stands in settings.
        if isinstance(name, str) and name.isprintable() and 0 < len(name) <= MAX_NAME_CHARACTERS
        if not any(task in name.lower() for task in _OTHER_TASKS)
    ]


@dataclass(slots=True)
class ChatModelChoice:
    """The chat model that an operator chooses among those of this machine, and `settings` with it.

    It is kept in the data folder. Any other setting of `CHAT__` prevents a choice.
    """

    settings: Settings
    replace_retrievers: Callable[[], None]

    @property
    def is_chosen(self) -> bool:
        return self.settings.origins.get("chat.base_url") == CHOICE_ORIGIN

    async def describe(self) -> dict[str, Any]:
        chat = self.settings.chat
        return {
            "url": chat.base_url,
            "model": chat.model,
            "is_chosen": self.is_chosen,
            "can_choose": self.is_chosen or chat == ModelSettings(),
            "servers": [asdict(server) for server in await find_local_models()],
        }

    async def choose(self, url: str, model: str) -> dict[str, Any]:
        """Raises InvalidRequest, and NotFound unless a server of this machine lists the model."""
        state = await self.describe()
        self._require_free(state)
        if not any(url == found["url"] and model in found["models"] for found in state["servers"]):
            raise NotFound(
                f"No server of this machine has model {model!r} at {url!r}.",
                code="NO_LOCAL_MODEL",
                remedy="Choose one of `servers` of GET /v1/chat-model.",
            )
        return await self._apply(ModelSettings(base_url=url, model=model))

    async def clear(self) -> dict[str, Any]:
        """Answer without a chat model again. Raises InvalidRequest."""
        self._require_free(await self.describe())
        return await self._apply(ModelSettings())

    def _require_free(self, state: dict[str, Any]) -> None:
        if not state["can_choose"]:
            raise InvalidRequest(
                "The settings name a chat model.",
                code="CHAT_CONFIGURED",
                remedy="Change chat.base_url where it is set: `anabranch config show --origin`.",
            )

    async def _apply(self, chat: ModelSettings) -> dict[str, Any]:
        path = self.settings.data_dir / CHOICE_FILE
        values = chat.model_dump(exclude_unset=True)
        if values:
            write_private(path, json.dumps(values))
        else:
            path.unlink(missing_ok=True)
        self._use(chat)
        return await self.describe()

    def _use(self, chat: ModelSettings) -> None:
        self.settings = self.settings.model_copy(update={"chat": chat})
        for name in ("base_url", "model"):
            self.settings.origins.pop(f"chat.{name}", None)
            if chat.base_url:
                self.settings.origins[f"chat.{name}"] = CHOICE_ORIGIN
        self.replace_retrievers()

    async def run(self) -> None:
        """Adopt choices that other processes of the data folder make, until cancelled."""
        logged = ""
        while True:
            await asyncio.sleep(POLL_S)
            try:
                chat = ModelSettings(**read_choice(self.settings.data_dir).get("chat", {}))
            except (ConfigurationError, ValidationError) as error:
                if str(error) != logged:
                    log.warning("chosen_model_refused", error=(logged := str(error)))
                continue
            is_free = self.is_chosen or self.settings.chat == ModelSettings()
            if is_free and chat != self.settings.chat:
                self._use(chat)
                log.info("chosen_model_adopted", model=chat.model)
