"""Folding of names, and languages of texts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.languages import LiteLanguages
from engines.names import FoldedNames, fold_name

LANGUAGES = LiteLanguages()


@pytest.mark.parametrize(
    ("spellings", "key"),
    [
        (["Acme, S.A.", "ACME  SA", "Acme S/A", "acme", "Acme Ltda."], "acme"),
        (["José da Silva", "JOSE DA SILVA", "José  da\nSilva"], "jose da silva"),
        (["U.S. Bank", "US Bank"], "us bank"),
        (["Petróleo Brasileiro S.A.", "Petroleo Brasileiro"], "petroleo brasileiro"),
        (["Straße", "STRASSE"], "strasse"),
        (["Co"], "co"),
    ],
)
def test_spellings_of_a_name_share_a_key(spellings: list[str], key: str) -> None:
    assert {FoldedNames().fold(spelling) for spelling in spellings} == {key}


@given(st.text(max_size=60))
def test_folding_twice_is_folding_once(name: str) -> None:
    assert fold_name(fold_name(name)) == fold_name(name)


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Qual é o prazo?", "pt"),
        ("What is the price?", "en"),
        ("¿Dónde está la biblioteca?", "es"),
        ("Wer hat das geschrieben?", "de"),
        ("o contrato", "pt"),
        ("O fornecedor entrega as peças em até trinta dias depois do pedido.", "pt"),
        ("The supplier delivers the parts within thirty days of the order.", "en"),
        ("Le fournisseur livre les pièces dans les trente jours suivant la commande.", "fr"),
        ("THE SUPPLIER DELIVERS THE PARTS WITHIN THIRTY DAYS OF THE ORDER", "en"),
    ],
)
def test_languages_of_questions_and_sentences(text: str, language: str) -> None:
    assert LANGUAGES.detect(text) == language


@pytest.mark.parametrize("text", ["", "12345", "SKF 6204-2RS", "???", "a@b.example https://example.com/x"])
def test_what_has_no_language_has_none(text: str) -> None:
    assert LANGUAGES.detect(text) is None
