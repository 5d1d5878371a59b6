"""The paper's performance model: closed formulas over a few measured constants. Pure Python."""
