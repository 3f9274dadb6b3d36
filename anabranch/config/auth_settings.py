"""Settings of authentication."""

from __future__ import annotations

from urllib.parse import urlsplit

from pydantic import Field, field_validator

from anabranch.config.model_settings import SettingsSection

CLAIM_PATTERN = r"^[A-Za-z_][A-Za-z0-9_-]*(\.[A-Za-z_][A-Za-z0-9_-]*){0,4}$"


class AuthSettings(SettingsSection):
    """Authentication by JSON Web Token; API keys need no settings."""

    jwks_url: str | None = Field(
        None,
        max_length=2048,
        description="URL of the issuer's public keys; unset: JSON Web Tokens are rejected",
    )
    audience: str = Field(
        "authenticated",
        min_length=1,
        max_length=255,
        description="required claim `aud`; Supabase sets `authenticated`",
    )
    issuer: str | None = Field(
        None,
        min_length=1,
        max_length=2048,
        description="required claim `iss`; unset: any issuer whose keys are at `jwks_url`",
    )
    tenant_claim: str = Field(
        "app_metadata.tenant_id",
        max_length=255,
        pattern=CLAIM_PATTERN,
        description="dotted path of the claim with the tenant",
    )
    role_claim: str = Field(
        "app_metadata.anabranch_role",
        max_length=255,
        pattern=CLAIM_PATTERN,
        description="dotted path of the claim with the role; without it: reader",
    )
    groups_claim: str = Field(
        "app_metadata.groups",
        max_length=255,
        pattern=CLAIM_PATTERN,
        description="dotted path of the claim with the user's groups",
    )
    jwks_refresh_s: float = Field(
        30.0,
        ge=1,
        le=3600,
        description="minimum seconds between fetches of the keys for unknown key ids",
    )
    max_failures: int = Field(
        20,
        ge=1,
        le=100_000,
        description="failed authentications per address and minute before it gets 429",
    )

    @field_validator("tenant_claim", "role_claim", "groups_claim")
    @classmethod
    def _reject_user_writable_claim(cls, claim: str) -> str:
        if claim.split(".")[0] in ("user_metadata", "raw_user_meta_data"):
            raise ValueError("users can edit user_metadata. Use a claim of app_metadata")
        return claim

    @field_validator("jwks_url")
    @classmethod
    def _require_secure_url(cls, url: str | None) -> str | None:
        if url is not None:
            parts = urlsplit(url)
            is_loopback = parts.hostname in ("localhost", "127.0.0.1", "::1")
            # A name without a dot, such as that of a container, resolves in a private network only.
            is_container_host = "." not in (parts.hostname or ".") and ":" not in (
                parts.hostname or ""
            )
            if not parts.hostname or (
                parts.scheme != "https"
                and not (parts.scheme == "http" and (is_loopback or is_container_host))
            ):
                raise ValueError(
                    "the URL is not secure. Use https, or http on this machine or to a host "
                    "without a domain"
                )
        return url
