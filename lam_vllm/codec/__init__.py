"""Embeddings as bytes: an error-bounded codec of fp32 matrices, and its lossless twin."""

from lam_vllm.codec.bounded import default_eps
from lam_vllm.codec.error import CodecError
from lam_vllm.codec.stream import decode, encode, encode_on, encode_raw
from lam_vllm.codec.wire import Header, read_header

__all__ = ["CodecError", "Header", "decode", "default_eps", "encode", "encode_on", "encode_raw", "read_header"]
