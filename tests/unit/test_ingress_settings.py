from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.composition.ports import limits_of
from anabranch.ingress import check_ingress
from anabranch.settings_loading import load_settings
from schemas.errors import ConfigurationError

KAFKA = "kafka.bootstrap_servers=127.0.0.1:1"
DATABASE = "database.url=postgresql://127.0.0.1/x"


def code(folder: Path, *sets: str) -> str | None:
    try:
        check_ingress(load_settings(data_dir=folder, sets=sets))
    except ConfigurationError as error:
        assert error.remedy
        return error.code
    return None


@pytest.mark.parametrize("outside", [KAFKA, DATABASE])
def test_sources_are_required_outside_the_embedded_mode(tmp_path: Path, outside: str) -> None:
    assert code(tmp_path) is None
    assert code(tmp_path, outside) == "SOURCES_REQUIRED"
    for allowed in ('{"*": ["default"]}', '{"*": []}', '{"crm": ["default"]}'):
        assert code(tmp_path, outside, f"ingest.sources={allowed}") is None


def test_topics_of_producers_need_kafka_and_named_sources(tmp_path: Path) -> None:
    topics, sources = 'ingest.topics={"raw.crm": ["crm"]}', 'ingest.sources={"crm": ["default"]}'
    assert code(tmp_path, topics, sources) == "NEEDS_KAFKA"
    assert code(tmp_path, KAFKA, topics, 'ingest.sources={"shop": ["default"]}') == "BAD_SETTING"
    assert code(tmp_path, KAFKA, topics, sources) is None
    with pytest.raises(ConfigurationError):
        load_settings(data_dir=tmp_path, sets=['ingest.topics={"control": ["crm"]}'])


def test_unnamed_sources_may_write_for_the_default_tenant_at_most(tmp_path: Path) -> None:
    ingest = load_settings(data_dir=tmp_path).ingest
    assert limits_of(ingest).sources == {"*": {"default"}}
    named = load_settings(data_dir=tmp_path, sets=['ingest.sources={"crm": ["a"]}']).ingest
    assert limits_of(named).sources == {"crm": {"a"}}
