"""Credentials in URLs: found, and cut out of what is stored, logged or shown."""

from __future__ import annotations

import re

SECRET_PARAMETERS = (
    "x-amz-signature",
    "x-amz-credential",
    "x-amz-security-token",
    "x-goog-signature",
    "x-goog-credential",
    "awsaccesskeyid",
    "sig",
    "signature",
    "token",
    "access_token",
    "id_token",
    "refresh_token",
    "auth",
    "key",
    "api_key",
    "api-key",
    "apikey",
    "code",
    "password",
    "secret",
    "client_secret",
)
_USER_INFO = re.compile(r"([a-z][a-z0-9+.-]{0,30}:[/\\]{2})[^/?#\s\\]*@", re.IGNORECASE)
_PARAMETER = re.compile(rf"([?&;](?:{'|'.join(SECRET_PARAMETERS)})=)[^&#;\s'\"<>]+", re.IGNORECASE)


def has_user_info(url: str) -> bool:
    """Return whether the URL holds a user name or a password."""
    return _USER_INFO.match(url.strip()) is not None


def redact_urls(text: str) -> str:
    """Cut user info out of every URL in the text, and the values of query parameters that sign or authorize."""
    return _PARAMETER.sub(r"\1REDACTED", _USER_INFO.sub(r"\1", text)) if "://" in text or ":\\" in text else text
