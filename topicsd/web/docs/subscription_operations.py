"""The operations of subscriptions to streams; their bodies follow the protocol's own shapes."""

from __future__ import annotations

from topicsd.web.docs.operation import Operation

_JSON = "application/json"
_ERRORS = ("SUBSCRIPTION_NOT_FOUND", "INVALID_REQUEST")
_CLAIM = '{"wake_id":"w_1","generation":1,"acks":[{"stream":"chat/42","offset":"-1"}],"done":true}'
_SUBSCRIPTION = '{"type":"pull-wake","pattern":"chat/*","wake_stream":"wakes"}'

PUT = Operation(
    "Follows streams by `pattern` (`*` is one segment, `**` any number) or by `streams`, and "
    "wakes by `webhook.url` or by an entry in `wake_stream`. Repeating the request is 200.",
    requests={_JSON: _SUBSCRIPTION},
    texts={_JSON: _SUBSCRIPTION},
    statuses={"201": "The subscription was created"},
    errors=("INVALID_REQUEST", "WEBHOOK_URL_REJECTED", "SUBSCRIPTION_ALREADY_EXISTS"),
)
GET = Operation(
    "The configuration of a subscription, and how far each of its streams is acknowledged.",
    texts={_JSON: _SUBSCRIPTION},
    errors=_ERRORS,
)
DELETE = Operation(
    "Ends a subscription; what it followed is not touched.",
    texts={_JSON: ""},
    statuses={"204": "Ended"},
    errors=_ERRORS,
)
LINK = Operation(
    "Follows more streams, from their tails on. Repeating it changes nothing.",
    requests={_JSON: '{"streams":["chat/42"]}'},
    texts={_JSON: ""},
    statuses={"204": "Followed"},
    errors=_ERRORS,
)
UNLINK = Operation(
    "Stops following a stream that was named; its path is percent-encoded.",
    texts={_JSON: ""},
    statuses={"204": "Not followed any more"},
    errors=_ERRORS,
)
CLAIM = Operation(
    "Leases what is pending to a worker, with a token for acknowledgements.",
    requests={_JSON: '{"worker":"w1"}'},
    texts={_JSON: '{"wake_id":"w_1","generation":1,"token":"t","streams":[]}'},
    errors=(*_ERRORS, "ALREADY_CLAIMED", "NO_PENDING_WORK"),
)
ACK = Operation(
    "Acknowledges offsets by the token of a claim or a webhook; without `done` it prolongs the "
    "lease. An older generation is fenced off.",
    requests={_JSON: _CLAIM},
    texts={_JSON: '{"ok":true,"next_wake":false}'},
    errors=(*_ERRORS, "FENCED", "INVALID_OFFSET", "TOKEN_INVALID"),
)
RELEASE = Operation(
    "Gives a claim back before its lease is over.",
    requests={_JSON: '{"wake_id":"w_1","generation":1}'},
    texts={_JSON: ""},
    statuses={"204": "Given back"},
    errors=(*_ERRORS, "FENCED", "TOKEN_INVALID"),
)
JWKS = Operation(
    "The public key of webhook signatures, as a JSON Web Key Set.",
    texts={"application/jwk-set+json": '{"keys":[]}'},
)
