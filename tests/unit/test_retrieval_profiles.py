from __future__ import annotations

from pathlib import Path

import pytest

from retrieval.profiles import load_profiles
from schemas.errors import ConfigurationError, InvalidRequest
from schemas.profiles import Profile

PROFILES_DIR = Path(__file__).parents[2] / "profiles"


def test_shipped_profiles_are_valid_and_default_file_matches_defaults() -> None:
    profiles = load_profiles(PROFILES_DIR)
    assert profiles.names == ["balanced", "default", "diverse", "redacted", "rrf", "strict"]
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
    assert {"mine", "rrf"} <= set(profiles.names) and profiles.get("rrf") == load_profiles(
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
