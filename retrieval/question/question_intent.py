"""Tell by rules what a question wants: one fact, a relation, a comparison, a count, a reason …

The rules cover English, Portuguese, Spanish, French and German.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from retrieval.question.answer_values import detect_answer_type
from retrieval.question.words import extract_content_words
from schemas.planning import Intent

# Longer texts without a question word are statements, not keywords.
MAX_LOOKUP_WORDS = 6
_DOCUMENTS = (
    "documents?|files?|contracts?|reports?|records?|sources?|agreements?|minutes|letters?"
    "|invoices?|documentos?|contratos?|relatórios?|atas|ficheiros?|arquivos?|faturas?|cartas?"
    "|informes?|actas?|facturas?|documents|contrats?|rapports?|fichiers?|dokumente?n?|verträge"
    "|berichte|dateien|rechnungen"
)
# In order: "Why is A cheaper than B?" asks for a reason, not for a comparison.
_PATTERNS: Mapping[Intent, re.Pattern[str]] = {
    "why": re.compile(
        r"\bwhy\b|\bhow come\b|\bwhat caused\b|\breasons? (?:for|why|behind)\b|\bcauses? of\b"
        r"|\bpor ?qu[eêé]\b|^\W*porqu[eê]\b"
        r"|\b(?:motivos?|raz(?:ão|ões)|causas?) (?:de|da|do|para)\b"
        r"|\bpourquoi\b|\braisons? (?:de|pour)\b|\bwarum\b|\bweshalb\b|\bwieso\b"
        r"|\bgr(?:u|ü)nde? für\b",
        re.I,
    ),
    "comparison": re.compile(
        r"\b(?:compar(?:e[ds]?|ing|isons?|ar|ado|ada|ação|ación|ez|er|aison)|vergleich\w{0,4})\b"
        r"|\b(?:differ(?:ences?|ent) (?:between|from)|diferenças? entre|diferencias? entre"
        r"|différences? entre|unterschiede? zwischen)\b"
        r"|\b(?:versus|vs)\b"
        # "More than ten days" states a quantity.
        r"|\b(?:more|less|fewer) [^\W\d]+ than\b"
        r"|\b(?:high|low|larg|small|bigg|cheap|long|short|old|young|earli|lat|fast|slow|deep|great"
        r"|wid|heavi)er than\b(?! \d)"
        r"|\b(?:mais|menos|más) [^\W\d]+ (?:do )?que\b|\bplus [^\W\d]+ que\b"
        r"|\b(?:maior|menor|melhor|pior|mayor|mejor|peor) (?:do )?que\b|\b[^\W\d]+er als\b",
        re.I,
    ),
    "counting": re.compile(
        rf"\b(?:how many|quant[oa]s|cuánt[oa]s|combien de|wie ?viele) (?:different |of the "
        rf"|distinct )?(?:{_DOCUMENTS}|times|vezes|veces|fois)\b"
        r"|\bhow many [^\W\d]+(?: [^\W\d]+)? (?:are|were) (?:named|listed|mentioned)\b"
        rf"|\bnumber of (?:{_DOCUMENTS})\b|\bcount (?:the|all|how|every)\b"
        r"|\bcont(?:e|ar) (?:os|as)\b|\badd(?:ed)? up\b|\baltogether\b|\bin total\b"
        r"|\bao todo\b|\bno total\b(?! d[aeo])|\ben total\b|\bau total\b|\binsgesamt\b"
        r"|\bwhat (?:is|was) the (?:sum|average) of\b"
        r"|\bqual (?:é |foi )?a (?:soma|média) d",
        re.I,
    ),
    "relation": re.compile(
        r"\b(?:(?:relation(?:ship)?|connection|link)s? (?:is there |exists? )?between"
        r"|connect(?:ed|s) (?:to|with)|link(?:s|ed) (?:to|with)|relat(?:ed|es) to"
        r"|(?:have|has) in common"
        r"|rela[cç][aãoõ]\w* (?:há |existe )?entre|ligaç\w+ (?:há |existe )?entre"
        r"|ligad[oa]s? a|em comum|relaci[oó]n entre"
        r"|en común|liens? entre|en commun|beziehung(?:en)? zwischen|verbindung(?:en)? zwischen"
        r"|gemeinsam)\b"
        r"|^\W*(?:what|who) (?:links|connects|ties)\b|^\W*(?:o )?que(?:m)? liga\b"
        r"|\bhow (?:is|are|was|were)\b(?=.{1,200}\b(?:related|connected|linked|tied)\b)",
        re.I | re.DOTALL,
    ),
    "scenario": re.compile(
        r"\bwhat (?:happens|happened|would happen|will happen|if|is to be done)\b"
        r"|^\W*(?:suppose|assuming|imagine|if|se|si|wenn|falls|caso|suponha\w*|supongamos)\b"
        r"|\b(?:o que|qué|que) (?:acontece|sucede|pasa|se passe)\b|\bwas (?:passiert|geschieht)\b"
        r"|\bin (?:the )?(?:case|event) of\b|\b(?:em|no|en) caso d[eo]\b|\ben cas de\b",
        re.I,
    ),
}
_CHOICE = re.compile(
    r"^\W*(?:(?:in|of|from|on|de|em) )?(?:which|who|what|whose|qual|quem|quién|cuál|qui|quel(?:le)?"
    r"|lequel|laquelle|welche[rsn]?|wer)\b",
    re.I,
)
_ALTERNATIVES = re.compile(r"\b(?:or|ou|o|oder)\b", re.I)
_COMPARATIVE = re.compile(
    r"\b(?:more|less|fewer|most|least|first|last|sooner|both|same|mais|menos|primeiro|último|antes"
    r"|depois|maior|menor|melhor|pior|mesm[oa]|más|primero|mayor|mejor|plus|moins|premier|même"
    r"|mehr|weniger|zuerst|gleiche[nr]?)\b|\b[^\W\d]{3,}(?:er|ier|est)\b",
    re.I,
)
# Among the first words: "By how much …". In a statement, "when" asks for nothing.
_QUESTION_START = re.compile(
    r"^\W*(?:\w+ ){0,2}(?:who|whom|whose|what|which|when|where|how|does|do|did|is|are|was|were"
    r"|can|may|must|has"
    r"|have|quem|qual|quais|quando|onde|como|quant[oa]s?|que|qu[eé]|quién(?:es)?|cuál(?:es)?"
    r"|cuándo|dónde|cómo|cuánt[oa]s?|qui|quel(?:le)?s?|quand|où|comment|combien|wer|wem|wen|was"
    r"|welche[rsnm]?|wann|wo|wie|wieviele?|ist|sind|hat|kann|muss|darf)\b",
    re.I,
)


def detect_intent(question: str, language: str | None = None) -> Intent:
    """Return the intent: the first that a pattern tells, else a fact, keywords, or other."""
    for intent, pattern in _PATTERNS.items():
        if pattern.search(question):
            return intent
    if (
        _CHOICE.search(question)
        and _ALTERNATIVES.search(question)
        and _COMPARATIVE.search(question)
    ):
        return "comparison"
    if question.rstrip().endswith("?") or (
        _QUESTION_START.search(question) and detect_answer_type(question) is not None
    ):
        return "factoid"
    n_words = len(extract_content_words(question, language))
    return "lookup" if n_words <= MAX_LOOKUP_WORDS and not question.endswith(".") else "other"
