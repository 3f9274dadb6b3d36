"""Imports and caches of the fork server that each of its workers would make again."""

from __future__ import annotations

import inspect
from functools import cache

import engines.embed.e5_session as e5_session
import engines.extract.rules as rules
import engines.http_fetcher as http_fetcher
import streams.kafka.kafka_log as kafka_log
from anabranch.config.profiles import PROFILE_FOLDERS
from engines.embed.e5_file import E5File, locate_weights
from retrieval.profiles import load_profiles
from retrieval.question.words import find_equivalents
from tests.support.forked_process import MODELS_FOLDER

__all__ = ["http_fetcher", "kafka_log", "rules"]

load_profiles(*(folder for folder in PROFILE_FOLDERS if folder.is_dir()))
for language in ("en", "pt"):
    find_equivalents("", language, None)
# Three quarters of the time in which a server loads the local model.
e5_session.SentencePieceProcessor = cache(e5_session.SentencePieceProcessor)  # type: ignore[assignment, misc]
MODELS_FOLDER.mkdir(exist_ok=True)
e5_session.E5Tokenizer(E5File(locate_weights()), MODELS_FOLDER)
# Each Faust app inspects the frame that makes it, and the first one resolves the path of every
# module.
inspect.getmodule(inspect.currentframe())
