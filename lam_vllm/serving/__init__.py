"""The vLLM side: an endpoint plugin that shortens chat requests before tokenization."""
