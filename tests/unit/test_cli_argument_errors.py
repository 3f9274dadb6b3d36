"""The file in which `anabranch login` stores credentials.

`anabranch doctor --bundle` holds no secret of any setting.
"""

from __future__ import annotations

import json
import os
import stat
import zipfile
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, SecretStr, ValidationError

from anabranch.cli import main
from anabranch.cli.credentials import (
    CREDENTIALS_FILE,
    find_config_folder,
    find_token,
    normalize_server,
    remove_token,
    store_token,
)
from anabranch.cli.doctor import write_bundle
from anabranch.cli.ingest_batch import expand_paths
from anabranch.cli.options import RemoteOptions
from anabranch.config.settings import Settings
from anabranch.process.data_folder import lock_folder
from schemas.errors import ConfigurationError, InvalidRequest
from schemas.findings import Finding
from schemas.questions import SearchRequest


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


PLANTED = "pl4nted"


def plant(model: BaseModel, path: str, planted: list[str]) -> BaseModel:
    """Return a copy with a secret in every field that holds one, or a URL that may."""
    changes: dict[str, Any] = {}
    for name, field in type(model).model_fields.items():
        value, kind = getattr(model, name), str(field.annotation)
        secret = f'{PLANTED}-{path}{name}-"quoted"'
        if isinstance(value, BaseModel):
            changes[name] = plant(value, f"{path}{name}.", planted)
        elif "dict" in kind and "SecretStr" in kind:
            changes[name] = {"crm": SecretStr(f"postgresql://reader:{PLANTED}-crm@db/crm")}
        elif "SecretStr" in kind:
            changes[name] = SecretStr(secret)
        elif field.annotation in (str, str | None):
            changes[name] = f"https://user:{PLANTED}-{name}@host/v1?api_key={PLANTED}-{name}"
        else:
            continue
        planted.append(f"{path}{name}")
    return model.model_copy(update=changes)


def collect_log(settings: BaseModel) -> list[str]:
    """Return the secrets as a careless library might log them."""
    lines = []
    for name in type(settings).model_fields:
        value = getattr(settings, name)
        if isinstance(value, BaseModel):
            lines += collect_log(value)
        elif isinstance(value, SecretStr):
            lines.append(f"connect failed: {value.get_secret_value()}")
        elif isinstance(value, dict):
            lines += [
                f"password {PLANTED}-crm"
                for entry in value.values()
                if isinstance(entry, SecretStr)
            ]
    return lines


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
async def test_bundle_contains_no_secret_of_any_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted: list[str] = []
    settings = plant(Settings(data_dir=tmp_path), "", planted)
    assert {"database.url", "kafka.sasl_password", "sources", "chat.api_key"} <= set(planted)
    assert "embed.base_url" in planted
    lines = collect_log(settings)
    assert len(lines) > 8
    lines += [
        f"curl -H 'Authorization: Bearer {PLANTED}.jwt'",
        f"host=db password={PLANTED}-libpq port=5432",
        f"AWS_SECRET_ACCESS_KEY={PLANTED}-aws",
        f"PGPASSWORD={PLANTED}-pg psql sslpassword={PLANTED}-ssl SSL_KEY_PASSPHRASE={PLANTED}",
        f"Set-Cookie: theme=dark; session={PLANTED}; Path=/",
        json.dumps({"headers": {"cookie": f"a=1; b={PLANTED}"}}),
        json.dumps({"password": f"{PLANTED} and", "port": 5432}),
        f"-----BEGIN RSA PRIVATE KEY-----\nMII{PLANTED}+/\n{PLANTED}\n-----END RSA PRIVATE KEY--",
        json.dumps({"key": f"-----BEGIN PRIVATE KEY-----\nMII{PLANTED}\n-----END PRIVATE KEY--"}),
        json.dumps({"event": "failed", "headers": json.dumps({"api-key": f"{PLANTED} json"})}),
        f"db_passwd: '{PLANTED} and spaces'",
        "n_tokens=5 tokens: 6 ended",
    ]
    for name in ("commands.log", "up.log"):
        (tmp_path / name).write_text("\n".join(["started", *lines]))
    monkeypatch.setattr(RemoteOptions, "load_settings", lambda self: settings)
    monkeypatch.setenv("ANABRANCH_TOKEN", f"{PLANTED}-token")
    findings = [Finding("models", "fail", f"refused {PLANTED}-token", lines[0])]
    file = tmp_path / "bundle.zip"
    names = await write_bundle(file, RemoteOptions(), findings)
    files = ["commands.log", "findings.json", "settings.json", "up.log", "version.json"]
    assert names == files
    with zipfile.ZipFile(file) as archive:
        texts = {name: archive.read(name).decode() for name in names}
    assert [name for name, text in texts.items() if PLANTED in text] == []
    rows = {row["key"]: row["value"] for row in json.loads(texts["settings.json"])}
    assert rows["embed.base_url"] == "https://host/v1?api_key=REDACTED"
    assert texts["commands.log"].startswith("started\nconnect failed: ***")
    assert "port=5432" in texts["commands.log"]
    assert texts["commands.log"].endswith("n_tokens=5 tokens: 6 ended")
    assert file.stat().st_mode & 0o077 == 0


