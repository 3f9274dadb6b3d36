"""Refusal messages in the language of the query."""

from __future__ import annotations

from collections.abc import Sequence

from schemas.questions import RefusalCode

FALLBACK_LANGUAGE = "en"

MESSAGES: dict[RefusalCode, dict[str, str]] = {
    "NO_SUITABLE_CONTEXT": {
        "en": "The documents contain nothing that answers this question.",
        "pt": "Os documentos não contêm nada que responda a esta pergunta.",
        "es": "Los documentos no contienen nada que responda a esta pregunta.",
        "fr": "Les documents ne contiennent rien qui réponde à cette question.",
        "de": "Die Dokumente enthalten nichts, was diese Frage beantwortet.",
    },
    "NO_SUCH_COLLECTION": {
        "en": "There is no collection {names}.",
        "pt": "Não existe a coleção {names}.",
        "es": "No existe la colección {names}.",
        "fr": "Il n'y a pas de collection {names}.",
        "de": "Es gibt keine Sammlung {names}.",
    },
    "INSUFFICIENT_CONTEXT": {
        "en": "The retrieved passages are not sufficient to answer this question.",
        "pt": "Os trechos encontrados não bastam para responder a esta pergunta.",
        "es": "Los pasajes encontrados no bastan para responder a esta pregunta.",
        "fr": "Les passages trouvés ne suffisent pas pour répondre à cette question.",
        "de": "Die gefundenen Stellen reichen nicht aus, um diese Frage zu beantworten.",
    },
    "JUDGE_BLOCKED": {
        "en": "The answer was withheld: the retrieved passages do not support it.",
        "pt": "A resposta foi retida: os trechos encontrados não a sustentam.",
        "es": "La respuesta se ha retenido: los pasajes encontrados no la respaldan.",
        "fr": "La réponse a été retenue : les passages trouvés ne l'appuient pas.",
        "de": "Die Antwort wurde zurückgehalten: die gefundenen Stellen stützen sie nicht.",
    },
}


def format_refusal(code: RefusalCode, language: str | None, collections: Sequence[str] = ()) -> str:
    """Format the message. `collections` fills in the names for NO_SUCH_COLLECTION."""
    texts = MESSAGES[code]
    return texts.get(language or FALLBACK_LANGUAGE, texts[FALLBACK_LANGUAGE]).replace(
        "{names}", ", ".join(map(repr, collections))
    )
