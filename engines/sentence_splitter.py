"""Rule-based sentence splitting for English and Portuguese, acceptable for related languages."""

from __future__ import annotations

import re
from itertools import pairwise

VERSION = 1

_ABBREVIATIONS = frozenset(
    """a adj al alt apr approx apto art arts aug av bldg ca cap cel cf ch cia co col corp d.c
    dec dep dept des dr dra drs e.g ed eds eng engª esq est etc ex exa exma exmo exp feb fig
    figs fl fls fr gen gov hon i.e inc inst jan jr jul jun lei lt ltd ltda maj mar max máx méd
    min mín mr mrs ms mt n no nº nos nov nr núm num obs oct op p p.m a.m pag pág págs par ph.d
    pp proc prof profa pt r res rev rod s sec sen sep sept sr sra srs srta st sta sto suppl tab
    tel ten trad u.k u.s univ v vol vols vs §""".split()  # noqa: SIM905
)
# Possessive quantifiers keep matching linear in long runs of stops or white space.
_CANDIDATE = re.compile(
    r"""
      # a stop, closing marks, white space
        (?<![.!?…])(?P<stop>[.!?…]++)(?P<close>["'”’»)\]*_`~]*+)(?P<space>\s++)
      # stops that need no space
      | [。！？]++["'”’」』)]*+\s*+
      # a blank line
      | \n\s*\n+
      # the next item of a list
      | \n(?=[ \t]*(?:[-*+•]|\d{1,3}[.)])[ \t])
    """,
    re.X,
)
_ITEM = re.compile(r"(?:[-*+•]|\d{1,3}[.)])[ \t]")
_SENTENCE_OPENING = re.compile(
    r"""["'“‘«(\[*_`~¿¡—–-]*(?:[^\W\d_a-zà-öø-ÿ]|\d|§|[^\W\d_](?=[A-Z]))"""
)
# Behind these, a stop may end the sentence, and in "Mine A. The shaft" it does. Names do not begin
# with the words that open sentences.
_CLOSING_ABBREVIATIONS = frozenset(
    "a.m p.m etc inc ltd ltda corp co jr u.s u.k ph.d est".split()  # noqa: SIM905
)
_OPENING_WORD = re.compile(
    r"""["'“‘«(\[*_`~]*(?:The|This|That|These|Those|It|Its|He|She|They|We|You|His|Her|Their|There
    |In|On|At|By|For|From|With|If|When|Where|After|Before|Since
    |Os|As|Um|Uma|Este|Esta|Estes|Estas|Esse|Essa|Isto|Ele|Ela|Eles|Elas|No|Na|Nos|Nas|Em|Ao|À|Se
    |Quando|Para|Com|Por|El|Los|Las|En|Der|Die|Das|Es|Er|Sie|Ein|Eine|Im|Les|Il|Elle)\ """,
    re.X,
)
_LAST_WORD = re.compile(r"[^\s(\[\"“'‘«/]+$")


class RuleSentenceSplitter:
    """SentenceSplitter by rules.

    A stop ends a sentence if a capital, a digit or an opening mark follows it and no abbreviation,
    initial or list number precedes it.
    """

    def split(self, text: str) -> list[tuple[int, int]]:
        ends = [
            match.end()
            for match in _CANDIDATE.finditer(text)
            if match.end() < len(text) and _is_sentence_end(text, match)
        ]
        edges = [0, *ends, len(text)]
        return [(start, end) for start, end in pairwise(edges) if end > start]


def _is_sentence_end(text: str, match: re.Match[str]) -> bool:
    if match["stop"] is None:
        return True
    if "\n\n" in match["space"] or ("\n" in match["space"] and _ITEM.match(text, match.end())):
        return True
    if not _SENTENCE_OPENING.match(text, match.end()):
        return False
    return (
        match["stop"] != "."
        or bool(match["close"])
        or not _is_after_abbreviation(text, match.start(), match.end())
    )


def _is_after_abbreviation(text: str, dot_offset: int, next_offset: int) -> bool:
    """Return whether an abbreviation, an initial or a list number precedes the dot."""
    # A bounded window keeps the whole scan linear.
    last_word = _LAST_WORD.search(text, max(0, dot_offset - 24), dot_offset)
    if last_word is None:
        return False
    word = last_word[0]
    if word.isdigit():
        # A list number, if only digits and blanks stand before it on its line.
        start = dot_offset - len(word)
        while start > 0 and (text[start - 1] in " \t" or text[start - 1].isdigit()):
            start -= 1
        return start == 0 or text[start - 1] == "\n"
    is_initial = len(word) == 1 and word.isupper()
    if is_initial or word.lower() in _CLOSING_ABBREVIATIONS:
        return not _OPENING_WORD.match(text, next_offset)
    return word.lower().rstrip(".") in _ABBREVIATIONS
