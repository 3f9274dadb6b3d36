from google.protobuf import struct_pb2 as _struct_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class IngestRequest(_message.Message):
    __slots__ = ("data", "text", "external_id", "filename", "media_type", "title", "language", "collection", "tags", "metadata", "source_uri", "document_date", "readers", "force")
    DATA_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    EXTERNAL_ID_FIELD_NUMBER: _ClassVar[int]
    FILENAME_FIELD_NUMBER: _ClassVar[int]
    MEDIA_TYPE_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    COLLECTION_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    SOURCE_URI_FIELD_NUMBER: _ClassVar[int]
    DOCUMENT_DATE_FIELD_NUMBER: _ClassVar[int]
    READERS_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    text: str
    external_id: str
    filename: str
    media_type: str
    title: str
    language: str
    collection: str
    tags: _containers.RepeatedScalarFieldContainer[str]
    metadata: _struct_pb2.Struct
    source_uri: str
    document_date: str
    readers: _containers.RepeatedScalarFieldContainer[str]
    force: bool
    def __init__(self, data: _Optional[bytes] = ..., text: _Optional[str] = ..., external_id: _Optional[str] = ..., filename: _Optional[str] = ..., media_type: _Optional[str] = ..., title: _Optional[str] = ..., language: _Optional[str] = ..., collection: _Optional[str] = ..., tags: _Optional[_Iterable[str]] = ..., metadata: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., source_uri: _Optional[str] = ..., document_date: _Optional[str] = ..., readers: _Optional[_Iterable[str]] = ..., force: _Optional[bool] = ...) -> None: ...

class Notice(_message.Message):
    __slots__ = ("code", "detail")
    CODE_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    code: str
    detail: str
    def __init__(self, code: _Optional[str] = ..., detail: _Optional[str] = ...) -> None: ...

class IngestReceipt(_message.Message):
    __slots__ = ("document_id", "ingestion_job_id", "external_id", "content_sha256", "duplicate", "warnings")
    DOCUMENT_ID_FIELD_NUMBER: _ClassVar[int]
    INGESTION_JOB_ID_FIELD_NUMBER: _ClassVar[int]
    EXTERNAL_ID_FIELD_NUMBER: _ClassVar[int]
    CONTENT_SHA256_FIELD_NUMBER: _ClassVar[int]
    DUPLICATE_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    document_id: str
    ingestion_job_id: str
    external_id: str
    content_sha256: str
    duplicate: bool
    warnings: _containers.RepeatedCompositeFieldContainer[Notice]
    def __init__(self, document_id: _Optional[str] = ..., ingestion_job_id: _Optional[str] = ..., external_id: _Optional[str] = ..., content_sha256: _Optional[str] = ..., duplicate: _Optional[bool] = ..., warnings: _Optional[_Iterable[_Union[Notice, _Mapping]]] = ...) -> None: ...

class IngestStatusRequest(_message.Message):
    __slots__ = ("ingestion_job_id",)
    INGESTION_JOB_ID_FIELD_NUMBER: _ClassVar[int]
    ingestion_job_id: str
    def __init__(self, ingestion_job_id: _Optional[str] = ...) -> None: ...

class JobStatus(_message.Message):
    __slots__ = ("ingestion_job_id", "document_id", "external_id", "state", "stages", "warnings", "revision", "chunks_count")
    INGESTION_JOB_ID_FIELD_NUMBER: _ClassVar[int]
    DOCUMENT_ID_FIELD_NUMBER: _ClassVar[int]
    EXTERNAL_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    STAGES_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    CHUNKS_COUNT_FIELD_NUMBER: _ClassVar[int]
    ingestion_job_id: str
    document_id: str
    external_id: str
    state: str
    stages: _containers.RepeatedCompositeFieldContainer[StageStatus]
    warnings: _containers.RepeatedCompositeFieldContainer[Notice]
    revision: int
    chunks_count: int
    def __init__(self, ingestion_job_id: _Optional[str] = ..., document_id: _Optional[str] = ..., external_id: _Optional[str] = ..., state: _Optional[str] = ..., stages: _Optional[_Iterable[_Union[StageStatus, _Mapping]]] = ..., warnings: _Optional[_Iterable[_Union[Notice, _Mapping]]] = ..., revision: _Optional[int] = ..., chunks_count: _Optional[int] = ...) -> None: ...

