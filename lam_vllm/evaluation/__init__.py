"""Recorded agent runs: reading them, replaying them, and measuring what a compaction keeps of them."""
