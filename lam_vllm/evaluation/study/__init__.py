"""The paper's evaluation: its tables and figures, out of measures."""