class StageStatus(_message.Message):
    __slots__ = ("stage", "state", "attempts", "error")
    STAGE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    stage: str
    state: str
    attempts: int
    error: ErrorDetail
    def __init__(self, stage: _Optional[str] = ..., state: _Optional[str] = ..., attempts: _Optional[int] = ..., error: _Optional[_Union[ErrorDetail, _Mapping]] = ...) -> None: ...

class ErrorDetail(_message.Message):
    __slots__ = ("code", "detail", "remedy")
    CODE_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    REMEDY_FIELD_NUMBER: _ClassVar[int]
    code: str
    detail: str
    remedy: str
    def __init__(self, code: _Optional[str] = ..., detail: _Optional[str] = ..., remedy: _Optional[str] = ...) -> None: ...

class Filters(_message.Message):
    __slots__ = ("collections", "tags", "document_ids", "external_ids", "languages", "date_from", "date_to", "metadata")
    COLLECTIONS_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    DOCUMENT_IDS_FIELD_NUMBER: _ClassVar[int]
    EXTERNAL_IDS_FIELD_NUMBER: _ClassVar[int]
    LANGUAGES_FIELD_NUMBER: _ClassVar[int]
    DATE_FROM_FIELD_NUMBER: _ClassVar[int]
    DATE_TO_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    collections: _containers.RepeatedScalarFieldContainer[str]
    tags: _containers.RepeatedScalarFieldContainer[str]
    document_ids: _containers.RepeatedScalarFieldContainer[str]
    external_ids: _containers.RepeatedScalarFieldContainer[str]
    languages: _containers.RepeatedScalarFieldContainer[str]
    date_from: str
    date_to: str
    metadata: _struct_pb2.Struct
    def __init__(self, collections: _Optional[_Iterable[str]] = ..., tags: _Optional[_Iterable[str]] = ..., document_ids: _Optional[_Iterable[str]] = ..., external_ids: _Optional[_Iterable[str]] = ..., languages: _Optional[_Iterable[str]] = ..., date_from: _Optional[str] = ..., date_to: _Optional[str] = ..., metadata: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class SearchRequest(_message.Message):
    __slots__ = ("query", "k", "mode", "profile", "profiles", "overrides", "filters", "channels", "language", "prefer_named", "infer_filters", "generation", "return_text")
    class ProfilesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    QUERY_FIELD_NUMBER: _ClassVar[int]
    K_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    PROFILES_FIELD_NUMBER: _ClassVar[int]
    OVERRIDES_FIELD_NUMBER: _ClassVar[int]
    FILTERS_FIELD_NUMBER: _ClassVar[int]
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    PREFER_NAMED_FIELD_NUMBER: _ClassVar[int]
    INFER_FILTERS_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    RETURN_TEXT_FIELD_NUMBER: _ClassVar[int]
    query: str
    k: int
    mode: str
    profile: str
    profiles: _containers.ScalarMap[str, str]
    overrides: _struct_pb2.Struct
    filters: Filters
    channels: _containers.RepeatedScalarFieldContainer[str]
    language: str
    prefer_named: bool
    infer_filters: bool
    generation: str
    return_text: bool
    def __init__(self, query: _Optional[str] = ..., k: _Optional[int] = ..., mode: _Optional[str] = ..., profile: _Optional[str] = ..., profiles: _Optional[_Mapping[str, str]] = ..., overrides: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., filters: _Optional[_Union[Filters, _Mapping]] = ..., channels: _Optional[_Iterable[str]] = ..., language: _Optional[str] = ..., prefer_named: _Optional[bool] = ..., infer_filters: _Optional[bool] = ..., generation: _Optional[str] = ..., return_text: _Optional[bool] = ...) -> None: ...

class QueryRequest(_message.Message):
    __slots__ = ("query", "k", "mode", "profile", "profiles", "overrides", "filters", "channels", "language", "prefer_named", "infer_filters", "generation", "return_text", "history", "return_context")
    class ProfilesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    QUERY_FIELD_NUMBER: _ClassVar[int]
    K_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    PROFILES_FIELD_NUMBER: _ClassVar[int]
    OVERRIDES_FIELD_NUMBER: _ClassVar[int]
    FILTERS_FIELD_NUMBER: _ClassVar[int]
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    PREFER_NAMED_FIELD_NUMBER: _ClassVar[int]
    INFER_FILTERS_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    RETURN_TEXT_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    RETURN_CONTEXT_FIELD_NUMBER: _ClassVar[int]
    query: str
    k: int
    mode: str
    profile: str
    profiles: _containers.ScalarMap[str, str]
    overrides: _struct_pb2.Struct
    filters: Filters
    channels: _containers.RepeatedScalarFieldContainer[str]
    language: str
    prefer_named: bool
    infer_filters: bool
    generation: str
    return_text: bool
    history: _containers.RepeatedCompositeFieldContainer[ConversationTurn]
    return_context: bool
    def __init__(self, query: _Optional[str] = ..., k: _Optional[int] = ..., mode: _Optional[str] = ..., profile: _Optional[str] = ..., profiles: _Optional[_Mapping[str, str]] = ..., overrides: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., filters: _Optional[_Union[Filters, _Mapping]] = ..., channels: _Optional[_Iterable[str]] = ..., language: _Optional[str] = ..., prefer_named: _Optional[bool] = ..., infer_filters: _Optional[bool] = ..., generation: _Optional[str] = ..., return_text: _Optional[bool] = ..., history: _Optional[_Iterable[_Union[ConversationTurn, _Mapping]]] = ..., return_context: _Optional[bool] = ...) -> None: ...

class ConversationTurn(_message.Message):
    __slots__ = ("role", "text")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    role: str
    text: str
    def __init__(self, role: _Optional[str] = ..., text: _Optional[str] = ...) -> None: ...

class Span(_message.Message):
    __slots__ = ("char_start", "char_end", "page", "box", "element", "sheet", "cells", "start_s", "end_s")
    CHAR_START_FIELD_NUMBER: _ClassVar[int]
    CHAR_END_FIELD_NUMBER: _ClassVar[int]
    PAGE_FIELD_NUMBER: _ClassVar[int]
    BOX_FIELD_NUMBER: _ClassVar[int]
    ELEMENT_FIELD_NUMBER: _ClassVar[int]
    SHEET_FIELD_NUMBER: _ClassVar[int]
    CELLS_FIELD_NUMBER: _ClassVar[int]
    START_S_FIELD_NUMBER: _ClassVar[int]
    END_S_FIELD_NUMBER: _ClassVar[int]
    char_start: int
    char_end: int
    page: int
    box: _containers.RepeatedScalarFieldContainer[float]
    element: str
    sheet: str
    cells: str
    start_s: float
    end_s: float
    def __init__(self, char_start: _Optional[int] = ..., char_end: _Optional[int] = ..., page: _Optional[int] = ..., box: _Optional[_Iterable[float]] = ..., element: _Optional[str] = ..., sheet: _Optional[str] = ..., cells: _Optional[str] = ..., start_s: _Optional[float] = ..., end_s: _Optional[float] = ...) -> None: ...

class SearchResult(_message.Message):
    __slots__ = ("rank", "score", "document_id", "external_id", "revision", "title", "source_uri", "link", "chunk_id", "parent_id", "section", "pages", "spans", "snippet", "text", "duplicates")
    RANK_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    DOCUMENT_ID_FIELD_NUMBER: _ClassVar[int]
    EXTERNAL_ID_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_URI_FIELD_NUMBER: _ClassVar[int]
    LINK_FIELD_NUMBER: _ClassVar[int]
    CHUNK_ID_FIELD_NUMBER: _ClassVar[int]
    PARENT_ID_FIELD_NUMBER: _ClassVar[int]
    SECTION_FIELD_NUMBER: _ClassVar[int]
    PAGES_FIELD_NUMBER: _ClassVar[int]
    SPANS_FIELD_NUMBER: _ClassVar[int]
    SNIPPET_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    DUPLICATES_FIELD_NUMBER: _ClassVar[int]
    rank: int
    score: float
    document_id: str
    external_id: str
    revision: int
    title: str
    source_uri: str
    link: str
    chunk_id: str
    parent_id: str
    section: str
    pages: _containers.RepeatedScalarFieldContainer[int]
    spans: _containers.RepeatedCompositeFieldContainer[Span]
    snippet: str
    text: str
    duplicates: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, rank: _Optional[int] = ..., score: _Optional[float] = ..., document_id: _Optional[str] = ..., external_id: _Optional[str] = ..., revision: _Optional[int] = ..., title: _Optional[str] = ..., source_uri: _Optional[str] = ..., link: _Optional[str] = ..., chunk_id: _Optional[str] = ..., parent_id: _Optional[str] = ..., section: _Optional[str] = ..., pages: _Optional[_Iterable[int]] = ..., spans: _Optional[_Iterable[_Union[Span, _Mapping]]] = ..., snippet: _Optional[str] = ..., text: _Optional[str] = ..., duplicates: _Optional[_Iterable[str]] = ...) -> None: ...

