"""Reader of e-mail (RFC 5322, MIME), with its attachments, and of calendars (RFC 5545)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from email import message_from_bytes, policy
from email.message import Message
from typing import Any, cast

from engines.parse import html, text
from engines.parse.embedded import make_unread_part, read_embedded
from engines.parse.notices import make_corrupt_error
from engines.parse.text import parse_document_date
from engines.parsed_blocks import ParsedBlock, ParsedPart

_HEADER_NAMES = ("From", "To", "Cc", "Reply-To", "Date")
_MAX_HEADER_BYTES = 256 * 1024
_MAX_FIELD_CHARS = 20_000
"""The standard library needs quadratic time for long address lists and encoded words."""
_MAX_PARTS = 1000
_MAX_QUOTE_DEPTH = 20
_QUOTED = re.compile(r"((?:> ?)+)(.*)", re.S)
_REPLY_LINES = re.compile(
    r"(?:On|Em|El|Le|Am|Il|Op|A|No dia|Den)\b.{3,200}\b(?:wrote|escreveu|escribi[óo]|"
    r"a [ée]crit|schrieb|ha scritto|schreef|skrev)\b.{0,60}:\s*",
    re.I,
)
_ORIGINAL_MESSAGE = re.compile(
    r"\s*(?:-{2,}\s*(?:original message|mensagem original|mensaje original|message d'origine|"
    r"message original|ursprüngliche nachricht|messaggio originale|oorspronkelijk bericht)"
    r"\s*-{2,}|_{20,})\s*",
    re.I,
)
_HEADER_LINE = re.compile(r"\s*\*?(?:From|De|Von|Da|Van)\*?\s?:\*?\s.{1,200}", re.I)
_NEXT_HEADER_LINE = re.compile(
    r"\s*\*?(?:Sent|Date|To|Subject|Enviad[oa](?: em| el)?|Data|Fecha|Para|Assunto|Asunto|Envoyé|"
    r"À|Objet|Gesendet|Datum|An|Betreff|Inviato|Oggetto)\*?\s?:",
    re.I,
)
_RICH_TAGS = re.compile(rb"<(?:table|del|s|strike|sup|dl|ol)\b|line-through", re.I)
_TAGS = re.compile(rb"<(?:style|script)\b[^<]*<|<[^<>]*>", re.I)
_SIGNATURE = "-- "


class _MailPolicy(policy.Compat32):
    """Decodes the bytes of fields that declare no encoding."""

    def header_fetch_parse(self, name: str, value: str) -> str:
        is_ascii = value.isascii()
        data = value.encode(errors="surrogateescape")
        return value if is_ascii else text.decode_text(data).text


def read(data: bytes) -> ParsedPart:
    """Read an e-mail; attached files and messages are sections after its text."""
    head = data[: _MAX_HEADER_BYTES + 1]
    header_end = min(
        (i for i in (head.find(b"\n\n"), head.find(b"\r\n\r\n")) if i >= 0), default=-1
    )
    if header_end < 0 and len(data) > _MAX_HEADER_BYTES:
        raise make_corrupt_error(
            f"The header of the e-mail is longer than {_MAX_HEADER_BYTES // 1024} KiB."
        )
    # Header fields are parsed on access, so that a long one can be cut before.
    message = message_from_bytes(data, policy=_MailPolicy())
    return _read_message(message)


def _read_message(message: Message[str, str]) -> ParsedPart:
    subject = _get_header(message, "Subject")
    part = ParsedPart(
        title=subject or None, document_date=parse_document_date(_get_header(message, "Date"))
    )
    if subject:
        part.blocks.append(ParsedBlock("heading", subject, level=1))
    lines = [
        f"- {name}: {value}" for name in _HEADER_NAMES if (value := _get_header(message, name))
    ]
    if lines:
        part.blocks.append(ParsedBlock("list", "\n".join(lines)))
    bodies, attachments = _split_parts(message)
    for body in bodies:
        part.extend(_read_body(body))
    for attachment in attachments:
        part.extend(_read_attachment(attachment))
    return part


def _get_header(message: Message[str, str], name: str) -> str:
    """Return the decoded values of a header field on one line."""
    values = [str(value)[:_MAX_FIELD_CHARS] for value in message.get_all(name, [])[:5]]
    decoded = [str(_parse_field(name, value)) for value in values]
    return " ".join(", ".join(decoded).replace("\ufffd", "").split()) if decoded else ""


def _parse_field(name: str, value: str) -> object:
    unfolded = re.sub(r"[\r\n]+[ \t]*", " ", value)
    if "=?" not in unfolded and unfolded.isascii():
        return unfolded
    try:
        return policy.default.header_factory("subject", unfolded)
    except (ValueError, LookupError, TypeError, AttributeError):
        return unfolded


def _split_parts(
    message: Message[str, str],
) -> tuple[list[Message[str, str]], list[Message[str, str]]]:
    """Return the parts that are the mail's text, and the attachments."""
    bodies: list[Message[str, str]] = []
    attachments: list[Message[str, str]] = []
    pending = [message]
    while pending and len(bodies) + len(attachments) < _MAX_PARTS:
        part = pending.pop(0)
        kind = part.get_content_type()
        children = (
            cast("list[Message[str, str]]", part.get_payload()) if part.is_multipart() else []
        )
        if kind == "multipart/alternative" and children:
            chosen = _choose_alternative(children)
            calendars = [
                child
                for child in children
                if child is not chosen and child.get_content_type() == "text/calendar"
            ]
            pending = [chosen, *calendars, *pending]
        elif kind.startswith("multipart/") and children:
            pending = [*children, *pending]
        elif (
            kind in ("text/plain", "text/html", "text/calendar", "text/enriched")
            and part.get_content_disposition() != "attachment"
            and not (part.get_filename() and kind != "text/calendar")
        ):
            bodies.append(part)
        # Pictures that the HTML shows, such as logos.
        elif not (kind.startswith("image/") and part.get("Content-ID")):
            attachments.append(part)
    return bodies, attachments


