"""What somebody at the command line can do about a problem whose remedy speaks to a program that uses HTTP."""

from __future__ import annotations

CLI_REMEDIES = {
    "UNAUTHENTICATED": "Store an API key of that server with `anabranch login --server URL`, or set ANABRANCH_TOKEN: to a key, "
    "or to `token` in server.json of its data folder or in the ready file of `anabranch up`.",
    "NO_SUCH_DEAD_LETTER": "`anabranch dlq list` shows what is open.",
    "NO_SUCH_GENERATION": "`anabranch generations list` shows them.",
    "BUSY": "Ask again in a few seconds, or raise ANABRANCH_DATABASE__API_POOL where the server runs.",
    "NO_SUCH_PATH": "Check --server: this is no Anabranch, or one of another version.",
    "METHOD_NOT_ALLOWED": "Check --server: this is no Anabranch, or one of another version.",
}
"""By code; other codes keep the remedy that they came with, in these words:"""
CLI_EQUIVALENTS = {
    "GET /v1/documents lists documents, GET /v1/collections collections.": "`anabranch documents list` shows documents, with --json their collections too.",
    "GET /v1/documents/{id}": "`anabranch documents show`",
    "GET /v1/documents": "`anabranch documents list`",
    "GET /v1/runs": "`anabranch runs list`",
    "GET /v1/profiles": "`anabranch config profiles`",
    "GET /v1/generations": "`anabranch generations list`",
    "GET /v1/replays": "`anabranch replay list`",
    "or GET /v1/keys lists": "lists",
    "GET /v1/erasures": "`anabranch erase receipts`",
    "GET /v1/events": "`anabranch watch`",
    "`/v1/dead-letters`": "`anabranch dlq list`",
    "Take `next` of the page before.": "Take the `--after` that the page before it named.",
}
"""A call, and the command that makes it; longer ones first."""


DEFAULT_REMEDY = "--help says what each option takes."
HTTP_MARKERS = ("GET /", "POST /", "/v1/", "/openapi.json")


def suggest_scheme(url: str) -> str:
    """What to add to an address of a server; empty where nothing is missing."""
    return "" if "://" in url else f"Write --server http://{url}."


def to_cli_remedy(code: str, remedy: str) -> str:
    if code in CLI_REMEDIES:
        return CLI_REMEDIES[code]
    for call, command in CLI_EQUIVALENTS.items():
        remedy = remedy.replace(call, command)
    return DEFAULT_REMEDY if any(marker in remedy for marker in HTTP_MARKERS) else remedy