class Trace(_message.Message):
    __slots__ = ("generation", "profile", "route", "channels_failed", "missing_collections", "timings_ms", "model_calls", "tokens", "cost", "currency", "cached", "notes")
    class ChannelsFailedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class TimingsMsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    CHANNELS_FAILED_FIELD_NUMBER: _ClassVar[int]
    MISSING_COLLECTIONS_FIELD_NUMBER: _ClassVar[int]
    TIMINGS_MS_FIELD_NUMBER: _ClassVar[int]
    MODEL_CALLS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    COST_FIELD_NUMBER: _ClassVar[int]
    CURRENCY_FIELD_NUMBER: _ClassVar[int]
    CACHED_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    generation: str
    profile: str
    route: Route
    channels_failed: _containers.ScalarMap[str, str]
    missing_collections: _containers.RepeatedScalarFieldContainer[str]
    timings_ms: _containers.ScalarMap[str, float]
    model_calls: int
    tokens: int
    cost: float
    currency: str
    cached: bool
    notes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, generation: _Optional[str] = ..., profile: _Optional[str] = ..., route: _Optional[_Union[Route, _Mapping]] = ..., channels_failed: _Optional[_Mapping[str, str]] = ..., missing_collections: _Optional[_Iterable[str]] = ..., timings_ms: _Optional[_Mapping[str, float]] = ..., model_calls: _Optional[int] = ..., tokens: _Optional[int] = ..., cost: _Optional[float] = ..., currency: _Optional[str] = ..., cached: _Optional[bool] = ..., notes: _Optional[_Iterable[str]] = ...) -> None: ...

