"""Retriever for LlamaIndex: `AnabranchRetriever`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Unpack

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import (
    NodeRelationship,
    NodeWithScore,
    QueryBundle,
    RelatedNodeInfo,
    TextNode,
)

from anabranch.client import DEFAULT_URL, SearchResult
from anabranch.client.calls import SearchOptions
from anabranch_integrations.passages import MODEL_METADATA, PassageSearch, read_text


class AnabranchRetriever(BaseRetriever):
    """Finds passages of an Anabranch server. Every call raises `anabranch.client.ApiError`.

    `options` are the fields of `POST /v1/search`: `k`, `filters`, `profile` and so on. The token
    is that of ANABRANCH_TOKEN unless one is given.
    """

    def __init__(
        self, url: str = DEFAULT_URL, token: str | None = None, **options: Unpack[SearchOptions]
    ) -> None:
        super().__init__()
        self._search = PassageSearch(url, token or os.environ.get("ANABRANCH_TOKEN"))
        self._options = options

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return self._to_nodes(self._search.search(query_bundle.query_str, self._options))

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        results = await self._search.search_async(query_bundle.query_str, self._options)
        return self._to_nodes(results)

    def _to_nodes(self, results: Sequence[SearchResult]) -> list[NodeWithScore]:
        return [NodeWithScore(node=self._to_node(one), score=one.score) for one in results]

    def _to_node(self, result: SearchResult) -> TextNode:
        metadata = self._search.describe(result)
        hidden = [name for name in metadata if name not in MODEL_METADATA or not metadata[name]]
        source = RelatedNodeInfo(node_id=str(result.document_id))
        return TextNode(
            id_=str(result.parent_id),
            text=read_text(result),
            metadata=metadata,
            excluded_llm_metadata_keys=hidden,
            excluded_embed_metadata_keys=hidden,
            relationships={NodeRelationship.SOURCE: source},
        )
