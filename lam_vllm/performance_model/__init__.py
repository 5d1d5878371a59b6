"""The paper's performance model: closed formulas over a few constants, each with its source. Pure Python."""
