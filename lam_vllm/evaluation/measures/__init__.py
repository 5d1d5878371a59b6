"""What a measure says of rows, lines or embeddings; each module has one."""
