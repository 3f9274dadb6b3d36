"""Model servers: address, retry policy and instrumentation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Protocol

CircuitState = Literal["closed", "opened", "half-opened"]


class ServerInstrumentation(Protocol):
    """Hooks for requests, circuit state and token counts of a server. Must not block."""

    def record_request(self) -> None: ...

    def record_circuit_state(self, state: CircuitState) -> None: ...

    def record_tokens(self, model: str, kind: Literal["input", "output"], number: int) -> None: ...


class NoServerInstrumentation:
    def record_request(self) -> None: ...

    def record_circuit_state(self, state: CircuitState) -> None: ...

    def record_tokens(self, model: str, kind: Literal["input", "output"], number: int) -> None: ...


@dataclass(frozen=True, slots=True)
class ServerRetryPolicy:
    """Retries and circuit breaking for one server.

    A request that fails `total_timeout_s` or more after its first attempt began is not attempted
    again. After `failure_threshold` failures in a row the circuit stays open for `circuit_open_s`.
    """

    attempts: int = 3
    first_wait_s: float = 0.2
    max_wait_s: float = 5.0
    jitter_s: float = 0.2
    total_timeout_s: float = 180.0
    failure_threshold: int = 5
    circuit_open_s: float = 15.0


ServerKind = Literal["openai", "azure", "vllm"]


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Address, model and protocol of a model server. `timeout_s` bounds one request.

    A streamed reply may take ten times as long, with pauses of at most `timeout_s`.
    """

    base_url: str
    model: str
    api_key: str = ""
    kind: ServerKind = "openai"
    api_version: str | None = None
    timeout_s: float = 60.0
    instrumentation: ServerInstrumentation = field(default_factory=NoServerInstrumentation)
