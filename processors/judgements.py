"""Project feedback, judgements and facts into their tables."""

from __future__ import annotations

from schemas.topics import FEEDBACK
from streams.stage import project_itself, shared_stage

STAGE = shared_stage("judgements", FEEDBACK, 1, project=project_itself)
