"""Subscriptions below `__ds`: make, show, change, remove; the key of webhooks (spec 1.16)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, Final

import msgspec

from topicsd.model import errors, names
from topicsd.model.errors import TopicsError
from topicsd.model.offset import Position, build_offset
from topicsd.model.subscription import (
    LEASE_MS_DEFAULT,
    LEASE_MS_MAX,
    LEASE_MS_MIN,
    PULL,
    WEBHOOK,
    DeleteSubscription,
    GetSigningKey,
    GetSubscription,
    LinkedStream,
    LinkStreams,
    Place,
    PutSubscription,
    SigningKey,
    SubscriptionConfig,
    SubscriptionFound,
)
from topicsd.rules.subscriptions import literal_prefix
from topicsd.rules.webhooks import parse_target
from topicsd.web import auth, body
from topicsd.web.context import Context
from topicsd.web.reply import Reply, encode
from topicsd.web.request import Request
from topicsd.web.v1.door import is_v1, public_url, spelling_of
from topicsd.web.v1.signing import get_signer
from topicsd.web.v1.texts import build_time

ID_BYTES_MAX: Final = 255
STREAMS_MAX: Final = 1000
DESCRIPTION_BYTES_MAX: Final = 4096
JWKS_TYPE: Final = "application/jwk-set+json"
_NO_STORE: Final = (("cache-control", "no-store"),)
# Codes that the protocol of subscriptions has words of its own for.
_OWN_CODES: Final = {"invalid_request": "INVALID_REQUEST"}

Handler = Callable[[Request, Context], Awaitable[Reply]]


class Webhook(msgspec.Struct):
    url: str


class Asked(msgspec.Struct):
    """The body of a PUT."""

    type: str
    pattern: str | None = None
    streams: list[str] = []
    webhook: Webhook | None = None
    wake_stream: str | None = None
    lease_ttl_ms: int = LEASE_MS_DEFAULT
    description: str | None = None


class AskedStreams(msgspec.Struct):
    streams: list[str]


_ASKED = msgspec.json.Decoder(Asked)
_ASKED_STREAMS = msgspec.json.Decoder(AskedStreams)


def in_capitals(handler: Handler) -> Handler:
    """Spell refusals as the protocol of subscriptions does."""

    @wraps(handler)
    async def answer(request: Request, context: Context) -> Reply:
        try:
            return await handler(request, context)
        except TopicsError as error:
            error.code = _OWN_CODES.get(error.code, error.code)
            raise

    return answer


def place_of(request: Request, context: Context) -> Place:
    """The mount that a request came by, as its client sees it."""
    mount = "/v1/stream" if is_v1(request) else ""
    return Place(public_url(request, context) + mount, spelling_of(request, context))


def id_of(request: Request) -> str:
    found = request.params["id"]
    if len(found.encode(errors="replace")) > ID_BYTES_MAX or not found.isprintable():
        raise errors.invalid_request(f"an id has 1 to {ID_BYTES_MAX} printable bytes", field="id")
    return found


def allow_of(request: Request) -> tuple[str, ...]:
    return () if request.key is None else request.key.prefixes


def spell(position: tuple[int, int] | None, spelling: str) -> str:
    """A position as text; what is before the first entry of any life is `-1`."""
    if position is None or position == (0, 0):
        return "-1"
    return build_offset(Position._make(position), spelling)


def describe_link(link: LinkedStream, spelling: str) -> dict[str, Any]:
    """A stream as a wake names it."""
    return {
        "path": link.path,
        "link_type": link.link_type,
        "acked_offset": spell(link.acked, spelling),
        "tail_offset": spell(link.tail, spelling),
        "has_pending": link.has_pending,
    }


@in_capitals
async def put_subscription(request: Request, context: Context) -> Reply:
    """201 for a new one, 200 for the same one, 409 for another one of that id."""
    asked = body.decode_text(_ASKED, request.body, ("pattern", "streams", "description"))
    config = _normalize(asked, request)
    place = place_of(request, context)
    command = PutSubscription(id_of(request), config, place, allow_of(request))
    context.check_writable()
    found = await context.port.submit(command)
    assert isinstance(found, SubscriptionFound)
    return _describe(201 if found.created else 200, found, place)


@in_capitals
async def get_subscription(request: Request, context: Context) -> Reply:
    context.check_writable()
    found = await context.port.submit(GetSubscription(id_of(request), allow_of(request)))
    assert isinstance(found, SubscriptionFound)
    return _describe(200, found, place_of(request, context))


@in_capitals
async def delete_subscription(request: Request, context: Context) -> Reply:
    context.check_writable()
    await context.port.submit(DeleteSubscription(id_of(request), allow_of(request)))
    return Reply(204, b"")


@in_capitals
async def post_streams(request: Request, context: Context) -> Reply:
    asked = body.decode_text(_ASKED_STREAMS, request.body, ("streams",))
    added = _check_streams(asked.streams, request)
    context.check_writable()
    await context.port.submit(LinkStreams(id_of(request), add=added, allow=allow_of(request)))
    return Reply(204, b"")


@in_capitals
async def delete_link(request: Request, context: Context) -> Reply:
    path = (request.params["path"],)
    context.check_writable()
    await context.port.submit(LinkStreams(id_of(request), remove=path, allow=allow_of(request)))
    return Reply(204, b"")


async def get_jwks(request: Request, context: Context) -> Reply:
    context.check_writable()
    key = await context.port.submit(GetSigningKey())
    assert isinstance(key, SigningKey)
    content = encode({"keys": [get_signer(key.seed).jwk()]})
    return Reply(200, content, (("cache-control", "public, max-age=300"),), JWKS_TYPE)


def _normalize(asked: Asked, request: Request) -> SubscriptionConfig:
    """Check a configuration and bring it into the form that is compared."""
    if asked.type not in (WEBHOOK, PULL):
        raise errors.invalid_request("type is webhook or pull-wake", field="type")
    if not asked.pattern and not asked.streams:
        raise errors.invalid_request("pattern or streams is missing", field="pattern")
    if not LEASE_MS_MIN <= asked.lease_ttl_ms <= LEASE_MS_MAX:
        raise errors.invalid_request(
            f"lease_ttl_ms is {LEASE_MS_MIN} to {LEASE_MS_MAX}", field="lease_ttl_ms"
        )
    if len((asked.description or "").encode()) > DESCRIPTION_BYTES_MAX:
        raise errors.invalid_request("description is too long", field="description")
    return SubscriptionConfig(
        type=asked.type,
        pattern=_check_pattern(asked.pattern, request),
        streams=_check_streams(asked.streams, request),
        webhook_url=_check_webhook(asked),
        wake_stream=_check_wake_stream(asked, request),
        lease_ttl_ms=asked.lease_ttl_ms,
        description=asked.description,
    )


def _check_pattern(pattern: str | None, request: Request) -> str | None:
    if not pattern:
        return None
    found = pattern.removeprefix("/")
    # Stars stand for characters that names may have.
    if not names.is_stream_name(found.replace("*", "x")):
        raise errors.invalid_request("pattern matches no stream name", field="pattern")
    auth.require_name(request.key, literal_prefix(found))
    return found


def _check_streams(streams: list[str], request: Request) -> tuple[str, ...]:
    if len(streams) > STREAMS_MAX:
        raise errors.invalid_request(f"at most {STREAMS_MAX} streams at once", field="streams")
    found = {names.check_stream_name(each.removeprefix("/")) for each in streams}
    for name in found:
        auth.require_name(request.key, name)
    return tuple(sorted(found))


def _check_webhook(asked: Asked) -> str | None:
    if asked.type != WEBHOOK:
        if asked.webhook is not None:
            raise errors.invalid_request("webhook is for type webhook", field="webhook")
        return None
    if asked.webhook is None:
        raise errors.invalid_request("webhook.url is missing", field="webhook.url")
    if parse_target(asked.webhook.url) is None:
        raise errors.webhook_url_rejected(asked.webhook.url)
    return asked.webhook.url


def _check_wake_stream(asked: Asked, request: Request) -> str | None:
    if asked.type != PULL:
        if asked.wake_stream is not None:
            raise errors.invalid_request("wake_stream is for type pull-wake", field="wake_stream")
        return None
    if asked.wake_stream is None:
        raise errors.invalid_request("wake_stream is missing", field="wake_stream")
    name = names.check_stream_name(asked.wake_stream.removeprefix("/"))
    auth.require_name(request.key, name)
    return name


def _describe(status: int, found: SubscriptionFound, place: Place) -> Reply:
    config = found.config
    links = [
        {
            "path": each.path,
            "link_type": each.link_type,
            "acked_offset": spell(each.acked, place.spelling),
        }
        for each in found.links
    ]
    content: dict[str, Any] = {
        "id": found.id,
        "subscription_id": found.id,
        "type": config.type,
        "pattern": config.pattern,
        "streams": links,
        "lease_ttl_ms": config.lease_ttl_ms,
        "created_at": build_time(found.created_ts),
        "status": "active",
        "description": config.description,
    }
    if config.webhook_url is not None:
        signing = {
            "alg": "ed25519",
            "kid": get_signer(found.seed).kid,
            "jwks_url": f"{place.url}/__ds/jwks.json",
        }
        content["webhook"] = {"url": config.webhook_url, "signing": signing}
    if config.wake_stream is not None:
        content["wake_stream"] = config.wake_stream
    return Reply(status, encode(content), _NO_STORE)
