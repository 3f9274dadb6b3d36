"""Imports and caches of the fork server that each of its workers would make again."""

from __future__ import annotations

import inspect

import engines.extract.rules as rules
import engines.http_fetcher as http_fetcher
import streams.kafka.kafka_log as kafka_log
from anabranch.config.profiles import PROFILE_FOLDERS
from retrieval.profiles import load_profiles

__all__ = ["http_fetcher", "kafka_log", "rules"]

load_profiles(*(folder for folder in PROFILE_FOLDERS if folder.is_dir()))
# Each Faust app inspects the frame that makes it, and the first one resolves the path of every
# module.
inspect.getmodule(inspect.currentframe())
