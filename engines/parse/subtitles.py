"""Reader of subtitles (SubRip, WebVTT): the cues' sentences with their times in the recording."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass

from engines.parse import text
from engines.parsed_blocks import ParsedBlock, ParsedPart

_TIME = r"((?:\d{1,4}:)?\d\d:\d\d(?:[,.]\d{1,3})?)"
_TIMES = re.compile(rf"{_TIME}\s*-->\s*{_TIME}")
_VOICE = re.compile(r"<v(?:\.[^\s<>]*+)?\s++([^<>]++)>")
_TAG = re.compile(r"</?[a-z][^<>]*>|<\d[\d:.]*>|\{\\?[a-z][^{}]*\}", re.I)
_SPEAKER = re.compile(r"-?\s*([A-ZÀ-Þ][\w .'’-]{0,30}):\s+\S")
_NUMBER = re.compile(r"(?:^|\n)\d+\s*$")
_COMMENT = re.compile(r"(?:WEBVTT|NOTE|STYLE|REGION)(?:\s|$)")
_SENTENCE_END = re.compile(r"[.!?…。！？][\"'”’)\]]*$")
_MAX_PARAGRAPH_CHARS = 600
_MAX_PAUSE_S = 3.0
"""A longer pause ends a paragraph, although the sentence may have no full stop."""


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
    is_web_vtt = source.startswith("WEBVTT")
    for part in re.split(r"\n[ \t]*\n", source):
        before, *timed = _TIMES.split(part.strip("\n"))
        # Above the times stands a number or a name.
        untimed = "\n".join(before.split("\n")[:-2]) if timed else before
        if not untimed.strip().isdecimal() and not (is_web_vtt and _COMMENT.match(untimed)):
            # The rest of the last cue, in which a blank line stood, or a cue with damaged times.
            last = cues[-1] if cues and "-->" not in untimed else _Cue(None, None, None, "")
            cues += _read_voices(last.start_s, last.end_s, untimed)
        for i in range(0, len(timed), 3):
            start_s, end_s = _parse_time(timed[i]), _parse_time(timed[i + 1])
            words = timed[i + 2].partition("\n")[2]
            if i + 3 < len(timed):  # Without a blank line, the number of the next cue is below.
                words = _NUMBER.sub("", words)
            cues += _read_voices(start_s, end_s if end_s >= start_s else None, words)
    return cues


def _read_voices(start_s: float | None, end_s: float | None, source: str) -> list[_Cue]:
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
        found.append(
            _Cue(start_s, end_s, html.unescape(speaker).strip() if speaker else None, words)
        )
    return found


def _parse_time(time: str) -> float:
    seconds = 0.0
    for part in time.replace(",", ".").split(":"):
        seconds = seconds * 60 + float(part)
    return seconds
