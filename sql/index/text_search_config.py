"""Choose the text search configuration of a document's language."""

from __future__ import annotations

# Snowball configurations bundled with Postgres 15 and later, by BCP 47 primary subtag.
TEXT_SEARCH_CONFIGS = {
    "ar": "arabic",
    "hy": "armenian",
    "eu": "basque",
    "ca": "catalan",
    "da": "danish",
    "nl": "dutch",
    "en": "english",
    "fi": "finnish",
    "fr": "french",
    "de": "german",
    "el": "greek",
    "hi": "hindi",
    "hu": "hungarian",
    "id": "indonesian",
    "ga": "irish",
    "it": "italian",
    "lt": "lithuanian",
    "ne": "nepali",
    "no": "norwegian",
    "nb": "norwegian",
    "nn": "norwegian",
    "pt": "portuguese",
    "ro": "romanian",
    "ru": "russian",
    "sr": "serbian",
    "es": "spanish",
    "sv": "swedish",
    "ta": "tamil",
    "tr": "turkish",
    "yi": "yiddish",
}
DEFAULT_TEXT_SEARCH_CONFIG = "simple"


def resolve_text_search_config(language: str | None) -> str:
    """Return the configuration for the primary subtag of a BCP 47 tag.

    Falls back to `simple`, which neither stems nor removes stop words.
    """
    return TEXT_SEARCH_CONFIGS.get(
        (language or "").replace("_", "-").split("-")[0].lower(), DEFAULT_TEXT_SEARCH_CONFIG
    )
