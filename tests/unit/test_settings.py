from __future__ import annotations

import re
from pathlib import Path

import pytest

from anabranch.config.index_config import build_index_config, list_setting_values
from anabranch.config.loader import (
    list_setting_names,
    load_settings,
    override_settings,
    read_origins,
    to_environment_name,
)
from anabranch.doctor.machine import check_supabase_names
from processors import get_stage_versions
from schemas.errors import ConfigurationError, GenerationMismatch
from schemas.generations import Generation, IndexConfig, compute_chain_fingerprints
from services.engines import check_config_matches, find_outdated_stages


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import os

    for name in list(os.environ):
        if name.startswith(("ANABRANCH_", "SUPABASE_")):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def test_defaults_select_embedded_mode() -> None:
    settings = load_settings()
    assert (settings.mode, settings.log_kind, settings.data_dir) == (
        "embedded",
        "postgres",
        Path("anabranch-data"),
    )
    assert settings.ingest.max_bytes == 512 * 1024 * 1024
    assert settings.kafka.partitions == 12


def test_command_line_overrides_environment_and_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "anabranch.toml").write_text(
        "[ingest]\nmax_bytes = 1\nmax_pages = 1\ninline_bytes = 1\n"
    )
    monkeypatch.setenv("ANABRANCH_INGEST__MAX_PAGES", "2")
    monkeypatch.setenv("ANABRANCH_INGEST__INLINE_BYTES", "2")
    ingest = load_settings(data_dir=tmp_path, sets=["ingest.inline_bytes=3"]).ingest
    assert (ingest.max_bytes, ingest.max_pages, ingest.inline_bytes) == (1, 2, 3)


def test_settings_file_of_data_directory_from_environment_is_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "anabranch.toml").write_text("[api]\nport = 9\n")
    monkeypatch.setenv("ANABRANCH_DATA_DIR", str(tmp_path))
    assert load_settings().api.port == 9


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("ANABRANCH_INGEST__MAX_BYTE", "ANABRANCH_INGEST__MAX_BYTES"),
        ("ANABRANCH_KAFKA__BOOTSTRAP_SERVER", "ANABRANCH_KAFKA__BOOTSTRAP_SERVERS"),
    ],
)
def test_unknown_environment_variable_suggests_nearest_name(
    monkeypatch: pytest.MonkeyPatch, name: str, nearest: str
) -> None:
    monkeypatch.setenv(name, "1")
    with pytest.raises(ConfigurationError) as caught:
        load_settings()
    assert name in caught.value.detail
    assert nearest in caught.value.remedy


def test_unknown_setting_in_file_or_option_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "anabranch.toml").write_text("[ingests]\nmax_bytes = 1\n")
    with pytest.raises(ConfigurationError, match=r"ingests\.max_bytes \(file\)"):
        load_settings(data_dir=tmp_path)
    with pytest.raises(ConfigurationError) as caught:
        load_settings(sets=["chat.modell=x"])
    assert "chat.model?" in caught.value.remedy


