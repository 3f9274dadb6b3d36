"""Rules extract names, values and relations, and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.extract.capitalized_names import find_names
from engines.extract.rules import extract_by_rules, split_sentences
from engines.extract.values import find_values
from processors.extract import ExtractionInput
from schemas.ids import content_id
from schemas.values import ChildChunk, ParentChunk, RawCell, Span
from tests.fakes.chunks import make_parent


def extract_names(text: str) -> dict[str, str]:
    return {text[found.start : found.end]: found.type for found in find_names(text)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "The contract binds Acme Logistics Lda. and Northwind Traders Inc. alike.",
            {"Acme Logistics Lda.": "ORG", "Northwind Traders Inc.": "ORG"},
        ),
        (
            "Yesterday Dr. Maria dos Santos Silva met John Smith in Lisbon.",
            {"Maria dos Santos Silva": "PERSON", "John Smith": "PERSON", "Lisbon": "LOC"},
        ),
        (
            "Ela estuda na Universidade Federal do Rio de Janeiro e mora em São Paulo.",
            {"Universidade Federal do Rio de Janeiro": "ORG", "São Paulo": "LOC"},
        ),
        (
            "O Banco Central do Brasil e a ANVISA publicaram a norma.",
            {"Banco Central do Brasil": "ORG", "ANVISA": "ORG"},
        ),
        ("The Bank of England raised its rate.", {"Bank of England": "ORG"}),
        ("This is a sentence. However, nothing here is a name.", {}),
        ("ALL WORDS HERE ARE WRITTEN IN CAPITALS", {}),
    ],
)
def test_names_are_extracted_with_entity_types(text: str, expected: dict[str, str]) -> None:
    found = {}
    for start, end in split_sentences(text):
        found.update(extract_names(text[start:end]))
    assert found == expected


@pytest.mark.parametrize(
    ("text", "name", "kind", "key"),
    [
        ("due on 2024-06-30.", "2024-06-30", "DATE", "2024-06-30"),
        ("on 12 March 2024,", "12 March 2024", "DATE", "2024-03-12"),
        ("on March 12th, 2024.", "March 12th, 2024", "DATE", "2024-03-12"),
        ("em 5 de maio de 2023.", "5 de maio de 2023", "DATE", "2023-05-05"),
        ("a 31/12/2023.", "31/12/2023", "DATE", "2023-12-31"),
        ("on 12/31/2023", "12/31/2023", "DATE", "2023-12-31"),
        ("costs € 18,740.50 a year", "€ 18,740.50", "MONEY", "EUR 18740.50"),
        ("custa 18.740,50 EUR", "18.740,50 EUR", "MONEY", "EUR 18740.50"),
        ("vale R$ 2,5 milhões", "R$ 2,5 milhões", "MONEY", "BRL 2500000.00"),
        ("of $3 billion in sales", "$3 billion", "MONEY", "USD 3000000000.00"),
        ("pagou 1.000 reais", "1.000 reais", "MONEY", "BRL 1000.00"),
        ("write to a.b@example.com.", "a.b@example.com", "IDENTIFIER", "a.b@example.com"),
        ("CNPJ 33.000.167/0001-01", "33.000.167/0001-01", "IDENTIFIER", "33.000.167/0001-01"),
        ("CPF 123.456.789-09", "123.456.789-09", "IDENTIFIER", "123.456.789-09"),
        ("contract AL-2024/17 says", "AL-2024/17", "IDENTIFIER", "al-2024/17"),
        ("contrato nº 4600123456 diz", "4600123456", "IDENTIFIER", "4600123456"),
    ],
)
def test_values_are_normalized_from_their_spellings(
    text: str, name: str, kind: str, key: str
) -> None:
    assert [
        (text[found.start : found.end], found.type, found.key) for found in find_values(text)
    ] == [(name, kind, key)]


@pytest.mark.parametrize(
    "text",
    [
        "a well-known e-mail",
        "version three",
        "page 12 of 40",
        "in the 1990s",
        "a 50-50 chance",
        "and/or",
    ],
)
def test_ordinary_text_contains_no_values(text: str) -> None:
    assert list(find_values(text)) == []


@pytest.mark.parametrize(
    ("text", "subject", "label", "target"),
    [
        ("Acme Lda. acquired Northwind Inc. last year.", "acme", "acquired", "northwind"),
        ("The bridge of Porto was built by Mota Engil.", "mota engil", "built", "porto"),
        ("Maria Santos works in Lisbon.", "maria santos", "works_in", "lisbon"),
        (
            "A Petrobras S.A. assinou um acordo com a Vale S.A. ontem.",
            "petrobras",
            "assinou",
            "vale",
        ),
        (
            "O relatório do Tribunal foi escrito por João Silva.",
            "joao silva",
            "escrito",
            "tribunal",
        ),
    ],
)
def test_verb_between_two_names_gives_a_relation(
    text: str, subject: str, label: str, target: str
) -> None:
    strongest = max(
        extract_by_rules([make_parent(text)]).relations, key=lambda relation: relation.weight
    )
    assert (strongest.subject[1], strongest.type, strongest.object[1], strongest.weight) == (
        subject,
        label,
        target,
        0.8,
    )


def test_co_occurring_names_are_weakly_related() -> None:
    (relation,) = extract_by_rules([make_parent("Both John Smith and Mary Jones, too.")]).relations
    assert (relation.type, relation.weight) == ("related_to", 0.3)


def test_amount_is_a_claim_about_the_preceding_name() -> None:
    found = extract_by_rules(
        [make_parent("The annual fee of Acme Lda. is € 500, and the penalty of Vale S.A. is € 70.")]
    )
    assert [(claim.subject[1], claim.property, claim.value) for claim in found.claims] == [
        ("acme", "fee", "€ 500"),
        ("vale", "penalty", "€ 70"),
    ]


def test_entity_has_one_type_throughout() -> None:
    found = extract_by_rules(
        [make_parent("Acme Lda. is old.", "We wrote to Acme. They like Acme.")]
    )
    assert {mention.type for mention in found.mentions if mention.key == "acme"} == {"ORG"}


def test_name_across_chunk_boundary_is_skipped() -> None:
    text = "We met John Smith today in Lisbon."
    cut = text.index("Smith")
    children = [
        ChildChunk(
            id=content_id("c", n),
            ordinal=n,
            text=text[a:b],
            char_start=a,
            char_end=b,
            spans=[],
            tokens=1,
        )
        for n, (a, b) in enumerate([(0, cut), (cut, len(text))])
    ]
    whole = ParentChunk(
        id=content_id("p"),
        ordinal=0,
        text=text,
        char_start=0,
        char_end=len(text),
        tokens=1,
        children=children,
    )
    assert [mention.name for mention in extract_by_rules([whole]).mentions] == ["Lisbon"]


def test_names_do_not_span_table_cells() -> None:
    assert [
        mention.name
        for mention in extract_by_rules(
            [make_parent("| Supplier Acme Lda. | John Smith |\n| --- | --- |")]
        ).mentions
    ] == [
        "Supplier Acme Lda.",
        "John Smith",
    ]


def test_stored_value_of_a_cell_is_its_key() -> None:
    row = "| Acme Lda. | $1.3 | 03/04/2025 | $7 of 9 |"
    parent = make_parent(row)
    raw_cells = [
        RawCell(
            char_start=1000 + row.index(shown),
            char_end=1000 + row.index(shown) + len(shown),
            raw_value=raw_value,
        )
        # A number is no date, and a date no amount.
        for shown, raw_value in (
            ("$1.3", "1300000"),
            ("03/04/2025", "2025-03-04T08:15:00"),
            ("$7 of 9", "2025-03-04"),
        )
    ]
    span = Span(char_start=1000, char_end=1000 + len(row), raw_cells=raw_cells)
    (child,) = parent.children
    whole = parent.model_copy(update={"children": [child.model_copy(update={"spans": [span]})]})
    # As the stage hands it over: relative to the passage.
    relative = ExtractionInput.from_parent(whole)
    found = relative.to_document_offsets(extract_by_rules([relative.parent]))
    keys = {row[m.char_start - 1000 : m.char_end - 1000]: m.key for m in found.mentions}
    assert keys["$1.3"] == "USD 1300000.00"
    assert keys["03/04/2025"] == "2025-03-04"
    assert keys["$7"] == "USD 7.00"
    assert {m.key for m in extract_by_rules([parent]).mentions} >= {"USD 1.30", "2025-04-03"}


@given(st.text(alphabet=st.sampled_from("ABc de.,|\n-/0159€$@'’&ãÉ"), max_size=200))
def test_mention_spans_match_the_text(text: str) -> None:
    whole = make_parent(text, offset=7)
    for mention in extract_by_rules([whole]).mentions:
        assert text[mention.char_start - 7 : mention.char_end - 7] == mention.name != ""
