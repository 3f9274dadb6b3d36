from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.indexing import check_same, outdated, wanted_config
from anabranch.settings_loading import environment_name, gather, known_keys, load_settings
from processors import versions
from schemas.errors import ConfigurationError, GenerationMismatch
from schemas.generations import Generation, chain_fingerprints


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import os

    for name in list(os.environ):
        if name.startswith("ANABRANCH_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def test_nothing_set_means_the_embedded_mode() -> None:
    settings = load_settings()
    assert (settings.mode, settings.log_kind, settings.data_dir) == ("embedded", "postgres", Path("anabranch-data"))
    assert settings.ingest.max_bytes == 512 * 1024 * 1024
    assert settings.kafka.partitions == 12


def test_the_command_line_wins_over_the_environment_and_that_over_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "anabranch.toml").write_text("[ingest]\nmax_bytes = 1\nmax_pages = 1\ninline_bytes = 1\n")
    monkeypatch.setenv("ANABRANCH_INGEST__MAX_PAGES", "2")
    monkeypatch.setenv("ANABRANCH_INGEST__INLINE_BYTES", "2")
    ingest = load_settings(data_dir=tmp_path, sets=["ingest.inline_bytes=3"]).ingest
    assert (ingest.max_bytes, ingest.max_pages, ingest.inline_bytes) == (1, 2, 3)


def test_the_settings_file_of_the_data_folder_is_read_also_when_the_folder_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "anabranch.toml").write_text("[api]\nport = 9\n")
    monkeypatch.setenv("ANABRANCH_DATA_DIR", str(tmp_path))
    assert load_settings().api.port == 9


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("ANABRANCH_INGEST__MAX_BYTE", "ANABRANCH_INGEST__MAX_BYTES"), ("ANABRANCH_KAFKA__BOOTSTRAP_SERVER", "ANABRANCH_KAFKA__BOOTSTRAP_SERVERS")],
)
def test_an_unknown_name_in_the_environment_is_an_error_that_names_the_nearest_known_one(monkeypatch: pytest.MonkeyPatch, name: str, nearest: str) -> None:
    monkeypatch.setenv(name, "1")
    with pytest.raises(ConfigurationError) as caught:
        load_settings()
    assert name in caught.value.detail
    assert nearest in caught.value.remedy


def test_an_unknown_key_in_the_file_or_on_the_command_line_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "anabranch.toml").write_text("[ingests]\nmax_bytes = 1\n")
    with pytest.raises(ConfigurationError, match=r"ingests\.max_bytes \(file\)"):
        load_settings(data_dir=tmp_path)
    with pytest.raises(ConfigurationError) as caught:
        load_settings(sets=["chat.modell=x"])
    assert "chat.model?" in caught.value.remedy