@pytest.mark.parametrize(
    "assignment",
    [
        "ingest.max_bytes=lots",
        "chunk.strategy=guess",
        "api.port=70000",
        "ingest.max_bytes",
        "ingest.sources={",
    ],
)
def test_invalid_value_is_rejected_with_setting_name(assignment: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_settings(sets=[assignment])
    assert assignment.partition("=")[0] in caught.value.detail


@pytest.mark.parametrize(
    "assignment",
    [
        "graph.bolt_url=http://graph:7687",
        "graph.bolt_url=bolt://user:secret@graph:7687",
        'graph.databases={"acme":"kg","globex":"kg"}',
    ],
)
def test_graph_server_without_tenant_boundary_is_rejected(assignment: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_settings(sets=[assignment])
    assert "graph." in caught.value.detail and "secret" not in caught.value.detail


CHAT_SETTINGS = (
    "chat.base_url=http://models/v1",
    "chat.model=large",
    "chat.api_key=k",
    "chat.kind=vllm",
)


def load_extraction_server(*sets: str) -> tuple[str | None, str | None, str | None, str | None]:
    server = load_settings(sets=sets).resolve_chat_server("extract")
    return (
        server.base_url,
        server.model,
        server.api_key.get_secret_value() if server.api_key else None,
        server.kind,
    )


def test_extraction_inherits_unset_values_from_chat() -> None:
    assert load_extraction_server(*CHAT_SETTINGS) == ("http://models/v1", "large", "k", "vllm")
    assert load_extraction_server(*CHAT_SETTINGS, "extract.model=small") == (
        "http://models/v1",
        "small",
        "k",
        "vllm",
    )


def test_chat_api_key_is_not_sent_to_other_url() -> None:
    assert load_extraction_server(*CHAT_SETTINGS, "extract.base_url=http://others/v1") == (
        "http://others/v1",
        "large",
        None,
        None,
    )
    assert load_extraction_server(
        *CHAT_SETTINGS, "extract.base_url=http://others/v1", "extract.api_key=o"
    ) == ("http://others/v1", "large", "o", None)


@pytest.mark.parametrize(
    ("sets", "new", "beside_rules"),
    [
        ((), ("rules", ""), ("rules", "")),
        (CHAT_SETTINGS, ("openai", "large"), ("rules", "")),
        ((*CHAT_SETTINGS, "extract.engine=rules"), ("rules", ""), ("rules", "")),
        ((*CHAT_SETTINGS, "extract.engine=openai"), ("openai", "large"), ("openai", "large")),
        ((*CHAT_SETTINGS, "extract.model=small"), ("openai", "small"), ("openai", "small")),
    ],
)
def test_chat_model_becomes_extractor_only_for_new_index(
    sets: tuple[str, ...], new: tuple[str, str], beside_rules: tuple[str, str]
) -> None:
    settings, rules = load_settings(sets=sets), build_index_config(load_settings())
    new_index, same_index = (
        build_index_config(settings).extract,
        build_index_config(settings, rules).extract,
    )
    assert ((new_index.engine, new_index.model), (same_index.engine, same_index.model)) == (
        new,
        beside_rules,
    )


def test_index_keeps_the_model_that_extracted_it() -> None:
    live = build_index_config(load_settings(sets=CHAT_SETTINGS))
    for sets in ((), (*CHAT_SETTINGS, "chat.model=newer")):
        assert build_index_config(load_settings(sets=sets), live).extract.model == "large"


def test_model_server_without_model_is_rejected() -> None:
    for section in ("chat", "extract", "ocr"):
        with pytest.raises(ConfigurationError, match=rf"{section}\.model is not"):
            build_index_config(load_settings(sets=[f"{section}.base_url=http://models/v1"]))


@pytest.mark.parametrize(
    "value", ["127.0.0.1:80, intranet:8080", '["127.0.0.1:80","intranet:8080"]']
)
def test_environment_lists_are_comma_separated_or_json(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("ANABRANCH_INGEST__URL_ALLOW", value)
    assert load_settings().ingest.url_allow == ("127.0.0.1:80", "intranet:8080")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("ingest.url_allow", value) for value in ("intranet", "http://intranet:80", "[a:1]")),
        *((name, '["a"') for name in ("ingest.url_allow", "ingest.folders", "api.hosts")),
    ],
)
def test_list_that_would_match_nothing_is_refused(key: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match=key):
        load_settings(sets=[f"{key}={value}"])


def test_every_setting_has_a_unique_environment_name() -> None:
    names = [to_environment_name(key) for key in list_setting_names()]
    assert len(names) == len(set(names))
    assert {
        "ANABRANCH_DATA_DIR",
        "ANABRANCH_DATABASE__URL",
        "ANABRANCH_EMBED__DIMENSION",
        "ANABRANCH_STORAGE__URL",
        "ANABRANCH_KAFKA__SASL_PASSWORD",
    } <= set(names)


