"""Wait until the API and the worker are ready."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import httpx2
import structlog

log = structlog.get_logger(__name__)
PROGRESS_INTERVAL_S = 10.0
POLL_S = 0.03


async def wait_until_ready(url: str, report: Path | None) -> dict[str, str | None]:
    """Wait for API and worker; returns the worker's report."""
    loop = asyncio.get_running_loop()
    reported_at = loop.time()
    # HTTP on this machine needs no certificates, which take 30 ms to read.
    async with httpx2.AsyncClient(timeout=5, verify=False) as client:
        while missing := await _fetch_missing(client, f"{url}/readyz"):
            if loop.time() - reported_at > PROGRESS_INTERVAL_S:
                reported_at = loop.time()
                log.info("startup_waiting", missing=missing)
            await asyncio.sleep(POLL_S)
    while report is not None and not report.exists():
        await asyncio.sleep(POLL_S)
    return dict(json.loads(report.read_text())) if report else {}


async def _fetch_missing(client: httpx2.AsyncClient, url: str) -> dict[str, str]:
    """Fetch what is not ready yet, and why."""
    try:
        response = await client.get(url)
    except httpx2.HTTPError:
        return {"api": "does not answer yet"}
    if response.status_code == 200:
        return {}
    return {
        name: line["detail"]
        for name, line in response.json().get("dependencies", {}).items()
        if not line["ok"]
    } or {"api": f"answers {response.status_code}"}
