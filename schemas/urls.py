"""Detect credentials in URLs, and redact them in texts that are stored, logged or returned."""

from __future__ import annotations

import re

SECRET_PARAMETERS = (  # noqa: SIM905
    "x-amz-signature x-amz-credential x-amz-security-token x-goog-signature x-goog-credential "
    "awsaccesskeyid sig signature token access_token id_token refresh_token auth key api_key "
    "api-key apikey code password secret client_secret"
).split()
# Backslashes too: browsers and some clients read them as slashes.
_USER_INFO = re.compile(r"([a-z][a-z0-9+.-]{0,30}:[/\\]{2})[^/?#\s\\]*@", re.IGNORECASE)
_PARAMETER = re.compile(rf"([?&;](?:{'|'.join(SECRET_PARAMETERS)})=)[^&#;\s'\"<>]+", re.IGNORECASE)


def has_user_info(url: str) -> bool:
    """Return whether the URL contains a user name or password."""
    return _USER_INFO.match(url.strip()) is not None


def redact_urls(text: str) -> str:
    """Remove user info from every URL in the text, and the values of secret query parameters."""
    return (
        _PARAMETER.sub(r"\1REDACTED", _USER_INFO.sub(r"\1", text))
        if "://" in text or ":\\" in text
        else text
    )
