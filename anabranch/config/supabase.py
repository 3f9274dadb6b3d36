"""Settings from the environment names of Supabase projects.

They have the lowest precedence: they may be set for another program.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from schemas.errors import ConfigurationError

DB_URL, URL = "SUPABASE_DB_URL", "SUPABASE_URL"
SERVICE_KEY, BUCKET = "SUPABASE_SERVICE_ROLE_KEY", "SUPABASE_STORAGE_BUCKET"
TRANSACTION_POOLER_PORT = 6543
HOSTED_DOMAIN = ".supabase.co"
KEYS_REMEDY = (
    "Create S3 access keys in the project's storage settings, and set "
    "ANABRANCH_STORAGE__ACCESS_KEY, ANABRANCH_STORAGE__SECRET_KEY and ANABRANCH_STORAGE__REGION."
)


def read_supabase_settings(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings that follow from the names, nested."""
    settings: dict[str, Any] = {}
    if database_url := environment.get(DB_URL):
        settings["database"] = {"url": database_url}
    if project_url := environment.get(URL, "").rstrip("/"):
        issuer = f"{project_url}/auth/v1"
        settings["auth"] = {"jwks_url": f"{issuer}/.well-known/jwks.json", "issuer": issuer}
        if bucket := environment.get(BUCKET):
            host = urlsplit(project_url).netloc
            # Supabase's advice for large files: its host for storage alone.
            storage_host = host.replace(HOSTED_DOMAIN, f".storage{HOSTED_DOMAIN}")
            endpoint = f"{project_url.replace(host, storage_host)}/storage/v1/s3"
            settings["storage"] = {"url": f"s3://{bucket}?endpoint={endpoint}"}
    return settings


def check_database_url(url: str) -> None:
    """Raises ConfigurationError for the pooler in transaction mode. The URL holds a password, so
    the error does not repeat it.
    """
    if urlsplit(url).netloc.endswith(f":{TRANSACTION_POOLER_PORT}"):
        raise ConfigurationError(
            f"{DB_URL} names the pooler in transaction mode (port {TRANSACTION_POOLER_PORT}), "
            "which cannot be used: migrations lock, and one question shares a snapshot.",
            code="BAD_SETTING",
            remedy="Use the direct connection, or the pooler in session mode (port 5432).",
        )


def list_ignored_names(environment: Mapping[str, str], *, has_keys: bool) -> dict[str, str]:
    """Return the names that are set and have no effect, with the reason; never a value."""
    reasons = {
        SERVICE_KEY: "it opens Supabase's own interface of storage, and Anabranch uses S3",
        **({} if has_keys else {BUCKET: "storage needs S3 access keys"}),
        **({} if environment.get(URL) else {BUCKET: f"{URL} is not set"}),
    }
    return {name: reason for name, reason in reasons.items() if environment.get(name)}
