"""Liveness and readiness (API 8.1, 8.2)."""

from __future__ import annotations

import topicsd
from topicsd.model import errors
from topicsd.web.context import Context
from topicsd.web.reply import Reply, json_reply
from topicsd.web.request import Request


async def get_health(request: Request, context: Context) -> Reply:
    """200 for as long as the process can answer."""
    uptime_us = context.clock.monotonic_us() - context.started_us
    content = {
        "status": "ok",
        "version": topicsd.__version__,
        "uptime_ms": uptime_us // 1000,
    }
    return json_reply(200, content, context.elapsed_us(request))


async def get_ready(request: Request, context: Context) -> Reply:
    """200 when writes and reads are served; 503 says why not."""
    state = context.engine_state
    if context.gate.draining or state == "draining":
        raise errors.shutting_down()
    if state != "ready" or not context.port.connected:
        raise errors.not_ready(context.replay_progress)
    content = {
        "status": "ready",
        "wal_replay_complete": True,
        "topics": context.reader.board.topics,
    }
    return json_reply(200, content, context.elapsed_us(request))
