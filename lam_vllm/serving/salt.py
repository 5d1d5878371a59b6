"""The tenant's salt of a request, which is part of every key."""

from __future__ import annotations

import hashlib

LONGEST_SALT = 1_024
"""What vLLM's chat request takes. A longer one, which other carriers let through, would be hashed over and over."""


def salt_of(field: object, header: str | None) -> str:
    """The salt in the body's field, else that in the header; "" where there is neither. A long one becomes its hash."""
    salt = field if isinstance(field, str) else header or ""
    if len(salt) <= LONGEST_SALT:
        return salt
    return "long salt " + hashlib.sha256(salt.encode("utf-8", "surrogatepass")).hexdigest()
