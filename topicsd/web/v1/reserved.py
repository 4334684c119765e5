"""The rows of the route table below `__ds`, for both mounts of streams."""

from __future__ import annotations

from topicsd.web.docs import subscription_operations as described
from topicsd.web.route import PUBLIC, TOKEN, Route
from topicsd.web.v1 import subscriptions, wakes

_ID = "/__ds/subscriptions/:id"
_ROWS = (
    ("PUT", _ID, "admin", subscriptions.put_subscription, described.PUT),
    ("GET", _ID, "admin", subscriptions.get_subscription, described.GET),
    ("DELETE", _ID, "admin", subscriptions.delete_subscription, described.DELETE),
    ("POST", f"{_ID}/streams", "admin", subscriptions.post_streams, described.LINK),
    ("DELETE", f"{_ID}/streams/:path", "admin", subscriptions.delete_link, described.UNLINK),
    ("POST", f"{_ID}/claim", "admin", wakes.post_claim, described.CLAIM),
    # These two are for who holds the token of a claim, the third for that of a webhook.
    ("POST", f"{_ID}/ack", TOKEN, wakes.post_ack, described.ACK),
    ("POST", f"{_ID}/release", TOKEN, wakes.post_release, described.RELEASE),
    ("POST", f"{_ID}/callback", TOKEN, wakes.post_ack, described.ACK),
    ("GET", "/__ds/jwks.json", PUBLIC, subscriptions.get_jwks, described.JWKS),
)
_SUMMARIES = (
    "subscribe to streams",
    "one subscription and how far it got",
    "end a subscription",
    "follow more streams",
    "unfollow a stream",
    "lease the work of a subscription",
    "acknowledge by the token of a claim",
    "give a claim back",
    "acknowledge by the token of a webhook",
    "the key that signs webhooks",
)

RESERVED_ROUTES: tuple[Route, ...] = tuple(
    Route(method, mount + path, scope, handler, f"{summary}{at}", operation)
    for mount, at in (("/v1/stream", ""), ("", ", for streams at paths of their own"))
    for (method, path, scope, handler, operation), summary in zip(_ROWS, _SUMMARIES, strict=True)
)
