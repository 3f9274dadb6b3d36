"""URLs of a running server."""

from __future__ import annotations


def suggest_scheme(url: str) -> str:
    """Return a remedy for a server URL without scheme, else an empty string."""
    return "" if "://" in url else f"Use --server http://{url}."
