"""Project generations, sources, collections, erasures and audit events into their tables."""

from __future__ import annotations

from schemas.topics import CONTROL
from streams.stage import project_itself, shared_stage

STAGE = shared_stage("control", CONTROL, 1, project=project_itself)