async def test_bundle_does_not_replace_a_file(tmp_path: Path) -> None:
    file = tmp_path / "bundle.zip"
    file.write_text("mine")
    with pytest.raises(ConfigurationError, match="Cannot create"):
        await write_bundle(file, RemoteOptions(data=tmp_path), [])
    assert file.read_text() == "mine"


def test_file_as_data_directory_is_rejected_by_name(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("x")
    with (
        pytest.raises(ConfigurationError, match=r"notes\.md cannot be a data folder") as caught,
        lock_folder(tmp_path / "notes.md"),
    ):
        pass
    assert "--data" in caught.value.remedy


def test_empty_path_is_rejected() -> None:
    with pytest.raises(ConfigurationError, match="path is empty"):
        expand_paths([""], glob="*", recursive=False)


@pytest.mark.parametrize("question", ["   ", "?!", "…"])
def test_query_without_words_is_rejected(question: str) -> None:
    with pytest.raises(ValidationError, match="no word"):
        SearchRequest(query=question)


@pytest.mark.parametrize(
    "arguments",
    [
        ("documents", "list", "--failed"),
        ("documents", "list", "--failed", "--state", "failed"),
        ("replay", "start", "--from", "extract", "--dry-run"),
        ("replay", "status", "00000000-0000-8000-8000-000000000000"),
        ("reindex", "--set", "chunk.child_tokens=120", "--dry-run"),
    ],
)
def test_option_and_command_aliases_are_accepted(
    arguments: tuple[str, ...], tmp_path: Path
) -> None:
    assert main([*arguments, "--data", str(tmp_path / "none")]) == 3


NIL_ID = "00000000-0000-8000-8000-000000000000"
WHOLE_KEY = "ab_0123456789abcdef_5ec4e7"
REMOTE = ("--server", "http://127.0.0.1:9")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("documents", "list", "--failed", "--state", "searchable"), 2, "cannot be combined"),
        (("feedback", NIL_ID), 2, "--up"),
        *(
            (("feedback", NIL_ID, f"--chunk=abc={grade}"), 2, "0, 1, 2 or 3")
            for grade in ("9", "-1", "", "x")
        ),
        (("kafka", "stop"), 0, "no Kafka was running"),
        (("keys", "create", "--user", "user:ana"), 2, "Omit the prefix: --user ana"),
        (("keys", "create", "--group", "group:hr"), 2, "Omit the prefix: --group hr"),
        *(
            (("keys", command, name, *server), 2, message)
            for command in ("rotate", "revoke")
            for server in ((), REMOTE)
            for name, message in (
                (WHOLE_KEY, "Use the id alone: 0123456789abcdef"),
                ("operations", "Invalid API key id 'operations'."),
            )
        ),
        (("source", "add", "folder", "library", "librari"), 3, "No such folder: librari."),
        (("down",), 0, "no server was running in none"),
        (("search", "x", *REMOTE), 7, "SERVER_UNREACHABLE"),
    ],
)
def test_command_ends_with_code_and_message(
    arguments: tuple[str, ...],
    code: int,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*arguments, "--data", "none"]) == code
    stderr = capsys.readouterr().err
    assert message in stderr and "5ec4e7" not in stderr
