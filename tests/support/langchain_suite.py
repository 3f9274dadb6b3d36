"""The standard tests of LangChain for retrievers. Run by `journey/test_integrations.py` in a
process of its own: each test process would import LangChain to collect them.
"""

from __future__ import annotations

import os
from typing import Any

from langchain_tests.integration_tests import RetrieversIntegrationTests

from anabranch_integrations.langchain import AnabranchRetriever


class TestAnabranchRetriever(RetrieversIntegrationTests):
    @property
    def retriever_constructor(self) -> type[AnabranchRetriever]:
        return AnabranchRetriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return {"url": os.environ["SERVER"], "k": 5}

    @property
    def retriever_query_example(self) -> str:
        return "How many crossings did the ferries make?"
