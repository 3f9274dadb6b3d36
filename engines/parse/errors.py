"""Errors that several format readers raise."""

from __future__ import annotations

from schemas.errors import UnreadableDocument


def make_corrupt_error(detail: str) -> UnreadableDocument:
    return UnreadableDocument(
        detail,
        code="CORRUPT_DOCUMENT",
        remedy="The file is damaged or incomplete. Send it again from the original.",
    )


def make_encrypted_error(kind: str) -> UnreadableDocument:
    return UnreadableDocument(
        f"The {kind} is encrypted.",
        code="ENCRYPTED_DOCUMENT",
        remedy="Save it without a password and send that.",
    )
