"""What over HTTP alone nobody may choose: addresses that keys and texts are sent to, folders, tables."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from anabranch.approvals import allowed_folders, approve, check_settings
from anabranch.desk.sourcing import OWN_SCHEMAS, check_folder
from anabranch.settings import Settings
from anabranch.settings_loading import MODEL_SECTIONS, amended, known_keys, load_settings
from schemas.errors import ConfigurationError, InvalidRequest
from schemas.sources import FolderSource

EVIL = "http://127.0.0.1:9/evil"
OPEN = {"embed.model", "embed.dimension", "embed.state_dimension", "extract.engine", "extract.model", "chat.model", "rerank.model", "ocr.model"}


@pytest.mark.parametrize("key", [key for key in known_keys() if not key.startswith("chunk.") and key not in OPEN])
def test_setting_with_reach_is_refused_over_http(key: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest) as refused:
        check_settings(tmp_path, ["chunk.child_tokens=100", f" {key} =sk-secret"])
    assert refused.value.code == "SETTING_NOT_APPROVED"
    assert key in refused.value.detail and "sk-secret" not in refused.value.detail + refused.value.remedy
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("key", sorted(OPEN | {"chunk.strategy", "chunk.child_tokens"}))
def test_model_names_and_chunk_shape_need_no_approval(key: str, tmp_path: Path) -> None:
    check_settings(tmp_path, [f"{key}=x"])


def test_approval_admits_exactly_what_the_owner_named(tmp_path: Path) -> None:
    approve(tmp_path, "settings", ["embed.base_url=http://model/v1", "embed.api_key=k"])
    approve(tmp_path, "folders", ["/library"])
    check_settings(tmp_path, ["embed.base_url=http://model/v1", "embed.api_key=k"])
    for other in ("embed.base_url=http://model/v2", "chat.base_url=http://model/v1", f"embed.base_url={EVIL}"):
        with pytest.raises(InvalidRequest):
            check_settings(tmp_path, [other])
    assert (tmp_path / "approvals.json").stat().st_mode & 0o777 == 0o600


def test_link_does_not_lead_out_of_an_approved_folder(tmp_path: Path) -> None:
    (tmp_path / "library").mkdir()
    (tmp_path / "private").mkdir()
    (tmp_path / "library" / "way-out").symlink_to(tmp_path / "private")
    approve(tmp_path, "folders", [str(tmp_path / "library")])
    within = allowed_folders((), tmp_path)
    check_folder(FolderSource(path=str(tmp_path / "library")), within)
    for path in ("library/way-out", "private", "library/../private", "."):
        with pytest.raises(ConfigurationError, match="may not be watched"):
            check_folder(FolderSource(path=str(tmp_path / path)), within)


def key_of(settings: Settings, section: str) -> str | None:
    found = getattr(settings, section).api_key
    return found.get_secret_value() if found else None


@pytest.mark.parametrize("section", MODEL_SECTIONS)
@pytest.mark.parametrize("address", [None, "http://real/v1"])
def test_key_does_not_follow_to_another_address(section: str, address: str | None) -> None:
    configured = load_settings(sets=[f"{section}.api_key=sk-real", *([f"{section}.base_url={address}"] if address else [])])
    assert key_of(configured, section) == "sk-real"
    assert key_of(amended(configured, [f"{section}.base_url={EVIL}"]), section) is None
    assert key_of(amended(configured, [f"{section}.base_url={EVIL}", f"{section}.api_key=own"]), section) == "own"
    assert key_of(amended(configured, ["chunk.child_tokens=100", f"{section}.model=m"]), section) == "sk-real"


def test_key_of_extraction_does_not_follow_the_address_of_chat() -> None:
    configured = load_settings(sets=["chat.base_url=http://real/v1", "chat.api_key=sk-chat", "extract.api_key=sk-extract"])
    redirected = amended(configured, [f"chat.base_url={EVIL}"])
    assert (key_of(redirected, "chat"), key_of(redirected, "extract")) == (None, None)
    assert redirected.extraction_server().api_key is None


@pytest.mark.parametrize("section", MODEL_SECTIONS)
def test_key_of_the_file_does_not_follow_to_the_address_of_the_command_line(section: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "anabranch.toml").write_text(f'[{section}]\nbase_url = "http://real/v1"\napi_key = "sk-real"\n')
    assert key_of(load_settings(data_dir=tmp_path), section) == "sk-real"
    assert key_of(load_settings(data_dir=tmp_path, sets=[f"{section}.base_url=http://real/v1/"]), section) == "sk-real"
    assert key_of(load_settings(data_dir=tmp_path, sets=[f"{section}.base_url={EVIL}"]), section) is None
    monkeypatch.setenv(f"ANABRANCH_{section.upper()}__BASE_URL", EVIL)
    assert key_of(load_settings(data_dir=tmp_path), section) is None
    monkeypatch.setenv(f"ANABRANCH_{section.upper()}__API_KEY", "own")
    assert key_of(load_settings(data_dir=tmp_path), section) == "own"


def test_every_schema_of_the_migrations_is_an_own_one() -> None:
    made = {
        name
        for file in (Path(__file__).parents[2] / "sql" / "migrations").glob("*.sql")
        for name in re.findall(r"create schema (?:if not exists )?(\w+)", file.read_text(), re.I)
    }
    assert made - {"extensions"} <= set(OWN_SCHEMAS)