def _choose_alternative(parts: list[Message[str, str]]) -> Message[str, str]:
    """Choose the HTML if it has tables, struck or raised text, or more words than the plain text.

    Otherwise the plain text is better: it marks older mail line by line.
    """
    plain = next((part for part in parts if part.get_content_type() == "text/plain"), None)
    for wanted in ("multipart/related", "multipart/mixed", "text/html"):
        for rich in (part for part in parts if part.get_content_type() == wanted):
            source = b"".join(
                _get_bytes(part) for part in rich.walk() if part.get_content_type() == "text/html"
            )
            n_words = len(_TAGS.sub(b" ", source).split())
            if rich.is_multipart() or (
                n_words
                and (
                    plain is None
                    or _RICH_TAGS.search(source)
                    or n_words > len(_get_bytes(plain).split()) * 1.2
                )
            ):
                return rich
    return plain or parts[-1]


def _get_bytes(part: Message[str, str]) -> bytes:
    payload = part.get_payload(decode=True)
    return payload if isinstance(payload, bytes) else b""


def _read_body(part: Message[str, str]) -> ParsedPart:
    data, charset = _get_bytes(part), part.get_content_charset()
    media_type = f"{part.get_content_type()}; charset={charset or 'utf-8'}"
    kind = part.get_content_type()
    with text.declare_charset(media_type if charset else None):
        if kind == "text/html":
            read = html.read(data, marks_quotes=True)
            # The mail's subject is its title.
            read.title = None
            read.blocks = _quote_older_blocks(read.blocks)
            return read
        decoded = text.decode_text(data)
    if kind == "text/calendar":
        return ParsedPart(read_events(decoded.text), notices=list(decoded.notices))
    words = decoded.text
    if str(part.get_param("format", "")).lower() == "flowed":
        words = _join_flowed(words, str(part.get_param("delsp", "")).lower() == "yes")
    return ParsedPart(list(_iter_text_blocks(words)), notices=list(decoded.notices))


