"""The file in which `anabranch login` stores credentials."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from anabranch.cli.credentials import (
    CREDENTIALS_FILE,
    find_config_folder,
    find_token,
    normalize_server,
    remove_token,
    store_token,
)
from schemas.errors import ConfigurationError, InvalidRequest


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "config" / "anabranch"


def test_credential_is_bound_to_one_server(folder: Path) -> None:
    store_token("https://a.example/", "key-a")
    store_token("http://127.0.0.1:8420", "key-b")
    assert find_token("https://A.example") == "key-a"
    assert find_token("http://127.0.0.1:8420/") == "key-b"
    for other in (
        "http://a.example",
        "https://a.example:8443",
        "https://b.a.example",
        "https://a.example.evil.example",
        "http://127.0.0.1:8421",
    ):
        assert find_token(other) is None
    assert remove_token("https://a.example") and not remove_token("https://a.example")
    assert find_token("https://a.example") is None


def test_credentials_file_is_private_to_owner(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = os.umask(0)
    try:
        path = store_token("https://a.example", "key")
    finally:
        os.umask(before)
    assert (stat.S_IMODE(path.stat().st_mode), stat.S_IMODE(folder.stat().st_mode)) == (
        0o600,
        0o700,
    )
    assert [one.name for one in folder.iterdir()] == [CREDENTIALS_FILE]
    path.chmod(0o640)
    with pytest.raises(ConfigurationError, match="readable by other users"):
        find_token("https://a.example")


def test_relative_config_home_is_ignored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "here")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert find_config_folder() == tmp_path / ".config" / "anabranch"


@pytest.mark.parametrize(
    "server",
    [
        "",
        "a.example",
        "ftp://a.example",
        "https://",
        "https://user@a.example",
        "https://a.example?x",
        "https://a:99999999",
    ],
)
def test_invalid_server_url_is_refused(server: str) -> None:
    with pytest.raises(InvalidRequest):
        normalize_server(server)


def test_corrupt_credentials_file_is_reported_by_name(folder: Path) -> None:
    path = store_token("https://a.example", "key")
    path.write_text("[]")
    with pytest.raises(ConfigurationError, match=CREDENTIALS_FILE):
        find_token("https://a.example")
