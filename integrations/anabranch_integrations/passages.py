"""Search for whole passages, and their metadata, as every framework gets them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from anabranch.client import ApiError, AsyncClient, Client, SearchResponse, SearchResult

MODEL_METADATA = ("title", "section", "pages")
"""Metadata that a model reads with a passage; the other fields are for programs."""


@dataclass(frozen=True, slots=True)
class PassageSearch:
    """Searches one server. Each search has a connection of its own: threads and event loops of
    frameworks come and go.
    """

    url: str
    token: str | None = field(repr=False)

    def search(self, query: str, options: Mapping[str, Any]) -> Sequence[SearchResult]:
        """Return passages, best first. Raises ApiError."""
        with Client(self.url, self.token) as client:
            return _list_passages(client.search(query, **{**options, "return_text": True}))

    async def search_async(self, query: str, options: Mapping[str, Any]) -> Sequence[SearchResult]:
        """Return passages, best first. Raises ApiError."""
        async with AsyncClient(self.url, self.token) as client:
            return _list_passages(await client.search(query, **{**options, "return_text": True}))

    def describe(self, result: SearchResult) -> dict[str, Any]:
        """Return document, position, citation link and scores of a passage, as JSON."""
        described = result.model_dump(
            mode="json", exclude={"text", "snippet", "explanation", "duplicates"}
        )
        spans = [span.model_dump(mode="json", exclude_none=True) for span in result.spans]
        return described | {"link": f"{self.url.rstrip('/')}{result.link}", "spans": spans}


def read_text(result: SearchResult) -> str:
    """Return the whole text; of a server that does not know `return_text` its snippet."""
    return result.text or result.snippet


def _list_passages(response: SearchResponse) -> Sequence[SearchResult]:
    missing = response.trace.missing_collections
    if missing and not response.results:
        raise ApiError(
            f"There is no collection {', '.join(map(repr, missing))}.",
            code="NO_SUCH_COLLECTION",
            remedy="Use one of GET /v1/collections in `filters`, or ingest a document into it.",
        )
    return response.results
