"""Settings of models on servers, and the base of all sections."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr


class SettingsSection(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ModelSettings(SettingsSection):
    """Model on an OpenAI-compatible server."""

    base_url: str | None = Field(
        None, description="URL of an OpenAI-compatible server; unset: local engine"
    )
    api_key: SecretStr | None = Field(None, description="API key of the server")
    model: str | None = Field(None, description="model name on the server")
    kind: Literal["openai", "azure", "vllm"] | None = Field(None, description="kind of server")
    api_version: str | None = Field(None, description="API version of Azure OpenAI")
    # Unset rather than a number: a task of a chat model then takes the value of `CHAT__`.
    timeout_s: float | None = Field(
        None, gt=0, le=3600, description="seconds to wait for one request; unset: 60"
    )
    attempts: int | None = Field(
        None, ge=1, le=10, description="attempts of a request, with back-off; unset: 3"
    )
    total_timeout_s: float | None = Field(
        None,
        gt=0,
        le=36_000,
        description="seconds after which a failed request is not attempted again; unset: 180",
    )
    breaker_failures: int | None = Field(
        None,
        ge=1,
        le=100,
        description="failures in a row after which the server is not called; unset: 5",
    )
    breaker_open_s: float | None = Field(
        None, gt=0, le=3600, description="seconds for which it is then not called; unset: 15"
    )


class EmbedSettings(ModelSettings):
    dimension: int | None = Field(
        None,
        ge=1,
        le=4000,
        description="dimension of the vectors; required with a server, else the local model's",
    )
    batch: int = Field(64, ge=1, le=2048, description="texts in one request to the server")
    parallel: int = Field(4, ge=1, le=64, description="requests of one part at a time")
    state_dimension: int = Field(
        256,
        ge=0,
        le=384,
        description="dimension of the token states for the local reranker; 0: none are stored",
    )


class RerankSettings(ModelSettings):
    api: Literal["rerank", "score"] = Field(
        "rerank", description="endpoint: `rerank` (Cohere, Jina, vLLM), or `score` (vLLM)"
    )
    batch: int = Field(64, ge=1, le=1000, description="passages in one request")
    parallel: int = Field(4, ge=1, le=64, description="requests of one question at a time")
    timeout_s: float = Field(10.0, gt=0, le=120, description="seconds to wait for one request")
    attempts: int = Field(2, ge=1, le=10, description="attempts of a request, with back-off")


class ExtractSettings(ModelSettings):
    engine: Literal["rules", "openai"] | None = Field(
        None,
        description=(
            "entity extractor; unset: the model of `CHAT__` if one is set when the index is "
            "created, else the local rules"
        ),
    )
    parallel: int = Field(4, ge=1, le=64, description="passages of one part at a time")
