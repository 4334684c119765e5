"""API keys: the entry syntax, look-ups, and secrets that never show."""

from __future__ import annotations

import hashlib
import hmac
import pickle

import pytest

from topicsd.model import keys
from topicsd.model.keys import ALL_SCOPES, Key, KeyRing


def only(text: str) -> Key:
    (key,) = KeyRing.parse(text)
    return key


@pytest.mark.parametrize(
    ("entry", "scopes", "prefixes"),
    [
        ("k", ALL_SCOPES, ()),
        ("k:", ALL_SCOPES, ()),
        ("k::", ALL_SCOPES, ()),
        ("k:read", {"read"}, ()),
        ("k:r", {"read"}, ()),
        ("k:w", {"write"}, ()),
        ("k:d", {"delete"}, ()),
        ("k:a", {"admin"}, ()),
        ("k:rw", {"read", "write"}, ()),
        ("k:rw+d", {"read", "write", "delete"}, ()),
        ("k:read+write+delete+admin", ALL_SCOPES, ()),
        ("k: r + w ", {"read", "write"}, ()),
        ("k:read:tenant42:", {"read"}, ("tenant42:",)),
        ("k::tenant42:|shared.", ALL_SCOPES, ("tenant42:", "shared.")),
        ("k:w:a:b:c", {"write"}, ("a:b:c",)),
    ],
)
def test_an_entry_reads_as_the_contract_says(
    entry: str, scopes: set[str], prefixes: tuple[str, ...]
) -> None:
    """API 0.2: key, scopes and prefixes; empty fields mean all."""
    key = only(entry)
    assert (key.scopes, key.prefixes) == (frozenset(scopes), prefixes)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "entry 1 has an empty key"),
        ("a,", "entry 2 has an empty key"),
        ("a,,b", "entry 2 has an empty key"),
        (":read", "entry 1 has an empty key"),
        ("a,b:reed", "entry 2 has an unknown scope"),
        ("a:READ", "entry 1 has an unknown scope"),
        ("a:r+", "entry 1 has an unknown scope"),
        ("a:r w", "entry 1 has an unknown scope"),
        ("a:wr", "entry 1 has an unknown scope"),
        ("a,b,a", "entry 3 repeats an earlier key"),
        ("a:r,a:w", "entry 2 repeats an earlier key"),
        ("a::x|", "entry 1 has an empty name prefix"),
        ("a::|x", "entry 1 has an empty name prefix"),
    ],
)
def test_a_malformed_entry_is_refused_by_number(text: str, message: str) -> None:
    """Nothing is granted by guessing."""
    with pytest.raises(ValueError, match=message):
        KeyRing.parse(text)


@pytest.mark.parametrize("text", ["hunter2:oops", "hunter2,hunter2", "hunter2:r:|", "a,hunter2:x"])
def test_a_refusal_never_repeats_the_entry(text: str) -> None:
    """The message holds no part of a secret, not even one mistaken for a scope."""
    with pytest.raises(ValueError, match="entry") as refused:
        KeyRing.parse(text)
    assert "hunter2" not in str(refused.value)
    assert "oops" not in str(refused.value)


def test_entries_are_trimmed() -> None:
    """Spaces around commas do not become part of a key."""
    ring = KeyRing.parse(" one , two:r ")
    assert ring.find("one") is not None
    assert ring.find("two") is not None
    assert ring.find(" one") is None


def test_find_returns_the_key_of_the_token_or_none() -> None:
    """A token matches its own key only."""
    ring = KeyRing.parse("one:r,two:w")
    found = ring.find("two")
    assert found is not None
    assert found.scopes == {"write"}
    assert ring.find("three") is None
    assert ring.find("") is None
    assert ring.find("tw") is None


@pytest.mark.parametrize("token", ["\udcff\udc80", "\ud800", "emoji \U0001f511", "a\0b"])
def test_any_token_can_be_looked_up(token: str) -> None:
    """Bytes that are not UTF-8 arrive as surrogates and simply match nothing."""
    assert KeyRing.parse("one").find(token) is None


def test_a_look_up_compares_every_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """No early exit, whichever key matches."""
    compared = []
    genuine = hmac.compare_digest

    def compare(left: bytes, right: bytes) -> bool:
        compared.append(left)
        return genuine(left, right)

    monkeypatch.setattr(keys.hmac, "compare_digest", compare)
    ring = KeyRing.parse("one,two,three")
    for token in ("one", "three", "absent"):
        compared.clear()
        ring.find(token)
        assert len(compared) == 3


def test_a_key_knows_its_scopes_and_names() -> None:
    """`may` and `allows` are the whole authorization."""
    key = only("k:r:tenant42:|shared.")
    assert key.may("read")
    assert not key.may("write")
    assert key.allows("tenant42:orders")
    assert key.allows("shared.x")
    assert not key.allows("tenant4")
    assert not key.allows("Tenant42:orders")
    assert only("k").allows("anything")


def test_an_id_is_a_short_digest() -> None:
    """Logs can name a key without giving it away."""
    assert only("secret").id == hashlib.sha256(b"secret").hexdigest()[:12]


def test_no_plaintext_is_kept() -> None:
    """Neither repr nor pickle of a ring contains a key."""
    ring = KeyRing.parse("hunter2:r:tenant42:")
    assert "hunter2" not in repr(ring) + repr(list(ring))
    assert b"hunter2" not in pickle.dumps(ring)


def test_a_ring_survives_pickling() -> None:
    """Workers may be started by spawn as well as by fork."""
    ring = KeyRing.parse("one:r:a:|b:,two")
    again = pickle.loads(pickle.dumps(ring))
    assert again == ring
    assert again.find("two") is not None


def test_an_empty_ring_is_falsy() -> None:
    """No keys means that authentication is off."""
    assert not KeyRing()
    assert KeyRing.parse("a")
