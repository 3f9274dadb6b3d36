"""Text is decoded as browsers decode it, and damage is reported."""

from __future__ import annotations

import pytest

from engines.parse import html, markdown, spreadsheets, text

RUSSIAN = "Арендная плата за зал составляет 450 евро в месяц. Оплата до 10 марта."
SAMPLES = {
    "gb18030": "合同的租金是每月四百五十欧元。请在三月十日之前付款。",
    "koi8-r": RUSSIAN,
    "cp1251": RUSSIAN,
    "shift_jis": "会場の使用料は月四百五十ユーロです。三月十日までにお支払いください。",
    "euc-jp": "会場の使用料は月四百五十ユーロです。三月十日までにお支払いください。",
    "big5": "會場的租金是每月四百五十歐元。請在三月十日之前付款。",
    "euc-kr": "회의실 임대료는 한 달에 450유로입니다. 3월 10일까지 지불하십시오.",
    "cp1253": "Το ενοίκιο της αίθουσας είναι 450 ευρώ τον μήνα.",
    "cp1254": "Salonun aylık kirası 450 lira. Ödeme 10 Mart'a kadar yapılmalıdır; şöyle.",
}


@pytest.mark.parametrize("encoding", SAMPLES)
def test_undeclared_encoding_is_detected_with_warning(encoding: str) -> None:
    decoded = text.decode_text(SAMPLES[encoding].encode(encoding))
    assert decoded.text == SAMPLES[encoding]
    assert [notice.code for notice in decoded.notices] == ["CHARSET_GUESSED"]


@pytest.mark.parametrize("words", ["O preço é 40 € – “líquido”.", "Preis 40 € für Größe", "ação"])
def test_western_text_needs_no_warning(words: str) -> None:
    assert text.decode_text(words.encode("cp1252")) == text.DecodedText(words, "cp1252")


@pytest.mark.parametrize(
    ("label", "encoding", "words"),
    [
        ("iso-8859-1", "cp1252", "40 € “net”"),
        ("US-ASCII", "cp1252", "the ’20s…"),
        ("latin1", "cp1252", "œuvre"),
        ("gb2312", "gb18030", "租金 € 镕"),
        ("ks_c_5601-1987", "cp949", "회의실 뷁"),
        ("x-sjis", "cp932", "会場①"),
        ("iso-2022-jp", "iso2022_jp", "会場"),
        ("windows-1251", "cp1251", "Цена"),
        ("iso-8859-9", "cp1254", "€ şey"),
    ],
)
def test_label_names_the_encoding_of_browsers(label: str, encoding: str, words: str) -> None:
    page = f"<meta charset='{label}'><p>{words}</p>".encode(encoding)
    assert html.read(page).blocks[0].text == words


def test_transport_charset_precedes_that_of_the_page() -> None:
    page = "<meta charset=windows-1252><p>会場の使用料</p>".encode("shift_jis")
    with text.declare_charset("text/html; charset=Shift_JIS"):
        assert html.read(page).blocks[0].text == "会場の使用料"
        assert markdown.read("会場".encode("shift_jis")).blocks[0].text == "会場"
        assert "会場" in spreadsheets.read_csv("a,b\n会場,1\n".encode("shift_jis")).blocks[-1].text
        assert text.decode_text("\ufeff€".encode("utf-16")).text == "€"


def test_wrong_label_does_not_break_utf8() -> None:
    assert text.decode_text("ação €".encode(), "iso-8859-1").text == "ação €"
    assert text.decode_text(b"plain", "utf-16").text == "plain"
    assert text.decode_text("preço".encode("cp1252"), "utf-8").text == "preço"


def test_damaged_bytes_are_marked_not_removed() -> None:
    damaged = text.decode_text(("ação " * 20).encode() + b"\xe3 end")
    assert damaged.text.endswith("ação \ufffd end")
    assert [notice.code for notice in damaged.notices] == ["UNDECODABLE_BYTES"]
    unmapped = text.decode_text(b"a \x93b\xe9", "iso-8859-15")
    assert unmapped.text == "a \ufffdbé"
    assert [notice.code for notice in unmapped.notices] == ["UNDECODABLE_BYTES"]
