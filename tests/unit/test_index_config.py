"""Settings: the index that follows from them, and their values as reported."""

from __future__ import annotations

import gc
import json
import os
from functools import partial
from pathlib import Path
from typing import Any, get_args

import httpx2
import pytest
from pydantic import BaseModel, SecretStr

from anabranch.cli import main
from anabranch.config.index_config import (
    INDEX_SECTIONS,
    build_index_config,
    check_index_settings,
    list_setting_values,
)
from anabranch.config.loader import list_setting_names, load_settings
from anabranch.config.settings import Settings
from anabranch.config.version import ADVISORIES, get_safe_release, list_advisories
from anabranch.process.api_process import freeze_heap
from api.app import create_app
from processors import get_stage_versions
from schemas.errors import ConfigurationError
from schemas.generations import UPSTREAM_STAGES, IndexConfig, compute_chain_fingerprints
from tests.unit.api_fakes import make_services


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
    "api": "cohere",
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
            numeric = value + 1 if isinstance(value, int | float) else f"{value}-other"
            other = not value if isinstance(value, bool) else numeric
            changed = config.model_copy(
                update={section: getattr(config, section).model_copy(update={name: other})}
            )
            assert compute_chain_fingerprints(changed, versions) != compute_chain_fingerprints(
                config, versions
            ), f"{section}.{name}"


def test_default_configuration_keeps_its_fingerprints() -> None:
    """With others, every existing index would be outdated: leave new defaults out, as of HNSW."""
    found = compute_chain_fingerprints(IndexConfig(), dict.fromkeys(UPSTREAM_STAGES, 1))
    recorded = {
        "transcribe": "22481bb2829cb75d",
        "chunk": "9f7bfac1b20d32aa",
        "extract": "1b4255a4f2c8f367",
        "embed": "5124b9849327e00e",
    }
    assert found.items() >= recorded.items()


SECRET = "s3cret-of-sixteen-letters"


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith("ANABRANCH_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def test_each_value_names_its_origin(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "anabranch.toml").write_text("[ingest]\nmax_pages = 7\n[api]\nport = 9\n")
    monkeypatch.setenv("ANABRANCH_API__PORT", "10")
    settings = load_settings(data_dir=tmp_path, sets=["cache.answers=0"])
    # Child processes of `up` use a copy with the resolved folder.
    copied = settings.model_copy(update={"data_dir": tmp_path.resolve()})
    rows = {row.key: row for row in list_setting_values(copied)}
    assert list(rows) == list(list_setting_names())
    assert {
        key: (rows[key].value, rows[key].origin)
        for key in ("ingest.max_pages", "api.port", "cache.answers", "worker.attempts")
    } == {
        "ingest.max_pages": (7, "file"),
        "api.port": (10, "environment"),
        "cache.answers": (0, "command line"),
        "worker.attempts": (5, "default"),
    }
    assert rows["api.port"].environment == "ANABRANCH_API__PORT"


SERVER = {"base_url": "http://127.0.0.1:1/v1", "model": "m"}
CHANGES: dict[str, dict[str, Any]] = {
    "chunk.parent_tokens": {"chunk": {"parent_tokens": 500}},
    "chunk.profile": {"chunk": {"profile": "small"}},
    "lexical.k1": {"lexical": {"k1": 1.5}},
    "hnsw.m": {"hnsw": {"m": 20}},
    "ocr.base_url": {"ocr": SERVER},
    "ocr.model": {"ocr": SERVER},
    "extract.engine": {"extract": {"engine": "openai", **SERVER}},
    "embed.base_url": {"embed": {**SERVER, "dimension": 8}},
    "embed.state_dimension": {"embed": {"state_dimension": 64}},
    "chat.base_url": {"chat": SERVER},
    "embed.parallel": {"embed": {"parallel": 9}},
    "ocr.api_key": {"ocr": {"api_key": SECRET}},
    "parse.hidden_text": {"parse": {"hidden_text": "keep"}},
    "cache.answers": {"cache": {"answers": 1}},
}


@pytest.mark.parametrize("key", CHANGES)
def test_reindex_stage_is_the_first_whose_fingerprint_changes(key: str) -> None:
    live = build_index_config(Settings())
    changed = build_index_config(Settings(**CHANGES[key]), live)
    before, after = (
        compute_chain_fingerprints(config, get_stage_versions()) for config in (live, changed)
    )
    first = next((stage for stage in UPSTREAM_STAGES if before[stage] != after[stage]), None)
    row = next(row for row in list_setting_values(Settings()) if row.key == key)
    assert row.reindex_from == first


def fill_secrets(model: type[BaseModel]) -> dict[str, Any]:
    """Return values for all settings that may hold a credential."""
    values: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        inner = [field.annotation, *get_args(field.annotation)]
        section = next((t for t in inner if isinstance(t, type) and issubclass(t, BaseModel)), None)
        if field.annotation == dict[str, SecretStr]:
            values[name] = {"crm": f"postgresql://crm:{SECRET}@127.0.0.1/crm"}
        elif SecretStr in inner:
            values[name] = SECRET
        elif name in ("base_url", "url", "jwks_url"):
            values[name] = f"https://user:{SECRET}@127.0.0.1/v1?api_key={SECRET}"
        elif section is not None and section is not model and not get_args(field.annotation):
            values[name] = fill_secrets(section)
    return values


async def test_no_secret_leaves_the_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    filled = fill_secrets(Settings)
    assert {"database", "chat", "storage", "sources", "api", "auth"} <= filled.keys()
    settings = Settings(**filled)
    services = make_services(list_settings=partial(list_setting_values, settings))
    transport = httpx2.ASGITransport(create_app(services))
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        response = await client.get("/v1/config")
    values = {row["key"]: row["value"] for row in response.json()["items"]}
    assert response.status_code == 200
    assert values["database.url"] == values["chat.api_key"] == "**********"
    assert values["sources"] == {"crm": "**********"}
    assert values["chat.base_url"] == "https://127.0.0.1/v1?api_key=REDACTED"
    assert SECRET not in response.text

    for section, section_values in filled.items():
        for name, value in section_values.items() if section != "sources" else ():
            monkeypatch.setenv(f"ANABRANCH_{section}__{name}".upper(), value)
    monkeypatch.setenv("ANABRANCH_SOURCES", json.dumps(filled["sources"]))
    assert main(["config", "show", "--origin"]) == 0
    output = capsys.readouterr()
    assert "environment" in output.out and SECRET not in output.out + output.err


@pytest.mark.parametrize(
    ("version", "identifiers"),
    [
        ((3, 11, 7), {advisory.identifier for advisory in ADVISORIES}),
        ((3, 11, 9), {"CVE-2024-7592", "CVE-2025-6069"}),
        ((3, 11, 14), set()),
        ((3, 12, 5), {"CVE-2024-7592", "CVE-2025-6069"}),
        ((3, 12, 12), set()),
        ((3, 13, 0), {"CVE-2025-6069"}),
        ((3, 14, 0), set()),
        ((3, 15, 0), set()),
    ],
)
def test_unsafe_patch_releases_are_named(
    version: tuple[int, int, int], identifiers: set[str]
) -> None:
    found = {advisory.identifier for advisory in list_advisories(version)}
    assert found == identifiers
    if identifiers:
        major, minor, patch = map(int, get_safe_release(version).split("."))
        assert not list_advisories((major, minor, patch))


def test_startup_objects_are_frozen_out_of_gc() -> None:
    gc.unfreeze()
    freeze_heap()
    assert gc.get_freeze_count() > 10_000
