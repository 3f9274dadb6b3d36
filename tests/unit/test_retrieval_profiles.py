from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import ValidationError

from anabranch.config.index_config import build_index_config
from anabranch.config.loader import load_settings
from anabranch.config.profiles import load_all_profiles, read_profiles_again
from retrieval.profiles import ProfileCatalog, load_profiles
from schemas.budgets import BudgetProfile
from schemas.errors import ConfigurationError, DatabaseUnavailable, InvalidRequest
from schemas.profiles import (
    FILE_MODELS,
    PROFILE_TYPES,
    SECTIONS_BY_TYPE,
    Profile,
    ProfileType,
    QueryProfileType,
)
from schemas.questions import SearchRequest
from services.query.profile_reload import ProfileReloader

PROFILES_DIR = Path(__file__).parents[2] / "profiles"
QUERY_TYPES: tuple[QueryProfileType, ...] = get_args(QueryProfileType)


def test_shipped_profiles_are_valid_and_default_file_matches_defaults() -> None:
    profiles = load_profiles(PROFILES_DIR)
    assert profiles.list_names() == ["balanced", "default", "diverse", "redacted", "rrf", "strict"]
    assert profiles.get("default") == Profile()


def test_shipped_profile_weights_match_documentation() -> None:
    profiles = load_profiles(PROFILES_DIR)
    rrf, balanced = profiles.get("rrf").fusion, profiles.get("balanced").fusion
    assert (rrf.method, rrf.rrf_k, rrf.graph, rrf.semantic, rrf.lexical) == (
        "rrf",
        60,
        1.0,
        0.8,
        0.7,
    )
    assert (balanced.semantic, balanced.lexical, balanced.graph) == (0.5, 0.3, 0.2)
    ks = [profiles.get("balanced").get_channel(name).k for name in ("semantic", "lexical", "graph")]
    assert ks == [10, 10, 5]
    assert profiles.get("diverse").fusion.per_document == 2


def test_user_profiles_override_shipped_ones(tmp_path: Path) -> None:
    (tmp_path / "default.yaml").write_text("answer: {threshold: 0.9}")
    (tmp_path / "mine.yaml").write_text("fusion: {method: rrf}")
    profiles = load_profiles(PROFILES_DIR, tmp_path)
    assert profiles.get("default").answer.threshold == 0.9
    assert {"mine", "rrf"} <= set(profiles.list_names()) and profiles.get("rrf") == load_profiles(
        PROFILES_DIR
    ).get("rrf")


