"""Loading of settings: `--set` overrides the environment, which overrides the TOML file.

Unknown keys are errors. Settings that a generation overrides, such as the address of its models,
are files in the data folder and not events, since they may hold addresses and keys.
"""

from __future__ import annotations

import difflib
import json
import os
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_settings import EnvSettingsSource, SettingsError

from anabranch.config.settings import CHAT_TASKS, Settings
from anabranch.config.supabase import check_database_url, read_supabase_settings
from engines.disk import write_private
from schemas.errors import ConfigurationError, format_invalid_fields

ENV_PREFIX = "ANABRANCH_"
CHOICE_FILE, CHOICE_ORIGIN = "chosen-model.json", "web UI"
"""Chat model of this machine that an operator has chosen, and its origin among settings."""
MODEL_SECTIONS = ("chat", "embed", "rerank", "ocr", *CHAT_TASKS)
NON_SETTING_VARIABLES = frozenset(
    {
        "ANABRANCH_CONFIG",
        "ANABRANCH_SERVER",
        "ANABRANCH_TOKEN",
        "ANABRANCH_PG_BIN",
        "ANABRANCH_PG_USER",
        "ANABRANCH_REQUIRE_BROWSER",
        "ANABRANCH_REQUIRE_KAFKA",
        "ANABRANCH_UI_BUILD",
    }
)
"""Variables with our prefix that are not settings.

The command line, the embedded Postgres and the tests read them.
"""


def load_settings(
    *, data_dir: Path | None = None, config: Path | None = None, sets: Iterable[str] = ()
) -> Settings:
    """Load settings.

    Raises ConfigurationError for an unknown key, an invalid value, or an unreadable file.
    """
    return merge_origins(read_origins(data_dir=data_dir, config=config, sets=sets))


def read_origins(
    *, data_dir: Path | None = None, config: Path | None = None, sets: Iterable[str] = ()
) -> dict[str, dict[str, Any]]:
    """Return the values of the chosen chat model, `file`, `environment` and `command line`, lowest
    precedence first.
    """
    # Read first: the environment may name the data folder, which holds the file.
    environment = _read_environment()
    folder = data_dir or Path(
        environment.get("data_dir", Settings.model_fields["data_dir"].default)
    )
    command_line = parse_assignments(sets) | ({"data_dir": str(data_dir)} if data_dir else {})
    named_file = config or (
        Path(os.environ["ANABRANCH_CONFIG"]) if os.environ.get("ANABRANCH_CONFIG") else None
    )
    file = _read_file(named_file, folder)
    origins = {
        "file": file,
        "environment": _merge(_read_supabase(file, environment, command_line), environment),
        "command line": command_line,
    }
    # Never beside other settings of `CHAT__`, such as the key of another server.
    is_free = not any("chat" in values for values in origins.values())
    return {CHOICE_ORIGIN: read_choice(folder) if is_free else {}} | origins


