"""Reader of subtitles (SubRip, WebVTT): the cues' sentences with their times in the recording."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass

from engines.parse import text
from engines.parsed_blocks import ParsedBlock, ParsedPart

_TIMES = re.compile(
    r"((?:\d{1,4}:)?\d\d:\d\d[,.]\d{1,3})\s*-->\s*((?:\d{1,4}:)?\d\d:\d\d[,.]\d{1,3})"
)
_VOICE = re.compile(r"<v(?:\.[^\s<>]*+)?\s++([^<>]++)>")
_TAG = re.compile(r"</?[a-z][^<>]*>|<\d[\d:.]*>|\{\\?[a-z][^{}]*\}", re.I)
_SPEAKER = re.compile(r"-?\s*([A-ZÀ-Þ][\w .'’-]{0,30}):\s+\S")
_SENTENCE_END = re.compile(r"[.!?…。！？][\"'”’)\]]*$")
_MAX_PARAGRAPH_CHARS = 600
_MAX_PAUSE_S = 3.0
"""A longer pause ends a paragraph, although the sentence may have no full stop."""


@dataclass(slots=True)
class _Cue:
    start_s: float
    end_s: float
    speaker: str | None
    words: str


def read(data: bytes) -> ParsedPart:
    """Read the cues; cues of a sentence and a speaker are joined to one paragraph."""
    decoded = text.decode_text(data)
    blocks: list[ParsedBlock] = []
    speaker: str | None = None
    for cue in _list_cues(decoded.text):
        last = blocks[-1] if blocks else None
        # The cues of rolling captions begin with the line before.
        if last and last.text.endswith(cue.words):
            last.end_s = cue.end_s
            continue
        is_continued = (
            last is not None
            and last.end_s is not None
            and cue.speaker in (None, speaker)
            and cue.start_s - last.end_s <= _MAX_PAUSE_S
            and (not _SENTENCE_END.search(last.text) or len(last.text) < _MAX_PARAGRAPH_CHARS / 2)
            and len(last.text) < _MAX_PARAGRAPH_CHARS
        )
        if is_continued and last is not None:
            last.text += f" {cue.words}"
            last.end_s = cue.end_s
            continue
        words = f"{cue.speaker}: {cue.words}" if cue.speaker else cue.words
        speaker = cue.speaker
        blocks.append(ParsedBlock("paragraph", words, start_s=cue.start_s, end_s=cue.end_s))
    return ParsedPart(blocks, notices=list(decoded.notices))


def _list_cues(source: str) -> list[_Cue]:
    cues = []
    for part in re.split(r"\n[ \t]*\n", source):
        lines = part.strip("\n").split("\n")
        times = next(
            ((i, match) for i, line in enumerate(lines[:3]) if (match := _TIMES.search(line))), None
        )
        if times is None:
            continue
        i, match = times
        # Voices may change inside a cue.
        for speaker, words in _split_voices("\n".join(lines[i + 1 :])):
            cues.append(_Cue(_parse_time(match[1]), _parse_time(match[2]), speaker, words))
    return cues


def _split_voices(source: str) -> list[tuple[str | None, str]]:
    pieces = _VOICE.split(source)
    voices = [(None, pieces[0]), *zip(pieces[1::2], pieces[2::2], strict=True)]
    found = []
    for speaker, piece in voices:
        words = " ".join(html.unescape(_TAG.sub("", piece)).split())
        if not words:
            continue
        if speaker is None and (match := _SPEAKER.match(words)):
            speaker = match[1]
            words = words[match.end(1) + 1 :].strip()
        found.append((html.unescape(speaker).strip() if speaker else None, words))
    return found


def _parse_time(time: str) -> float:
    seconds = 0.0
    for part in time.replace(",", ".").split(":"):
        seconds = seconds * 60 + float(part)
    return seconds
