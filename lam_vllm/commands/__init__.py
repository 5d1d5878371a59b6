"""The commands of `lam-vllm`, one module each."""