def test_embedding_server_requires_model_and_dimension() -> None:
    with pytest.raises(ConfigurationError, match=r"embed\.dimension"):
        build_index_config(load_settings(sets=["embed.base_url=http://x/v1", "embed.model=m"]))
    with pytest.raises(ConfigurationError, match=r"embed\.model"):
        build_index_config(load_settings(sets=["embed.base_url=http://x/v1", "embed.dimension=8"]))


def test_setting_different_from_index_is_a_named_mismatch() -> None:
    live, wanted = (
        build_index_config(load_settings()),
        build_index_config(load_settings(sets=["chunk.child_tokens=100"])),
    )
    check_config_matches(live, live, "g1")
    with pytest.raises(
        GenerationMismatch, match=r"chunk\.child_tokens is 100 in the settings, 330 in the index"
    ):
        check_config_matches(wanted, live, "g1")


def test_outdated_stages_exclude_downstream_stages() -> None:
    config, made_by = build_index_config(load_settings()), get_stage_versions()
    generation = Generation(
        name="g1", config=config, how=compute_chain_fingerprints(config, made_by), topics={}
    )
    assert find_outdated_stages(generation, config, made_by) == []
    assert find_outdated_stages(generation, config, made_by | {"chunk": made_by["chunk"] + 1}) == [
        "chunk"
    ]
    assert find_outdated_stages(generation, config, made_by | {"transcribe": 0, "embed": 0}) == [
        "transcribe",
        "embed",
    ]


def test_new_engine_fingerprint_is_outdated_but_no_mismatch() -> None:
    live, made_by = build_index_config(load_settings()), get_stage_versions()
    generation = Generation(
        name="g1", config=live, how=compute_chain_fingerprints(live, made_by), topics={}
    )
    newer = live.model_copy(
        update={"parse": live.parse.model_copy(update={"fingerprint": "of a newer parser"})}
    )
    check_config_matches(newer, live, "g1")
    assert find_outdated_stages(generation, newer, made_by) == ["transcribe"]


def test_secrets_are_redacted_from_settings_output(tmp_path: Path) -> None:
    settings = load_settings(sets=["chat.api_key=s3cret", "database.url=postgresql://u:s3cret@h/d"])
    assert "s3cret" not in repr(settings)
    assert "s3cret" not in str(settings.model_dump(mode="json"))


def test_origin_of_each_setting_is_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "anabranch.toml").write_text("[api]\nport = 9\n")
    monkeypatch.setenv("ANABRANCH_INGEST__MAX_PAGES", "2")
    origins = read_origins(data_dir=tmp_path, sets=["chunk.overlap=0.1"])
    assert origins["file"] == {"api": {"port": 9}}
    assert origins["environment"] == {"ingest": {"max_pages": "2"}}
    assert origins["command line"]["chunk"] == {"overlap": "0.1"}


@pytest.mark.parametrize(
    "setting",
    [
        *("chunk.parent_tokens=1", "chunk.child_tokens=501", "lexical.b=2"),
        *("hnsw.m=1", "hnsw.m=101", "hnsw.ef_construction=1001", "hnsw.exact_below=-1"),
    ],
)
def test_index_setting_out_of_bounds_is_refused_by_name(setting: str) -> None:
    name = setting.partition("=")[0]
    with pytest.raises(ConfigurationError, match=f"{name}: Input should be"):
        load_settings(sets=[setting])


def test_vector_index_needs_twice_as_many_candidates_as_links() -> None:
    with pytest.raises(ConfigurationError, match=r"ef_construction 63 is less than twice m \(32\)"):
        load_settings(sets=["hnsw.m=32", "hnsw.ef_construction=63"])
    assert load_settings(sets=["hnsw.m=32", "hnsw.ef_construction=64"]).hnsw.m == 32


