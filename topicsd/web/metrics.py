"""`GET /v0/metrics`: what the server is and does, as Prometheus text or as JSON (API 8.3).

Any worker can answer, and all answer the same: the engine's figures and the live records
come from the board, what the workers did from the tally they share. `gather` makes one
snapshot, which is the JSON answer; the text is rendered from the same snapshot, so the two
cannot disagree. It is answered whatever the engine does; what cannot be known is 0.

A key that is bound to prefixes sees the topics it may touch and no other name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from topicsd.model.errors import TopicsError
from topicsd.model.jobs import QueueCounts, QueueState
from topicsd.storage.board import CLASSES, Board, Totals
from topicsd.storage.figures import Figures
from topicsd.storage.tally import LAG_BUCKETS_MS, REQUEST_BUCKETS_US, Histogram, Tally
from topicsd.storage.wal import FSYNC_BUCKETS_US
from topicsd.web.context import Context
from topicsd.web.exposition import CONTENT_TYPE, render
from topicsd.web.offers import read_offers, weigh_media
from topicsd.web.reply import Reply, json_reply
from topicsd.web.request import Request
from topicsd.web.route import Handler, Route

_JSON = "application/json"
_TEXT = "text/plain"
_NO_TOTALS = Totals(0, 0, dict.fromkeys(CLASSES, 0), 0)
OTHER = ("other", "other")


def get_metrics(list_routes: Callable[[], Sequence[Route]]) -> Handler:
    """The handler; the route table holds it, so it is given a way to the table."""

    async def handler(request: Request, context: Context) -> Reply:
        """The same numbers in the form that `Accept` asks for."""
        prefixes = request.key.prefixes if request.key is not None else ()
        snapshot = gather(context, list_routes(), prefixes)
        await _count_jobs(context, snapshot["topic_metrics"])
        if _wants_json(request.header("accept")):
            return json_reply(200, snapshot, context.elapsed_us(request))
        # Thousands of lines, and other requests are waiting.
        loop = asyncio.get_running_loop()
        text = await loop.run_in_executor(None, render, snapshot)
        return Reply(200, text, (), CONTENT_TYPE)

    return handler


async def _count_jobs(context: Context, rows: list[dict[str, Any]]) -> None:
    """Ask the engine for the counters of queues; what it does not tell is left out."""
    asked = [
        (row, context.port.submit(QueueState(row["topic"]))) for row in rows if "queue_ready" in row
    ]
    for row, answer in asked:
        try:
            counts = await answer
        except TopicsError:
            del row["queue_ready"], row["queue_in_flight"]
            continue
        assert isinstance(counts, QueueCounts)
        row |= {"queue_ready": counts.ready, "queue_in_flight": counts.in_flight}


def _wants_json(accept: str | None) -> bool:
    """Whether the client wants JSON more than text; named and wanted equally is enough."""
    offers = read_offers(accept or "")
    as_json, as_text = weigh_media(offers, _JSON), weigh_media(offers, _TEXT)
    return as_json > as_text or (_JSON in offers and as_json == as_text > 0)


def gather(
    context: Context, routes: Sequence[Route], prefixes: tuple[str, ...] = ()
) -> dict[str, Any]:
    """One snapshot of every number."""
    board = _board(context)
    figures = Figures() if board is None else board.figures
    totals = _NO_TOTALS if board is None else board.totals()
    tally = context.gate.column.tally
    now = tally.now()
    ready = context.engine_state == "ready" and context.port.connected
    return {
        "topics": 0 if board is None else board.topics,
        "queue_leases_in_flight": figures.leases_in_flight,
        "routers": figures.routers,
        "watch_sessions": figures.watch_sessions,
        "records_live": totals.records,
        "bytes_live": totals.payload_bytes,
        "queue_topics": totals.queues,
        "ready": ready,
        "replay_progress": context.replay_progress,
        "uptime_ms": (context.clock.monotonic_us() - context.started_us) // 1000,
        **{f"topics_{name}": count for name, count in totals.by_class.items()},
        "wal": _wal(figures, tally.submits_refused),
        "records_appended": figures.records_appended,
        "records_read": tally.records_read,
        "requests_in_flight": now.in_flight,
        "connections": now.connections,
        "sse_connections": now.streams,
        "checkpoints": figures.checkpoints,
        "checkpoint_running": bool(figures.checkpoint_running),
        "segments_sealed": 0 if board is None else context.reader.count_segments(),
        "open_files": _open_files(context, board, tally),
        "wakeup_lag_ms": _histogram(tally.wakeup_lag(), LAG_BUCKETS_MS),
        "requests": _requests(tally, routes),
        **_topics(context, ready, prefixes),
    }


def _board(context: Context) -> Board | None:
    """The board, None while there is none that anybody keeps."""
    try:
        board = context.reader.board
    except TopicsError:
        return None
    return None if board.state == "stopped" else board


def _wal(figures: Figures, submits_refused: int) -> dict[str, Any]:
    count = figures.fsyncs
    latency = Histogram(list(figures.fsync_buckets), figures.fsync_us_total)
    return {
        "frames": figures.frames,
        "batches": figures.batches,
        "fsyncs": count,
        "fsync_count": count,
        "fsync_micros_total": figures.fsync_us_total,
        "bytes_written": figures.bytes_written,
        "rotations": figures.rotations,
        "queue_depth": figures.queue_depth,
        "queue_depth_peak": figures.queue_depth_peak,
        "submit_full_total": submits_refused,
        "read_only": bool(figures.read_only),
        "fsync_latency_us": _histogram(latency, FSYNC_BUCKETS_US),
    }


def _histogram(found: Histogram, bounds: Sequence[int]) -> dict[str, Any]:
    """Cumulative buckets by upper bound, as Prometheus counts them."""
    labels = [*map(str, bounds), "+Inf"]
    counts = list(accumulate(found.buckets))
    return {
        "buckets": dict(zip(labels, counts, strict=True)),
        "sum": found.sum,
        "count": counts[-1],
    }


def _requests(tally: Tally, routes: Sequence[Route]) -> list[dict[str, Any]]:
    """Latencies by route and status class; what matched no route comes first."""
    series = [OTHER, *((route.method, route.path) for route in routes)]
    return [
        {
            "method": series[number][0],
            "route": series[number][1],
            "status": f"{status_class}xx",
            "latency_us": _histogram(found, REQUEST_BUCKETS_US),
        }
        for (number, status_class), found in tally.requests().items()
    ]


def _open_files(context: Context, board: Board | None, tally: Tally) -> dict[str, int]:
    """File descriptors by kind of process; the single process counts as the engine."""
    engine = 0 if board is None else board.engine_pid
    workers = [pid for pid in tally.pids() if pid != engine]
    return {
        "engine": _descriptors(context, engine),
        "workers": sum(_descriptors(context, pid) for pid in workers),
    }


def _descriptors(context: Context, pid: int) -> int:
    try:
        return len(context.reader.files.list_directory(Path(f"/proc/{pid}/fd")))
    except OSError:
        # It is just ending.
        return 0


def _topics(context: Context, ready: bool, prefixes: tuple[str, ...]) -> dict[str, Any]:
    """The per-topic block, by name, up to the limit."""
    limit = context.settings.metrics_topics
    states = context.reader.list_states("", "", limit + 1, prefixes) if ready else []
    rows = []
    for topic, state in states[:limit]:
        row = {
            "topic": topic.name,
            "head_seq": state.head_seq,
            "earliest_seq": state.earliest_seq,
            "records_live": state.count,
            "bytes_live": state.bytes,
        }
        if topic.config.type == "queue":
            # For `_count_jobs` to fill in: only the engine knows what is leased.
            row |= {"queue_ready": 0, "queue_in_flight": 0}
        rows.append(row)
    return {"topic_metrics": rows, "topic_metrics_truncated": len(states) > limit}
