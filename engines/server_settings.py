"""Where a model is served, said without its client library: a second of imports that nobody needs whose models are local."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from engines.resilience import NoServerInstrumentation, ServerInstrumentation

ServerKind = Literal["openai", "azure", "vllm"]


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Where the server is and how it is spoken to. `timeout_s` bounds one request."""

    base_url: str
    model: str
    api_key: str = ""
    kind: ServerKind = "openai"
    api_version: str | None = None
    timeout_s: float = 60.0
    instrumentation: ServerInstrumentation = field(default_factory=NoServerInstrumentation)