@pytest.mark.parametrize("assignment", ["ingest.max_bytes=lots", "chunk.strategy=guess", "api.port=70000", "ingest.max_bytes", "ingest.sources={"])
def test_a_bad_value_is_a_configuration_error_that_names_the_setting(assignment: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_settings(sets=[assignment])
    assert assignment.partition("=")[0] in caught.value.detail


def test_a_setting_that_this_version_does_not_have_yet_is_refused_and_not_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANABRANCH_GRAPH__BOLT_URL", "bolt://localhost")
    with pytest.raises(ConfigurationError) as caught:
        load_settings()
    assert caught.value.code == "SETTING_NOT_AVAILABLE"


CHAT = ("chat.base_url=http://models/v1", "chat.model=large", "chat.api_key=k", "chat.kind=vllm")


def extraction(*sets: str) -> tuple[str | None, str | None, str | None, str | None]:
    server = load_settings(sets=sets).extraction_server()
    return server.base_url, server.model, server.api_key.get_secret_value() if server.api_key else None, server.kind


def test_extraction_takes_from_chat_what_it_leaves_open() -> None:
    assert extraction(*CHAT) == ("http://models/v1", "large", "k", "vllm")
    assert extraction(*CHAT, "extract.model=small") == ("http://models/v1", "small", "k", "vllm")


def test_the_chat_servers_key_goes_to_no_other_address() -> None:
    assert extraction(*CHAT, "extract.base_url=http://others/v1") == ("http://others/v1", "large", None, None)
    assert extraction(*CHAT, "extract.base_url=http://others/v1", "extract.api_key=o") == ("http://others/v1", "large", "o", None)


@pytest.mark.parametrize(
    ("sets", "new", "beside_rules"),
    [
        ((), ("rules", ""), ("rules", "")),
        (CHAT, ("openai", "large"), ("rules", "")),
        ((*CHAT, "extract.engine=rules"), ("rules", ""), ("rules", "")),
        ((*CHAT, "extract.engine=openai"), ("openai", "large"), ("openai", "large")),
        ((*CHAT, "extract.model=small"), ("openai", "small"), ("openai", "small")),
    ],
)
def test_a_chat_model_extracts_for_a_new_index_and_changes_nothing_about_one_that_is_there(
    sets: tuple[str, ...], new: tuple[str, str], beside_rules: tuple[str, str]
) -> None:
    settings, rules = load_settings(sets=sets), wanted_config(load_settings())
    made, kept = wanted_config(settings).extract, wanted_config(settings, rules).extract
    assert ((made.engine, made.model), (kept.engine, kept.model)) == (new, beside_rules)


def test_an_index_that_a_chat_model_extracted_stays_with_that_model() -> None:
    live = wanted_config(load_settings(sets=CHAT))
    for sets in ((), (*CHAT, "chat.model=newer")):
        assert wanted_config(load_settings(sets=sets), live).extract.model == "large"


def test_a_model_server_without_a_model_is_a_mistake_that_is_named() -> None:
    for section in ("chat", "extract", "ocr"):
        with pytest.raises(ConfigurationError, match=rf"{section}\.model is not"):
            wanted_config(load_settings(sets=[f"{section}.base_url=http://models/v1"]))


def test_lists_are_written_with_commas_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANABRANCH_INGEST__URL_ALLOW", "127.0.0.1:80, intranet:8080")
    assert load_settings().ingest.url_allow == ("127.0.0.1:80", "intranet:8080")


def test_each_setting_can_be_found_by_its_name_in_the_environment() -> None:
    names = [environment_name(key) for key in known_keys()]
    assert len(names) == len(set(names))
    assert {"ANABRANCH_DATA_DIR", "ANABRANCH_DATABASE__URL", "ANABRANCH_EMBED__DIMENSION", "ANABRANCH_STORAGE__URL", "ANABRANCH_KAFKA__SASL_PASSWORD"} <= set(
        names
    )


def test_an_embedding_server_needs_a_model_and_a_dimension() -> None:
    with pytest.raises(ConfigurationError, match=r"embed\.dimension"):
        wanted_config(load_settings(sets=["embed.base_url=http://x/v1", "embed.model=m"]))
    with pytest.raises(ConfigurationError, match=r"embed\.model"):
        wanted_config(load_settings(sets=["embed.base_url=http://x/v1", "embed.dimension=8"]))


def test_a_setting_that_differs_from_the_index_is_a_mismatch_that_names_it() -> None:
    live, wanted = wanted_config(load_settings()), wanted_config(load_settings(sets=["chunk.child_tokens=100"]))
    check_same(live, live, "g1")
    with pytest.raises(GenerationMismatch, match=r"chunk\.child_tokens is 100 in the settings, 200 in the index"):
        check_same(wanted, live, "g1")


def test_a_stage_of_another_version_is_named_and_what_only_follows_from_it_is_not() -> None:
    config, made_by = wanted_config(load_settings()), versions()
    generation = Generation(name="g1", config=config, how=chain_fingerprints(config, made_by), topics={})
    assert outdated(generation, config, made_by) == []
    assert outdated(generation, config, made_by | {"chunk": made_by["chunk"] + 1}) == ["chunk"]
    assert outdated(generation, config, made_by | {"transcribe": 0, "embed": 0}) == ["transcribe", "embed"]


def test_an_engine_that_works_otherwise_is_the_programs_doing_and_no_mismatch_of_settings() -> None:
    live, made_by = wanted_config(load_settings()), versions()
    generation = Generation(name="g1", config=live, how=chain_fingerprints(live, made_by), topics={})
    newer = live.model_copy(update={"parse": live.parse.model_copy(update={"fingerprint": "of a newer parser"})})
    check_same(newer, live, "g1")
    assert outdated(generation, newer, made_by) == ["transcribe"]


def test_secrets_are_not_shown(tmp_path: Path) -> None:
    settings = load_settings(sets=["chat.api_key=s3cret", "database.url=postgresql://u:s3cret@h/d"])
    assert "s3cret" not in repr(settings)
    assert "s3cret" not in str(settings.model_dump(mode="json"))


def test_the_origin_of_a_value_is_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "anabranch.toml").write_text("[api]\nport = 9\n")
    monkeypatch.setenv("ANABRANCH_INGEST__MAX_PAGES", "2")
    origins = gather(data_dir=tmp_path, sets=["chunk.overlap=0.1"])
    assert origins["file"] == {"api": {"port": 9}}
    assert origins["environment"] == {"ingest": {"max_pages": "2"}}
    assert origins["command line"]["chunk"] == {"overlap": "0.1"}
