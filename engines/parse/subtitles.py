"""Reader of subtitles (SubRip, WebVTT): the cues' sentences with their times in the recording."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass

from engines.parse import text
from engines.parsed_blocks import ParsedBlock, ParsedPart

_TIME = r"((?:\d{1,4}:)?\d\d:\d\d(?:[,.]\d+)?)"
# Settings of a cue may follow: line:80%, X1:40.
_TIMES = re.compile(rf"{_TIME}\s*-->\s*{_TIME}(?:[ \t]+(?:[a-z]+|[XY][12]):\S+)*")
_BLANK_LINES = re.compile(r"\n(?:[ \t]*\n)++(?!\d[\d:,.]*\s*-->)")
_VOICE = re.compile(r"<v(?:\.[^\s<>]*+)?\s++([^<>]++)>")
_TAG = re.compile(r"</?[a-z][^<>]*>|<\d[\d:.]*>|\{\\?[a-z][^{}]*\}", re.I)
_SPEAKER = re.compile(r"-?\s*([A-ZÀ-Þ][\w .'’-]{0,30}):\s+\S")
_NUMBER = re.compile(r"(?:^\d+\s*|(?:^|\n)\d+[ \t]*\n)\Z")
_NAME = re.compile(r"(?:^|\n)[^\n]+\n\Z")
_COMMENT = re.compile(r"(?:WEBVTT|NOTE|STYLE|REGION)(?:\s|$)")
_SENTENCE_END = re.compile(r"[.!?…。！？][\"'”’)\]]*$")
_MAX_PARAGRAPH_CHARS = 600
_MAX_PAUSE_S = 3.0
"""A longer pause ends a paragraph, although the sentence may have no full stop."""

_Times = tuple[float | None, float | None]


@dataclass(slots=True)
class _Cue:
    start_s: float | None
    end_s: float | None
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
        if (
            last
            and last.end_s is not None
            and cue.start_s is not None
            and cue.speaker in (None, speaker)
            and cue.start_s - last.end_s <= _MAX_PAUSE_S
            and (not _SENTENCE_END.search(last.text) or len(last.text) < _MAX_PARAGRAPH_CHARS / 2)
            and len(last.text) < _MAX_PARAGRAPH_CHARS
        ):
            last.text += f" {cue.words}"
            last.end_s = cue.end_s
            continue
        words = f"{cue.speaker}: {cue.words}" if cue.speaker else cue.words
        speaker = cue.speaker
        blocks.append(ParsedBlock("paragraph", words, start_s=cue.start_s, end_s=cue.end_s))
    return ParsedPart(blocks, notices=list(decoded.notices))


def _list_cues(source: str) -> list[_Cue]:
    cues: list[_Cue] = []
    times: _Times = (None, None)
    is_web_vtt = source.startswith("WEBVTT")
    for part in _BLANK_LINES.split(source):
        before, *timed = _TIMES.split(part)
        # Above the times stands a number, in WebVTT also a name.
        untimed = (_NAME if is_web_vtt else _NUMBER).sub("", before) if timed else before
        if "-->" in untimed:  # Damaged times. Other text is the rest of the last cue.
            times = (None, None)
        if not (is_web_vtt and _COMMENT.match(untimed)):
            cues += _read_voices(times, untimed)
        for i in range(0, len(timed), 3):
            start_s, end_s = _parse_time(timed[i]), _parse_time(timed[i + 1])
            times = (start_s, end_s if end_s >= start_s else None)
            # The number of the next cue stands below if no blank line is between.
            words = _NUMBER.sub("", timed[i + 2]) if i + 3 < len(timed) else timed[i + 2]
            cues += _read_voices(times, words)
    return cues


def _read_voices(times: _Times, source: str) -> list[_Cue]:
    """Return one cue for each voice of the text."""
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
        found.append(_Cue(*times, speaker and html.unescape(speaker).strip(), words))
    return found


def _parse_time(time: str) -> float:
    seconds = 0.0
    for part in time.replace(",", ".").split(":"):
        seconds = seconds * 60 + float(part)
    return seconds