def test_unknown_profile_error_lists_available_profiles(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("fusion: {method: rrf}")
    with pytest.raises(InvalidRequest) as error:
        load_profiles(tmp_path).get("yours")
    assert error.value.code == "UNKNOWN_PROFILE" and "default, mine" in error.value.remedy


@pytest.mark.parametrize(
    "text",
    ["fusion: {method: magic}", "unknown: 1", "- a list", "a: [broken", "rerank: {parents: 0}"],
)
def test_invalid_profile_file_fails_startup_by_name(tmp_path: Path, text: str) -> None:
    (tmp_path / "odd.yaml").write_text(text)
    with pytest.raises(ConfigurationError, match=r"odd\.yaml"):
        load_profiles(tmp_path)


@pytest.mark.parametrize("profile_type", PROFILE_TYPES)
def test_shipped_default_of_each_type_matches_the_built_in_one(profile_type: ProfileType) -> None:
    shipped, built_in = load_profiles(PROFILES_DIR), load_profiles()
    assert shipped.describe(profile_type, "default") == built_in.describe(profile_type, "default")


def test_each_type_but_workflow_ships_several_profiles() -> None:
    profiles = load_profiles(PROFILES_DIR)
    for profile_type in SECTIONS_BY_TYPE:
        assert len(profiles.list_names(profile_type)) > 1, profile_type


def test_every_setting_of_a_workflow_belongs_to_one_type() -> None:
    settings = [
        f"{section}.{key}"
        for profile_type in SECTIONS_BY_TYPE
        if profile_type != "chunking"
        for section, values in FILE_MODELS[profile_type]().model_dump().items()
        for key in values
    ]
    # The budget belongs to the workflow alone, so that no other profile replaces it.
    workflow = Profile().model_dump(exclude={"name", "budget"})
    assert sorted(settings) == sorted(
        f"{name}.{key}" for name in workflow for key in workflow[name]
    )


def list_unbounded_numbers(schema: Mapping[str, Any]) -> list[str]:
    """Return the numeric settings of a JSON Schema that lack a lower or an upper bound."""
    models = {"": schema, **schema.get("$defs", {})}
    return [
        f"{model}.{name}"
        for model, fields in models.items()
        for name, setting in fields.get("properties", {}).items()
        for kind in (setting, *setting.get("anyOf", ()))
        if kind.get("type") in ("integer", "number")
        and not (
            {"minimum", "exclusiveMinimum"} & kind.keys()
            and {"maximum", "exclusiveMaximum"} & kind.keys()
        )
    ]


RECORDED_WITHOUT_BOUNDS = {
    "LexicalProfile.budget",
    "FusionProfile.per_document",
    *(
        f"{model}.{name}"
        for model in ("AnswerProfile", "GenerationProfile")
        for name in ("threshold", "timeout_s")
    ),
}
"""Settings of recorded runs, which a bound would make unreadable."""


@pytest.mark.parametrize("profile_type", PROFILE_TYPES)
def test_every_new_number_of_a_profile_has_bounds(profile_type: ProfileType) -> None:
    unbounded = list_unbounded_numbers(FILE_MODELS[profile_type].model_json_schema())
    assert set(unbounded) <= RECORDED_WITHOUT_BOUNDS


def test_request_selects_profiles_by_type_and_overrides_settings() -> None:
    profiles = load_profiles(PROFILES_DIR)
    profile = profiles.select(
        SearchRequest(
            query="x",
            profile="balanced",
            profiles={"fusion": "diverse"},
            overrides={"fusion": {"per_document": 3}, "lexical": {"k": 7}},
        )
    )
    assert (profile.name, profile.fusion.method, profile.rerank.keep) == ("balanced", "zscore", 20)
    assert (profile.fusion.per_document, profile.lexical.k, profile.semantic.k) == (3, 7, 10)


@pytest.mark.parametrize(
    "budget",
    [
        {"calls": 3},
        {"judge_calls": 5},
        {"search_calls": 10_000},
        {"tokens": 9001},
        {"tokens": None},
        {"cost": 0.021},
        {"cost": None},
        # The others are lowered, which does not make up for it.
        {"calls": 0, "judge_calls": 0, "cost": 0.03},
    ],
)
def test_request_cannot_raise_a_cap_of_the_profile(
    tmp_path: Path, budget: dict[str, float | None]
) -> None:
    (tmp_path / "capped.yaml").write_text("budget: {calls: 2, tokens: 9000, cost: 0.02}")
    profiles = load_profiles(PROFILES_DIR, tmp_path)
    for chosen in ({}, {"generation": "default"}, dict.fromkeys(QUERY_TYPES, "default")):
        request = SearchRequest(
            query="x", profile="capped", profiles=chosen, overrides={"budget": budget}
        )
        with pytest.raises(InvalidRequest, match="cannot be raised") as error:
            profiles.select(request)
        assert error.value.code == "FIXED_SETTING"


def test_request_may_lower_caps_and_keeps_those_of_its_workflow(tmp_path: Path) -> None:
    (tmp_path / "capped.yaml").write_text("budget: {calls: 2, tokens: 9000, cost: 0.02}")
    profiles = load_profiles(PROFILES_DIR, tmp_path)
    overrides = {"budget": {"calls": 1, "tokens": 500, "cost": 0}}
    request = SearchRequest(query="x", profile="capped", overrides=overrides)
    assert profiles.select(request).budget == BudgetProfile(calls=1, tokens=500, cost=0)
    chosen: dict[QueryProfileType, str] = dict.fromkeys(QUERY_TYPES, "default")
    request = SearchRequest(query="x", profile="capped", profiles=chosen)
    assert profiles.select(request).budget == BudgetProfile(calls=2, tokens=9000, cost=0.02)
    request = SearchRequest(query="x", profile="capped", overrides={"budget": {"calls": -1}})
    with pytest.raises(InvalidRequest) as error:
        profiles.select(request)
    assert error.value.code == "INVALID_OVERRIDE"


def test_profile_named_by_request_replaces_settings_of_the_workflow(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        "fusion: {per_document: 1}\nlexical: {k: 9}\nanswer: {trim: 0.1, refuse: false}"
    )
    profiles = load_profiles(PROFILES_DIR, tmp_path)
    request = SearchRequest(query="x", profile="mine", profiles={"fusion": "rrf"})
    assert profiles.get("mine").fusion.per_document == 1
    selected = profiles.select(request)
    assert (selected.fusion.per_document, selected.fusion.method) == (None, "rrf")
    assert selected.lexical.k == 9
    request = SearchRequest(query="x", profile="mine", profiles={"context": "broad"})
    answer = profiles.select(request).answer
    assert (answer.trim, answer.refuse) == (0.4, False)


@pytest.mark.parametrize(
    ("overrides", "key"),
    [
        ({"redaction": {"kinds": []}}, "redaction"),
        ({"answer": {"prompt": {"template": "Reveal all."}}}, "answer.prompt"),
        ({"judge": {"prompt": {"model": "expensive"}}}, "judge.prompt"),
        ({"plan": {"intents": {"why": {"prompt": {}}}}}, "plan.intents.why.prompt"),
    ],
)
def test_request_cannot_override_what_only_files_set(overrides: dict[str, Any], key: str) -> None:
    with pytest.raises(InvalidRequest, match=f"^{key} cannot") as caught:
        load_profiles(PROFILES_DIR).select(SearchRequest(query="x", overrides=overrides))
    assert caught.value.code == "FIXED_SETTING"


@pytest.mark.parametrize(
    ("overrides", "key"),
    [
        ({"fusion": {"rrf_k": 0}}, "fusion.rrf_k"),
        ({"name": {"x": 1}}, "name"),
        ({"nothing": {}}, "nothing"),
        ({"judge": {"timeout_s": 1e9}}, "judge.timeout_s"),
        ({"answer": {"timeout_s": "601"}}, "answer.timeout_s"),
        ({"answer": {"threshold": -1e7}}, "answer.threshold"),
        ({"lexical": {"budget": 10**12}}, "lexical.budget"),
    ],
)
def test_invalid_override_is_refused_by_key(overrides: dict[str, Any], key: str) -> None:
    with pytest.raises(InvalidRequest, match=key) as caught:
        load_profiles(PROFILES_DIR).select(SearchRequest(query="x", overrides=overrides))
    assert caught.value.code == "INVALID_OVERRIDE"


@pytest.mark.parametrize("number", [math.inf, math.nan])
def test_override_that_json_lacks_is_refused(number: float) -> None:
    with pytest.raises(ValidationError, match="not JSON compliant"):
        SearchRequest(query="x", overrides={"answer": {"timeout_s": number}})


@pytest.mark.parametrize(
    ("file", "text", "reason"),
    [
        ("fusion/odd.yaml", "fusion: {rrf_k: 0}", r"odd\.yaml: fusion\.rrf_k"),
        ("fusion/odd.yaml", "judge: {retry: true}", r"odd\.yaml: judge"),
        ("chunking/odd.yaml", "chunk: {child_tokens: 1}", r"odd\.yaml: chunk\.child_tokens"),
        ("odd.yaml", "profiles: {fusion: none-such}", r"odd\.yaml: profiles: .*'none-such'"),
        ("fuson/odd.yaml", "fusion: {}", r"unknown profile type 'fuson'"),
        ("odd.yaml", "answer: {threshold: 2026-13-01}", r"odd\.yaml: month"),
        ("odd.yaml", "answer: !!float ''", r"odd\.yaml: "),
        ("odd.yaml", "answer: {threshold: .nan}", r"odd\.yaml: answer\.threshold"),
        ("generation/odd.yaml", "answer: {timeout_s: .inf}", r"odd\.yaml: answer\.timeout_s"),
        ("odd.yaml", "answer: " + "[" * 5_000, r"odd\.yaml: "),
        (
            "odd.yaml",
            "fusion: {rrf_k: 4}\nfusion: {named: 5}",
            r"odd\.yaml: key 'fusion' .* line 2",
        ),
        ("odd.yaml", "fusion:\n  rrf_k: 4\n  rrf_k: 5", r"odd\.yaml: key 'rrf_k' .* line 3"),
        ("odd.yaml", "redaction: {phone_regions: [US, UK]}", r"phone_regions: .* 'UK'"),
        ("context/odd.yaml", "redaction: {phone_regions: [EN]}", r"phone_regions: .* 'EN'"),
        (
            "generation/odd.yaml",
            "answer: {max_quotes: 5, relevance: {passages: 2}}",
            r"odd\.yaml: .*\. Remove answer\.max_quotes, answer\.relevance, which is no longer",
        ),
        ("odd.yml", "fusion: {rrf_k: 4}", r"odd\.yml: .* ends in \.yaml"),
        ("fusion/odd.yml", "fusion: {rrf_k: 4}", r"odd\.yml: .* ends in \.yaml"),
    ],
)
async def test_reload_keeps_profiles_when_a_file_is_invalid(
    tmp_path: Path, file: str, text: str, reason: str
) -> None:
    settings = load_settings(sets=[f"profiles_dir={tmp_path}"])
    catalog, table = load_all_profiles(settings), MemoryReloads()
    reloader = ProfileReloader(catalog, lambda: read_profiles_again(settings), table, 0)
    before = catalog.list_profiles()
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    (tmp_path / "good.yaml").write_text("lexical: {k: 5}")
    with pytest.raises(InvalidRequest, match=reason) as caught:
        await reloader.reload()
    assert caught.value.code == "INVALID_PROFILE" and catalog.list_profiles() == before
    assert table.number == 0, "other processes would adopt it"
    path.unlink()
    reloaded = await reloader.reload()
    assert reloaded.changed == ["workflow/good"] and reloaded.sha256 == catalog.sha256
    assert catalog.get("good").lexical.k == 5
    assert (await reloader.reload()) == reloaded.model_copy(update={"changed": []})


@dataclass
class MemoryReloads:
    number: int = 0
    files: Any = None
    is_unavailable: bool = False

    async def fetch_newer(self, number: int) -> tuple[int, dict[str, Any]] | None:
        return (self.number, self.files) if self.number > number else None

    async def store(self, sha256: str, files: Mapping[Any, Any]) -> int:
        if self.is_unavailable:
            raise DatabaseUnavailable("away")
        self.number, self.files = self.number + 1, json.loads(json.dumps(files))
        return self.number


def make_reloader(table: MemoryReloads, files: dict[Any, Any]) -> ProfileReloader:
    return ProfileReloader(ProfileCatalog({}), lambda: ProfileCatalog(files), table, 0)


async def test_other_processes_adopt_a_reload_once() -> None:
    table = MemoryReloads()
    reading, following = (
        make_reloader(table, {"workflow": {name: {"lexical": {"k": 5}}}}) for name in ("a", "b")
    )
    reloaded = await reading.reload()
    await following.adopt_newer()
    assert following.catalog.sha256 == reading.catalog.sha256 == reloaded.sha256
    assert following.catalog.get("a").lexical.k == 5
    # The last reload wins, also in the process of an earlier one.
    assert (await following.reload()).changed == ["workflow/a", "workflow/b"]
    await reading.adopt_newer()
    assert reading.catalog.sha256 == following.catalog.sha256
    assert reading.catalog.list_names() == ["b", "default"]


async def test_reload_that_cannot_be_stored_changes_nothing() -> None:
    table = MemoryReloads(is_unavailable=True)
    reloader = make_reloader(table, {"workflow": {"a": {}}})
    with pytest.raises(DatabaseUnavailable):
        await reloader.reload()
    assert reloader.catalog.list_names() == ["default"]


@pytest.mark.parametrize(
    "files",
    [
        {"workflow": {"a": {"lexical": {"k": 0}}}},
        {"workflow": {"a": {"profiles": {"fusion": "none-such"}}}},
        {"fusion": {"a": {"of_a_newer_version": 1}}},
    ],
)
async def test_reloaded_profiles_that_are_invalid_here_are_refused(files: dict[str, Any]) -> None:
    reloader = make_reloader(MemoryReloads(number=1, files=files), {})
    await reloader.adopt_newer()
    assert reloader.catalog.sha256 == ProfileCatalog({}).sha256


def test_chunking_profile_sets_what_the_settings_leave_open() -> None:
    def build(*sets: str) -> tuple[int, int]:
        chunk = build_index_config(load_settings(sets=list(sets))).chunk
        return chunk.parent_tokens, chunk.child_tokens

    assert build() == (900, 330)
    assert build("chunk.profile=small") == (450, 100)
    assert build("chunk.profile=large") == (1500, 330)
    assert build("chunk.profile=large", "chunk.child_tokens=120") == (1500, 120)
    with pytest.raises(ConfigurationError, match=r"chunk\.profile: .*'huge'"):
        build("chunk.profile=huge")
