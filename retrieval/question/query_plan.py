"""Plan a query by rules: language, what it wants (one fact, a relation, a comparison, a count, a
reason …), keywords, candidate entity names, stated filters and the text to embed.

The rules of intent cover English, Portuguese, Spanish, French and German. A question of a
conversation is filled in first from the questions before it, also by rules; answers are not read: a
document may have worded them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Literal

from engines.language import fold_name
from retrieval.question.answer_values import detect_answer_type
from retrieval.question.stated_filters import (
    NameSpan,
    StatedFilters,
    find_name_spans,
    find_stated_filters,
)
from retrieval.question.words import (
    extract_content_words,
    guess_by_dictionary,
    guess_language,
    split_words,
    truncate_to_content_words,
)
from schemas.channels import Channel
from schemas.planning import Intent, IntentProfile, PlanProfile
from schemas.ports.engines import LanguageDetector
from schemas.ports.graph import GraphQuery
from schemas.questions import Filters

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


# Content words that count; the text after the last of them is ignored.
MAX_CONTENT_WORDS = 64
# Longest name that is matched without capitals or quotes, in words.
MAX_NAME_WORDS = 4
_MAX_NAME_CANDIDATE_WORDS = 64
_QUOTED = re.compile('["“”„«»]([^"“”„«»]{2,120})["“”„«»]')
_JOINERS = "of|the|de|da|do|das|dos|del|la|van|von|der|&"
# The class excludes non-letters, digits, `_` and lower case, which leaves upper-case letters.
_NAME_WORD = r"[^\W\d_a-zà-öø-ÿ][\w'’.&-]*"
_CAPITALISED = re.compile(rf"(?<!\w){_NAME_WORD}(?:[ ](?:(?:{_JOINERS})[ ])?{_NAME_WORD})*")


_COURTESY = re.compile(
    r"\W*(?:(?:hi|hello|hey|good (?:morning|afternoon)|olá|oi|bom dia|boa tarde|hola|bonjour|hallo)"
    r"(?: there)?\b[,.!]? )?"
    r"(?:(?:please|por favor|s'il (?:te|vous) plaît|bitte),? )?"
    r"(?:(?:can|could|would) you (?:please |kindly )?(?:tell me|let me know|explain(?: to me)?)"
    r"|(?:please )?tell me|do you know|i(?:'d| would) like to know|i want to know|i wonder"
    r"|(?:você )?(?:pode|podia|poderia)(?:-me| me)? (?:dizer(?:-me)?|explicar)|diga(?:-me)?"
    r"|gostaria de saber|quero saber|me diga|puedes decirme|podría decirme|dime|quisiera saber"
    r"|pouvez-vous me dire|peux-tu me dire|dis-moi|je voudrais savoir"
    r"|können sie mir sagen|kannst du mir sagen|sag mir)\b"
    r"(?: (?:if|whether|se|si|ob)\b)?[,:]? ",
    re.I,
)
DEFAULT_PLAN_PROFILE, DEFAULT_INTENT_PROFILE = PlanProfile(), IntentProfile()


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """The analyzed query.

    `names` maps normalized candidate entity names to their weight: 1 when written as a name, less
    otherwise. `rewritten` is the text to embed, and `search_words` are the words to search, where
    they are not those of the question. `weights` are factors on the channels' weights, and `k`
    their candidates where not the profile's, all times `widen`. `further` are the words that were
    searched for instead, as the chat model asked for them. `unfiltered` is the plan without
    the filters that the question states, and `dropped` are those that a second search left out.
    `cypher` is the chat model's query for the graph server,
    without the names that the question is linked to.
    """

    question: str
    language: str | None
    language_sure: bool
    keywords: tuple[str, ...]
    written_names: tuple[str, ...]
    names: dict[str, float]
    document_names: tuple[NameSpan, ...] = ()
    intent: Intent = "other"
    rewritten: str = ""
    search_words: tuple[str, ...] = ()
    further: str = ""
    stated: StatedFilters | None = None
    unfiltered: QueryPlan | None = None
    dropped: StatedFilters | None = None
    weights: Mapping[Channel, float] = field(default_factory=dict)
    k: Mapping[Channel, int] = field(default_factory=dict)
    widen: float = 1.0
    planned_by: Literal["rules", "model"] = "rules"
    cypher: GraphQuery | None = None

    @property
    def text_to_embed(self) -> str:
        return self.rewritten or self.question

    @property
    def text_to_match(self) -> str:
        return " ".join(self.search_words) or self.question

    @property
    def has_topic(self) -> bool:
        """False for function words alone ("What is it?").

        Capitalized ones ("the WHO") count as a topic, unless every word is capitalized.
        """
        return bool(self.keywords) or (
            bool(self.written_names) and not (self.question.istitle() or self.question.isupper())
        )

    def is_foreign(self, language: str | None) -> bool:
        """Tell whether a text's language surely differs from the query's, regions aside."""
        return (
            self.language_sure and language is not None and language.split("-")[0] != self.language
        )


def plan_query(
    question: str,
    requested_language: str | None,
    languages: LanguageDetector,
    profile: PlanProfile = DEFAULT_PLAN_PROFILE,
    filters: Filters | None = None,
) -> QueryPlan:
    """Analyze the question. With the request's `filters`, those that the question states are
    added to them.
    """
    # By all of the question: what is left without the filters tells less about its language.
    language, is_sure = detect_question_language(question, requested_language, languages)
    unfiltered = _analyze(question, language, is_sure, profile)
    stated = find_stated_filters(question, filters) if filters is not None else None
    if stated is None:
        return unfiltered
    plan = _analyze(stated.question, language, is_sure, profile)
    return replace(plan, stated=stated, unfiltered=unfiltered)


def _analyze(question: str, language: str | None, is_sure: bool, profile: PlanProfile) -> QueryPlan:
    # Bounds the cost of every later step when a whole page is pasted as a question.
    question = truncate_to_content_words(question, MAX_CONTENT_WORDS, language)
    written_keys = tuple(dict.fromkeys(find_written_names(question)))
    intent = detect_intent(question, language)
    intent_profile = profile.intents.get(intent, DEFAULT_INTENT_PROFILE)
    return QueryPlan(
        question,
        language,
        is_sure,
        tuple(dict.fromkeys(extract_content_words(question, language))),
        written_keys,
        weigh_name_keys(question, written_keys),
        tuple(find_name_spans(question)),
        intent,
        strip_courtesies(question),
        weights=intent_profile.weights,
        k=intent_profile.k,
    )


def strip_courtesies(question: str) -> str:
    """Return the question without a greeting or request before it; '' when it has neither."""
    rest = question[match.end() :] if (match := _COURTESY.match(question)) else ""
    return rest[0].upper() + rest[1:] if extract_content_words(rest) else ""


def narrow_question(plan: QueryPlan, question: str) -> QueryPlan:
    """Return the plan for a part of its question; language and entity names stay those of all."""
    return replace(
        plan,
        question=question,
        keywords=tuple(dict.fromkeys(extract_content_words(question, plan.language))),
        rewritten="",
        search_words=(),
    )


def detect_question_language(
    question: str, requested: str | None, languages: LanguageDetector
) -> tuple[str | None, bool]:
    """Return the language, and whether it is certain.

    Certain: requested, clearly indicated by function words, or indicated by two of the detector, a
    few function words and the dictionary. Each of these alone errs on short queries.
    """
    if requested:
        return requested.lower().split("-")[0], True
    if guessed_language := guess_language(question):
        return guessed_language, True
    # Of 471 questions of the test sets that only few function words indicate, detector and function
    # words agree on 324, and always rightly.
    indications = [languages.detect(question), guess_language(question, min_lead=1)]
    if any(indications):
        # Alone, the dictionary would take Spanish words for Portuguese ones. A name
        # may be in another language than the question.
        names = {word for name in find_written_names(question) for word in split_words(name)}
        indications.append(
            guess_by_dictionary(
                word for word in extract_content_words(question) if word not in names
            )
        )
    votes = Counter(language for language in indications if language is not None)
    # The first that most of them indicate.
    language, count = max(votes.items(), key=itemgetter(1), default=(None, 0))
    return language, count > 1


def find_written_names(question: str) -> Iterator[str]:
    """Yield spans written as names: quoted, or capitalized.

    A first word needs another capitalized word after it.
    """
    yield from (match.group(1).strip() for match in _QUOTED.finditer(question))
    for match in _CAPITALISED.finditer(question):
        name = match.group().rstrip(".'’-&")
        # A sentence's first word is always capitalized, which alone marks no name.
        if match.start() == 0 and " " not in name:
            continue
        yield name
        # "Does Acme Corp …": the first word may not belong to the name.
        if match.start() == 0:
            yield name.split(" ", 1)[1]


def weigh_name_keys(question: str, written: tuple[str, ...]) -> dict[str, float]:
    """Return weights by normalized name.

    Written names weigh 1, phrases of two to four words 0.8, single content words 0.5.
    """
    keys: dict[str, float] = {}
    for name in written:
        _raise_weight(keys, fold_name(name), 1.0)
    question_words = split_words(question)[:_MAX_NAME_CANDIDATE_WORDS]
    topic_words = set(extract_content_words(question))
    for length in range(MAX_NAME_WORDS, 0, -1):
        for start in range(len(question_words) - length + 1):
            name_words = question_words[start : start + length]
            if (
                name_words[0] in topic_words
                and name_words[-1] in topic_words
                # Single words of up to three letters would link to unrelated entities.
                and (length > 1 or len(name_words[0]) > 3)
            ):
                _raise_weight(keys, fold_name(" ".join(name_words)), 0.5 if length == 1 else 0.8)
    return keys


def _raise_weight(keys: dict[str, float], key: str, weight: float) -> None:
    if key:
        keys[key] = max(weight, keys.get(key, 0.0))


MAX_TOPIC_WORDS = 8
# Words after an opening that can stand for a name in the question before.
MAX_REPLACEMENT_WORDS = 5
# Without words that also open clauses, such as that, this, there, il and er.
_PRONOUNS = frozenset(
    (
        *("it", "its", "they", "them", "their", "theirs", "he", "him", "his", "she", "her", "hers"),
        *("those", "these", "ele", "eles", "ela", "elas", "dele", "deles", "dela", "delas"),
        *("nele", "neles", "nela", "nelas", "isso", "disso", "nisso", "él", "ella", "ellos"),
        *("ellas", "eso", "elle", "ils", "elles", "cela", "ça", "ihn", "ihm", "ihr", "ihre"),
        *("ihren", "ihrer", "ihrem", "davon", "dafür", "dessen", "deren"),
    )
)
_ENGLISH_POSSESSIVES = frozenset(("its", "their", "theirs", "his", "her", "hers"))
_ENGLISH_PRONOUN = re.compile(
    r"\b(?:its?|they|them|theirs?|he|him|his|she|hers?|those|these)\b", re.I
)
_OPENING = re.compile(
    r"\W*(?:(?:and|but|so|e|y|et|und|mas|pero|mais|aber)\W+)?"
    r"(?:(?:what|how) about|e quanto [aà]o?|quanto [aà]o?|qué hay de|y qué tal|qu'en est-il de"
    r"|et pour|was ist mit|wie steht es mit)\s+",
    re.I,
)


def rewrite_by_rules(earlier_questions: Iterable[str], question: str) -> str:
    """Return the question, filled in from the questions before it, the oldest first."""
    standalone = ""
    for text in (*earlier_questions, question):
        standalone = _complete(text, standalone)
    return standalone


def _complete(question: str, previous: str) -> str:
    """Return the question with what it leaves to the previous one."""
    if not previous:
        return question
    if opening := _OPENING.match(question):
        return _replace_name(previous, question[opening.end() :].strip().rstrip("?!. "))
    if _PRONOUNS.isdisjoint(split_words(question)):
        # Function words alone ("Why?", "And when?") ask about the whole previous question.
        return question if extract_content_words(question) else f"{question} ({previous})"
    topic = _find_topic(previous)
    return _replace_pronoun(question, topic) if topic else question


def _replace_name(previous: str, replacement: str) -> str:
    """Ask the previous question of something else: instead of its name, or besides its words."""
    name = next(iter(_find_names(previous)), None)
    is_name = replacement[:1].isupper() and len(replacement.split()) <= MAX_REPLACEMENT_WORDS
    if name is not None and is_name:
        return previous.replace(name, replacement, 1)
    return f"{previous.rstrip('?!. ')} {replacement}?"


def _find_topic(previous: str) -> str:
    """Return the last name of the question, or without one its first topical words."""
    names = _find_names(previous)
    return names[-1] if names else " ".join(extract_content_words(previous)[:MAX_TOPIC_WORDS])


def _find_names(question: str) -> list[str]:
    names = list(find_written_names(question))
    # The first word of a sentence is a capital in any case: "Does Acme Corp" is followed by its
    # own end, "Acme Corp".
    return [name for name in names if not any(name.endswith(f" {other}") for other in names)]


def _replace_pronoun(question: str, topic: str) -> str:
    match = _ENGLISH_PRONOUN.search(question)
    if match is None:
        return f"{question} ({topic})"
    ending = "'s" if match[0].lower() in _ENGLISH_POSSESSIVES else ""
    return f"{question[: match.start()]}{topic}{ending}{question[match.end() :]}"
