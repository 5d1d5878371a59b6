"""A process of its own for the encoder, and for the compactions that need one."""

from lam_vllm.worker.client import WorkerClient
from lam_vllm.worker.compactor import WorkerCompactor
from lam_vllm.worker.jobs import EncoderFacts, Setup

__all__ = ["EncoderFacts", "Setup", "WorkerClient", "WorkerCompactor"]
