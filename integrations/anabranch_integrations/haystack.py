"""Retriever for Haystack: the component `AnabranchRetriever`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from haystack import Document, component
from haystack.utils import Secret

from anabranch.client import DEFAULT_URL, SearchResult
from anabranch_integrations.passages import PassageSearch, read_text


@component
class AnabranchRetriever:
    """Finds passages of an Anabranch server. Every call raises `anabranch.client.ApiError`.

    `options` are further fields of `POST /v1/search`, such as `profile`. `filters` are those of
    Anabranch: `{"collections": ["contracts"]}`.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        token: Secret = Secret.from_env_var("ANABRANCH_TOKEN", strict=False),  # noqa: B008
        top_k: int = 10,
        filters: dict[str, Any] | None = None,
        options: dict[str, Any] | None = None,
    ) -> None:
        self.url, self.token, self.top_k, self.filters = url, token, top_k, filters
        self.options = options or {}

    @component.output_types(documents=list[Document])
    def run(
        self, query: str, filters: dict[str, Any] | None = None, top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """Return the passages as `documents`. Arguments replace those of the component."""
        results = self._search.search(query, self._merge(filters, top_k))
        return {"documents": self._to_documents(results)}

    @component.output_types(documents=list[Document])
    async def run_async(
        self, query: str, filters: dict[str, Any] | None = None, top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """Return the passages as `documents`. Arguments replace those of the component."""
        results = await self._search.search_async(query, self._merge(filters, top_k))
        return {"documents": self._to_documents(results)}

    @property
    def _search(self) -> PassageSearch:
        return PassageSearch(self.url, self.token.resolve_value())

    def _merge(self, filters: dict[str, Any] | None, top_k: int | None) -> dict[str, Any]:
        chosen = filters if filters is not None else self.filters or {}
        return {**self.options, "filters": chosen, "k": self.top_k if top_k is None else top_k}

    def _to_documents(self, results: Sequence[SearchResult]) -> list[Document]:
        return [
            Document(
                id=str(result.parent_id),
                content=read_text(result),
                meta=self._search.describe(result),
                score=result.score,
            )
            for result in results
        ]
