"""Makes the basis of MiniLM's pruned search, and says max|x|: from every window of the recorded runs.

Fixed windows of 510 wordpieces; embeddings come from the file of remembered.py. Writes configs/encoders/minilm.npy and
ends in one line of JSON. How far such a basis serves runs it was not made from is in search.py.
"""

from __future__ import annotations

import json

import numpy as np
from corpus_data import ROOT, corpus_runs
from remembered import RememberedEncoder

from lam_vllm.encoders import load_encoder
from lam_vllm.evaluation.baselines.windowed import WindowEmbeddings
from lam_vllm.search.basis import principal_basis

FILE = ROOT / "configs/encoders/minilm.npy"


def main() -> None:
    windows = WindowEmbeddings(RememberedEncoder(load_encoder("minilm")))
    rows = np.concatenate([windows.rows(run) for run in corpus_runs()])
    basis = principal_basis(rows)
    np.save(FILE, basis)
    within = np.cumsum(((rows @ basis.T) ** 2).mean(axis=0))
    for dimensions in (1, 16, len(basis)):
        print(f"{dimensions} directions hold {100 * within[dimensions - 1]:.1f}% of the squared length")
    print(json.dumps({"windows": len(rows), "max_abs": round(float(np.abs(rows).max()), 6), "file": FILE.name}))


if __name__ == "__main__":
    main()
