"""Normalization of names: all spellings of a name share one key."""

from __future__ import annotations

import re
import unicodedata

COMPANY_FORMS = frozenset(
    """inc incorporated corp corporation co company ltd limited llc llp lp plc lda
    ltda sa sas sarl eireli me epp cia gmbh ag kg se nv bv spa srl ab oy as pty
    pte kk sociedade""".split()  # noqa: SIM905
)
# S.A., S/A and U. S. become SA and US.
_DOTTED = re.compile(r"\b(?:\w[.]\s?){2,}|\b\w/\w\b")
_APOSTROPHES = re.compile(r"['’`´]s\b|['’`´]")
_PUNCTUATION = re.compile(r"[\W_]+")


def fold_name(name: str) -> str:
    """Remove case, accents, extra spaces, punctuation and company forms.

    `Acme, S.A.` and `ACME SA` both become `acme`. The first word stays even if it is a company
    form.
    """
    plain = unicodedata.normalize("NFKD", name).casefold()
    plain = "".join(letter for letter in plain if not unicodedata.combining(letter))
    plain = _DOTTED.sub(
        lambda match: re.sub(r"[./\s]", "", match[0]) + " ", _APOSTROPHES.sub("", plain)
    )
    words = _PUNCTUATION.sub(" ", plain).split()
    while len(words) > 1 and words[-1] in COMPANY_FORMS:
        words.pop()
    return " ".join(words)


class FoldingNameNormalizer:
    def normalize(self, name: str) -> str:
        return fold_name(name)
