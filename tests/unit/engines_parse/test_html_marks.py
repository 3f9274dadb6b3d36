"""Marks of HTML and Markdown that change what a number or a sentence means."""

from __future__ import annotations

import time

import pytest

from engines.parse import html, markdown
from engines.parse.notices import keep_hidden_text


def read_text(source: str) -> str:
    return "\n".join(block.text for block in html.read(source.encode()).blocks)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("3 &times; 10<sup>6</sup> l", "3 × 10⁶ l"),
        ("10<sup>&minus;3</sup>", "10⁻³"),
        ("20 m<sup>2</sup>", "20 m²"),
        ("9.8 m/s<sup>2</sup>", "9.8 m/s²"),
        ("(a+b)<sup>2</sup>", "(a+b)²"),
        ("x<sup>n+1</sup>", "xⁿ⁺¹"),
        ("2<sup>10</sup> bytes", "2¹⁰ bytes"),
        ("x<sup>max</sup>", "x^max"),
        ("the <sup>14</sup>C date", "the ¹⁴C date"),
        ("Ca<sup>2+</sup>", "Ca²⁺"),
        ("the 4<sup>th</sup> and Acme<sup>TM</sup>", "the 4th and Acme™"),
        ("CO<sub>2</sub>, V<sub>max</sub>", "CO₂, V_max"),
    ],
)
def test_exponents_and_indices_stay_raised_and_lowered(source: str, expected: str) -> None:
    assert read_text(f"<p>{source}</p>") == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("4.2<sup>1</sup> million", "4.2[^1] million"),
        ("1,250<sup>2</sup>", "1,250[^2]"),
        ("sales grew<sup>3</sup> fast", "sales grew[^3] fast"),
        ("in 31<sup><a href='#n2'>2</a></sup>", "in 31[^2]"),
        ("in 31<a href='#fn2'><sup>2</sup></a>", "in 31[^2]"),
        ("in 31<a href='#fn2' role='doc-noteref'>2</a>", "in 31[^2]"),
        ("in 31<sup class=reference><a href='#cite_note-4'>[4]</a></sup>", "in 31[^4]"),
        ("costs 12<sup>[5]</sup>", "costs 12[^5]"),
        ("costs 310<sup>a</sup>", "costs 310[^a]"),
        ("costs 12<sup>*</sup>", "costs 12*"),
        ("(17 sq mi)<sup>1</sup>", "(17 sq mi)[^1]"),
        ("20 m<sup>2</sup><sup>1</sup>", "20 m²[^1]"),
        ("costs €12<sup>99</sup>", "costs €12.99"),
    ],
)
def test_note_marks_never_join_a_number(source: str, expected: str) -> None:
    assert read_text(f"<p>{source}</p>") == expected


def test_raised_digit_is_a_note_where_the_page_has_that_note() -> None:
    note = "<p><sup>2</sup> Without the islands.</p>"
    assert read_text(f"<p>Output was 310<sup>2</sup>, on 20 m<sup>2</sup>.</p>{note}") == (
        "Output was 310[^2], on 20 m².\n[^2] Without the islands."
    )
    assert read_text("<p>Output was 310<sup>2</sup>.</p>") == "Output was 310²."


@pytest.mark.parametrize(
    "source",
    [
        "<del>90</del> 72",
        "<s>90</s> 72",
        "<strike>90</strike> 72",
        "<span style='text-decoration: line-through red'>90</span> 72",
        "<style>.old, p.x { text-decoration-line: line-through }</style><b class='a old'>90</b> 72",
        "<del><b>9</b>0</del> 72",
    ],
)
def test_struck_text_stays_visibly_struck(source: str) -> None:
    assert read_text(f"<p>{source}</p>") == "~~90~~ 72"


def test_struck_rows_and_paragraphs_are_struck_cell_by_cell() -> None:
    source = "<table><tr><th>a<th>b<tr style='text-decoration:line-through'><td>1<td>2</table>"
    assert read_text(source).endswith("| ~~1~~ | ~~2~~ |")
    assert read_text("<del><p>one</p><p>two</p></del>") == "~~one~~\n~~two~~"


@pytest.mark.parametrize(
    "attribute",
    [
        "style='display: none'",
        "style='visibility:hidden'",
        "hidden",
        "style='font-size:0px'",
        "style='opacity:0'",
        "style='position:absolute;left:-9999px'",
        "style='color:#fff'",
        "style='color:white;background:#FFFFFF'",
        "style='color:rgb(0,0,0);background-color:black'",
        "style='color:rgba(20, 20, 20, 0.0)'",
        "style='color:rgb(0 0 0 / 0%)'",
        "style='color:hsla(9,9%,9%,0)'",
        "style='color:#1230'",
        "style='transform:scale(0)'",
        "class=x",
    ],
)
def test_hidden_text_is_left_out_with_warning(attribute: str) -> None:
    style = "<style>.x{display:none}</style>"
    source = f"{style}<p>seen</p><p {attribute}>Hire 999</p>".encode()
    part = html.read(source)
    assert [block.text for block in part.blocks] == ["seen"]
    assert [notice.code for notice in part.notices] == ["HIDDEN_TEXT"]
    assert "left out" in part.notices[0].detail and "Hire 999" in part.notices[0].detail
    with keep_hidden_text(True):
        kept = html.read(source)
    assert [block.text for block in kept.blocks] == ["seen", "Hire 999"]
    assert "was read" in kept.notices[0].detail


