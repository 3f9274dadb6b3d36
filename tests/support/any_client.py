"""The calls of `Client` and `AsyncClient` under one interface, so that a test runs with both."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable
from typing import Any

from pydantic import BaseModel

from anabranch.client import AsyncClient, Client


class AnyClient:
    """The calls of a `Client`, or those of an `AsyncClient` that are run at once."""

    def __init__(self, client: Client | AsyncClient) -> None:
        self.client = client
        self.runner = asyncio.Runner()

    def __enter__(self) -> AnyClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        self.runner.close()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            result = getattr(self.client, name)(*arguments, **options)
            if isinstance(result, AsyncIterator):
                return self.runner.run(collect(result))
            if inspect.iscoroutine(result):
                return self.runner.run(result)
            return result if isinstance(result, BaseModel | None) else list(result)

        return call


async def collect(items: AsyncIterator[Any]) -> list[Any]:
    return [item async for item in items]
