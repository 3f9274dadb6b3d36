"""Settings of a model server.

Kept apart from the client library, whose import takes a second that local models need not pay.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from engines.resilience import NoServerInstrumentation, ServerInstrumentation

ServerKind = Literal["openai", "azure", "vllm"]


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Address, model and protocol of a model server. `timeout_s` bounds one request."""

    base_url: str
    model: str
    api_key: str = ""
    kind: ServerKind = "openai"
    api_version: str | None = None
    timeout_s: float = 60.0
    instrumentation: ServerInstrumentation = field(default_factory=NoServerInstrumentation)