@pytest.mark.parametrize(
    "source",
    [
        "<p style='color:white;background:#222'>seen</p>",
        "<link rel=stylesheet href=x.css><p style='color:white'>seen</p>",
        "<style>@media print{p{display:none}}</style><p>seen</p>",
        "<style>.hero > p{background:#000}</style><p style='color:white'>seen</p>",
        "<p style='color:#777;opacity:0.9;font-size:0.8em'>seen</p>",
        "<p style='color:rgb(255, 0, 0)'>seen</p>",
        "<p style='color:rgba(0,0,0,0.6);transform:scale(0.5)'>seen</p>",
    ],
)
def test_visible_text_is_kept(source: str) -> None:
    part = html.read(source.encode())
    assert ([block.text for block in part.blocks], part.notices) == (["seen"], [])


def test_definition_list_binds_label_and_value() -> None:
    assert read_text(
        "<dl><dt>Deposit:</dt><dd>500 euros</dd><dt>Rent<dt>Lease<dd>90<dd>95</dl>"
    ) == ("- Deposit: 500 euros\n- Rent / Lease: 90; 95")
    assert read_text("<dl><div><dt>Port</dt><dd>8080</dd></div></dl>") == "- Port: 8080"


def test_inner_table_keeps_the_label_of_its_row() -> None:
    source = (
        "<table><tr><th>Plan<th>Limits<tr><td>Basic<td><table><tr><td>Seats<td>5<tr><td>Disk<td>20"
        "</table></td></tr><tr><td>Pro<td>Seats: 50</table>"
    )
    assert "| Basic | Seats: 5; Disk: 20 |" in read_text(source)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("<mfrac><mn>1</mn><mn>2</mn></mfrac><mi>b</mi>", "½ b"),
        ("<msup><mi>x</mi><mn>2</mn></msup><mo>+</mo><mn>1</mn>", "x² + 1"),
        ("<msqrt><mi>a</mi><mo>+</mo><mi>b</mi></msqrt>", "√(a + b)"),
        ("<mfrac><mrow><mi>a</mi><mo>-</mo><mn>1</mn></mrow><mi>b</mi></mfrac>", "(a - 1)/b"),
        ("<msub><mi>v</mi><mn>0</mn></msub><mo>=</mo><mn>3</mn>", "v₀ = 3"),
        (
            "<semantics><mi>E</mi><annotation encoding='application/x-tex'>E=mc^2</annotation>"
            "</semantics>",
            "$E=mc^2$",
        ),
        ("<mtable><mtr><mtd><mn>1</mn></mtd><mtd><mn>2</mn></mtd></mtr></mtable>", "[1, 2]"),
    ],
)
def test_formula_becomes_linear_text(source: str, expected: str) -> None:
    assert read_text(f"<p>A <math>{source}</math> B</p>") == f"A {expected} B"


def test_form_values_labels_and_abbreviations_are_text() -> None:
    assert read_text(
        "<form><p>Room</p><label><input type=checkbox checked> Parking</label> <label><input "
        "type=radio> Pool</label> <select><option>Twin<option selected>Single</select> <input "
        "value=Ana><input type=password value=secret><textarea>Late</textarea></form>"
    ) == ("Room\n[x] Parking [ ] Pool Single Ana Late")
    assert read_text("<form><label>Search</label><input name=q><button>Go</button></form>") == ""
    assert read_text("<p><abbr title='World Health Organization'>WHO</abbr> says") == (
        "WHO (World Health Organization) says"
    )
    assert read_text("<p>Rated <span aria-label='4 of 5 stars'>★★★★☆</span>") == (
        "Rated 4 of 5 stars"
    )
    assert read_text("<p>Load <meter value=3 max=5></meter>") == "Load 3 of 5"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("m^2^ and H~2~O", "m² and H₂O"),
        ("10<sup>6</sup> and CO<sub>2</sub>", "10⁶ and CO₂"),
        ("<del>90</del> 72, ~~80~~ 70", "~~90~~ 72, ~~80~~ 70"),
        ("4.2<sup>1</sup> and pay<sup>[3](#fn3)</sup>", "4.2[^1] and pay[^3]"),
        ("`x^2^` and $a^2^$ and ~/a~b", "`x^2^` and $a^2^$ and ~/a~b"),
    ],
)
def test_markdown_marks_are_those_of_other_formats(source: str, expected: str) -> None:
    assert markdown.read(source.encode()).blocks[0].text == expected


@pytest.mark.parametrize(
    "piece", ["<sup>1", "1<del>", "<abbr title=a>", "<dl><dt>a", "<form>", "a<sup>1</sup>", "<b>x"]
)
def test_hostile_marks_take_linear_time(piece: str) -> None:
    start = time.process_time()
    html.read((piece * 20_000).encode())
    assert time.process_time() - start < 10
