"""Files of many formats to Markdown with places: a format family a file, all of them run in killable child processes."""

from engines.parse.local import LocalParser

__all__ = ["LocalParser"]
