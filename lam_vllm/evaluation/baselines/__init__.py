"""What the product is compared with: every method, and its own profiles, behind one protocol with one accounting."""

from lam_vllm.evaluation.baselines.families import Family, Inputs, family_names, grid_of, make_family
from lam_vllm.evaluation.baselines.windowed import WindowEmbeddings

__all__ = ["Family", "Inputs", "WindowEmbeddings", "family_names", "grid_of", "make_family"]
