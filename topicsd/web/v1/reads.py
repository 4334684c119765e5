"""GET and HEAD of a stream: catch-up, long poll, event stream (streams spec 1.7 to 1.12)."""

from __future__ import annotations

import base64
from typing import Final, NamedTuple

from topicsd.model import errors
from topicsd.model.match import Match
from topicsd.model.offset import START, build_offset, parse_offset
from topicsd.reader import StreamPage, StreamStatus, StreamView
from topicsd.rules.lifetime import expires_at
from topicsd.web.context import Context
from topicsd.web.live.entries import EntryStream, Start
from topicsd.web.live.tunnel import Opening
from topicsd.web.reply import Reply
from topicsd.web.request import Request
from topicsd.web.throttle import pass_throttle
from topicsd.web.v1.cursor import next_cursor
from topicsd.web.v1.door import CLOSED, check_alive, get_stream, is_v1, refusing, spelling_of
from topicsd.web.v1.texts import build_time, parse_duration_ms, parse_stamp_ms

PAGE_ENTRIES_MAX: Final = 100_000
# Default and longest wait by mount: (milliseconds, milliseconds).
WAITS_MS: Final = {True: (3000, 5000), False: (30_000, 30_000)}
NO_STORE: Final = ("cache-control", "no-store")
UP_TO_DATE: Final = ("stream-up-to-date", "true")
_TAIL_CACHE: Final = ("cache-control", "public, max-age=60, stale-while-revalidate=300")
_PAST_CACHE: Final = ("cache-control", "immutable, max-age=31536000")
_LONG_POLL: Final = ("long-poll", "true")


class Asked(NamedTuple):
    """What a GET wants."""

    from_seq: int
    now: bool
    live: str | None
    match: Match | None
    raw: bool
    cursor: str | None


@refusing
async def get_stream_entries(request: Request, context: Context) -> Reply | Opening:
    """Read a stream, in the way that `live` says."""
    if context.throttle.pressed:
        await pass_throttle(request, context, [request.name])
    view, status = await get_stream(request, context)
    if request.method == "HEAD":
        return _describe(request, context, view, status)
    asked = _parse(request, context, view, status)
    context.reader.touch(view.topic)
    if asked.live == "sse":
        return _open(request, context, view, asked)
    if asked.now and asked.live is None:
        return _at_tail(request, context, view, status)
    if asked.live is not None:
        return await _long_poll(request, context, view, asked)
    return _catch_up(request, context, view, asked)


def _parse(request: Request, context: Context, view: StreamView, status: StreamStatus) -> Asked:
    offsets = [value for name, value in request.query_pairs if name == "offset"]
    if len(offsets) > 1:
        raise errors.invalid_request("offset is given more than once", field="offset")
    live = request.query.get("live")
    live = "long-poll" if live in _LONG_POLL else live if live == "sse" else None
    resumed = request.header("last-event-id") if live == "sse" else None
    since = request.query.get("since")
    if live is not None and not offsets and not resumed and since is None:
        raise errors.invalid_request("live reads need an offset", field="offset")
    text = resumed or (offsets[0] if offsets else None)
    if text is None and since is not None:
        position, from_seq = None, view.seek(parse_stamp_ms(since, "since"))
    else:
        position = START if text is None else parse_offset(text)
        from_seq = view.resolve(position, status.head_seq)
    key = request.params.get("key", request.query.get("key"))
    match = None if key is None else Match(key, is_prefix=False)
    raw = _is_raw(request, view)
    return Asked(from_seq, text == "now", live, match, raw, request.query.get("cursor"))


def _is_raw(request: Request, view: StreamView) -> bool:
    """Whether payloads are concatenated instead of made an array."""
    wanted = request.query.get("format")
    if wanted not in (None, "json", "raw"):
        raise errors.invalid_request("format must be json or raw", field="format")
    if wanted == "json" and not view.config.is_json:
        raise errors.invalid_request("format=json needs a stream of JSON", field="format")
    return wanted == "raw" or not view.config.is_json


def _read(context: Context, view: StreamView, asked: Asked, from_seq: int) -> StreamPage:
    budget = context.settings.max_response_bytes
    return view.read(from_seq, budget, PAGE_ENTRIES_MAX, asked.match)


def _catch_up(request: Request, context: Context, view: StreamView, asked: Asked) -> Reply:
    page = _read(context, view, asked, asked.from_seq)
    headers = _page_headers(request, context, view, page)
    headers.append(_TAIL_CACHE if page.up_to_date else _PAST_CACHE)
    tag = _build_etag(request, context, view, asked, page)
    headers.append(("etag", tag))
    if tag in _known_tags(request):
        return Reply(304, b"", tuple(headers))
    return Reply(200, _render(page, raw=asked.raw), tuple(headers), view.config.content_type)


