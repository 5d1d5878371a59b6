"""A run as a page on which a person sees what was removed."""