class Route(_message.Message):
    __slots__ = ("mode", "decided_by", "reason")
    MODE_FIELD_NUMBER: _ClassVar[int]
    DECIDED_BY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    mode: str
    decided_by: str
    reason: str
    def __init__(self, mode: _Optional[str] = ..., decided_by: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class SearchResponse(_message.Message):
    __slots__ = ("run_id", "generation", "results", "redacted", "trace")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    REDACTED_FIELD_NUMBER: _ClassVar[int]
    TRACE_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    generation: str
    results: _containers.RepeatedCompositeFieldContainer[SearchResult]
    redacted: int
    trace: Trace
    def __init__(self, run_id: _Optional[str] = ..., generation: _Optional[str] = ..., results: _Optional[_Iterable[_Union[SearchResult, _Mapping]]] = ..., redacted: _Optional[int] = ..., trace: _Optional[_Union[Trace, _Mapping]] = ...) -> None: ...

class QueryEvent(_message.Message):
    __slots__ = ("step", "delta", "answer")
    STEP_FIELD_NUMBER: _ClassVar[int]
    DELTA_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    step: StepProgress
    delta: AnswerDelta
    answer: QueryResponse
    def __init__(self, step: _Optional[_Union[StepProgress, _Mapping]] = ..., delta: _Optional[_Union[AnswerDelta, _Mapping]] = ..., answer: _Optional[_Union[QueryResponse, _Mapping]] = ...) -> None: ...

class StepProgress(_message.Message):
    __slots__ = ("name", "ms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    ms: float
    def __init__(self, name: _Optional[str] = ..., ms: _Optional[float] = ...) -> None: ...

class AnswerDelta(_message.Message):
    __slots__ = ("draft", "text")
    DRAFT_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    draft: int
    text: str
    def __init__(self, draft: _Optional[int] = ..., text: _Optional[str] = ...) -> None: ...

class QueryResponse(_message.Message):
    __slots__ = ("run_id", "generation", "answer", "refused", "code", "message", "language", "citations", "facts", "contexts", "confidence", "conflicts", "assumptions", "limitations", "redacted", "trace")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    CITATIONS_FIELD_NUMBER: _ClassVar[int]
    FACTS_FIELD_NUMBER: _ClassVar[int]
    CONTEXTS_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    CONFLICTS_FIELD_NUMBER: _ClassVar[int]
    ASSUMPTIONS_FIELD_NUMBER: _ClassVar[int]
    LIMITATIONS_FIELD_NUMBER: _ClassVar[int]
    REDACTED_FIELD_NUMBER: _ClassVar[int]
    TRACE_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    generation: str
    answer: str
    refused: bool
    code: str
    message: str
    language: str
    citations: _containers.RepeatedCompositeFieldContainer[Citation]
    facts: _containers.RepeatedCompositeFieldContainer[FactCitation]
    contexts: _containers.RepeatedCompositeFieldContainer[SearchResult]
    confidence: Confidence
    conflicts: _containers.RepeatedCompositeFieldContainer[Conflict]
    assumptions: _containers.RepeatedScalarFieldContainer[str]
    limitations: _containers.RepeatedScalarFieldContainer[str]
    redacted: int
    trace: Trace
    def __init__(self, run_id: _Optional[str] = ..., generation: _Optional[str] = ..., answer: _Optional[str] = ..., refused: _Optional[bool] = ..., code: _Optional[str] = ..., message: _Optional[str] = ..., language: _Optional[str] = ..., citations: _Optional[_Iterable[_Union[Citation, _Mapping]]] = ..., facts: _Optional[_Iterable[_Union[FactCitation, _Mapping]]] = ..., contexts: _Optional[_Iterable[_Union[SearchResult, _Mapping]]] = ..., confidence: _Optional[_Union[Confidence, _Mapping]] = ..., conflicts: _Optional[_Iterable[_Union[Conflict, _Mapping]]] = ..., assumptions: _Optional[_Iterable[str]] = ..., limitations: _Optional[_Iterable[str]] = ..., redacted: _Optional[int] = ..., trace: _Optional[_Union[Trace, _Mapping]] = ...) -> None: ...

class Citation(_message.Message):
    __slots__ = ("n", "document_id", "external_id", "revision", "chunk_id", "title", "source_uri", "link", "section", "pages", "spans", "quote", "header")
    N_FIELD_NUMBER: _ClassVar[int]
    DOCUMENT_ID_FIELD_NUMBER: _ClassVar[int]
    EXTERNAL_ID_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    CHUNK_ID_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_URI_FIELD_NUMBER: _ClassVar[int]
    LINK_FIELD_NUMBER: _ClassVar[int]
    SECTION_FIELD_NUMBER: _ClassVar[int]
    PAGES_FIELD_NUMBER: _ClassVar[int]
    SPANS_FIELD_NUMBER: _ClassVar[int]
    QUOTE_FIELD_NUMBER: _ClassVar[int]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    n: int
    document_id: str
    external_id: str
    revision: int
    chunk_id: str
    title: str
    source_uri: str
    link: str
    section: str
    pages: _containers.RepeatedScalarFieldContainer[int]
    spans: _containers.RepeatedCompositeFieldContainer[Span]
    quote: str
    header: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, n: _Optional[int] = ..., document_id: _Optional[str] = ..., external_id: _Optional[str] = ..., revision: _Optional[int] = ..., chunk_id: _Optional[str] = ..., title: _Optional[str] = ..., source_uri: _Optional[str] = ..., link: _Optional[str] = ..., section: _Optional[str] = ..., pages: _Optional[_Iterable[int]] = ..., spans: _Optional[_Iterable[_Union[Span, _Mapping]]] = ..., quote: _Optional[str] = ..., header: _Optional[_Iterable[str]] = ...) -> None: ...

class FactCitation(_message.Message):
    __slots__ = ("n", "fact_id", "statement", "source", "certainty")
    N_FIELD_NUMBER: _ClassVar[int]
    FACT_ID_FIELD_NUMBER: _ClassVar[int]
    STATEMENT_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    CERTAINTY_FIELD_NUMBER: _ClassVar[int]
    n: int
    fact_id: str
    statement: str
    source: str
    certainty: float
    def __init__(self, n: _Optional[int] = ..., fact_id: _Optional[str] = ..., statement: _Optional[str] = ..., source: _Optional[str] = ..., certainty: _Optional[float] = ...) -> None: ...

class Confidence(_message.Message):
    __slots__ = ("level", "reasons", "probability", "score")
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    REASONS_FIELD_NUMBER: _ClassVar[int]
    PROBABILITY_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    level: str
    reasons: _containers.RepeatedScalarFieldContainer[str]
    probability: float
    score: float
    def __init__(self, level: _Optional[str] = ..., reasons: _Optional[_Iterable[str]] = ..., probability: _Optional[float] = ..., score: _Optional[float] = ...) -> None: ...

class Conflict(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedCompositeFieldContainer[ConflictingValue]
    def __init__(self, values: _Optional[_Iterable[_Union[ConflictingValue, _Mapping]]] = ...) -> None: ...

class ConflictingValue(_message.Message):
    __slots__ = ("value", "citations")
    VALUE_FIELD_NUMBER: _ClassVar[int]
    CITATIONS_FIELD_NUMBER: _ClassVar[int]
    value: str
    citations: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, value: _Optional[str] = ..., citations: _Optional[_Iterable[int]] = ...) -> None: ...
