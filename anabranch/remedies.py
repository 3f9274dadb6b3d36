"""What somebody at the command line can do about a problem whose remedy speaks to a program that uses HTTP."""

from __future__ import annotations

REMEDIES = {
    "NOT_FOUND": "`anabranch documents list` lists the documents; `anabranch documents show` says how far one is.",
    "NO_SUCH_DEAD_LETTER": "`anabranch dlq list` shows what is open.",
    "NO_SUCH_GENERATION": "`anabranch generations list` shows them; without --generation the live one answers.",
    "INVALID_REQUEST": "--help says what each option takes; a page begins with the `--after` that the page before it named.",
    "BUSY": "Ask again in a few seconds, or raise ANABRANCH_DATABASE__API_POOL where the server runs.",
    "NO_SUCH_PATH": "Check --server: this is no Anabranch, or one of another version.",
    "METHOD_NOT_ALLOWED": "Check --server: this is no Anabranch, or one of another version.",
}
"""By code; other codes keep the remedy that they came with."""


def remedy_here(code: str, told: str) -> str:
    return REMEDIES.get(code, told)
