"""Array operations with checked shapes; `reference` is the definition of each, `cuda` does them on a GPU."""
