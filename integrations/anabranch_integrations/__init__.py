"""Retrievers for LangChain, LlamaIndex and Haystack, over the HTTP API.

Each module needs the extra of its name: `make install EXTRAS=langchain`.
"""
