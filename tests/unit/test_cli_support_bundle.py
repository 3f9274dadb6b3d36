"""`anabranch doctor --bundle` holds no secret of any setting."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, SecretStr

from anabranch.cli.options import RemoteOptions
from anabranch.cli.support_bundle import LOG_FILE, write_bundle
from anabranch.config.settings import Settings
from schemas.errors import ConfigurationError
from schemas.findings import Finding

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
        json.dumps({"event": "failed", "headers": json.dumps({"api-key": f"{PLANTED} json"})}),
        f"db_passwd: '{PLANTED} and spaces'",
        "n_tokens=5 tokens: 6 ended",
    ]
    (tmp_path / LOG_FILE).write_text("\n".join(["started", *lines]))
    monkeypatch.setattr(RemoteOptions, "load_settings", lambda self: settings)
    monkeypatch.setenv("ANABRANCH_TOKEN", f"{PLANTED}-token")
    findings = [Finding("models", "fail", f"refused {PLANTED}-token", lines[0])]
    file = tmp_path / "bundle.zip"
    names = await write_bundle(file, RemoteOptions(), findings)
    assert names == ["commands.log", "findings.json", "settings.json", "version.json"]
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