def test_generation_without_recorded_constants_of_the_vector_index_is_current() -> None:
    """Generations from before these settings were built with their defaults."""
    config = build_index_config(load_settings())
    recorded = config.model_dump(exclude={"hnsw"})
    check_config_matches(config, IndexConfig.model_validate(recorded), "g1")
    changed = build_index_config(load_settings(sets=["hnsw.exact_below=5"]))
    with pytest.raises(GenerationMismatch, match=r"hnsw\.exact_below is 5 in the settings, 20000"):
        check_config_matches(changed, IndexConfig.model_validate(recorded), "g1")


@pytest.mark.parametrize(
    ("assignment", "detail"),
    [
        ("chunk.child_tokens=" + "[" * 100_000, "Invalid JSON"),
        ("chunk." + "a." * 490 + "b=1", "Unknown setting"),
        ("hnsw.m=100", r"^hnsw: ef_construction 128 is less than twice m \(100\)$"),
    ],
)
def test_odd_assignment_is_refused_with_its_reason(assignment: str, detail: str) -> None:
    with pytest.raises(ConfigurationError, match=detail):
        override_settings(load_settings(), [assignment])


def test_variables_of_the_checks_are_no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    script = (Path(__file__).parents[2] / ".ci/run").read_text(encoding="utf-8")
    variables = re.findall(r"\b(ANABRANCH_\w+)=(\w+)", script)
    assert variables
    for name, value in variables:
        monkeypatch.setenv(name, value)
    load_settings()


SUPABASE = {
    "SUPABASE_DB_URL": "postgresql://postgres:secret@db.ref.supabase.co:5432/postgres",
    "SUPABASE_URL": "https://ref.supabase.co/",
    "SUPABASE_SERVICE_ROLE_KEY": "service-secret",
    "SUPABASE_STORAGE_BUCKET": "files",
}


async def test_names_of_supabase_projects_set_what_nothing_else_sets(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in SUPABASE.items():
        monkeypatch.setenv(name, value)
    keys = ["storage.access_key=a", "storage.secret_key=b"]
    settings = load_settings(sets=keys)
    assert settings.database.url is not None and settings.mode == "external"
    assert settings.database.url.get_secret_value() == SUPABASE["SUPABASE_DB_URL"]
    assert settings.storage.url == (
        "s3://files?endpoint=https://ref.storage.supabase.co/storage/v1/s3"
    )
    assert settings.auth.jwks_url == "https://ref.supabase.co/auth/v1/.well-known/jwks.json"
    assert settings.auth.issuer == "https://ref.supabase.co/auth/v1"
    assert settings.origins["storage.url"] == "environment"
    # Without access keys the bucket cannot be opened; nothing shows a secret.
    without_keys = load_settings()
    assert without_keys.storage.url is None
    findings = await check_supabase_names(without_keys)
    named = {finding.detail.partition(" ")[0] for finding in findings}
    assert named == {"SUPABASE_SERVICE_ROLE_KEY", "SUPABASE_STORAGE_BUCKET"}
    shown = repr((settings, findings, list_setting_values(settings)))
    assert "service-secret" not in shown and "secret@" not in shown
    # The file and our own names win, also over an issuer of another project.
    (tmp_path / "anabranch.toml").write_text('[database]\nurl = "postgresql://own/db"\n')
    monkeypatch.setenv("ANABRANCH_AUTH__JWKS_URL", "https://own.example/jwks")
    own = load_settings(data_dir=tmp_path)
    assert own.database.url is not None
    assert own.database.url.get_secret_value() == "postgresql://own/db"
    assert (own.auth.jwks_url, own.auth.issuer) == ("https://own.example/jwks", None)


def test_transaction_pooler_of_supabase_is_refused_without_its_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = "postgresql://postgres.ref:secret@aws-0.pooler.supabase.com:6543/postgres"
    monkeypatch.setenv("SUPABASE_DB_URL", url)
    with pytest.raises(ConfigurationError, match="SUPABASE_DB_URL") as caught:
        load_settings()
    assert "secret" not in f"{caught.value} {caught.value.detail} {caught.value.remedy}"
    load_settings(sets=["database.url=postgresql://own/db"])
