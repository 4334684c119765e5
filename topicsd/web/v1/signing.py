"""The Ed25519 key that webhooks are signed with, and how its public half is published."""

from __future__ import annotations

import base64
import hashlib
from functools import lru_cache
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_KID_CHARACTERS = 22


def encode_base64url(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


class Signer:
    """One signing key."""

    def __init__(self, seed: bytes) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(seed)
        public = self._key.public_key().public_bytes_raw()
        self._x = encode_base64url(public)
        self.kid = "ds_" + encode_base64url(hashlib.sha256(public).digest())[:_KID_CHARACTERS]

    def jwk(self) -> dict[str, Any]:
        return {
            "kty": "OKP",
            "crv": "Ed25519",
            "alg": "EdDSA",
            "use": "sig",
            "kid": self.kid,
            "x": self._x,
        }

    def sign(self, body: bytes, unix_s: int) -> str:
        """The value of `Webhook-Signature` for a body."""
        signature = self._key.sign(b"%d.%b" % (unix_s, body))
        return f"t={unix_s},kid={self.kid},ed25519={encode_base64url(signature)}"


@lru_cache(4)
def get_signer(seed: bytes) -> Signer:
    return Signer(seed)
