"""Rules extract names, values and relations, and nothing else.

Abbreviations and defined terms are found with the name that they stand for.

Stage `extract`: calls of the engine and of the engine result cache.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.extract.aliases import is_abbreviation
from engines.extract.rules import extract_by_rules, find_names, split_sentences
from engines.extract.values import find_values
from processors import extract
from processors.extract import ExtractionInput
from schemas.generations import EntitySchema
from schemas.ids import content_id
from schemas.ports.engines import Extractor
from schemas.ports.ledger import ClaimStatus, MemoKey
from schemas.values import ChildChunk, Extraction, ParentChunk, RawCell, Span
from streams.stage import PendingEvent
from tests.fakes.chunks import make_parent
from tests.support.ledger_events import make_chunked

KINDS = {"abbreviation": "abbreviation", "defined_term": "term"}


def find_aliases(*lines: str) -> list[str]:
    """Return `term Licensor: acme`, sorted."""
    claims = extract_by_rules([make_parent(*lines)]).claims
    return sorted(
        f"{KINDS[claim.property]} {claim.value}: {claim.subject[1]}"
        for claim in claims
        if claim.property in KINDS
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # A role, beside the name, after its address, or in the words of another language.
        ('Acme Robotics GmbH (the "Licensor") pays.', ["term Licensor: acme robotics"]),
        ("Acme Robotics GmbH (hereinafter the Licensor) pays.", ["term Licensor: acme robotics"]),
        (
            "Between Acme Robotics, Inc., a Delaware corporation with offices at 5 Main Street, "
            "Boston (“Licensor”) and Norte Energia S.A. (“Licensee”).",
            ["term Licensee: norte energia", "term Licensor: acme robotics"],
        ),
        (
            'Acme Robotics Inc., hereinafter referred to as the "Principal" in this lease',
            ["term Principal: acme robotics"],
        ),
        (
            "Contrato entre a Construtora Aurora Ltda, pessoa jurídica de direito privado, "
            "doravante denominada simplesmente CONTRATADA, e a Norte Energia S.A., doravante "
            'denominada "CONTRATANTE".',
            ["term CONTRATADA: construtora aurora", "term CONTRATANTE: norte energia"],
        ),
        (
            "zwischen der Acme Robotics GmbH, Berlin (nachfolgend „Auftragnehmer“ genannt) und "
            "der Nordwind AG (im Folgenden „Auftraggeber“).",
            ["term Auftraggeber: nordwind", "term Auftragnehmer: acme robotics"],
        ),
        # A part of the name, and two terms in one bracket.
        (
            "Signed by FTE Networks, Inc. (“FTE” or “Subcontractor”).",
            ["term FTE: fte networks", "term Subcontractor: fte networks"],
        ),
        ("Signed by Kenneth Turpin (“Turpin”).", ["term Turpin: kenneth turpin"]),
        # Letters of the name, in both orders and after a dash.
        ("The European Central Bank (ECB) met.", ["abbreviation ECB: european central bank"]),
        (
            'It asked the World Health Organization ("WHO").',
            ["abbreviation WHO: world health organization"],
        ),
        ("We asked ECB (European Central Bank).", ["abbreviation ECB: european central bank"]),
        (
            "O Instituto Nacional do Seguro Social - INSS pagou.",
            ["abbreviation INSS: instituto nacional do seguro social"],
        ),
    ],
)
def test_alias_is_found_with_its_name(text: str, expected: list[str]) -> None:
    assert find_aliases(text) == expected


def test_alias_in_the_next_line_is_found() -> None:
    lines = ("Acme Robotics GmbH, a company with offices in Berlin", '(the **"Licensor"**), and')
    assert find_aliases(*lines) == ["term Licensor: acme robotics"]


@pytest.mark.parametrize(
    "text",
    [
        # Several parties, and a role that may be either's.
        'Acme Inc. and Bolt Inc. (together, the "Parties", each a "Party") sign.',
        'Acme Inc., a subsidiary of Bolt Inc. (the "Company"), signs.',
        'Acme Inc. and its clients (collectively the "Client") sign.',
        # Not about the name: a verb, another clause, another thing, a jurisdiction.
        'Acme Robotics GmbH shall deliver to the customer (the "Customer").',
        'Acme Robotics GmbH signs; the other side is a bank (the "Bank").',
        'The contract with Acme Robotics GmbH (the "Agreement") ends.',
        "The Right Solution, a Nevada Corporation (the COMPANY), signs.",
        'Acme Robotics GmbH (as defined in the "License Agreement") signs.',
        # Other letters, a state, a title, a number, no name at all.
        "The European Central Bank (IMF) met.",
        "She lives in Columbus, Ohio (OH).",
        "Count Louis I (as Louis) ruled.",
        "The European Central Bank (2012) met.",
        '(the "Licensor")',
    ],
)
def test_bracket_without_evidence_defines_no_alias(text: str) -> None:
    assert find_aliases(text) == []


def test_alias_that_is_defined_again_is_stated_once() -> None:
    text = 'Acme Robotics GmbH (the "Licensor") pays. Acme Robotics GmbH ("Licensor") signs.'
    assert find_aliases(text) == ["term Licensor: acme robotics"]


@pytest.mark.parametrize(
    ("alias", "name", "expected"),
    [
        ("BNDES", "Banco Nacional de Desenvolvimento Econômico e Social", True),
        ("ANVISA", "Agência Nacional de Vigilância Sanitária", True),
        ("BoE", "Bank of England", True),
        ("NFB", "National Film Board of Canada", True),
        ("HDS", "Healthcare Distribution Specialists LLC", True),
        ("NFBX", "National Film Board of Canada", False),
        ("Nfb", "National Film Board", False),
        ("OH", "Ohio", False),
        ("EU", "European Central Bank", False),
        ("", "", False),
    ],
)
def test_letters_of_an_abbreviation_begin_the_words(alias: str, name: str, expected: bool) -> None:
    assert is_abbreviation(alias, name) is expected


@given(
    st.lists(
        st.sampled_from(
            [
                "Acme Inc. ",
                "(the ",
                "(",
                ")",
                '"',
                "“",
                "”",
                "''",
                "Licensor",
                "ABC",
                " - ",
                ", a ",
                "hereinafter ",
                "and ",
                "\n",
                "\n\n",
                "|",
                "**",
                "Aa Bb Cc ",
                "ß",
                "\x00",
                "İ",
            ]
        ),
        max_size=40,
    )
)
def test_aliases_of_any_text_match_it_and_name_an_entity_of_it(parts: list[str]) -> None:
    text = "".join(parts)
    extraction = extract_by_rules([make_parent(text, offset=7)])
    entities = {(mention.type, mention.key) for mention in extraction.mentions}
    for claim in extraction.claims:
        assert text[claim.char_start - 7 : claim.char_end - 7] == claim.value != ""
        assert claim.subject in entities


class InMemoryEngineResults:
    def __init__(self) -> None:
        self.stored_results: dict[MemoKey, bytes] = {}
        self.recalled: list[int] = []

    async def fetch(self, keys: Sequence[MemoKey]) -> Mapping[MemoKey, bytes]:
        self.recalled.append(len(keys))
        return {key: self.stored_results[key] for key in keys if key in self.stored_results}

    async def store(self, results: Mapping[MemoKey, bytes]) -> None:
        self.stored_results |= results


class RecordingExtractor:
    """An extractor that fails at a certain word."""

    fingerprint = "counting"

    def __init__(self) -> None:
        self.requested_texts: list[str] = []
        self.n_running = self.most_running = 0

    def with_schema(self, schema: EntitySchema) -> Extractor:
        return self

    async def extract(self, parents: Sequence[ParentChunk], language: str | None) -> Extraction:
        self.requested_texts += [parent.text for parent in parents]
        self.n_running += 1
        self.most_running = max(self.most_running, self.n_running)
        await asyncio.sleep(0)
        self.n_running -= 1
        if any("fails" in parent.text for parent in parents):
            raise ValueError("not this one")
        return Extraction()


def make_pending_events(*texts: tuple[str, int, str]) -> list[PendingEvent]:
    return [
        PendingEvent(make_chunked(name, order, [word]), ClaimStatus.PENDING)
        for name, order, word in texts
    ]


def make_ports(parallel: int = 4) -> Any:
    return SimpleNamespace(
        memo=InMemoryEngineResults(), extractor=RecordingExtractor(), parallel_extractions=parallel
    )


async def test_duplicate_passages_are_extracted_once_per_document() -> None:
    ports = make_ports()
    emissions = await extract.react(
        make_pending_events(
            ("a", 1, "heron"), ("a", 2, "heron"), ("a", 3, "stork"), ("b", 1, "heron")
        ),
        ports,
    )
    assert len(emissions) == 4
    assert sorted(ports.extractor.requested_texts) == ["heron", "heron", "stork"], (
        "a document's passages are its own"
    )
    assert ports.memo.recalled == [3]
    await extract.react(make_pending_events(("a", 4, "stork")), ports)
    assert len(ports.extractor.requested_texts) == 3


async def test_results_before_a_failure_are_stored() -> None:
    ports = make_ports()
    with pytest.raises(ValueError, match="not this one"):
        await extract.react(make_pending_events(("a", 1, "heron"), ("b", 1, "fails")), ports)
    ports.extractor.requested_texts.clear()
    await extract.react(make_pending_events(("a", 1, "heron")), ports)
    assert ports.extractor.requested_texts == []


@pytest.mark.parametrize("parallel", [1, 3])
async def test_ports_limit_the_passages_extracted_at_a_time(parallel: int) -> None:
    ports = make_ports(parallel)
    words = ["heron", "stork", "crane", "swan", "goose"]
    await extract.react([PendingEvent(make_chunked("a", 1, words), ClaimStatus.PENDING)], ports)
    assert sorted(ports.extractor.requested_texts) == sorted(words)
    assert ports.extractor.most_running == parallel


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
    ] == ["Supplier Acme Lda.", "John Smith"]


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
