"""JSON is records with fields; subtitles are sentences with speakers and times."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest

from engines.parse import assembly, epub, formats, records, subtitles
from tests.unit.engines_parse.sample_files import write_file


def read_records(source: str) -> list[str]:
    return [block.text for block in records.read(source.encode()).blocks]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('{"note": "caf\\u00e9", "price": 1.10}', ["- note: café\n- price: 1.10"]),
        ('{"a": {"b": [1, 2], "c": null, "d": true}}', ["- a.b: 1, 2\n- a.c: null\n- a.d: true"]),
        (
            '{"n": 1, "items": [{"sku": "K-1", "p": 2}, {"sku": "K-2", "p": 3}]}',
            ["- n: 1", "items 1: K-1", "- sku: K-1\n- p: 2", "items 2: K-2", "- sku: K-2\n- p: 3"],
        ),
        ('[{"id": "T-1"}, {"id": "T-2"}]',
         ["Record 1: T-1", "- id: T-1", "Record 2: T-2", "- id: T-2"]),
        ('{"id": 1, "a": "x, y"}\n\n{"id": 2, "a": "z"}\n',
         ["Record 1: 1", "- id: 1\n- a: x, y", "Record 2: 2", "- id: 2\n- a: z"]),
        ('{"a": 1, "a": 2}', ["- a: 1\n- a (2): 2"]),
        ('[[1, 2], {"x": [{"y": 3}]}]', ["- [1]: 1, 2\n- [2].x[1].y: 3"]),
        ("not json", ["not json"]),
    ],
)  # fmt: skip
def test_json_is_fields(source: str, expected: list[str]) -> None:
    assert read_records(source) == expected


def test_damaged_line_is_a_warning_not_a_loss_of_the_others() -> None:
    part = records.read(b'{"a": 1}\n{"a": \n{"a": 3}\n')
    assert [notice.code for notice in part.notices] == ["INVALID_JSON"]
    assert part.notices[0].detail.endswith(": 2")
    assert [block.text for block in part.blocks if block.kind == "list"] == ["- a: 1", "- a: 3"]


def test_hostile_nesting_is_read_as_text_or_cut() -> None:
    assert records.read(b"[" * 100_000).notices
    assert records.read(b'{"a":' * 500 + b"1" + b"}" * 500).blocks


@pytest.mark.parametrize(
    ("name", "source", "expected"),
    [
        (None, '{"id": 1, "a": 2}\n{"id": 3, "a": 4}\n{"id": 5, "a": 6}\n', formats.JSON),
        (None, '{\n  "id": 1\n}', formats.JSON),
        ("a.jsonl", '{"id": 1}\n', formats.JSON),
        (None, "[1] Smith, 2020\n[2] Jones, 2021\n", formats.PLAIN),
        (None, "{name}, hello\n", formats.PLAIN),
        ("a.txt", '{"id": 1}\n', formats.PLAIN),
        (None, "WEBVTT\n\n00:01.000 --> 00:02.000\nHi\n", formats.VTT),
        (None, "1\n00:00:01,000 --> 00:00:02,000\nHi\n", formats.SRT),
        (None, "BEGIN:VCALENDAR\nVERSION:2.0\n", formats.CALENDAR),
    ],
)
def test_text_format_is_detected(
    tmp_path: Path, name: str | None, source: str, expected: str
) -> None:
    path = write_file(tmp_path, "file", source.encode())
    assert formats.detect_media_type(path, name, None).media_type == expected


SRT = """1
00:00:01,000 --> 00:00:03,500
The deposit for the hall is

2
00:00:03,600 --> 00:00:06,000
four hundred <i>and</i> fifty euros.

3
00:00:20,000 --> 00:00:22,000
Keys &amp; cards are at desk 12.
"""
VTT = """WEBVTT - talk

NOTE not spoken

STYLE
::cue { color: red }

intro
00:01.000 --> 00:03.000 align:start
<v Duarte>The budget is

00:03.000 --> 00:04.500
closed.

00:05.000 --> 00:06.000
<v.loud Eva Reis>At last.

01:00:00.000 --> 01:00:01.000
<00:01.000>MARTA: Lunch.
"""


def read_subtitles(source: str) -> list[tuple[str, float | None, float | None]]:
    part = subtitles.read(source.encode())
    transcript = assembly.assemble_transcript([part], pages=None)
    return [
        (
            transcript.markdown[block.span.char_start : block.span.char_end],
            block.span.start_s,
            block.span.end_s,
        )
        for block in transcript.blocks
    ]


def test_cues_are_joined_to_sentences_with_times() -> None:
    assert read_subtitles(SRT) == [
        ("The deposit for the hall is four hundred and fifty euros.", 1.0, 6.0),
        ("Keys & cards are at desk 12.", 20.0, 22.0),
    ]


def test_speakers_are_kept_and_notes_left_out() -> None:
    assert read_subtitles(VTT) == [
        ("Duarte: The budget is closed.", 1.0, 4.5),
        ("Eva Reis: At last.", 5.0, 6.0),
        ("MARTA: Lunch.", 3600.0, 3601.0),
    ]


def test_rolling_captions_are_read_once() -> None:
    source = "WEBVTT\n\n00:01.000 --> 00:02.000\nOne line\n\n00:02.000 --> 00:03.000\nOne line\n"
    assert read_subtitles(source) == [("One line", 1.0, 3.0)]


def pack_book(opf: str, **pages: str) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as bundle:
        bundle.writestr("mimetype", "application/epub+zip")
        bundle.writestr("META-INF/container.xml", '<rootfile full-path="O/c.opf"/>')
        bundle.writestr("O/c.opf", opf)
        for name, page in pages.items():
            bundle.writestr(f"O/{name} x.xhtml", page)
    return stream.getvalue()


def test_book_has_its_title_order_and_notes(tmp_path: Path) -> None:
    opf = (
        "<dc:title>Keeper handbook</dc:title><dc:language>pt-PT</dc:language><manifest>"
        '<item id="b" href="b%20x.xhtml" media-type="application/xhtml+xml"/>'
        '<item id="a" href="a%20x.xhtml" media-type="application/xhtml+xml"/>'
        '<item id="c" href="lost.xhtml" media-type="application/xhtml+xml"/></manifest>'
        '<spine><itemref idref="a"/><itemref idref="b"/><itemref idref="c"/></spine>'
    )
    path = write_file(
        tmp_path,
        "b.epub",
        pack_book(
            opf,
            a="<html><body><h1>One</h1><p>4.2<sup>1</sup> km, 10<sup>6</sup></p></body></html>",
            b='<html><body><p>Two</p><aside epub:type="footnote">1 Rough.</aside></body></html>',
        ),
    )
    assert formats.detect_media_type(path, None, None).media_type == "application/epub+zip"
    part = epub.read(path)
    assert (part.title, part.language) == ("Keeper handbook", "pt")
    assert [block.text for block in part.blocks] == ["One", "4.2[^1] km, 10⁶", "Two", "1 Rough."]
    assert [notice.code for notice in part.notices] == ["MISSING_PART"]
