"""Every setting, by its name in the environment (`ANABRANCH_SECTION__KEY`) and in `anabranch.toml` (`[section] key`). Unset means the embedded default."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from schemas.generations import ChunkConfig

MIB = 1024 * 1024


def _split_names(value: object) -> object:
    return tuple(item.strip() for item in value.split(",") if item.strip()) if isinstance(value, str) else value


NameList = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split_names)]
"""A list; in the environment separated by commas."""


class SettingsSection(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class DatabaseSettings(SettingsSection):
    url: SecretStr | None = Field(None, description="a Postgres with pgvector; unset: the embedded one in the data folder")
    tcp: int | None = Field(
        None, ge=1, le=65535, description="port of 127.0.0.1 for the embedded Postgres, with a password (`postgres/pgpass`); unset: its Unix socket only"
    )
    api_pool: int = Field(12, ge=4, le=200, description="connections of the API: one question takes up to four")
    worker_pool: int = Field(10, ge=2, le=200, description="connections of a worker")


class KafkaSettings(SettingsSection):
    bootstrap_servers: str | None = Field(None, description="host:port, comma-separated; unset: the log is a Postgres table")
    topic_prefix: str = Field("", max_length=100, pattern=r"^[A-Za-z0-9._-]*$")
    partitions: int = Field(12, ge=1, le=1000, description="of the document topics, when they are created")
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "PLAIN"
    sasl_username: str | None = None
    sasl_password: SecretStr | None = None
    ssl_cafile: Path | None = None
    ssl_certfile: Path | None = None
    ssl_keyfile: Path | None = None
    principals: NameList = Field(
        (), description="of API and workers, as the cluster's access rules name them (`User:NAME`); unset: the one that this process signs in as"
    )
    start_timeout_s: float = Field(60.0, gt=0, le=3600, description="how long a starting program waits for Kafka before it exits with code 7")
    session_timeout_s: float = Field(20.0, ge=6, le=1800, description="after which a worker that fell silent is given up and others take its partitions")


class EventLogSettings(SettingsSection):
    encrypt: bool = Field(True, description="seal what the log says of a document with a key of its own, so that it can be erased")
    plain_tenants: NameList = Field((), description="whose events stay readable on the topics; their receipts of erasure say what remains")
    key_file: Path | None = Field(
        None,
        description="holds a share of each key, which an erasure overwrites; on one machine, or a file system that all share; "
        "unset: `shares.key` in the data folder beside the embedded Postgres, else none",
    )
    master_key: SecretStr | None = Field(
        None, description="wraps the documents' keys: 32 bytes in base64, the same for every process; unset: `master.key` in the data folder"
    )


class StorageSettings(SettingsSection):
    url: str | None = Field(None, description="file://… or s3://bucket?endpoint=…; unset: a folder in the data folder")
    access_key: str | None = None
    secret_key: SecretStr | None = None
    region: str | None = None


class ModelSettings(SettingsSection):
    """An OpenAI-compatible server and a model on it."""

    base_url: str | None = None
    api_key: SecretStr | None = None
    model: str | None = None
    kind: Literal["openai", "azure", "vllm"] | None = None
    api_version: str | None = Field(None, description="of Azure OpenAI")


class EmbedSettings(ModelSettings):
    dimension: int | None = Field(None, ge=1, le=4000, description="of the vectors; needed with a server, else the local model's")
    state_dimension: int = Field(64, ge=0, le=384, description="of the token states that the local reranker compares; 0 keeps none")


class ExtractSettings(ModelSettings):
    engine: Literal["rules", "openai"] | None = Field(
        None, description="what finds entities; unset: the model of `CHAT__` where one is set when the index is made, else the local rules"
    )


class IngestSettings(SettingsSection):
    max_bytes: int = Field(512 * MIB, ge=1, description="of one document")
    inline_bytes: int = Field(700_000, ge=1, le=20 * MIB, description="of base64 or text in an event, decoded")
    max_pages: int = Field(3_000, ge=1)
    max_characters: int = Field(20_000_000, ge=1, description="of text in one document")
    characters_per_byte: int = Field(100, ge=1, description="of text for each byte of a file; any file may have 1,000,000")
    url_allow: NameList = Field((), description="host:port that may be fetched although its address is private")
    folders: NameList = Field(
        (), description="folders that sources may watch, with all below them, beside those that `anabranch source add folder` approves in the data folder"
    )
    fetch_timeout_s: float = Field(60.0, gt=0, description="for one download")
    sources: dict[str, tuple[str, ...]] = Field(
        {}, description="ce_source → tenants it may write for; `*`: sources that are not named. Required unless embedded, where any may write for `default`"
    )
    takeover: dict[str, tuple[str, ...]] = Field(
        {}, description="ce_source → sources whose documents it may change besides its own; `*`: of all. The API may change every document"
    )
    topics: dict[Annotated[str, Field(pattern=r"^raw\.[a-z0-9_-]{1,40}$")], tuple[str, ...]] = Field(
        {}, description="topic `raw.NAME` of one producer → its sources, which may write on no other topic"
    )


class ApiSettings(SettingsSection):
    host: str = "127.0.0.1"
    port: int = Field(8420, ge=0, le=65535, description="0 takes a free one")
    token: SecretStr | None = Field(None, min_length=16, description="operator's bearer token; unset: `up` makes one at each start, `api` has none")
    hosts: NameList = Field((), description="names under which clients reach this server, beside those of the loopback address and `API__HOST`")
    public_url: str = Field("", pattern=r"^(https?://[^/?#\s]+/?)?$", description="links to files begin with it; unset: they are relative")
    requests_per_address: int = Field(
        128, ge=1, le=256, description="requests of one remote address that run at once, of 256 in all; behind a proxy, which is one address, 256"
    )
    min_upload_rate: int = Field(1024, ge=1, description="bytes a second that an upload must keep up after its first 10 s; a slower one gets 408")
    disk_reserve: int = Field(512 * MIB, ge=0, description="bytes that stay free on the disk: below it uploads get 507, and questions are still answered")

    def list_allowed_hosts(self) -> tuple[str, ...]:
        """Names that a `StageConsumer` header may have; a wildcard address is none."""
        bind_hosts = () if self.host in ("0.0.0.0", "::", "") else (self.host,)
        return (*bind_hosts, *self.hosts, *((urlsplit(self.public_url).netloc,) if self.public_url else ()))


CLAIM_PATTERN = r"^[A-Za-z_][A-Za-z0-9_-]*(\.[A-Za-z_][A-Za-z0-9_-]*){0,4}$"


class AuthSettings(SettingsSection):
    """Credentials of callers; API keys need no setting."""

    jwks_url: str | None = Field(None, max_length=2048, description="public keys of the issuer of JSON Web Tokens; unset: none are accepted")
    audience: str = Field("authenticated", min_length=1, max_length=255, description="required in the claim `aud`; Supabase writes `authenticated`")
    issuer: str | None = Field(None, min_length=1, max_length=2048, description="required in the claim `iss`; unset: any issuer whose keys are at `jwks_url`")
    tenant_claim: str = Field("app_metadata.tenant_id", max_length=255, pattern=CLAIM_PATTERN, description="dotted path of the claim that names the tenant")
    role_claim: str = Field("app_metadata.anabranch_role", max_length=255, pattern=CLAIM_PATTERN, description="of the role; a token without it is a reader's")
    groups_claim: str = Field("app_metadata.groups", max_length=255, pattern=CLAIM_PATTERN, description="of the list of the user's groups")
    jwks_refresh_s: float = Field(30.0, ge=1, le=3600, description="seconds between two fetches of the keys because of an unknown one")
    max_failures: int = Field(20, ge=1, le=100_000, description="failed authentications of one address in a minute, after which it is answered 429")

    @field_validator("tenant_claim", "role_claim", "groups_claim")
    @classmethod
    def _reject_user_writable_claim(cls, claim: str) -> str:
        if claim.split(".")[0] in ("user_metadata", "raw_user_meta_data"):
            raise ValueError("users can edit user_metadata; use a claim of app_metadata")
        return claim

    @field_validator("jwks_url")
    @classmethod
    def _require_secure_url(cls, url: str | None) -> str | None:
        if url is not None:
            parts = urlsplit(url)
            is_loopback = parts.hostname in ("localhost", "127.0.0.1", "::1")
            is_container_host = "." not in (parts.hostname or ".") and ":" not in (parts.hostname or "")
            if not parts.hostname or (parts.scheme != "https" and not (parts.scheme == "http" and (is_loopback or is_container_host))):
                raise ValueError("keys are fetched over https, or over http from this machine or from a host without a domain")
        return url


class CacheSettings(SettingsSection):
    """Of each process that answers questions."""

    answers: int = Field(
        256,
        ge=0,
        le=100_000,
        description="remembered, about 0.3 MB each: what is asked for the third time is answered from memory until the index changes; 0: none",
    )
    seconds: float = Field(60.0, gt=0, le=600, description="for which an answer is remembered at most")
    embeddings: int = Field(1024, ge=0, le=100_000, description="of questions that are remembered, about 16 kB each; 0: none")


class LoggingSettings(SettingsSection):
    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "console", "json"] = Field("auto", description="auto: console on a terminal, JSON elsewhere")


class ChunkSettings(SettingsSection):
    strategy: Literal["structure", "fixed_size"] = "structure"
    parent_tokens: int = ChunkConfig.model_fields["parent_tokens"].default
    child_tokens: int = ChunkConfig.model_fields["child_tokens"].default
    whole_tokens: int = ChunkConfig.model_fields["whole_tokens"].default
    overlap: float = ChunkConfig.model_fields["overlap"].default


class WorkerSettings(SettingsSection):
    threads: int | None = Field(None, ge=1, le=256, description="of the local embedding model; unset: one a core")
    parse_memory: int = Field(2048 * MIB, ge=128 * MIB, description="bytes that a parsing child process may take")
    parse_deadline_s: float = Field(120.0, gt=0, description="for one part of a document (16 pages)")
    lost_attempts: int = Field(3, ge=3, le=1_000, description="workers that may be killed while they process an event before it is dead-lettered")
    metrics_host: str = Field("127.0.0.1", description="on which a worker serves its Prometheus metrics; 0.0.0.0 for all addresses")
    metrics_port: int = Field(0, ge=0, le=65535, description="0 takes a free one; `up` prints it")


class Settings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="ANABRANCH_", env_nested_delimiter="__", env_ignore_empty=True, frozen=True, extra="forbid")

    data_dir: Path = Path("anabranch-data")
    profiles_dir: Path | None = Field(None, description="profiles of your own (*.yaml); unset: `profiles` in the data folder")
    database: DatabaseSettings = DatabaseSettings()
    kafka: KafkaSettings = KafkaSettings()
    log: EventLogSettings = EventLogSettings()
    storage: StorageSettings = StorageSettings()
    chat: ModelSettings = ModelSettings()
    embed: EmbedSettings = EmbedSettings()
    rerank: ModelSettings = ModelSettings()
    ocr: ModelSettings = ModelSettings()
    extract: ExtractSettings = ExtractSettings()
    chunk: ChunkSettings = ChunkSettings()
    ingest: IngestSettings = IngestSettings()
    sources: dict[str, SecretStr] = Field({}, description="by the name of a source of kind postgres: where its database is, with user and password")
    api: ApiSettings = ApiSettings()
    auth: AuthSettings = AuthSettings()
    worker: WorkerSettings = WorkerSettings()
    cache: CacheSettings = CacheSettings()
    logging: LoggingSettings = LoggingSettings()

    @property
    def log_kind(self) -> Literal["kafka", "postgres"]:
        return "kafka" if self.kafka.bootstrap_servers else "postgres"

    @property
    def mode(self) -> Literal["embedded", "external"]:
        return "external" if self.database.url else "embedded"

    def resolve_extraction_server(self) -> ModelSettings:
        """The server that extracts entities, where one does: what `EXTRACT__` leaves open comes from `CHAT__`. Key and kind belong to an address, and go to no other."""
        explicit = self.extract.model_dump(exclude_none=True, exclude={"engine"})
        is_other_server = self.extract.base_url not in (None, self.chat.base_url)
        return ModelSettings(**{**self.chat.model_dump(exclude_none=True, include={"model"} if is_other_server else None), **explicit})
