"""Translation of remedies that the HTTP API returns into commands and options."""

from __future__ import annotations

CLI_REMEDIES = {
    "UNAUTHENTICATED": "Store an API key of that server with `anabranch login --server URL`, or set ANABRANCH_TOKEN: to a key, "
    "or to `token` in server.json of its data folder or in the ready file of `anabranch up`.",
    "NO_SUCH_DEAD_LETTER": "List open dead letters with `anabranch dlq list`.",
    "NO_SUCH_GENERATION": "List generations with `anabranch generations list`.",
    "BUSY": "Retry in a few seconds, or raise ANABRANCH_DATABASE__API_POOL on the server.",
    "NO_SUCH_PATH": "Check --server: it is not an Anabranch server, or one of another version.",
    "METHOD_NOT_ALLOWED": "Check --server: it is not an Anabranch server, or one of another version.",
}
"""Remedy by error code. Other codes keep the server's remedy, translated by `CLI_EQUIVALENTS`."""
CLI_EQUIVALENTS = {
    "GET /v1/documents lists documents, GET /v1/collections collections.": "`anabranch documents list` shows documents, with --json their collections too.",
    "GET /v1/documents/{id}": "`anabranch documents show`",
    "GET /v1/documents": "`anabranch documents list`",
    "GET /v1/runs": "`anabranch runs list`",
    "GET /v1/profiles": "`anabranch config profiles`",
    "GET /v1/generations": "`anabranch generations list`",
    "GET /v1/replays": "`anabranch replay list`",
    "GET /v1/keys or `": "`",
    "GET /v1/erasures": "`anabranch erase receipts`",
    "GET /v1/events": "`anabranch watch`",
    "`/v1/dead-letters`": "`anabranch dlq list`",
    "Take `next` of the page before.": "Take the `--after` that the page before it named.",
}
"""Command by API call. Longer calls come first, since the first match is replaced."""
DEFAULT_REMEDY = "Run the command with --help for its options."
HTTP_MARKERS = ("GET /", "POST /", "/v1/", "/openapi.json")


def to_cli_remedy(code: str, remedy: str) -> str:
    if code in CLI_REMEDIES:
        return CLI_REMEDIES[code]
    for call, command in CLI_EQUIVALENTS.items():
        remedy = remedy.replace(call, command)
    return DEFAULT_REMEDY if any(marker in remedy for marker in HTTP_MARKERS) else remedy
