"""Small values that outlive a request: in this process, in a file of this host, or on a server of several hosts."""

from lam_vllm.stores.base import Kind, OnError, Row, Rows, StoreError, StoreSettings
from lam_vllm.stores.open import open_rows

__all__ = ["Kind", "OnError", "Row", "Rows", "StoreError", "StoreSettings", "open_rows"]