def _at_tail(request: Request, context: Context, view: StreamView, status: StreamStatus) -> Reply:
    page = StreamPage([], status.head_seq, status)
    headers = [*_page_headers(request, context, view, page), NO_STORE]
    return Reply(
        200, _render(page, raw=_is_raw(request, view)), tuple(headers), view.config.content_type
    )


async def _long_poll(request: Request, context: Context, view: StreamView, asked: Asked) -> Reply:
    """The first page that has entries, or 204 when there are none in time."""
    clock = context.clock
    deadline_us = clock.monotonic_us() + _wait_ms(request, context) * 1000
    from_seq = asked.from_seq
    with context.port.wakeups.subscribe((view.topic.row,)) as waiter:
        while True:
            context.check_readable()
            page = _read(context, view, asked, from_seq)
            left_us = deadline_us - clock.monotonic_us()
            if page.parts or page.closed or left_us <= 0 or context.gate.draining:
                break
            check_alive(view, page.status, context)
            # Whoever waits uses the stream: it does not end under them.
            context.reader.touch(view.topic)
            from_seq = page.next_seq
            slice_us = left_us if view.config.ttl_ms is None else view.config.ttl_ms * 500
            await waiter.wait(min(left_us, slice_us) / 1_000_000 if page.up_to_date else 0)
    headers = [*_page_headers(request, context, view, page), NO_STORE]
    headers.append(("stream-cursor", next_cursor(asked.cursor, clock.now_ms())))
    if not page.parts:
        return Reply(204, b"", tuple(headers))
    return Reply(200, _render(page, raw=asked.raw), tuple(headers), view.config.content_type)


def _wait_ms(request: Request, context: Context) -> int:
    default_ms, longest_ms = WAITS_MS[is_v1(request)]
    configured = context.settings.stream_long_poll_ms
    if configured is not None:
        default_ms = longest_ms = configured
    if "timeout_ms" in request.query:
        return min(request.query_number("timeout_ms"), longest_ms)
    if "timeout" in request.query:
        return min(parse_duration_ms(request.query["timeout"], "timeout"), longest_ms)
    return default_ms


def _open(request: Request, context: Context, view: StreamView, asked: Asked) -> Opening:
    """Turn the connection into an event stream."""
    if asked.raw and view.config.is_json:
        raise errors.invalid_request("format=raw is not for event streams", field="format")
    context.gate.open_stream(request.key)
    cursor = next_cursor(asked.cursor, context.clock.now_ms())
    start = Start(asked.from_seq, asked.match, cursor, spelling_of(request, context))
    stream = EntryStream(context, view, start)
    stream.closed.add_done_callback(lambda done: context.gate.close_stream(request.key))
    return Opening(stream)


def _describe(request: Request, context: Context, view: StreamView, status: StreamStatus) -> Reply:
    """HEAD: what is known of a stream, without using it."""
    tail = build_offset(view.position(status.head_seq), spelling_of(request, context))
    headers = [("stream-next-offset", tail), ("stream-end-offset", tail), NO_STORE]
    stream = view.config
    if stream.ttl_ms is not None:
        headers.append(("stream-ttl", str(stream.ttl_ms // 1000)))
    end_ms = expires_at(stream, status.accessed_ms)
    if end_ms is not None:
        headers.append(("stream-expires-at", build_time(end_ms)))
    if status.closed:
        headers.append(CLOSED)
    headers.append(("etag", f'"{tail}{":c" if status.closed else ""}"'))
    return Reply(200, b"", tuple(headers), stream.content_type)


def _page_headers(
    request: Request, context: Context, view: StreamView, page: StreamPage
) -> list[tuple[str, str]]:
    spelling = spelling_of(request, context)
    headers = [
        ("stream-next-offset", build_offset(view.position(page.next_seq), spelling)),
        ("stream-end-offset", build_offset(view.position(page.status.head_seq), spelling)),
    ]
    if page.up_to_date:
        headers.append(UP_TO_DATE)
    if page.closed:
        headers.append(CLOSED)
    return headers


def _build_etag(
    request: Request, context: Context, view: StreamView, asked: Asked, page: StreamPage
) -> str:
    spelling = spelling_of(request, context)
    first = build_offset(view.position(asked.from_seq), spelling)
    last = build_offset(view.position(page.next_seq), spelling)
    closed = ":c" if page.closed else ""
    key = (
        "" if asked.match is None else base64.urlsafe_b64encode(asked.match.text.encode()).decode()
    )
    if is_v1(request):
        form = "raw" if asked.raw else "json"
        return f'W/"slice:{first}:{last}:key={key}:fmt={form}:filter={closed}"'
    path = base64.b64encode(request.path.encode()).decode()
    return f'"{path}:{first}:{last}{key and f":{key}"}{closed}"'


def _known_tags(request: Request) -> set[str]:
    header = request.header("if-none-match")
    return set() if header is None else {tag.strip() for tag in header.split(",")}


def _render(page: StreamPage, *, raw: bool) -> bytes:
    return b"".join(page.parts) if raw else b"[%b]" % b",".join(page.parts)
