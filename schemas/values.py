"""Values that travel in events and rows. All are immutable; offsets count Unicode code points of the document's Markdown."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

Box = tuple[float, float, float, float]
"""x0, y0, x1, y1 as shares of the page's width and height, origin at the top left."""

READER_PATTERN = r"^(everyone|(user|group):[^\s\x00-\x1f\x7f]{1,200})$"
ReaderName = Annotated[str, Field(pattern=READER_PATTERN, max_length=206)]
"""`user:NAME`, `group:NAME`, or `everyone`: all callers of the tenant."""
Readers = Annotated[list[ReaderName], Field(max_length=1000)]
"""An empty list lets only callers read who are not limited to readers."""

Order = Annotated[list[int], Field(min_length=1, description="compared from the left; a later one wins")]


MAX_NAME_BYTES = 1024


def _check_name_bytes(name: str) -> str:
    if (n_bytes := len(name.encode(errors="replace"))) > MAX_NAME_BYTES:
        raise ValueError(f"{n_bytes} bytes in UTF-8; {MAX_NAME_BYTES} are allowed")
    return name


ExternalId = Annotated[str, Field(min_length=1, max_length=MAX_NAME_BYTES), AfterValidator(_check_name_bytes)]


class Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Span(Value):
    """A place in a document's Markdown, `[char_start, char_end)`, and by kind of document where that is on the page, in the HTML or in the sheet."""

    char_start: int
    char_end: int
    page: int | None = Field(None, description="1-based")
    box: Box | None = None
    element: str | None = Field(None, description="HTML id of the nearest element that has one")
    sheet: str | None = None
    cells: str | None = Field(None, description="A1 notation, such as B2:D7")
    start_s: float | None = None
    end_s: float | None = None


BlockKind = Literal["heading", "paragraph", "list", "table", "code", "formula", "caption", "summary"]


class Block(Value):
    """One block of a transcript. Its text is `markdown[span.char_start:span.char_end]`; blocks come in order and do not overlap."""

    kind: BlockKind
    span: Span
    level: int | None = Field(None, ge=1, le=6, description="of a heading")
    language: str | None = Field(None, description="of code: python, sql, …")
    header_end: int | None = Field(None, description="of a table: where its header rows (with the delimiter row) end, as a character offset")


class Notice(Value):
    """Something a person should know about a document that is searchable all the same."""

    code: str
    detail: str


class Transcript(Value):
    """A document as text. `text[span]` of every block holds by construction."""

    markdown: str
    blocks: list[Block]
    title: str | None = None
    language: str | None = Field(None, description="BCP 47, primary subtag; None when unknown")
    pages: int | None = None
    ocr_pages: list[int] = []
    document_date: date | None = None
    warnings: list[Notice] = []


class BlobRef(Value):
    """Bytes in the blob store, checked by hash when read."""

    key: str
    sha256: str
    size: int
    media_type: str | None = None


class Origin(Value):
    """What a producer is told its document by, carried along so that the stage where the event ends can answer."""

    accepted_id: UUID = Field(description="internal id of the accepted event")
    event_id: str = Field(description="the producer's ce_id")
    source: str = Field(description="the producer's ce_source")
    external_id: str | None = None


class ChildChunk(Value):
    """What is searched: about 200 tokens. `text` equals the Markdown between the first span's start and the last one's end."""

    id: UUID
    ordinal: int = Field(description="in the document, from 0")
    kind: BlockKind = "paragraph"
    text: str
    prefix: str = Field("", description="title and heading path (and a cut table's header): embedded and indexed with the text, never quoted")
    char_start: int
    char_end: int
    spans: list[Span]
    tokens: int
    language: str | None = Field(None, description="of code")


class ParentChunk(Value):
    """What is read: 800 to 1,000 tokens of one section, holding its children in order."""

    id: UUID
    ordinal: int
    text: str
    section: str = Field("", description="heading path: H1 > H2 > H3")
    char_start: int
    char_end: int
    pages: list[int] = []
    tokens: int
    children: list[ChildChunk]


class Mention(Value):
    """A name in a text. `char_start` and `char_end` are offsets into the document's Markdown."""

    chunk_id: UUID
    name: str = Field(description="as written")
    key: str = Field(description="folded: what mentions of the same entity share (with the type)")
    type: str
    char_start: int
    char_end: int


class Relation(Value):
    """Subject and object are (type, key) of mentions in the same document. `evidence` is the sentence's place in the Markdown."""

    chunk_id: UUID
    subject: tuple[str, str]
    type: str
    object: tuple[str, str]
    weight: float = Field(ge=0, le=1)
    extractor: str
    char_start: int
    char_end: int


class Claim(Value):
    """A property of an entity, such as an amount, a date or an identifier, with the place that says so."""

    chunk_id: UUID
    subject: tuple[str, str]
    property: str
    value: str
    char_start: int
    char_end: int


class Extraction(Value):
    mentions: list[Mention] = []
    relations: list[Relation] = []
    claims: list[Claim] = []


class ChunkVector(Value):
    """The vectors of one chunk. `vector` is base64 of little-endian float16; states lie in the event's blob at `[state_offset, state_offset + state_length)`."""

    chunk_id: UUID
    vector: str
    state_offset: int = 0
    state_length: int = 0
    background_dense: float | None = Field(None, description="mean cosine with the engine's background questions")
    background_maxsim: float | None = None


class Amendment(Value):
    """What is to be said of a document from now on. Null leaves a field as it is."""

    title: str | None = Field(None, max_length=2000, description="an empty one takes the title away")
    collection: str | None = Field(None, max_length=255, description="an empty one takes the document out of its collection")
    tags: list[Annotated[str, Field(max_length=255)]] | None = Field(None, max_length=256, description="in place of those it has")
    metadata: dict[str, Any] | None = Field(None, description="added to what it has, key by key; a key with null is taken away")
    readers: Readers | None = Field(None, description="users and groups that may read it, in place of those it has; `everyone` lifts the limit")

    def stated_fields(self) -> dict[str, Any]:
        """Fields that it speaks of."""
        values = {name: getattr(self, name) for name in Amendment.model_fields}
        return {name: value for name, value in values.items() if value is not None and not (name == "metadata" and not value)}


class DocumentSummary(Value):
    """What an event said of the document that it names."""

    external_id: str | None = None
    title: str | None = None
    filename: str | None = None
    source_uri: str | None = Field(None, description="or the address that it was to be fetched from")
    media_type: str | None = None
    collection: str | None = None
    tags: list[str] = []


class DocumentFields(Value):
    """What a producer may say about a document."""

    filename: str | None = Field(None, max_length=1024)
    media_type: str | None = Field(None, max_length=255)
    title: str | None = Field(None, max_length=2000)
    language: str | None = Field(None, max_length=35, description="BCP 47")
    collection: str | None = Field(None, max_length=255)
    tags: list[Annotated[str, Field(max_length=255)]] = Field(default=[], max_length=256)
    metadata: dict[str, Any] = {}
    source_uri: str | None = Field(None, max_length=8192)
    document_date: date | None = None
    readers: Readers | None = Field(None, description="users and groups that may read it; null: everyone in the tenant")
