"""One module for each form in which agents leave their runs."""
