"""Settings: `ANABRANCH_SECTION__KEY` in the environment, or `[section] key` in `anabranch.toml`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args
from urllib.parse import urlsplit

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    SecretStr,
    field_validator,
)
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from schemas.budgets import PriceTable
from schemas.generations import ChunkConfig, HnswConfig, LexicalConfig
from schemas.models import Described, get_description


class SettingsSection(Described):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ModelSettings(SettingsSection):
    """Model on an OpenAI-compatible server."""

    base_url: str | None = None
    """URL of an OpenAI-compatible server; unset: local engine"""
    api_key: SecretStr | None = Field(None, description="API key of the server")
    model: str | None = Field(None, description="model name on the server")
    kind: Literal["openai", "azure", "vllm"] | None = Field(None, description="kind of server")
    api_version: str | None = Field(None, description="API version of Azure OpenAI")
    # Unset rather than a number: a task of a chat model then takes the value of `CHAT__`.
    timeout_s: float | None = Field(None, gt=0, le=3600)
    """seconds to wait for one request; unset: 60"""
    attempts: int | None = Field(None, ge=1, le=10)
    """attempts of a request, with back-off; unset: 3"""
    total_timeout_s: float | None = Field(None, gt=0, le=36_000)
    """seconds after which a failed request is not attempted again; unset: 180"""
    breaker_failures: int | None = Field(None, ge=1, le=100)
    """failures in a row after which the server is not called; unset: 5"""
    breaker_open_s: float | None = Field(None, gt=0, le=3600)
    """seconds for which it is then not called; unset: 15"""


NAMED_MODEL = "model name on the server; without base_url: a model by name in this process"


class EmbedSettings(ModelSettings):
    model: str | None = Field(None, description=NAMED_MODEL)
    api: Literal["openai", "cohere"] = "openai"
    """interface of the server: `openai`, or `cohere` (`base_url` https://api.cohere.com/v2)"""
    dimension: int | None = Field(None, ge=1, le=4000)
    """dimension of the vectors; required with a server or a model by name"""
    batch: int = Field(64, ge=1, le=2048, description="texts in one request to the server")
    parallel: int = Field(4, ge=1, le=64, description="requests of one part at a time")
    state_dimension: int = Field(256, ge=0, le=384)
    """dimension of the token states for the local reranker; 0: none are stored"""


class RerankSettings(ModelSettings):
    model: str | None = Field(None, description=NAMED_MODEL)
    api: Literal["rerank", "score"] = "rerank"
    """endpoint: `rerank` (Cohere, Jina, vLLM), or `score` (vLLM)"""
    batch: int = Field(64, ge=1, le=1000, description="passages in one request")
    parallel: int = Field(4, ge=1, le=64, description="requests of one question at a time")
    timeout_s: float = Field(10.0, gt=0, le=120, description="seconds to wait for one request")
    attempts: int = Field(2, ge=1, le=10, description="attempts of a request, with back-off")


class ExtractSettings(ModelSettings):
    engine: Literal["rules", "openai"] | None = None
    """entity extractor; unset: the model of `CHAT__` if one is set when the index is created, else
    the local rules"""
    parallel: int = Field(4, ge=1, le=64, description="passages of one part at a time")


CLAIM_PATTERN = r"^[A-Za-z_][A-Za-z0-9_-]*(\.[A-Za-z_][A-Za-z0-9_-]*){0,4}$"


class AuthSettings(SettingsSection):
    """Authentication by JSON Web Token; API keys need no settings."""

    jwks_url: str | None = Field(None, max_length=2048)
    """URL of the issuer's public keys; unset: JSON Web Tokens are rejected"""
    audience: str = Field("authenticated", min_length=1, max_length=255)
    """required claim `aud`; Supabase sets `authenticated`"""
    issuer: str | None = Field(None, min_length=1, max_length=2048)
    """required claim `iss`; unset: any issuer whose keys are at `jwks_url`"""
    tenant_claim: str = Field("app_metadata.tenant_id", max_length=255, pattern=CLAIM_PATTERN)
    """dotted path of the claim with the tenant"""
    role_claim: str = Field("app_metadata.anabranch_role", max_length=255, pattern=CLAIM_PATTERN)
    """dotted path of the claim with the role; without it: reader"""
    groups_claim: str = Field("app_metadata.groups", max_length=255, pattern=CLAIM_PATTERN)
    """dotted path of the claim with the user's groups"""
    jwks_refresh_s: float = Field(30.0, ge=1, le=3600)
    """minimum seconds between fetches of the keys for unknown key ids"""
    max_failures: int = Field(20, ge=1, le=100_000)
    """failed authentications per address and minute before it gets 429"""

    @field_validator("tenant_claim", "role_claim", "groups_claim")
    @classmethod
    def _reject_user_writable_claim(cls, claim: str) -> str:
        if claim.split(".")[0] in ("user_metadata", "raw_user_meta_data"):
            raise ValueError("users can edit user_metadata. Use a claim of app_metadata")
        return claim

    @field_validator("jwks_url")
    @classmethod
    def _require_secure_url(cls, url: str | None) -> str | None:
        if url is not None:
            parts = urlsplit(url)
            is_loopback = parts.hostname in ("localhost", "127.0.0.1", "::1")
            # A name without a dot, such as that of a container, resolves in a private network only.
            is_container_host = "." not in (parts.hostname or ".") and ":" not in (
                parts.hostname or ""
            )
            if not parts.hostname or (
                parts.scheme != "https"
                and not (parts.scheme == "http" and (is_loopback or is_container_host))
            ):
                raise ValueError(
                    "the URL is not secure. Use https, or http on this machine or to a host "
                    "without a domain"
                )
        return url


MIB = 1024 * 1024


def _split_names(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        # As mappings are written.
        names = json.loads(value)
    except ValueError:
        names = None
    if isinstance(names, list):
        return tuple(names)
    if '"' in value:
        raise ValueError("Input should be comma-separated or a JSON list")
    return tuple(item.strip() for item in value.split(",") if item.strip())


NameT = TypeVar("NameT", bound=str)
# NoDecode: otherwise pydantic-settings parses lists in the environment as JSON only.
Names = Annotated[tuple[NameT, ...], NoDecode, BeforeValidator(_split_names)]
"""List of names, comma-separated or JSON in the environment."""
NameList = Names[str]
HostPort = Annotated[str, Field(pattern=r"^[^/\s]+:\d{1,5}$")]
KEY_FILE_NAME = "shares.key"


class DatabaseSettings(SettingsSection):
    url: SecretStr | None = None
    """URL of a Postgres with pgvector; unset: the embedded one in the data folder"""
    tcp: int | None = Field(None, ge=1, le=65535)
    """TCP port of the embedded Postgres on 127.0.0.1, with a password (`postgres/pgpass`); unset:
    Unix socket only"""
    api_pool: int = Field(12, ge=4, le=200)
    """connections of the API; a query uses up to four"""
    worker_pool: int = Field(10, ge=2, le=200, description="connections of a worker")


class KafkaSettings(SettingsSection):
    bootstrap_servers: str | None = None
    """addresses of the brokers, host:port, comma-separated; unset: the log is a Postgres table"""
    topic_prefix: str = Field("", max_length=100, pattern=r"^[A-Za-z0-9._-]*$")
    """prefix of the names of topics and groups"""
    partitions: int = Field(12, ge=1, le=1000, description="partitions of new document topics")
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    """security protocol of the brokers"""
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "PLAIN"
    """SASL mechanism"""
    sasl_username: str | None = Field(None, description="SASL user name")
    sasl_password: SecretStr | None = Field(None, description="SASL password")
    ssl_cafile: Path | None = None
    """file with the CA certificates of the brokers"""
    ssl_certfile: Path | None = Field(None, description="file with the client certificate")
    ssl_keyfile: Path | None = Field(None, description="file with the client's private key")
    principals: NameList = ()
    """principals of the API and the workers in the cluster's ACLs (`User:NAME`); unset: the
    principal of this process"""
    start_timeout_s: float = Field(60.0, gt=0, le=3600)
    """seconds that a starting process waits for Kafka before it exits with code 7"""
    session_timeout_s: float = Field(20.0, ge=6, le=1800)
    """seconds without heartbeat after which a worker's partitions go to others"""


class EventLogSettings(SettingsSection):
    encrypt: bool = True
    """encrypt events with a key per document, so that erasure destroys the key"""
    plain_tenants: NameList = ()
    """tenants whose events are not encrypted; their erasure receipts list what remains"""
    key_file: Path | None = None
    """file with a share of each document's key, which an erasure overwrites; on a file system that
    all processes share; unset: `shares.key` in the data folder with the embedded Postgres, else
    none"""
    master_key: SecretStr | None = None
    """key that wraps the documents' keys: 32 bytes in base64, the same for all processes; unset:
    `master.key` in the data folder"""


class StorageSettings(SettingsSection):
    url: str | None = None
    """URL of the blob store, file://… or s3://bucket?endpoint=…; unset: a folder in the data
    folder"""
    access_key: str | None = Field(None, description="S3 access key")
    secret_key: SecretStr | None = Field(None, description="S3 secret key")
    region: str | None = Field(None, description="S3 region")


ChatTask = Literal["extract", "plan", "route", "judge"]
CHAT_TASKS: tuple[ChatTask, ...] = get_args(ChatTask)


class GraphSettings(SettingsSection):
    """Graph server that answers Cypher: Neo4j, PuppyGraph, or another one with Bolt."""

    bolt_url: str | None = Field(None, pattern=r"^(bolt|neo4j)(\+s|\+ssc)?://[^\s/?#@]+$")
    """URL of the graph server, bolt://host:7687; unset: no Cypher"""
    user: str | None = Field(None, description="user name; unset: no authentication")
    password: SecretStr = Field(SecretStr(""), description="password of the user")
    databases: dict[str, str] = {"default": ""}
    """database of the graph server by tenant, which holds no other tenant's nodes; empty: the
    server's default database. Other tenants get no Cypher"""
    timeout_s: float = Field(5.0, ge=0.1, le=60, description="seconds that a query may take")
    max_rows: int = Field(1_000, ge=1, le=10_000, description="maximum rows of a result")

    @field_validator("databases")
    @classmethod
    def _reject_shared_database(cls, databases: dict[str, str]) -> dict[str, str]:
        if len(set(databases.values())) < len(databases):
            raise ValueError("two tenants have the same database. Give each its own")
        return databases


class ParseSettings(SettingsSection):
    hidden_text: Literal["drop", "keep"] = "drop"
    """drop or keep text that a person who opens the document cannot see, such as hidden sheets,
    rows, slides and white text; a warning names it"""


class IngestSettings(SettingsSection):
    max_bytes: int = Field(512 * MIB, ge=1, description="maximum size of a document in bytes")
    inline_bytes: int = Field(700_000, ge=1, le=20 * MIB)
    """maximum size of content inside an event, in decoded bytes"""
    max_pages: int = Field(3_000, ge=1, description="maximum number of pages of a document")
    max_characters: int = Field(20_000_000, ge=1)
    """maximum number of characters of a document"""
    characters_per_byte: int = Field(100, ge=1)
    """maximum number of characters per byte of a file; any file may have 1,000,000 characters"""
    url_allow: Names[HostPort] = ()
    """host:port of private addresses that may be fetched, and called by web hooks"""
    folders: NameList = ()
    """folders that sources may watch, with their subfolders, in addition to those that `anabranch
    source add folder` approves"""
    fetch_timeout_s: float = Field(60.0, gt=0, description="seconds that a download may take")
    sources: dict[str, tuple[str, ...]] = {}
    """tenants by ce_source; `*`: all other sources. Required unless embedded, where any source may
    write for `default`"""
    takeover: dict[str, tuple[str, ...]] = {}
    """by ce_source, other sources whose documents it may change; `*`: all. The API may change every
    document"""
    topics: dict[Annotated[str, Field(pattern=r"^raw\.[a-z0-9_-]{1,40}$")], tuple[str, ...]] = {}
    """by topic `raw.NAME` of one producer, its sources, which may write to no other topic"""


class ApiSettings(SettingsSection):
    host: str = Field("127.0.0.1", description="address to listen on")
    port: int = Field(8420, ge=0, le=65535, description="port to listen on; 0 picks a free one")
    grpc_port: int | None = Field(None, ge=0, le=65535)
    """port of gRPC on the same address, without TLS, with the extra `grpc`; 0 picks a free one,
    which the log names; unset: no gRPC"""
    token: SecretStr | None = Field(None, min_length=16)
    """bearer token of the operator; unset: `up` generates one at each start, `api` has none"""
    hosts: NameList = ()
    """host names of this server, in addition to the loopback names and `API__HOST`"""
    public_url: str = Field("", pattern=r"^(https?://[^/?#\s]+(/[A-Za-z0-9._~-]+)*/?)?$")
    """base URL of links to files; unset: the address of the request. With a path, also the requests
    below it are served, as a reverse proxy sends them that does not remove it"""
    requests_per_address: int = Field(128, ge=1, le=256)
    """concurrent requests per remote address, of 256 in total; use 256 behind a proxy, which is a
    single address"""
    max_runs: int = Field(64, ge=1, le=10_000)
    """concurrent runs of one API process. A tenant may start a run while fewer of its own are in
    progress than are free, so one alone gets half; further ones get 503"""
    min_upload_rate: int = Field(1024, ge=1)
    """minimum upload rate in bytes per second after the first 10 s; slower uploads get 408"""
    agent_feedback: bool = False
    """offer agents a tool that stores feedback: for `/mcp` set on the server, for `anabranch mcp`
    where it runs"""
    disk_reserve: int = Field(512 * MIB, ge=0)
    """bytes to keep free on the disk; with less, uploads get 507, queries still work"""

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

    answers: int = Field(256, ge=0, le=100_000)
    """cached answers, about 0.3 MB each; a repeated query is answered from the cache until the
    index changes; 0: no cache"""
    seconds: float = Field(60.0, gt=0, le=600)
    """maximum age of a cached answer in seconds"""
    embeddings: int = Field(1024, ge=0, le=100_000)
    """cached embeddings of queries, about 16 kB each; 0: no cache"""
    states: int = Field(64 * MIB, ge=0)
    """bytes of cached token states, which the local reranker reads; about 13 kB for a chunk of 200
    tokens; 0: no cache"""


class LoggingSettings(SettingsSection):
    level: Literal["debug", "info", "warning", "error"] = Field("info", description="minimum level")
    format: Literal["auto", "console", "json"] = "auto"
    """format of log lines; auto: console on a terminal, else JSON"""
    file: Path | None = None
    """file to append warnings and errors to, as JSON; `anabranch up` sets up.log of its data folder
    unless another one is set"""


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
        field.default, description=get_description(config, name), **bounds
    )


class ChunkSettings(SettingsSection):
    profile: str = Field("default", min_length=1, max_length=200)
    """chunking profile; settings beside it count where they are not the default"""
    strategy: Literal["structure", "fixed_size"] = "structure"
    """how documents are split"""
    parent_tokens: int = _copy_field(ChunkConfig, "parent_tokens")
    child_tokens: int = _copy_field(ChunkConfig, "child_tokens")
    whole_tokens: int = _copy_field(ChunkConfig, "whole_tokens")
    overlap: float = _copy_field(ChunkConfig, "overlap")


class LexicalSettings(SettingsSection):
    avgdl: int = _copy_field(LexicalConfig, "avgdl", ge=1, le=100_000)
    k1: float = _copy_field(LexicalConfig, "k1", gt=0, le=10)
    b: float = _copy_field(LexicalConfig, "b", ge=0, le=1)


class WorkerSettings(SettingsSection):
    niceness: int = Field(5, ge=0, le=19)
    """added to the nice value of a worker, and of its session if it leads one; also given to its
    connections to the embedded Postgres; a higher one gives questions on the same machine more of
    the CPU"""
    threads: int | None = Field(None, ge=1, le=256)
    """threads of the local embedding model; unset: one per core"""
    parse_memory: int = Field(2048 * MIB, ge=128 * MIB)
    """memory limit of a parsing child process in bytes"""
    parse_deadline_s: float = Field(120.0, gt=0)
    """seconds to parse one part of a document (16 pages)"""
    attempts: int = Field(5, ge=1, le=1_000)
    """attempts of an event whose stage fails, after which it is dead-lettered; failures count
    during an outage only if other events succeed"""
    lost_attempts: int = Field(3, ge=3, le=1_000)
    """attempts of an event that killed the worker, after which it is dead-lettered; one more where
    the first ran all stages at once (Postgres log)"""
    metrics_host: str = "127.0.0.1"
    """address of a worker's Prometheus metrics; 0.0.0.0: all addresses"""
    metrics_port: int = Field(0, ge=0, le=65535)
    """port of a worker's Prometheus metrics; 0 picks a free one, which `up` prints"""


class Settings(Described, BaseSettings):
    model_config = SettingsConfigDict(
        env_prefix="ANABRANCH_",
        env_nested_delimiter="__",
        env_ignore_empty=True,
        frozen=True,
        extra="forbid",
    )

    data_dir: Path = Field(Path("anabranch-data"), description="data folder")
    profiles_dir: Path | None = None
    """folder of custom profiles (*.yaml); unset: `profiles` in the data folder"""
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
    sources: dict[str, SecretStr] = {}
    """database URL by name of a source of kind postgres, with user and password"""
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
