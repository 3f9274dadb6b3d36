"""Settings as the API and the command line report them."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path
from typing import Any, get_args

import httpx2
import pytest
from pydantic import BaseModel, SecretStr

from anabranch.cli import main
from anabranch.config.index_config import build_index_config
from anabranch.config.loader import list_setting_names, load_settings
from anabranch.config.setting_values import list_setting_values
from anabranch.config.settings import Settings
from api.app import create_app
from processors import get_stage_versions
from schemas.generations import UPSTREAM_STAGES, compute_chain_fingerprints
from tests.unit.api_fakes import make_services

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
