"""Folding of names, and languages of texts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.language_detector import FastTextLanguageDetector
from engines.name_folding import FoldingNameNormalizer, fold_name

DETECTOR = FastTextLanguageDetector()


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
def test_spelling_variants_fold_to_one_key(spellings: list[str], key: str) -> None:
    assert {FoldingNameNormalizer().normalize(spelling) for spelling in spellings} == {key}


@given(st.text(max_size=60))
def test_name_folding_is_idempotent(name: str) -> None:
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
def test_language_of_questions_and_sentences_is_detected(text: str, language: str) -> None:
    assert DETECTOR.detect(text) == language


@pytest.mark.parametrize(
    "text", ["", "12345", "SKF 6204-2RS", "???", "a@b.example https://example.com/x"]
)
def test_text_without_words_has_no_language(text: str) -> None:
    assert DETECTOR.detect(text) is None
