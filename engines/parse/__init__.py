"""Parsing of files to Markdown with source locations, one format family per file."""

from engines.parse.local import LocalParser

__all__ = ["LocalParser"]
