from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.config.engines import build_limits
from anabranch.config.loader import load_settings
from anabranch.process.ingress_settings import check_ingress_settings
from schemas.errors import ConfigurationError

KAFKA = "kafka.bootstrap_servers=127.0.0.1:1"
DATABASE = "database.url=postgresql://127.0.0.1/x"


def check_ingress_code(folder: Path, *sets: str) -> str | None:
    try:
        check_ingress_settings(load_settings(data_dir=folder, sets=sets))
    except ConfigurationError as error:
        assert error.remedy
        return error.code
    return None


@pytest.mark.parametrize("outside", [KAFKA, DATABASE])
def test_sources_are_required_outside_embedded_mode(tmp_path: Path, outside: str) -> None:
    assert check_ingress_code(tmp_path) is None
    assert check_ingress_code(tmp_path, outside) == "SOURCES_REQUIRED"
    for allowed in ('{"*": ["default"]}', '{"*": []}', '{"crm": ["default"]}'):
        assert check_ingress_code(tmp_path, outside, f"ingest.sources={allowed}") is None


def test_producer_topics_require_kafka_and_named_sources(tmp_path: Path) -> None:
    topics, sources = 'ingest.topics={"raw.crm": ["crm"]}', 'ingest.sources={"crm": ["default"]}'
    assert check_ingress_code(tmp_path, topics, sources) == "NEEDS_KAFKA"
    assert (
        check_ingress_code(tmp_path, KAFKA, topics, 'ingest.sources={"shop": ["default"]}')
        == "BAD_SETTING"
    )
    assert check_ingress_code(tmp_path, KAFKA, topics, sources) is None
    with pytest.raises(ConfigurationError):
        load_settings(data_dir=tmp_path, sets=['ingest.topics={"control": ["crm"]}'])


def test_unnamed_sources_are_limited_to_default_tenant(tmp_path: Path) -> None:
    ingest = load_settings(data_dir=tmp_path).ingest
    assert build_limits(ingest).tenants_by_source == {"*": {"default"}}
    named = load_settings(data_dir=tmp_path, sets=['ingest.sources={"crm": ["a"]}']).ingest
    assert build_limits(named).tenants_by_source == {"crm": {"a"}}
