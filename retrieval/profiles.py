"""Load the named profiles of each type from YAML files, and combine them for a request.

`NAME.yaml` is a workflow; `TYPE/NAME.yaml` is a profile of another type.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from engines.personal_identifiers import find_unknown_regions
from schemas.budgets import BudgetProfile
from schemas.errors import (
    ConfigurationError,
    InvalidRequest,
    format_invalid_fields,
    unknown_resource_error,
)
from schemas.ids import sha256_hex
from schemas.profiles import (
    FILE_MODELS,
    PROFILE_TYPES,
    SECTIONS_BY_TYPE,
    NamedProfile,
    Profile,
    ProfileType,
    WorkflowProfile,
)
from schemas.questions import SearchRequest
from schemas.run_records import FORMER_SETTINGS
from schemas.values import Value

Settings = dict[str, Any]
ProfileFiles = Mapping[ProfileType, Mapping[str, Settings]]
"""Settings of each file, by type and name."""

FIXED_SECTIONS = frozenset({"redaction", "prompt"})
"""Sections that only files set: they protect people and the bill of the model server."""

OVERRIDE_LIMITS: Mapping[tuple[str, str], float] = {
    ("answer", "timeout_s"): 600,
    ("answer", "threshold"): 1_000_000,
    ("lexical", "budget"): 1_000_000,
}
"""Limits of settings that files, and the profiles of recorded runs, may set to any number."""


class ProfileCatalog:
    """Profiles by type and name. `default` always exists."""

    def __init__(self, files: ProfileFiles) -> None:
        self._files = _add_defaults(files)

    def replace_with(self, other: ProfileCatalog) -> list[str]:
        """Take over the profiles of another catalog; return those that differ, as `type/name`."""
        before, self._files = self._files, other._files
        return [
            f"{profile_type}/{name}"
            for profile_type in PROFILE_TYPES
            for name in sorted(before[profile_type].keys() | self._files[profile_type].keys())
            if before[profile_type].get(name) != self._files[profile_type].get(name)
        ]

    @property
    def files(self) -> ProfileFiles:
        return self._files

    @property
    def sha256(self) -> str:
        """Hash of the settings of all profiles."""
        return sha256_hex(json.dumps(self._files, sort_keys=True).encode())

    def list_names(self, profile_type: ProfileType = "workflow") -> list[str]:
        return sorted(self._files[profile_type])

    def list_profiles(self) -> list[NamedProfile]:
        return [
            self.describe(profile_type, name)
            for profile_type in PROFILE_TYPES
            for name in self.list_names(profile_type)
        ]

    def describe(self, profile_type: str, name: str) -> NamedProfile:
        """Return a profile with its defaults. Raises NotFound."""
        known_type = next((known for known in PROFILE_TYPES if known == profile_type), None)
        if known_type is None or name not in self._files[known_type]:
            raise unknown_resource_error(
                "profile", repr(f"{profile_type}/{name}"), "List profiles with GET /v1/profiles."
            )
        file = self._files[known_type][name]
        profile: Value = (
            self.get(name) if known_type == "workflow" else FILE_MODELS[known_type](**file)
        )
        settings = profile.model_dump(mode="json", exclude={"name"})
        selected = WorkflowProfile(**file).profiles if known_type == "workflow" else None
        return NamedProfile(
            type=known_type,
            name=name,
            profiles=selected.model_dump() if selected else {},
            settings=settings,
            sha256=sha256_hex(json.dumps(settings, sort_keys=True).encode()),
        )

    def get(self, name: str) -> Profile:
        """Return a workflow. Raises InvalidRequest that lists the available ones."""
        return self._combine(name, {}, {})

    def get_chunk_sizes(self, name: str) -> Settings:
        """Return the settings of a chunking profile. Raises InvalidRequest if it is unknown."""
        return dict(self._find("chunking", name).get("chunk", {}))

    def select(self, request: SearchRequest) -> Profile:
        """Return the profile of a request: its workflow, with its own profiles and overrides.

        Raises InvalidRequest for an unknown profile, and for an override that is unknown, out of
        bounds, reserved to files, or above a cap of the workflow.
        """
        if reserved := next(_find_reserved(request.overrides), None):
            raise InvalidRequest(
                f"{reserved} cannot be set by a request.",
                code="FIXED_SETTING",
                remedy="Set it in the file of a profile, and name that profile.",
            )
        try:
            profile = self._combine(request.profile, dict(request.profiles), request.overrides)
        except ValidationError as error:
            raise InvalidRequest(
                f"Invalid override {format_invalid_fields(error.errors(include_input=False))}.",
                code="INVALID_OVERRIDE",
                remedy="GET /v1/config/schema has the settings of a profile and their bounds.",
            ) from error
        _check_limits(request.overrides, profile)
        _check_budget(self.get(request.profile).budget, profile.budget)
        return profile

    def _combine(
        self, name: str, profiles: Mapping[Any, str], overrides: Mapping[str, Any]
    ) -> Profile:
        workflow = dict(self._find("workflow", name))
        selected = {**workflow.pop("profiles", {}), **profiles}
        values: Settings = {}
        for profile_type in SECTIONS_BY_TYPE:
            if profile_type != "chunking":
                file = self._find(profile_type, selected.get(profile_type, "default"))
                values = merge_settings(values, file)
        # A profile that the request names replaces what the workflow sets beside its profiles.
        replaced = [FILE_MODELS[chosen]().model_dump() for chosen in profiles]
        own = {
            section: {
                key: value
                for key, value in settings.items()
                if not any(key in defaults.get(section, ()) for defaults in replaced)
            }
            for section, settings in workflow.items()
        }
        values = merge_settings(merge_settings(values, own), overrides)
        return Profile.model_validate({"name": name, **values})

    def _find(self, profile_type: ProfileType, name: str) -> Settings:
        profiles = self._files[profile_type]
        if name not in profiles:
            kind = "profile" if profile_type == "workflow" else f"{profile_type} profile"
            raise InvalidRequest(
                f"Unknown {kind} {name!r}.",
                code="UNKNOWN_PROFILE",
                remedy=f"Available {kind}s: {', '.join(sorted(profiles))}.",
            )
        return profiles[name]


def _add_defaults(files: ProfileFiles) -> ProfileFiles:
    # A file `default.yaml` replaces the built-in default.
    return {name: {"default": {}, **files.get(name, {})} for name in PROFILE_TYPES}


def _find_reserved(settings: Mapping[str, Any], path: str = "") -> Iterator[str]:
    for key, value in settings.items():
        if key in FIXED_SECTIONS:
            yield f"{path}{key}"
        elif isinstance(value, Mapping):
            yield from _find_reserved(value, f"{path}{key}.")


def _check_limits(overrides: Mapping[str, Mapping[str, Any]], profile: Profile) -> None:
    for (section, name), limit in OVERRIDE_LIMITS.items():
        value = getattr(getattr(profile, section), name)
        if name in overrides.get(section, ()) and value is not None and abs(value) > limit:
            raise InvalidRequest(
                f"Invalid override {section}.{name}: a request may set up to {limit:,}.",
                code="INVALID_OVERRIDE",
                remedy="Set it in the file of a profile, and name that profile.",
            )


def _check_budget(own: BudgetProfile, requested: BudgetProfile) -> None:
    for name in BudgetProfile.model_fields:
        cap, wanted = getattr(own, name), getattr(requested, name)
        if cap is not None and (wanted is None or wanted > cap):
            raise InvalidRequest(
                f"budget.{name} cannot be raised by a request: the profile allows {cap:g}.",
                code="FIXED_SETTING",
                remedy="Lower it, or name a profile that allows more.",
            )


def merge_settings(base: Mapping[str, Any], overrides: Mapping[str, Any]) -> Settings:
    """Return the settings, with those of `overrides` in place of their own, key by key."""
    merged = dict(base)
    for key, value in overrides.items():
        own = merged.get(key)
        if isinstance(own, Mapping) and isinstance(value, Mapping):
            merged[key] = merge_settings(own, value)
        else:
            merged[key] = value
    return merged


def load_profiles(*folders: Path) -> ProfileCatalog:
    """Load the profiles of the folders, named after their files; later folders override earlier.

    Raises ConfigurationError that names the file and the key of an invalid setting.
    """
    files: dict[ProfileType, dict[str, Settings]] = {name: {} for name in PROFILE_TYPES}
    origins: dict[str, Path] = {}
    for profile_type, path in (found for folder in folders for found in _list_files(folder)):
        with _report_invalid(path):
            files[profile_type][path.stem] = _read_file(profile_type, path)
        if profile_type == "workflow":
            origins[path.stem] = path
    catalog = ProfileCatalog(files)
    # Profiles that a workflow names may lie in any of the folders.
    for name, path in origins.items():
        with _report_invalid(path):
            catalog.get(name)
    return catalog


def parse_profiles(files: Mapping[str, Mapping[str, Settings]]) -> ProfileCatalog:
    """Validate `files` of a catalog that may come from another version of the program.

    Raises ConfigurationError that names the profile and the key of an invalid setting.
    """
    parsed: dict[ProfileType, Mapping[str, Settings]] = {}
    for profile_type in PROFILE_TYPES:
        parsed[profile_type] = files.get(profile_type, {})
        for name, settings in parsed[profile_type].items():
            with _report_invalid(f"{profile_type}/{name}"):
                FILE_MODELS[profile_type].model_validate(settings)
    catalog = ProfileCatalog(parsed)
    for name in catalog.list_names():
        with _report_invalid(f"workflow/{name}"):
            catalog.get(name)
    return catalog


def _list_files(folder: Path) -> Iterable[tuple[ProfileType, Path]]:
    if misnamed := sorted([*folder.glob("*.yml"), *folder.glob("*/*.yml")]):
        raise ConfigurationError(
            f"Invalid profile {misnamed[0]}: the name of a profile ends in .yaml.",
            remedy=f"Rename the file to {misnamed[0].stem}.yaml.",
        )
    yield from (("workflow", path) for path in sorted(folder.glob("*.yaml")))
    for path in sorted(folder.glob("*/*.yaml")):
        profile_type = next((name for name in SECTIONS_BY_TYPE if name == path.parent.name), None)
        if profile_type is None:
            raise ConfigurationError(
                f"Invalid profile {path}: unknown profile type {path.parent.name!r}.",
                remedy=f"Rename the folder. Types: {', '.join(SECTIONS_BY_TYPE)}.",
            )
        yield profile_type, path


def _read_file(profile_type: ProfileType, path: Path) -> Settings:
    return deepcopy(_parse_file(profile_type, path.read_text(encoding="utf-8")))


# The worker and the API load the same files, and so does each reload.
@lru_cache(maxsize=256)
def _parse_file(profile_type: ProfileType, text: str) -> Settings:
    # As safe as `yaml.safe_load`: the loader extends SafeLoader.
    settings = yaml.load(text, _UniqueKeyLoader)
    checked = FILE_MODELS[profile_type].model_validate({} if settings is None else settings)
    settings = checked.model_dump(mode="json", exclude_unset=True)
    # A file is named after its path alone.
    settings.pop("name", None)
    # Not in the schema, which past runs have to satisfy too.
    if regions := settings.get("redaction", {}).get("phone_regions"):
        _check_phone_regions(regions)
    return settings


def _check_phone_regions(regions: Iterable[str]) -> None:
    """Raise ValueError for an unknown country, whose numbers would not be masked."""
    if unknown := find_unknown_regions(regions):
        raise ValueError(
            f"redaction.phone_regions: unknown country {unknown[0]!r}; give a code of ISO 3166"
        )


class _UniqueKeyLoader(yaml.SafeLoader):
    """Reject repeated keys, of which PyYAML silently keeps the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys: set[Any] = set()
        for key_node, _ in node.value:
            # Keys that a merge (<<) brings may be replaced.
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                # Validation reports it.
                continue
            if key in keys:
                line = key_node.start_mark.line + 1
                raise ValueError(f"key {key!r} is repeated in line {line}; keep one of the two")
            keys.add(key)
        return super().construct_mapping(node, deep)


@contextmanager
def _report_invalid(profile: Path | str) -> Iterator[None]:
    try:
        yield
        return
    except ValidationError as error:
        problems = error.errors(include_input=False)
        reason = format_invalid_fields(problems, "the file")
        # A whole section, such as `judge` in the file of a fusion profile, is at the wrong place.
        former = [
            name
            for problem in problems
            if problem["type"] == "extra_forbidden"
            and "." in (name := ".".join(map(str, problem["loc"])))
            and any(f"{one}.".startswith(f"{name}.") for one in FORMER_SETTINGS)
        ]
        if former:
            reason += f". Remove {', '.join(former)}, which is no longer a setting"
    except InvalidRequest as error:
        reason = f"profiles: {error.detail} {error.remedy}".rstrip(".")
    # YAML also raises the errors of Python, such as for the date 2026-13-01.
    except (yaml.YAMLError, ValueError, LookupError, RecursionError, OSError) as error:
        reason = str(error)
    raise ConfigurationError(
        f"Invalid profile {profile}: {reason}.",
        remedy="Compare it with the shipped profiles; the reference lists all fields and bounds.",
    )
