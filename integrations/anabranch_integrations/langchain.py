"""Retriever for LangChain: `AnabranchRetriever`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.callbacks import (
    AsyncCallbackManagerForRetrieverRun,
    CallbackManagerForRetrieverRun,
)
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.utils import secret_from_env
from pydantic import Field, SecretStr

from anabranch.client import DEFAULT_URL, SearchResult
from anabranch_integrations.passages import PassageSearch, read_text


class AnabranchRetriever(BaseRetriever):
    """Finds passages of an Anabranch server. Every call raises `anabranch.client.ApiError`.

    `invoke` takes the fields of `options` too: `retriever.invoke("…", k=3, profile="rrf")`.
    """

    url: str = DEFAULT_URL
    token: SecretStr | None = Field(
        default_factory=secret_from_env("ANABRANCH_TOKEN", default=None)
    )
    k: int = 10
    """Maximum number of passages."""
    filters: dict[str, Any] = {}
    """Conditions on documents, such as `{"collections": ["contracts"]}`."""
    options: dict[str, Any] = {}
    """Further fields of `POST /v1/search`, such as `{"profile": "rrf"}`."""

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, **options: Any
    ) -> list[Document]:
        return self._to_documents(self._search.search(query, self._merge(options)))

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, **options: Any
    ) -> list[Document]:
        return self._to_documents(await self._search.search_async(query, self._merge(options)))

    @property
    def _search(self) -> PassageSearch:
        return PassageSearch(self.url, self.token.get_secret_value() if self.token else None)

    def _merge(self, options: dict[str, Any]) -> dict[str, Any]:
        return {"k": self.k, "filters": self.filters, **self.options, **options}

    def _to_documents(self, results: Sequence[SearchResult]) -> list[Document]:
        return [
            Document(
                id=str(result.parent_id),
                page_content=read_text(result),
                metadata=self._search.describe(result),
            )
            for result in results
        ]
