"""Words of a text, and the function words that carry no topic."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping

_WORD = re.compile(r"\w+(?:['’]\w+)?")

FUNCTION_WORDS: Mapping[str, frozenset[str]] = {
    "en": frozenset(
        """a about after all also am an and any are as at be because been before being between both but by can could did do does doing during each
        every few for from further had has have having he her here hers him his how i if in into is it its just may me might more most must my no nor
        not of off on once only or other our out over own same shall she should so some such than that the their them then there these they this those
        through to too under until up upon us very was we were what when where which while who whom whose why will with would you your""".split()
    ),
    "pt": frozenset(
        """a à ao aos as às até com como da das de dela dele deles depois do dos e é ela elas ele eles em entre era essa essas esse esses esta está estão
        estas este estes eu foi foram há isso isto já lhe mais mas me mesmo meu minha muito muitos na não nas nem no nos nós num numa o onde os ou para
        pela pelas pelo pelos por porque qual quais quando quanto quantos quanta quantas que quê quem se sem ser será seu seus só sob sobre são sua suas
        também te tem têm tinha um uma umas uns você""".split()
    ),
    "es": frozenset(
        """a al algo ante antes como cómo con contra cual cuál cuáles cuando cuándo cuanto cuánto cuántos cuántas de del desde donde dónde durante e el él
        ella ellas ellos en entre era es esa ese eso esta está están estas este esto estos fue fueron ha hay la las le les lo los más me mi mientras muy
        no nos o para pero por porque que qué quien quién quiénes se según ser si sin sobre son su sus también te tiene todo un una uno unos y ya""".split()
    ),
    "fr": frozenset(
        """à au aux avec avant c ce ces cette comme comment d dans de depuis des donc dont du elle elles en entre est et était eux il ils j je l la le les
        leur leurs lui m ma mais me mes mon n ne nos notre nous on ont ou où par pas plus pour pourquoi qu quand que quel quelle quelles quels qui quoi s
        sa sans se ses si son sont sous sur ta te tes ton tu un une vos votre vous y""".split()
    ),
    "de": frozenset(
        """aber als am an auch auf aus bei bin bis da das dass dem den der des die dies diese dieser doch du durch ein eine einem einen einer eines er es
        für gegen hat hatte ich ihr ihre im in ins ist ja kann kein keine mit nach nicht noch nur ob oder ohne sehr sich sie sind so über um und uns
        unter viel vom von vor war waren warum was wann weil welche welcher welches wem wen wenn wer werden wie wird wieviel viele wo zu zum zur""".split()
    ),
}
_ALL_FUNCTION_WORDS = frozenset().union(*FUNCTION_WORDS.values())
# Words that are topic in one language and function in another ("die", "es", "no") stay function words: a question has enough others.


def words(text: str) -> list[str]:
    """Lower-case words in order, numbers included."""
    return [match.group().lower() for match in _WORD.finditer(text)]


def content_words(text: str, language: str | None = None) -> list[str]:
    """Words that carry the topic, in order; without a language the function words of all five count as such."""
    stop = FUNCTION_WORDS.get(language or "", _ALL_FUNCTION_WORDS)
    return [word for word in words(text) if word not in stop and (len(word) > 1 or word.isdigit())]


def unaccented(text: str) -> str:
    return "".join(char for char in unicodedata.normalize("NFKD", text) if not unicodedata.combining(char))


def guess_language(text: str) -> str | None:
    """The one of five languages whose function words the text holds most of, if it is clearly ahead (two more than the next); None when unsure."""
    present = words(text)
    votes = sorted(((sum(word in stop for word in present), language) for language, stop in FUNCTION_WORDS.items()), reverse=True)
    (best, language), (second, _) = votes[0], votes[1]
    return language if best - second >= 2 else None


def same_word(word: str, lexeme: str) -> bool:
    """Whether a stemmer could have made `lexeme` of `word`: accents aside, the lexeme but for its last letter begins the word."""
    left, right = unaccented(word.lower()), unaccented(lexeme)
    if left == right:
        return True
    return len(right) >= 3 and len(left) >= len(right) - 1 and left.startswith(right[: max(3, len(right) - 1)]) and len(left) - len(right) <= 6
