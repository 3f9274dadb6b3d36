"""Abbreviations and defined terms are found with the name that they stand for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.extract.aliases import is_abbreviation
from engines.extract.rules import extract_by_rules
from tests.fakes.chunks import make_parent

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
