"""Settings that cannot be set over HTTP: addresses for keys and texts, folders, tables."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from anabranch.config.loader import (
    MODEL_SECTIONS,
    list_setting_names,
    load_settings,
    override_settings,
)
from anabranch.config.settings import Settings
from anabranch.identity.approvals import approve, check_settings_approved, load_allowed_folders
from schemas.errors import ConfigurationError, InvalidRequest
from schemas.sources import FolderSource
from services.sources.service import RESERVED_SCHEMAS, check_folder

EVIL_URL = "http://127.0.0.1:9/evil"
UNRESTRICTED_SETTINGS = {
    "embed.model",
    "embed.dimension",
    "embed.state_dimension",
    "extract.engine",
    "extract.model",
    "chat.model",
    "rerank.model",
    "ocr.model",
}


@pytest.mark.parametrize(
    "key",
    [
        key
        for key in list_setting_names()
        if not key.startswith(("chunk.", "hnsw.", "lexical.")) and key not in UNRESTRICTED_SETTINGS
    ],
)
def test_restricted_setting_is_refused_over_http(key: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest) as refused:
        check_settings_approved(tmp_path, ["chunk.child_tokens=100", f" {key} =sk-secret"])
    assert refused.value.code == "SETTING_NOT_APPROVED"
    assert (
        key in refused.value.detail
        and "sk-secret" not in refused.value.detail + refused.value.remedy
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "key",
    sorted(
        UNRESTRICTED_SETTINGS | {"chunk.strategy", "chunk.child_tokens", "hnsw.m", "lexical.k1"}
    ),
)
def test_model_names_and_index_parameters_need_no_approval(key: str, tmp_path: Path) -> None:
    check_settings_approved(tmp_path, [f"{key}=x"])


def test_approval_admits_only_exact_values(tmp_path: Path) -> None:
    approve(tmp_path, "settings", ["embed.base_url=http://model/v1", "embed.api_key=k"])
    approve(tmp_path, "folders", ["/library"])
    check_settings_approved(tmp_path, ["embed.base_url=http://model/v1", "embed.api_key=k"])
    for other in (
        "embed.base_url=http://model/v2",
        "chat.base_url=http://model/v1",
        f"embed.base_url={EVIL_URL}",
    ):
        with pytest.raises(InvalidRequest):
            check_settings_approved(tmp_path, [other])
    assert (tmp_path / "approvals.json").stat().st_mode & 0o777 == 0o600


def test_symlink_cannot_leave_approved_folder(tmp_path: Path) -> None:
    (tmp_path / "library").mkdir()
    (tmp_path / "private").mkdir()
    (tmp_path / "library" / "way-out").symlink_to(tmp_path / "private")
    approve(tmp_path, "folders", [str(tmp_path / "library")])
    within = load_allowed_folders((), tmp_path)
    check_folder(FolderSource(path=str(tmp_path / "library")), within)
    for path in ("library/way-out", "private", "library/../private", "."):
        with pytest.raises(ConfigurationError, match="may not be watched"):
            check_folder(FolderSource(path=str(tmp_path / path)), within)


def get_api_key(settings: Settings, section: str) -> str | None:
    found = getattr(settings, section).api_key
    return found.get_secret_value() if found else None


@pytest.mark.parametrize("section", MODEL_SECTIONS)
@pytest.mark.parametrize("address", [None, "http://real/v1"])
def test_api_key_is_dropped_when_base_url_changes(section: str, address: str | None) -> None:
    configured = load_settings(
        sets=[f"{section}.api_key=sk-real", *([f"{section}.base_url={address}"] if address else [])]
    )
    assert get_api_key(configured, section) == "sk-real"
    assert (
        get_api_key(override_settings(configured, [f"{section}.base_url={EVIL_URL}"]), section)
        is None
    )
    assert (
        get_api_key(
            override_settings(
                configured, [f"{section}.base_url={EVIL_URL}", f"{section}.api_key=own"]
            ),
            section,
        )
        == "own"
    )
    assert (
        get_api_key(
            override_settings(configured, ["chunk.child_tokens=100", f"{section}.model=m"]), section
        )
        == "sk-real"
    )


def test_extraction_key_is_dropped_when_chat_url_changes() -> None:
    configured = load_settings(
        sets=["chat.base_url=http://real/v1", "chat.api_key=sk-chat", "extract.api_key=sk-extract"]
    )
    redirected = override_settings(configured, [f"chat.base_url={EVIL_URL}"])
    assert (get_api_key(redirected, "chat"), get_api_key(redirected, "extract")) == (None, None)
    assert redirected.resolve_chat_server("extract").api_key is None


@pytest.mark.parametrize("section", MODEL_SECTIONS)
def test_file_api_key_is_dropped_when_base_url_is_overridden(
    section: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "anabranch.toml").write_text(
        f'[{section}]\nbase_url = "http://real/v1"\napi_key = "sk-real"\n'
    )
    assert get_api_key(load_settings(data_dir=tmp_path), section) == "sk-real"
    assert (
        get_api_key(
            load_settings(data_dir=tmp_path, sets=[f"{section}.base_url=http://real/v1/"]), section
        )
        == "sk-real"
    )
    assert (
        get_api_key(
            load_settings(data_dir=tmp_path, sets=[f"{section}.base_url={EVIL_URL}"]), section
        )
        is None
    )
    monkeypatch.setenv(f"ANABRANCH_{section.upper()}__BASE_URL", EVIL_URL)
    assert get_api_key(load_settings(data_dir=tmp_path), section) is None
    monkeypatch.setenv(f"ANABRANCH_{section.upper()}__API_KEY", "own")
    assert get_api_key(load_settings(data_dir=tmp_path), section) == "own"


def test_own_schemas_cover_every_migration_schema() -> None:
    created_schemas = {
        name
        for file in (Path(__file__).parents[2] / "sql" / "migrations").glob("*.sql")
        for name in re.findall(r"create schema (?:if not exists )?(\w+)", file.read_text(), re.I)
    }
    assert created_schemas - {"extensions"} <= set(RESERVED_SCHEMAS)
