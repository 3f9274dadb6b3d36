from __future__ import annotations

import pytest

from anabranch.config.index_config import INDEX_SECTIONS, build_index_config, check_index_settings
from anabranch.config.loader import load_settings
from anabranch.config.settings import Settings
from processors import get_stage_versions
from schemas.errors import ConfigurationError
from schemas.generations import IndexConfig, compute_chain_fingerprints


@pytest.mark.parametrize(
    "assignment", ["api.port=1", "log.encrypt=false", "cache.answers=0", "data_dir=x"]
)
def test_non_index_setting_is_refused(assignment: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        check_index_settings(["chunk.child_tokens=120", assignment])
    assert caught.value.code == "NOT_AN_INDEX_SETTING"
    assert assignment in caught.value.detail and all(
        f"{section}." in caught.value.remedy for section in INDEX_SECTIONS
    )


def test_index_settings_are_accepted() -> None:
    check_index_settings(f"{section}.model=x" for section in INDEX_SECTIONS)


BASE_SETTINGS = {
    **{s: [f"{s}.base_url=http://a/v1", f"{s}.model=a"] for s in ("chat", "extract", "ocr")},
    "embed": ["embed.base_url=http://a/v1", "embed.model=a", "embed.dimension=8"],
}
"""Settings by section under which its other settings apply; sections without a server need none."""
OTHER_VALUES = {
    "base_url": "http://b/v1",
    "model": "b",
    "api_key": "b",
    "kind": "vllm",
    "api_version": "b",
    "dimension": 16,
    "state_dimension": 32,
    "engine": "rules",
    "profile": "large",
    "strategy": "fixed_size",
    "parent_tokens": 800,
    "child_tokens": 100,
    "whole_tokens": 300,
    "overlap": 0.25,
    "timeout_s": 7,
    "attempts": 2,
    "total_timeout_s": 7,
    "breaker_failures": 2,
    "breaker_open_s": 7,
    "batch": 2,
    "parallel": 2,
    "avgdl": 50,
    "k1": 0.9,
    "b": 0.5,
    "m": 32,
    "ef_construction": 200,
    "exact_below": 5_000,
}
WITHOUT_FINGERPRINT = {
    "base_url": "an address: the same model answers alike on another server",
    "api_key": "a credential",
    "kind": "the protocol of the model server",
    "api_version": "the protocol of the model server",
    **dict.fromkeys(
        (
            *("timeout_s", "attempts", "total_timeout_s", "breaker_failures", "breaker_open_s"),
            *("batch", "parallel"),
        ),
        "how a server is called",
    ),
}
"""Generation settings by name that change no stage's fingerprint, with the reason."""


def compute_fingerprints(assignments: list[str]) -> dict[str, str]:
    return compute_chain_fingerprints(
        build_index_config(load_settings(sets=assignments)), get_stage_versions()
    )


@pytest.mark.parametrize("section", INDEX_SECTIONS)
def test_generation_setting_changes_a_fingerprint_or_has_a_reason(section: str) -> None:
    for name in type(getattr(Settings(), section)).model_fields:
        # Only the local embedder stores token states.
        base = [] if name == "state_dimension" else BASE_SETTINGS.get(section, [])
        changed = compute_fingerprints([*base, f"{section}.{name}={OTHER_VALUES[name]}"])
        assert (changed != compute_fingerprints(base)) is (name not in WITHOUT_FINGERPRINT), name


def test_every_part_of_the_index_config_is_in_a_fingerprint() -> None:
    """Includes the fingerprints of the engines, which no setting states."""
    config = IndexConfig()
    versions = get_stage_versions()
    for section in IndexConfig.model_fields:
        values = getattr(config, section).model_dump()
        for name, value in values.items():
            other = value + 1 if isinstance(value, int | float) else f"{value}-other"
            changed = config.model_copy(
                update={section: getattr(config, section).model_copy(update={name: other})}
            )
            assert compute_chain_fingerprints(changed, versions) != compute_chain_fingerprints(
                config, versions
            ), f"{section}.{name}"
