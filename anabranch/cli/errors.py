"""Exit codes, and remedies of the HTTP API translated into commands and options."""

from __future__ import annotations

import re

from schemas.errors import (
    AnabranchError,
    ConfigurationError,
    FatalError,
    GenerationMismatch,
    InvalidRequest,
    NotFound,
    TransientError,
)

OK = 0
FAILED = 1
USAGE = 2
NOT_FOUND = 3
REFUSED = 4
PARTIAL_FAILURE = 5
GATE_FAILED = 6
UNREACHABLE = 7
INTERRUPTED = 130


def to_exit_code(error: AnabranchError) -> int:
    match error:
        case ConfigurationError() | GenerationMismatch() | InvalidRequest():
            return USAGE
        case FatalError(code="MISCONFIGURED"):
            return USAGE
        case NotFound():
            return NOT_FOUND
        case TransientError():
            return UNREACHABLE
    return FAILED


CLI_REMEDIES = {
    "UNAUTHENTICATED": (
        "Store an API key of that server with `anabranch login --server URL`, or set "
        "ANABRANCH_TOKEN: to a key, or to `token` in server.json of its data folder or in the "
        "ready file of `anabranch up`."
    ),
    "NO_SUCH_DEAD_LETTER": "List open dead letters with `anabranch dlq list`.",
    "NO_SUCH_GENERATION": "List generations with `anabranch generations list`.",
    "BUSY": "Retry in a few seconds, or raise ANABRANCH_DATABASE__API_POOL on the server.",
    "TOO_MANY_RUNS": "Retry in a few seconds, or raise ANABRANCH_API__MAX_RUNS on the server.",
    "NO_SUCH_PATH": "Check --server: it is not an Anabranch server, or one of another version.",
    "METHOD_NOT_ALLOWED": (
        "Check --server: it is not an Anabranch server, or one of another version."
    ),
}
"""Remedy by error code. Other codes keep the server's remedy, translated by `CLI_EQUIVALENTS`."""
CLI_EQUIVALENTS = {
    "DELETE /v1/questions/{question_id}": "`anabranch questions delete`",
    "GET /v1/audit": "`anabranch audit`",
    "GET /v1/collections": "`anabranch collections list`",
    "GET /v1/config/schema": "`anabranch config schema`",
    "GET /v1/dead-letters": "`anabranch dlq list`",
    "GET /v1/documents": "`anabranch documents list`",
    "GET /v1/documents/{id}": "`anabranch documents show`",
    "GET /v1/documents/{id}/lineage": "`anabranch documents lineage`",
    "GET /v1/entities": "`anabranch entities list`",
    "GET /v1/entities/{id}": "`anabranch entities show`",
    "GET /v1/erasures": "`anabranch erase receipts`",
    "GET /v1/events": "`anabranch watch`",
    "GET /v1/facts": "`anabranch facts list`",
    "GET /v1/generations": "`anabranch generations list`",
    "GET /v1/keys": "`anabranch keys list`",
    "GET /v1/profiles": "`anabranch config profiles`",
    "GET /v1/replays": "`anabranch replay list`",
    "GET /v1/runs": "`anabranch runs list`",
    "GET /v1/runs/{run}": "`anabranch runs show`",
    "PATCH /v1/entities/{id}": "`anabranch entities amend`",
    "POST /v1/query": "`anabranch query`",
    "POST /v1/runs/{run}/diff": "`anabranch runs diff`",
}
"""Command by API call."""
CLI_PHRASES = {
    "give the URL of another one.": "give the URL of another one with --server.",
    "that client and server have the same version.": (
        "that the server has the version of this command (`anabranch version`)."
    ),
    "Use http://": "Use --server http://",
    "Use the `next` value of the previous page.": (
        "Use the `--after` value printed with the previous page."
    ),
    "Set prefer_named to false": "Use --no-prefer-named",
    "Set infer_filters to false": "Use --no-infer-filters",
    'Set overrides to {"graph": {"aliases": false}}': "Use --override graph.aliases=false",
    'Set overrides to {"graph": {"fuzzy": 0}}': "Use --override graph.fuzzy=0",
}
"""Translations of phrases of remedies and assumptions that name more than an API call."""
REPEATED_COMMAND = re.compile(r"(`anabranch [^`]+`) or \1")
API_CALL = re.compile(r"`?((?:GET|POST|PATCH|DELETE) /v1/[\w/{}-]+)`?")
DEFAULT_REMEDY = "Run the command with --help for its options."
HTTP_MARKERS = ("GET /", "POST /", "/v1/", "/openapi.json")


def translate_phrases(text: str) -> str:
    """Replace fields of a request by the options of the command line."""
    for phrase, translation in CLI_PHRASES.items():
        text = text.replace(phrase, translation)
    return text


def to_cli_remedy(code: str, remedy: str) -> str:
    if code in CLI_REMEDIES:
        return CLI_REMEDIES[code]
    remedy = translate_phrases(remedy)
    remedy = API_CALL.sub(lambda match: CLI_EQUIVALENTS.get(match[1], match[0]), remedy)
    # Of a remedy that names the command beside the call.
    remedy = REPEATED_COMMAND.sub(r"\1", remedy)
    return DEFAULT_REMEDY if any(marker in remedy for marker in HTTP_MARKERS) else remedy
