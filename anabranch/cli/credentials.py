"""Credentials of servers, stored in a file that only its owner may read."""

from __future__ import annotations

import json
import os
from pathlib import Path
from urllib.parse import urlsplit

from engines.disk import write_private
from schemas.errors import ConfigurationError, InvalidRequest

CREDENTIALS_FILE = "credentials.json"


def find_config_folder() -> Path:
    """Return the folder for settings by the XDG Base Directory Specification."""
    # The specification requires that a relative path in the variable is ignored.
    configured = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    return (configured if configured.is_absolute() else Path.home() / ".config") / "anabranch"


def find_token(server: str) -> str | None:
    """Return the credential stored for this server.

    Raises ConfigurationError if others may read the file.
    """
    return _read_credentials().get(normalize_server(server))


def store_token(server: str, token: str) -> Path:
    return _write_credentials({**_read_credentials(), normalize_server(server): token})


def remove_token(server: str) -> bool:
    credentials = _read_credentials()
    was_stored = credentials.pop(normalize_server(server), None) is not None
    if was_stored:
        _write_credentials(credentials)
    return was_stored


def normalize_server(server: str) -> str:
    """Reduce a URL to scheme, host, port and path.

    Raises InvalidRequest for other URLs than http and https.
    """
    try:
        parts = urlsplit(server)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        parts, port = urlsplit(""), ""
    if (
        parts.scheme not in ("http", "https")
        or not parts.hostname
        or parts.username
        or parts.query
        or parts.fragment
    ):
        raise InvalidRequest(
            f"Invalid server URL {server!r}.", remedy="Use https://HOST or http://HOST:PORT."
        )
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}{port}{parts.path.rstrip('/')}"


def is_private(server: str) -> bool:
    """Return whether the connection to the server is private: TLS, or loopback."""
    parts = urlsplit(server)
    return parts.scheme == "https" or parts.hostname in ("localhost", "127.0.0.1", "::1")


def _read_credentials() -> dict[str, str]:
    path = find_config_folder() / CREDENTIALS_FILE
    try:
        with path.open(encoding="utf-8") as file:
            # Checked on the open file, which cannot be exchanged after the check.
            if os.fstat(file.fileno()).st_mode & 0o077:
                raise ConfigurationError(
                    f"{path} is readable by other users.",
                    code="CREDENTIALS_EXPOSED",
                    remedy=f"Replace the keys in it, then run: chmod 600 {path}",
                )
            return {str(server): str(token) for server, token in json.load(file).items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError) as error:
        raise ConfigurationError(
            f"Cannot read {path}: {error}.",
            code="BAD_SETTINGS_FILE",
            remedy="Delete it and log in again.",
        ) from error


def _write_credentials(credentials: dict[str, str]) -> Path:
    """Replace the file atomically."""
    folder = find_config_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_private(folder / CREDENTIALS_FILE, json.dumps(credentials, indent=1))
    return folder / CREDENTIALS_FILE
