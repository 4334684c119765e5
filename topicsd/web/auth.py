"""Who is asking, and may they (API 0.2): bearer tokens, scopes and name prefixes."""

from __future__ import annotations

from urllib.parse import parse_qsl

from topicsd.model import errors
from topicsd.model.keys import Key, KeyRing
from topicsd.web.request import Request

_SCHEME = "bearer"


def authenticate(request: Request, keys: KeyRing, *, in_query: bool = False) -> Key:
    """Return the key the request presents, or raise `unauthorized`.

    With `in_query` it may be in `?token=` (API 7.1), of which the first one counts.
    """
    credentials = request.header("authorization")
    if credentials is None and in_query:
        token = _find_token(request.query_string)
    else:
        scheme, _, token = (credentials or "").partition(" ")
        token = token.strip() if scheme.lower() == _SCHEME else ""
    if not token:
        raise errors.unauthorized()
    key = keys.find(token)
    if key is None:
        raise errors.unauthorized()
    return key


def _find_token(query_string: str) -> str:
    """The first token of a query, decoded as a form; what is not UTF-8 matches no key."""
    pairs = parse_qsl(query_string, keep_blank_values=True, errors="surrogateescape")
    return next((value for name, value in pairs if name == "token"), "")


def require_scope(key: Key | None, scope: str) -> None:
    """Raise `forbidden` unless the key, if there is one, carries `scope`."""
    if key is not None and not key.may(scope):
        raise errors.forbidden(f"this key lacks the {scope} scope", scope=scope)


def require_name(key: Key | None, name: str | None) -> None:
    """Raise `forbidden` unless the key, if there is one, may touch `name`, if there is one."""
    if key is not None and name is not None and not key.allows(name):
        raise errors.forbidden(f'this key may not touch "{name[:300]}"', name=name[:300])
