"""Settings in effect, as the API and the command line report them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from schemas.values import Value

SettingOrigin = Literal["default", "file", "environment", "command line"]
ReindexStage = Literal["transcribe", "chunk", "extract", "embed"]


class SettingValue(Value):
    """A setting in effect."""

    key: str = Field(description="Dotted name, such as `chunk.child_tokens`.")
    value: Any = Field(description="Value, null if unset. Secrets are masked.")
    origin: SettingOrigin = Field(
        description=(
            "Where the value comes from. `up` passes its data folder, database and token to its "
            "processes in the environment."
        )
    )
    environment: str = Field(description="Environment variable that sets it.")
    reindex_from: ReindexStage | None = Field(
        description=(
            "Stage from which documents are processed again after a change, in a new generation. "
            "Null: the change takes effect when the processes restart."
        )
    )