def _join_flowed(words: str, deletes_space: bool) -> str:
    """Join soft line breaks (RFC 3676): lines that end in a space and have the same quote depth."""
    lines: list[str] = []
    last_depth, is_open = 0, False
    for line in words.split("\n"):
        depth = len(line) - len(line.lstrip(">"))
        body = line[depth:].removeprefix(" ")
        is_soft = body.endswith(" ") and body != _SIGNATURE
        content = body[:-1] if is_soft and deletes_space else body
        if is_open and depth == last_depth and body != _SIGNATURE:
            lines.append(content)
        else:
            lines.append("\n" + "> " * depth + content)
        last_depth, is_open = depth, is_soft
    return "".join(lines).removeprefix("\n")


def _iter_text_blocks(words: str) -> Iterator[ParsedBlock]:
    """Yield the paragraphs; older mail is a blockquote, whether quoted by `>` or below a line."""
    paragraph: list[str] = []
    depth, is_older = 0, False
    lines = words.split("\n")
    for i, line in enumerate(lines):
        match = _QUOTED.fullmatch(line)
        line_depth = min(match[1].count(">"), _MAX_QUOTE_DEPTH) if match else 0
        body = match[2] if match else line
        starts_older = not is_older and not line_depth and _starts_older_mail(lines, i)
        is_older = is_older or starts_older == "rest"
        line_depth += is_older
        if paragraph and (not body.strip() or line_depth != depth or starts_older):
            yield _make_paragraph(paragraph, depth)
            paragraph = []
        depth = line_depth
        if body.strip():
            paragraph.append(body.rstrip())
    if paragraph:
        yield _make_paragraph(paragraph, depth)


def _starts_older_mail(lines: list[str], i: int) -> str | None:
    """Return `rest` if the rest of the mail is older mail from this line on."""
    line = lines[i]
    following = "\n".join(lines[i + 1 : i + 4])
    if len(line) > 400:
        return None
    if _ORIGINAL_MESSAGE.fullmatch(line) and "\n" in f"{following}\n":
        return "rest" if _HEADER_LINE.match(following.strip()) or "-" in line else None
    if _HEADER_LINE.fullmatch(line) and any(map(_NEXT_HEADER_LINE.match, lines[i + 1 : i + 3])):
        return "rest"
    joined = f"{line} {lines[i + 1].strip()}" if i + 1 < len(lines) else line
    if _REPLY_LINES.fullmatch(line) or _REPLY_LINES.fullmatch(joined[:400]):
        # Lines quoted by `>` are recognized alone; new text may stand below them.
        return "line" if ">" in following else "rest"
    return None


def _make_paragraph(lines: list[str], depth: int) -> ParsedBlock:
    prefix = "> " * depth
    return ParsedBlock("paragraph", "\n".join(f"{prefix}{line}" for line in lines))


def _quote_older_blocks(blocks: list[ParsedBlock]) -> list[ParsedBlock]:
    """Mark older mail below a reply line in HTML as quoted."""
    is_older = False
    quoted = []
    for i, block in enumerate(blocks):
        lines = [block.text, *(following.text for following in blocks[i + 1 : i + 4])]
        is_older = is_older or bool(
            block.kind == "paragraph"
            and (
                _starts_older_mail(lines, 0)
                or (
                    _HEADER_LINE.match(block.text)
                    and re.search(
                        r"\b(?:Sent|Enviad[oa]|Envoyé|"
                        r"Gesendet|Inviato|Date|Data|Fecha)\s?:",
                        block.text,
                    )
                )
            )
        )
        quoted.append(html.quote_block(block) if is_older and block.text[:1] != ">" else block)
    return quoted


