"""Who is asking, and may they (API 0.2): bearer tokens, scopes and name prefixes."""

from __future__ import annotations

from topicsd.model import errors
from topicsd.model.keys import Key, KeyRing
from topicsd.web.request import Request

_SCHEME = "bearer"


def authenticate(request: Request, keys: KeyRing) -> Key:
    """Return the key the request presents, or raise `unauthorized`."""
    scheme, _, token = (request.header("authorization") or "").partition(" ")
    token = token.strip()
    if scheme.lower() != _SCHEME or not token:
        raise errors.unauthorized()
    key = keys.find(token)
    if key is None:
        raise errors.unauthorized()
    return key


def require_scope(key: Key | None, scope: str) -> None:
    """Raise `forbidden` unless the key, if there is one, carries `scope`."""
    if key is not None and not key.may(scope):
        raise errors.forbidden(f"this key lacks the {scope} scope", scope=scope)


def require_name(key: Key | None, name: str | None) -> None:
    """Raise `forbidden` unless the key, if there is one, may touch `name`, if there is one."""
    if key is not None and name is not None and not key.allows(name):
        raise errors.forbidden(f'this key may not touch "{name[:300]}"', name=name[:300])
