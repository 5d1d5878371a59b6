"""Array operations with checked shapes; `reference` is the definition of each."""