def _read_attachment(part: Message[str, str]) -> ParsedPart:
    kind = part.get_content_type()
    if kind == "message/rfc822":
        inner = part.get_payload()
        inner_message = inner[0] if isinstance(inner, list) and inner else None
        if inner_message is None:
            return make_unread_part("message", kind, 0, "it is empty")
        subject = _get_header(cast(Any, inner_message), "Subject") or "message"
        data = cast(Any, inner_message).as_bytes(policy=_MailPolicy())
        return read_embedded(f"{subject}.eml", data, kind, label="Forwarded message")
    name = _decode_name(part) or "unnamed"
    if kind == "message/external-body":
        return make_unread_part(name, kind, 0, "the mail only refers to it")
    charset = part.get_content_charset()
    media_type = f"{kind}; charset={charset}" if charset else kind
    return read_embedded(name, _get_bytes(part), media_type)


def _decode_name(part: Message[str, str]) -> str:
    try:
        name = part.get_filename() or ""
        return str(_parse_field("filename", name)) if "=?" in name else name
    except (ValueError, LookupError, TypeError):
        return ""


# Calendar data (RFC 5545) as lines: what, when and where.

_LABELS = {
    "SUMMARY": "Event",
    "DTSTART": "Start",
    "DTEND": "End",
    "DUE": "Due",
    "LOCATION": "Place",
    "ORGANIZER": "Organizer",
    "ATTENDEE": "Attendee",
    "RRULE": "Repeats",
    "STATUS": "Status",
    "DESCRIPTION": "Description",
}
_LINE = re.compile(r"([A-Z-]+)((?:;(?:[^:\";]|\"[^\"]*\")*)*):(.*)", re.I)
_TIME = re.compile(r"(\d{4})(\d\d)(\d\d)(?:T(\d\d)(\d\d)(\d\d)?(Z?))?")
_ESCAPE = re.compile(r"\\([\\;,nN])")


def read_calendar(data: bytes) -> ParsedPart:
    decoded = text.decode_text(data)
    return ParsedPart(read_events(decoded.text), notices=list(decoded.notices))


def read_events(source: str) -> list[ParsedBlock]:
    """Return one list per event or task; alarms and time zones are left out."""
    blocks: list[ParsedBlock] = []
    lines: list[str] = []
    component: list[str] = []
    for name, parameters, value in _iter_properties(source):
        if name == "BEGIN":
            component.append(value.upper())
        elif name == "END" and component:
            if component.pop() in ("VEVENT", "VTODO") and lines:
                blocks.append(ParsedBlock("list", "\n".join(lines)))
                lines = []
        elif component and component[-1] in ("VEVENT", "VTODO") and name in _LABELS:
            lines.append(f"- {_LABELS[name]}: {_format_value(name, parameters, value)}")
    return blocks


def _iter_properties(source: str) -> Iterator[tuple[str, str, str]]:
    # A line that begins with a space continues the line before.
    for line in re.sub(r"\r?\n[ \t]", "", source).splitlines():
        if ":" in line and (match := _LINE.fullmatch(line[:10_000])):
            yield match[1].upper(), match[2], match[3].strip()


def _format_value(name: str, parameters: str, value: str) -> str:
    if match := _TIME.fullmatch(value):
        year, month, day, hour, minute, _, zone = match.groups()
        named_zone = re.search(r"TZID=\"?([^;:\"]+)", parameters)
        suffix = " UTC" if zone else f" {named_zone[1]}" if named_zone else ""
        return f"{year}-{month}-{day}" + (f" {hour}:{minute}{suffix}" if hour else "")
    if name in ("ORGANIZER", "ATTENDEE"):
        common_name = re.search(r"CN=\"?([^;:\"]+)", parameters)
        address = re.sub(r"^mailto:", "", value, flags=re.I)
        return f"{common_name[1]} <{address}>" if common_name else address
    words = _ESCAPE.sub(lambda match: "\n" if match[1] in "nN" else match[1], value)
    return " ".join(words.split())
