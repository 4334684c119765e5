"""The rows of the route table below `__ds`, for both mounts of streams."""

from __future__ import annotations

from topicsd.web.route import PUBLIC, Route
from topicsd.web.v1 import subscriptions, wakes

_ID = "/__ds/subscriptions/:id"
_ROWS = (
    ("PUT", _ID, "admin", subscriptions.put_subscription, "subscribe to streams"),
    ("GET", _ID, "admin", subscriptions.get_subscription, "one subscription and how far it got"),
    ("DELETE", _ID, "admin", subscriptions.delete_subscription, "end a subscription"),
    ("POST", f"{_ID}/streams", "admin", subscriptions.post_streams, "follow more streams"),
    ("DELETE", f"{_ID}/streams/:path", "admin", subscriptions.delete_link, "unfollow a stream"),
    ("POST", f"{_ID}/claim", "admin", wakes.post_claim, "lease the work of a subscription"),
    ("POST", f"{_ID}/ack", PUBLIC, wakes.post_ack, "acknowledge by the token of a claim"),
    ("POST", f"{_ID}/release", PUBLIC, wakes.post_release, "give a claim back"),
    ("POST", f"{_ID}/callback", PUBLIC, wakes.post_ack, "acknowledge by the token of a webhook"),
    ("GET", "/__ds/jwks.json", PUBLIC, subscriptions.get_jwks, "the key that signs webhooks"),
)

RESERVED_ROUTES: tuple[Route, ...] = tuple(
    Route(method, mount + path, scope, handler, f"{summary}{at}")
    for mount, at in (("/v1/stream", ""), ("", ", for streams at paths of their own"))
    for method, path, scope, handler, summary in _ROWS
)
