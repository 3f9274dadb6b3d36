"""Prices of models, what a question may use and how long it may take, and what it has used."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from schemas.values import Value

TokenPrice = Annotated[float, Field(ge=0, le=1_000_000)]


class ModelPrice(Value):
    """Price of a model. A model whose prices are all 0 is free."""

    input_per_million: TokenPrice = Field(0.0, description="Price of a million input tokens.")
    output_per_million: TokenPrice = Field(0.0, description="Price of a million output tokens.")
    per_call: TokenPrice = Field(0.0, description="Price of a request.")

    def compute_cost(self, input_tokens: int, output_tokens: int) -> float:
        return (
            self.per_call
            + (input_tokens * self.input_per_million + output_tokens * self.output_per_million)
            / 1_000_000
        )


class PriceTable(Value):
    """Prices of the models on servers. Local models cost nothing."""

    currency: str = Field("USD", pattern="^[A-Z]{3}$")
    """currency of all prices (ISO 4217)"""
    models: dict[Annotated[str, Field(min_length=1, max_length=255)], ModelPrice] = Field(
        {}, max_length=1000
    )
    """by model name on its server: `input_per_million`, `output_per_million` (tokens) and
    `per_call`, 0 if omitted; `{}`: free. A model without an entry has no price, so the cost of its
    calls is unknown
    """


NO_PRICES = PriceTable()


class BudgetProfile(Value):
    """How much a question may use of model servers. A request may lower these caps."""

    calls: int = Field(3, ge=0, le=100)
    """Calls of chat models to fill in a question from its conversation, to plan and route it, to
    write Cypher for it, and to answer it, repeated ones included.
    """
    judge_calls: int = Field(4, ge=0, le=100, description="Calls of the judge model.")
    search_calls: int = Field(100, ge=0, le=10_000)
    """Requests to the servers for embeddings and reranking."""
    tokens: int | None = Field(None, ge=0, le=1_000_000_000)
    """Input and output tokens of all these calls. A call is made only if the bytes of the request
    and the maximum of the reply fit in the rest. Null sets no cap.
    """
    cost: float | None = Field(None, ge=0, le=1_000_000)
    """Cost of all these calls, in the currency of `PRICES__`. Models without a price are then not
    called. Null sets no cap.
    """


CapName = Literal["calls", "judge_calls", "search_calls", "tokens", "cost"]


class ModelUsage(Value):
    """Calls of one model for one task."""

    task: str
    """One of `standalone`, `plan`, `route`, `cypher`, `embed`, `rerank`, `answer`, `judge`,
    `summary`.
    """
    model: str = Field(description="Name of the model.")
    local: bool = Field(description="Whether the model runs in this process. It costs nothing.")
    calls: int
    """Requests that the model answered, or may have: they count toward the caps."""
    failed: int = 0
    """Requests that the server refused or that did not reach it. They are free."""
    input_tokens: int = Field(0, description="Tokens of the requests. 0 for a local model.")
    output_tokens: int = Field(0, description="Tokens of the replies.")
    estimated: bool = False
    """Whether a reply was lost or reported no tokens. Its upper bounds are counted instead."""
    cost: float | None = Field(description="Cost of the calls, or null if the model has no price.")


class StoppedCall(Value):
    """A call that a cap of the profile did not allow."""

    cap: CapName = Field(description="The cap: the setting of that name in `budget`.")
    limit: float = Field(description="Its value.")
    task: str = Field(description="Task of the call.")
    model: str = Field(description="Model of the call.")
    reason: str = Field(description="How far the cap was used, and what the call might have used.")


class RunProfile(Value):
    """How long a question may take, and a step of a run in the background."""

    timeout_s: float = Field(300.0, ge=1, le=3600)
    """Seconds after which a question or a run stops."""
    step_timeout_s: float = Field(150.0, ge=1, le=3600)
    """Seconds after which the run stops because one step takes too long. Above the time-outs of
    `answer` and `judge`, which cost the run only the model's part.
    """
