"""Keyed hashes: whoever lacks the key can neither make one nor tell from one what it was made of."""

from __future__ import annotations

import hashlib
import hmac

DIGEST_BYTES = 16


def keyed_hash(key: bytes, *parts: str | bytes) -> bytes:
    """Hash of the parts, each told apart from its neighbours; the first one should name what the hash is for."""
    hashed = hashlib.blake2b(key=key, digest_size=DIGEST_BYTES)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        hashed.update(len(data).to_bytes(8, "little"))
        hashed.update(data)
    return hashed.digest()


def group_of(key: bytes, salt: str) -> bytes:
    """The group of a tenant's rows, whatever their kind."""
    return keyed_hash(key, "group", salt)


def equal(one: bytes, other: bytes) -> bool:
    """Whether two hashes are the same, in a time that does not depend on where they differ."""
    return hmac.compare_digest(one, other)
