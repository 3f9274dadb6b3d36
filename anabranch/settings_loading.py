"""Where settings come from: `--set`, then the environment, then the TOML file, then the defaults. A key that nobody knows is an error."""

from __future__ import annotations

import difflib
import json
import os
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_settings import EnvSettingsSource, SettingsError

from anabranch.settings import Settings
from schemas.errors import ConfigurationError

PREFIX = "ANABRANCH_"
MODEL_SECTIONS = ("chat", "embed", "rerank", "ocr", "extract")
OTHER_NAMES = frozenset({"ANABRANCH_CONFIG", "ANABRANCH_SERVER", "ANABRANCH_TOKEN", "ANABRANCH_PG_BIN", "ANABRANCH_PG_USER", "ANABRANCH_REQUIRE_KAFKA"})
"""Names in the environment that are ours but no settings: of the command line, the embedded Postgres and the tests."""

LATER = {
    "graph.bolt_url": "the graph channel runs on the Postgres tables",
    "plan": "questions are planned by rules",
    "route": "questions are routed by rules",
    "judge": "answers are checked by rules",
}
"""Settings that this version refuses, and how it does without."""


def load_settings(*, data_dir: Path | None = None, config: Path | None = None, sets: Iterable[str] = ()) -> Settings:
    """Raises ConfigurationError for an unknown key (naming the nearest known one), a bad value, or a file that cannot be read."""
    return validated(gather(data_dir=data_dir, config=config, sets=sets))


def gather(*, data_dir: Path | None = None, config: Path | None = None, sets: Iterable[str] = ()) -> dict[str, dict[str, Any]]:
    """What each origin says, weakest first: `file`, `environment`, `command line`."""
    environment = _environment()
    folder = data_dir or Path(environment.get("data_dir", Settings.model_fields["data_dir"].default))
    given = _assignments(sets) | ({"data_dir": str(data_dir)} if data_dir else {})
    return {"file": _file(config or _named_file(), folder), "environment": environment, "command line": given}


def validated(origins: Mapping[str, dict[str, Any]]) -> Settings:
    merged: dict[str, Any] = {}
    for origin, values in origins.items():
        _refuse_unknown(values, origin)
        merged = _with_own_keys(merged, values, is_bound=lambda address: address is not None)
    return _made(merged)


def _made(merged: Mapping[str, Any]) -> Settings:
    try:
        return Settings.model_validate(merged)
    except ValidationError as error:
        raise ConfigurationError(_told(error), code="BAD_SETTING", remedy="`anabranch config schema` lists every setting with its bounds.") from error


def amended(settings: Settings, sets: Iterable[str]) -> Settings:
    """The same with some settings changed; an API key does not follow to another address. Raises ConfigurationError."""
    given = _assignments(sets)
    _refuse_unknown(given, "--set")
    return _made(_with_own_keys(settings.model_dump(), given, is_bound=lambda address: True))


def _with_own_keys(low: Mapping[str, Any], high: Mapping[str, Any], *, is_bound: Callable[[str | None], bool]) -> dict[str, Any]:
    """Merge, and drop each model server's key where its address changed and no new key is given: a key belongs to the address it was configured with.
    `is_bound` says whether a key that stood beside such an address may go to no other."""
    merged = _merged(low, high)
    for section in MODEL_SECTIONS:
        before, after = _address(low, section), _address(merged, section)
        if before == after or not is_bound(before) or "api_key" in high.get(section, {}):
            continue
        if section in merged:
            merged[section] = {**merged[section], "api_key": None}
    return merged


def _address(values: Mapping[str, Any], section: str) -> str | None:
    """Where the section's key is sent: extraction uses the server of `CHAT__` unless it has its own."""
    found = values.get(section, {}).get("base_url") or (values.get("chat", {}).get("base_url") if section == "extract" else None)
    return str(found).rstrip("/") if found else None


def known_keys(model: type[BaseModel] = Settings, prefix: str = "") -> Iterator[str]:
    """Dotted names of all settings."""
    for name, field in model.model_fields.items():
        inner = _section(field.annotation)
        if inner:
            yield from known_keys(inner, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def flattened(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    known = set(known_keys())
    for name, value in values.items():
        if isinstance(value, Mapping) and f"{prefix}{name}" not in known:
            yield from flattened(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def environment_name(key: str) -> str:
    return PREFIX + key.replace(".", "__").upper()


def _section(annotation: Any) -> type[BaseModel] | None:
    for candidate in (annotation, *get_args(annotation)):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None


def _environment() -> dict[str, Any]:
    for name in os.environ:
        key = name.removeprefix(PREFIX).lower().replace("__", ".")
        if name.startswith(PREFIX) and name not in OTHER_NAMES:
            _refuse(key, set(known_keys()), name, environment_name)
    try:
        return dict(EnvSettingsSource(Settings)())
    except SettingsError as error:
        raise ConfigurationError(f"the environment: {error}", code="BAD_SETTING", remedy="Write lists and mappings as JSON.") from error


def _named_file() -> Path | None:
    return Path(os.environ["ANABRANCH_CONFIG"]) if os.environ.get("ANABRANCH_CONFIG") else None


def _file(named: Path | None, folder: Path) -> dict[str, Any]:
    path = named or folder / "anabranch.toml"
    if named is None and not path.exists():
        return {}
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{path}: {error}", code="BAD_SETTINGS_FILE", remedy="Give a readable TOML file with --config.") from error


def _assignments(sets: Iterable[str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for assignment in sets:
        key, equals, value = assignment.partition("=")
        if not equals:
            raise ConfigurationError(f"--set {assignment}: no value", code="BAD_SETTING", remedy="Write --set section.key=value.")
        values = _merged(values, _nested(key.strip().split("."), _value(key, value)))
    return values


def _nested(path: list[str], value: Any) -> dict[str, Any]:
    head, *rest = path
    return {head: _nested(rest, value) if rest else value}


def _value(key: str, text: str) -> Any:
    """Lists and mappings are written as JSON."""
    if not text.startswith(("[", "{")):
        return text
    try:
        return json.loads(text)
    except ValueError as error:
        raise ConfigurationError(f"{key}: {text!r} is not JSON: {error}", code="BAD_SETTING", remedy="Write lists and mappings as JSON.") from error


def _merged(low: Mapping[str, Any], high: Mapping[str, Any]) -> dict[str, Any]:
    both = {name: _merged(low[name], high[name]) for name in low.keys() & high.keys() if isinstance(low[name], Mapping) and isinstance(high[name], Mapping)}
    return {**low, **high, **both}


def _refuse_unknown(values: Mapping[str, Any], origin: str) -> None:
    known = set(known_keys())
    for key, _ in flattened(values):
        _refuse(key, known, f"{key} ({origin})", str)


def _refuse(key: str, known: set[str], shown: str, spelled: Any) -> None:
    for later, instead in LATER.items():
        if key == later or key.startswith(f"{later}."):
            raise ConfigurationError(f"{shown}: not available in this version: {instead}", code="SETTING_NOT_AVAILABLE", remedy="Take the setting out.")
    if key in known or any(name.startswith(f"{key}.") for name in known) or any(key.startswith(f"{name}.") for name in known):
        return
    nearest = difflib.get_close_matches(key, known, n=1, cutoff=0.0)
    raise ConfigurationError(f"{shown}: no such setting", code="UNKNOWN_SETTING", remedy=f"Did you mean {spelled(nearest[0])}?")


def _told(error: ValidationError) -> str:
    return "; ".join(f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in error.errors(include_input=False, include_url=False))
