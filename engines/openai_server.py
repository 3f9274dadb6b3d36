"""Any server that speaks OpenAI's HTTP interface: OpenAI, Azure OpenAI, vLLM. The only place that knows the client library."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import openai

from engines.resilience import Patience, Remote, Unanswered
from schemas.errors import ConfigurationError, PermanentError

Kind = Literal["openai", "azure", "vllm"]
BUSY = frozenset({408, 409, 425, 429})
CONFIGURED = {401: "ENGINE_KEY_REFUSED", 403: "ENGINE_KEY_REFUSED", 404: "ENGINE_NOT_FOUND"}


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Where the server is and how it is spoken to. `timeout_s` bounds one request."""

    base_url: str
    model: str
    api_key: str = ""
    kind: Kind = "openai"
    api_version: str | None = None
    timeout_s: float = 60.0


class OpenAIServer:
    """POSTs JSON and returns JSON. Raises EngineUnavailable when the server does not answer, refuses the key or does not know the model;
    PermanentError with code ENGINE_REJECTED_INPUT when it will not take this input."""

    def __init__(self, settings: ServerSettings, patience: Patience | None = None) -> None:
        self.model, self.kind = settings.model, settings.kind
        self._address = settings.base_url
        self._client = _client(settings)
        self._remote = Remote(settings.base_url, patience)

    async def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return await self._remote.call(lambda: self._post(path, {"model": self.model, **body}))

    async def close(self) -> None:
        await self._client.close()

    async def _post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        try:
            text = await self._client.post(path, cast_to=str, body=body, options={"headers": {"Accept": "application/json"}})
        except openai.APIStatusError as error:
            raise self._translated(error) from error
        except openai.APIConnectionError as error:
            raise Unanswered(f"{self._address} did not answer: {error}.") from error
        return self._parsed(text)

    def _parsed(self, text: str) -> dict[str, Any]:
        try:
            value = json.loads(text)
        except ValueError as error:
            raise Unanswered(f"{self._address} answered with something that is not JSON.", code="ENGINE_BROKEN_ANSWER") from error
        if not isinstance(value, dict):
            raise Unanswered(f"{self._address} answered with a JSON {type(value).__name__}, not an object.", code="ENGINE_BROKEN_ANSWER")
        return value

    def _translated(self, error: openai.APIStatusError) -> Unanswered | PermanentError:
        status, said = error.status_code, f"{self._address} answered {error.status_code}: {_message(error)}"
        if status >= 500 or status in BUSY:
            return Unanswered(said, retry_after=_seconds(error.response.headers.get("retry-after")))
        if status in CONFIGURED:
            return Unanswered(
                said, code=CONFIGURED[status], remedy=f"Check the key, the model name ({self.model}) and the address of this server.", again=False
            )
        return PermanentError(said, code="ENGINE_REJECTED_INPUT", remedy="The server will not take this input; see what it says.")


def _client(settings: ServerSettings) -> openai.AsyncOpenAI:
    key = settings.api_key or "none"
    if settings.kind != "azure":
        return openai.AsyncOpenAI(base_url=settings.base_url, api_key=key, timeout=settings.timeout_s, max_retries=0)
    if not settings.api_version:
        raise ConfigurationError("An Azure server needs an API_VERSION.", remedy="Set ANABRANCH_CHAT__API_VERSION (or that of the engine concerned).")
    return openai.AsyncAzureOpenAI(azure_endpoint=settings.base_url, api_key=key, api_version=settings.api_version, timeout=settings.timeout_s, max_retries=0)


def _message(error: openai.APIStatusError) -> str:
    body = error.body
    found = body.get("message") if isinstance(body, dict) else None
    return str(found or error.message)[:500]


def _seconds(header: str | None) -> float | None:
    """Of a Retry-After header (RFC 9110); dates are left to the back-off."""
    try:
        value = float(header or "nan")
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None