def _read_supabase(*origins: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings from Supabase's names that no origin sets itself."""
    keys = {key: value for origin in origins for key, value in flatten(origin)}
    found = dict(flatten(read_supabase_settings(os.environ)))
    # Without access keys, files stay where they are without these names; `doctor` says so.
    if not keys.get("storage.access_key"):
        found.pop("storage.url", None)
    # Keys of one issuer must not be checked against another.
    if "auth.jwks_url" in keys:
        found.pop("auth.issuer", None)
    nested: dict[str, Any] = {}
    for key, value in found.items():
        if key not in keys:
            if key == "database.url":
                check_database_url(value)
            nested = _merge(nested, _nest(key.split("."), value))
    return nested


def merge_origins(origins: Mapping[str, dict[str, Any]]) -> Settings:
    merged: dict[str, Any] = {}
    for origin, values in origins.items():
        _reject_unknown(values, origin)
        # A key that came without an address may be sent to the address of a later origin.
        merged = _merge_dropping_stale_keys(
            merged, values, is_bound=lambda address: address is not None
        )
    settings = _validate(merged)
    settings.origins.update(
        {key: origin for origin, values in origins.items() for key, _ in flatten(values)}
    )
    return settings


def _validate(merged: Mapping[str, Any]) -> Settings:
    try:
        return Settings.model_validate(merged)
    except ValidationError as error:
        raise ConfigurationError(
            format_invalid_fields(error.errors(include_input=False), "settings"),
            code="BAD_SETTING",
            remedy="List settings and their bounds with `anabranch config schema`.",
        ) from error


def override_settings(settings: Settings, sets: Iterable[str]) -> Settings:
    """Return the settings with changes; an API key is not sent to another address.

    Raises ConfigurationError.
    """
    overrides = parse_assignments(sets)
    _reject_unknown(overrides, "--set")
    return _validate(
        _merge_dropping_stale_keys(settings.model_dump(), overrides, is_bound=lambda address: True)
    )


def _merge_dropping_stale_keys(
    base: Mapping[str, Any], override: Mapping[str, Any], *, is_bound: Callable[[str | None], bool]
) -> dict[str, Any]:
    """Merge, and drop a model server's API key if its address changes without a new key.

    `is_bound` returns whether a key configured with the given address must not be sent to another
    one.
    """
    merged = _merge(base, override)
    for section in MODEL_SECTIONS:
        old_address = _resolve_address(base, section)
        new_address = _resolve_address(merged, section)
        if (
            old_address == new_address
            or not is_bound(old_address)
            or "api_key" in override.get(section, {})
        ):
            continue
        if section in merged:
            merged[section] = {**merged[section], "api_key": None}
    return merged


def _resolve_address(values: Mapping[str, Any], section: str) -> str | None:
    """Return the address to which the section's key is sent.

    The tasks of chat models default to the server of `CHAT__`.
    """
    address = values.get(section, {}).get("base_url") or (
        values.get("chat", {}).get("base_url") if section in CHAT_TASKS else None
    )
    return str(address).rstrip("/") if address else None


def list_setting_names(model: type[BaseModel] = Settings, prefix: str = "") -> Iterator[str]:
    """Yield the dotted names of all settings."""
    for name, field in model.model_fields.items():
        if inner := _find_section(field.annotation):
            yield from list_setting_names(inner, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    setting_names = set(list_setting_names())
    for name, value in values.items():
        # Some settings are mappings themselves, such as ingest.sources.
        if isinstance(value, Mapping) and f"{prefix}{name}" not in setting_names:
            yield from flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def to_environment_name(key: str) -> str:
    return ENV_PREFIX + key.replace(".", "__").upper()


def _find_section(annotation: Any) -> type[BaseModel] | None:
    # The values of a mapping are no section, but part of one setting.
    arguments = () if get_origin(annotation) is dict else get_args(annotation)
    for candidate in (annotation, *arguments):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None


def _read_environment() -> dict[str, Any]:
    # EnvSettingsSource ignores unknown variables.
    for name in os.environ:
        key = name.removeprefix(ENV_PREFIX).lower().replace("__", ".")
        if name.startswith(ENV_PREFIX) and name not in NON_SETTING_VARIABLES:
            _check_setting_name(key, set(list_setting_names()), name, to_environment_name)
    try:
        return dict(EnvSettingsSource(Settings)())
    except SettingsError as error:
        raise ConfigurationError(
            f"Invalid environment variable: {error}.",
            code="BAD_SETTING",
            remedy="Write lists and mappings as JSON.",
        ) from error


def read_choice(folder: Path) -> dict[str, Any]:
    path = folder / CHOICE_FILE
    if not path.exists():
        return {}
    try:
        return {"chat": dict(json.loads(path.read_text(encoding="utf-8")))}
    except (OSError, ValueError, TypeError) as error:
        raise ConfigurationError(
            f"Cannot read {path}: {error}.", code="BAD_SETTINGS_FILE", remedy="Delete it."
        ) from error


def _read_file(named_path: Path | None, folder: Path) -> dict[str, Any]:
    path = named_path or folder / "anabranch.toml"
    # The default file is optional, a named one is not.
    if named_path is None and not path.exists():
        return {}
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"Cannot read {path}: {error}.",
            code="BAD_SETTINGS_FILE",
            remedy="Use a valid TOML file.",
        ) from error


def parse_assignments(
    assignments: Iterable[str], option: str = "--set", form: str = "section.key=value"
) -> dict[str, Any]:
    """Nest values by the parts of their keys; a later assignment replaces an earlier one.

    Raises ConfigurationError that names the option for an assignment without value.
    """
    values: dict[str, Any] = {}
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals:
            raise ConfigurationError(
                f"{option} {assignment} has no value.",
                code="BAD_SETTING",
                remedy=f"Use {option} {form}.",
            )
        values = _merge(values, _nest(key.strip().split("."), _parse_value(key, value)))
    return values


def _nest(path: list[str], value: Any) -> dict[str, Any]:
    head, *rest = path
    return {head: _nest(rest, value) if rest else value}


def _parse_value(key: str, text: str) -> Any:
    """Parse lists, mappings and null from JSON; return other text as it is."""
    if text != "null" and not text.startswith(("[", "{")):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(
            f"Invalid JSON {text!r} for {key}: {error}.",
            code="BAD_SETTING",
            remedy="Write lists and mappings as JSON.",
        ) from error


def _merge(base: Mapping[str, Any], override: Mapping[str, Any]) -> dict[str, Any]:
    merged_sections = {
        name: _merge(base[name], override[name])
        for name in base.keys() & override.keys()
        if isinstance(base[name], Mapping) and isinstance(override[name], Mapping)
    }
    return {**base, **override, **merged_sections}


def _reject_unknown(values: Mapping[str, Any], origin: str) -> None:
    setting_names = set(list_setting_names())
    for key, _ in flatten(values):
        _check_setting_name(key, setting_names, f"{key} ({origin})", str)


def _check_setting_name(key: str, setting_names: set[str], label: str, format_name: Any) -> None:
    if (
        key in setting_names
        or any(name.startswith(f"{key}.") for name in setting_names)
        # A key inside a setting that is a mapping.
        or any(key.startswith(f"{name}.") for name in setting_names)
    ):
        return
    # cutoff=0: there is always a suggestion, however different.
    nearest = difflib.get_close_matches(key, setting_names, n=1, cutoff=0.0)
    raise ConfigurationError(
        f"Unknown setting {label}.",
        code="UNKNOWN_SETTING",
        remedy=f"Did you mean {format_name(nearest[0])}?",
    )


OVERRIDES_FOLDER = "generations"


def resolve_generation_settings(settings: Settings, generation: str) -> Settings:
    """Return the settings with the generation's overrides. Raises ConfigurationError."""
    overrides = load_overrides(settings, generation)
    return override_settings(settings, overrides) if overrides else settings


def load_overrides(settings: Settings, generation: str) -> list[str]:
    path = _overrides_path(settings, generation)
    return list(json.loads(path.read_text())) if path.exists() else []


def store_overrides(settings: Settings, generation: str, overrides: Sequence[str]) -> None:
    """Store the overrides with mode 0600, since they may hold keys."""
    write_private(_overrides_path(settings, generation), json.dumps(list(overrides)))


def _overrides_path(settings: Settings, generation: str) -> Path:
    return settings.data_dir.resolve() / OVERRIDES_FOLDER / f"{generation}.json"


def suggest_scheme(url: str) -> str:
    """Return a remedy for a server URL without scheme, else an empty string."""
    return "" if "://" in url else f"Use --server http://{url}."
