"""Settings: `ANABRANCH_SECTION__KEY` in the environment, or `[section] key` in `anabranch.toml`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, get_args
from urllib.parse import urlsplit

from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    PrivateAttr,
    SecretStr,
    field_validator,
)
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from anabranch.config.auth_settings import AuthSettings
from anabranch.config.model_settings import (
    EmbedSettings,
    ExtractSettings,
    ModelSettings,
    RerankSettings,
    SettingsSection,
)
from schemas.budgets import PriceTable
from schemas.generations import ChunkConfig, HnswConfig, LexicalConfig

MIB = 1024 * 1024


def _split_names(value: object) -> object:
    return (
        tuple(item.strip() for item in value.split(",") if item.strip())
        if isinstance(value, str)
        else value
    )


# NoDecode: otherwise pydantic-settings parses lists in the environment as JSON.
NameList = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split_names)]
"""List of names, comma-separated in the environment."""


KEY_FILE_NAME = "shares.key"


class DatabaseSettings(SettingsSection):
    url: SecretStr | None = Field(
        None,
        description="URL of a Postgres with pgvector; unset: the embedded one in the data folder",
    )
    tcp: int | None = Field(
        None,
        ge=1,
        le=65535,
        description=(
            "TCP port of the embedded Postgres on 127.0.0.1, with a password "
            "(`postgres/pgpass`); unset: Unix socket only"
        ),
    )
    api_pool: int = Field(
        12, ge=4, le=200, description="connections of the API; a query uses up to four"
    )
    worker_pool: int = Field(10, ge=2, le=200, description="connections of a worker")


class KafkaSettings(SettingsSection):
    bootstrap_servers: str | None = Field(
        None,
        description=(
            "addresses of the brokers, host:port, comma-separated; unset: the log is a Postgres "
            "table"
        ),
    )
    topic_prefix: str = Field(
        "",
        max_length=100,
        pattern=r"^[A-Za-z0-9._-]*$",
        description="prefix of the names of topics and groups",
    )
    partitions: int = Field(12, ge=1, le=1000, description="partitions of new document topics")
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = Field(
        "PLAINTEXT", description="security protocol of the brokers"
    )
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = Field(
        "PLAIN", description="SASL mechanism"
    )
    sasl_username: str | None = Field(None, description="SASL user name")
    sasl_password: SecretStr | None = Field(None, description="SASL password")
    ssl_cafile: Path | None = Field(
        None, description="file with the CA certificates of the brokers"
    )
    ssl_certfile: Path | None = Field(None, description="file with the client certificate")
    ssl_keyfile: Path | None = Field(None, description="file with the client's private key")
    principals: NameList = Field(
        (),
        description=(
            "principals of the API and the workers in the cluster's ACLs (`User:NAME`); unset: "
            "the principal of this process"
        ),
    )
    start_timeout_s: float = Field(
        60.0,
        gt=0,
        le=3600,
        description="seconds that a starting process waits for Kafka before it exits with code 7",
    )
    session_timeout_s: float = Field(
        20.0,
        ge=6,
        le=1800,
        description="seconds without heartbeat after which a worker's partitions go to others",
    )


class EventLogSettings(SettingsSection):
    encrypt: bool = Field(
        True, description="encrypt events with a key per document, so that erasure destroys the key"
    )
    plain_tenants: NameList = Field(
        (),
        description=(
            "tenants whose events are not encrypted; their erasure receipts list what remains"
        ),
    )
    key_file: Path | None = Field(
        None,
        description=(
            "file with a share of each document's key, which an erasure overwrites; on a file "
            "system that all processes share; unset: `shares.key` in the data folder with the "
            "embedded Postgres, else none"
        ),
    )
    master_key: SecretStr | None = Field(
        None,
        description=(
            "key that wraps the documents' keys: 32 bytes in base64, the same for all processes; "
            "unset: `master.key` in the data folder"
        ),
    )


class StorageSettings(SettingsSection):
    url: str | None = Field(
        None,
        description=(
            "URL of the blob store, file://… or s3://bucket?endpoint=…; unset: a folder in the "
            "data folder"
        ),
    )
    access_key: str | None = Field(None, description="S3 access key")
    secret_key: SecretStr | None = Field(None, description="S3 secret key")
    region: str | None = Field(None, description="S3 region")


ChatTask = Literal["extract", "plan", "route", "judge"]
CHAT_TASKS: tuple[ChatTask, ...] = get_args(ChatTask)


class GraphSettings(SettingsSection):
    """Graph server that answers Cypher: Neo4j, PuppyGraph, or another one with Bolt."""

    bolt_url: str | None = Field(
        None,
        pattern=r"^(bolt|neo4j)(\+s|\+ssc)?://[^\s/?#@]+$",
        description="URL of the graph server, bolt://host:7687; unset: no Cypher",
    )
    user: str | None = Field(None, description="user name; unset: no authentication")
    password: SecretStr = Field(SecretStr(""), description="password of the user")
    databases: dict[str, str] = Field(
        {"default": ""},
        description=(
            "database of the graph server by tenant, which holds no other tenant's nodes; empty: "
            "the server's default database. Other tenants get no Cypher"
        ),
    )
    timeout_s: float = Field(5.0, ge=0.1, le=60, description="seconds that a query may take")
    max_rows: int = Field(1_000, ge=1, le=10_000, description="maximum rows of a result")

    @field_validator("databases")
    @classmethod
    def _reject_shared_database(cls, databases: dict[str, str]) -> dict[str, str]:
        if len(set(databases.values())) < len(databases):
            raise ValueError("two tenants have the same database. Give each its own")
        return databases


class ParseSettings(SettingsSection):
    hidden_text: Literal["drop", "keep"] = Field(
        "drop",
        description=(
            "drop or keep text that a person who opens the document cannot see, such as hidden "
            "sheets, rows, slides and white text; a warning names it"
        ),
    )


class IngestSettings(SettingsSection):
    max_bytes: int = Field(512 * MIB, ge=1, description="maximum size of a document in bytes")
    inline_bytes: int = Field(
        700_000,
        ge=1,
        le=20 * MIB,
        description="maximum size of content inside an event, in decoded bytes",
    )
    max_pages: int = Field(3_000, ge=1, description="maximum number of pages of a document")
    max_characters: int = Field(
        20_000_000, ge=1, description="maximum number of characters of a document"
    )
    characters_per_byte: int = Field(
        100,
        ge=1,
        description=(
            "maximum number of characters per byte of a file; any file may have 1,000,000 "
            "characters"
        ),
    )
    url_allow: NameList = Field(
        (), description="host:port of private addresses that may be fetched"
    )
    folders: NameList = Field(
        (),
        description=(
            "folders that sources may watch, with their subfolders, in addition to those that "
            "`anabranch source add folder` approves"
        ),
    )
    fetch_timeout_s: float = Field(60.0, gt=0, description="seconds that a download may take")
    sources: dict[str, tuple[str, ...]] = Field(
        {},
        description=(
            "tenants by ce_source; `*`: all other sources. Required unless embedded, where any "
            "source may write for `default`"
        ),
    )
    takeover: dict[str, tuple[str, ...]] = Field(
        {},
        description=(
            "by ce_source, other sources whose documents it may change; `*`: all. The API may "
            "change every document"
        ),
    )
    topics: dict[Annotated[str, Field(pattern=r"^raw\.[a-z0-9_-]{1,40}$")], tuple[str, ...]] = (
        Field(
            {},
            description=(
                "by topic `raw.NAME` of one producer, its sources, which may write to no other "
                "topic"
            ),
        )
    )


class ApiSettings(SettingsSection):
    host: str = Field("127.0.0.1", description="address to listen on")
    port: int = Field(8420, ge=0, le=65535, description="port to listen on; 0 picks a free one")
    token: SecretStr | None = Field(
        None,
        min_length=16,
        description=(
            "bearer token of the operator; unset: `up` generates one at each start, `api` has none"
        ),
    )
    hosts: NameList = Field(
        (),
        description="host names of this server, in addition to the loopback names and `API__HOST`",
    )
    public_url: str = Field(
        "",
        pattern=r"^(https?://[^/?#\s]+(/[A-Za-z0-9._~-]+)*/?)?$",
        description=(
            "base URL of links to files; unset: the address of the request. With a path, also the "
            "requests below it are served, as a reverse proxy sends them that does not remove it"
        ),
    )
    requests_per_address: int = Field(
        128,
        ge=1,
        le=256,
        description=(
            "concurrent requests per remote address, of 256 in total; use 256 behind a proxy, "
            "which is a single address"
        ),
    )
    max_runs: int = Field(
        64,
        ge=1,
        le=10_000,
        description=(
            "concurrent runs of one API process. A tenant may start a run while fewer of its own "
            "are in progress than are free, so one alone gets half; further ones get 503"
        ),
    )
    min_upload_rate: int = Field(
        1024,
        ge=1,
        description=(
            "minimum upload rate in bytes per second after the first 10 s; slower uploads get 408"
        ),
    )
    agent_feedback: bool = Field(
        False,
        description=(
            "offer agents a tool that stores feedback: for `/mcp` set on the server, for "
            "`anabranch mcp` where it runs"
        ),
    )
    disk_reserve: int = Field(
        512 * MIB,
        ge=0,
        description=(
            "bytes to keep free on the disk; with less, uploads get 507, queries still work"
        ),
    )

    def list_allowed_hosts(self) -> tuple[str, ...]:
        """Return the names that a `Host` header may have, except a wildcard address."""
        bind_hosts = () if self.host in ("0.0.0.0", "::", "") else (self.host,)
        return (
            *bind_hosts,
            *self.hosts,
            *((urlsplit(self.public_url).netloc,) if self.public_url else ()),
        )


class CacheSettings(SettingsSection):
    """Caches of each process that answers queries."""

    answers: int = Field(
        256,
        ge=0,
        le=100_000,
        description=(
            "cached answers, about 0.3 MB each; a repeated query is answered from the cache "
            "until the index changes; 0: no cache"
        ),
    )
    seconds: float = Field(
        60.0, gt=0, le=600, description="maximum age of a cached answer in seconds"
    )
    embeddings: int = Field(
        1024,
        ge=0,
        le=100_000,
        description="cached embeddings of queries, about 16 kB each; 0: no cache",
    )
    states: int = Field(
        64 * MIB,
        ge=0,
        description=(
            "bytes of cached token states, which the local reranker reads; about 13 kB for a chunk "
            "of 200 tokens; 0: no cache"
        ),
    )


class LoggingSettings(SettingsSection):
    level: Literal["debug", "info", "warning", "error"] = Field("info", description="minimum level")
    format: Literal["auto", "console", "json"] = Field(
        "auto", description="format of log lines; auto: console on a terminal, else JSON"
    )


def _copy_field(config: type[BaseModel], name: str, **bounds: float) -> Any:
    # Default, bounds and description are those of the index configuration.
    field = config.model_fields[name]
    bounds |= {
        bound: value
        for constraint in field.metadata
        for bound in ("ge", "le")
        if (value := getattr(constraint, bound, None)) is not None
    }
    # mypy: `bounds` may hold any of Field's parameters.
    return Field(  # type: ignore[call-overload]
        field.default, description=field.description, **bounds
    )


class ChunkSettings(SettingsSection):
    profile: str = Field(
        "default",
        min_length=1,
        max_length=200,
        description="chunking profile; settings beside it count where they are not the default",
    )
    strategy: Literal["structure", "fixed_size"] = Field(
        "structure", description="how documents are split"
    )
    parent_tokens: int = _copy_field(ChunkConfig, "parent_tokens")
    child_tokens: int = _copy_field(ChunkConfig, "child_tokens")
    whole_tokens: int = _copy_field(ChunkConfig, "whole_tokens")
    overlap: float = _copy_field(ChunkConfig, "overlap")


class LexicalSettings(SettingsSection):
    avgdl: int = _copy_field(LexicalConfig, "avgdl", ge=1, le=100_000)
    k1: float = _copy_field(LexicalConfig, "k1", gt=0, le=10)
    b: float = _copy_field(LexicalConfig, "b", ge=0, le=1)


class WorkerSettings(SettingsSection):
    niceness: int = Field(
        5,
        ge=0,
        le=19,
        description=(
            "added to the nice value of a worker, and of its session if it leads one; also given "
            "to its connections to the embedded Postgres; a higher one gives questions on the same "
            "machine more of the CPU"
        ),
    )
    threads: int | None = Field(
        None, ge=1, le=256, description="threads of the local embedding model; unset: one per core"
    )
    parse_memory: int = Field(
        2048 * MIB, ge=128 * MIB, description="memory limit of a parsing child process in bytes"
    )
    parse_deadline_s: float = Field(
        120.0, gt=0, description="seconds to parse one part of a document (16 pages)"
    )
    attempts: int = Field(
        5,
        ge=1,
        le=1_000,
        description=(
            "attempts of an event whose stage fails, after which it is dead-lettered; failures "
            "count during an outage only if other events succeed"
        ),
    )
    lost_attempts: int = Field(
        3,
        ge=3,
        le=1_000,
        description=(
            "attempts of an event that killed the worker, after which it is dead-lettered; one "
            "more where the first ran all stages at once (Postgres log)"
        ),
    )
    metrics_host: str = Field(
        "127.0.0.1", description="address of a worker's Prometheus metrics; 0.0.0.0: all addresses"
    )
    metrics_port: int = Field(
        0,
        ge=0,
        le=65535,
        description="port of a worker's Prometheus metrics; 0 picks a free one, which `up` prints",
    )


class Settings(BaseSettings):
    model_config = SettingsConfigDict(
        env_prefix="ANABRANCH_",
        env_nested_delimiter="__",
        env_ignore_empty=True,
        frozen=True,
        extra="forbid",
    )

    data_dir: Path = Field(Path("anabranch-data"), description="data folder")
    profiles_dir: Path | None = Field(
        None, description="folder of custom profiles (*.yaml); unset: `profiles` in the data folder"
    )
    database: DatabaseSettings = DatabaseSettings()
    kafka: KafkaSettings = KafkaSettings()
    log: EventLogSettings = EventLogSettings()
    storage: StorageSettings = StorageSettings()
    chat: ModelSettings = ModelSettings()
    embed: EmbedSettings = EmbedSettings()
    rerank: RerankSettings = RerankSettings()
    ocr: ModelSettings = ModelSettings()
    extract: ExtractSettings = ExtractSettings()
    plan: ModelSettings = ModelSettings()
    route: ModelSettings = ModelSettings()
    judge: ModelSettings = ModelSettings()
    prices: PriceTable = PriceTable()
    chunk: ChunkSettings = ChunkSettings()
    lexical: LexicalSettings = LexicalSettings()
    hnsw: HnswConfig = HnswConfig()
    graph: GraphSettings = GraphSettings()
    parse: ParseSettings = ParseSettings()
    ingest: IngestSettings = IngestSettings()
    sources: dict[str, SecretStr] = Field(
        {}, description="database URL by name of a source of kind postgres, with user and password"
    )
    api: ApiSettings = ApiSettings()
    auth: AuthSettings = AuthSettings()
    worker: WorkerSettings = WorkerSettings()
    cache: CacheSettings = CacheSettings()
    logging: LoggingSettings = LoggingSettings()
    _origins: dict[str, str] = PrivateAttr(default_factory=dict)

    @property
    def origins(self) -> dict[str, str]:
        """Return where each setting that is not a default came from, by its dotted name."""
        return self._origins

    @property
    def log_kind(self) -> Literal["kafka", "postgres"]:
        return "kafka" if self.kafka.bootstrap_servers else "postgres"

    @property
    def mode(self) -> Literal["embedded", "external"]:
        return "external" if self.database.url else "embedded"

    def resolve_key_file(self) -> Path | None:
        default_path = self.data_dir / KEY_FILE_NAME if self.mode == "embedded" else None
        return self.log.key_file or default_path

    def resolve_chat_server(self, task: ChatTask) -> ModelSettings:
        """Return the server of a task, whose unset settings come from `CHAT__`."""
        section: ModelSettings = getattr(self, task)
        # Key and kind belong to an address: with another base_url, only the model's name is
        # inherited.
        explicit = section.model_dump(include=set(ModelSettings.model_fields), exclude_none=True)
        is_other_server = section.base_url not in (None, self.chat.base_url)
        return ModelSettings(
            **{
                **self.chat.model_dump(
                    exclude_none=True, include={"model"} if is_other_server else None
                ),
                **explicit,
            }
        )
