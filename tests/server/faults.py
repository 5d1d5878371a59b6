"""Faults put into a server: by a general plugin, which vLLM loads into each of its processes, or into the worker."""

from __future__ import annotations

from pathlib import Path

FAILING_TEXT = "this message makes the compactor fail"

_FAILING_COMPACTOR = f"""
def register():
    from lam_vllm.compactor import Compactor

    if hasattr(Compactor, "unfailing"):
        return
    Compactor.unfailing = Compactor.compact

    def compact(self, messages, **options):
        if any(message.get("content") == {FAILING_TEXT!r} for message in messages):
            raise RuntimeError("a fault of the test")
        return self.unfailing(messages, **options)

    Compactor.compact = compact
"""
_MISSING_METHOD = """
def register():
    from vllm.renderers.online_renderer import OnlineRenderer

    if hasattr(OnlineRenderer, "preprocess_chat"):
        del OnlineRenderer.preprocess_chat
"""
HANG_VARIABLE = "LAM_TEST_HANG"
"""Names a file that holds the id of a worker process: that worker's next call of its encoder takes it away and does not
end."""

# Python runs a module of this name when it starts; only the worker process, which loads no plugin of vLLM, is touched.
_HANGING_ENCODER = f"""
import os, sys

if "lam_vllm.worker" in sys.orig_argv:
    from pathlib import Path
    from threading import Event

    from lam_vllm.encoders.sentence_transformer import SentenceTransformerEncoder

    unhanging = SentenceTransformerEncoder._encode

    def _encode(self, texts, precision):
        hang = Path(os.environ["{HANG_VARIABLE}"])
        if not hang.exists() or hang.read_text() != str(os.getpid()):
            return unhanging(self, texts, precision)
        hang.unlink()
        Event().wait()

    SentenceTransformerEncoder._encode = _encode
"""


def install_faults(folder: Path) -> Path:
    """A folder for the import path whose plugin makes the compactor fail on `FAILING_TEXT`, and on that alone."""
    return _install(folder, "lam_test_failing_compactor", _FAILING_COMPACTOR)


def install_missing_method(folder: Path) -> Path:
    """A folder for the import path whose plugin takes the method away that lam-vllm hooks."""
    return _install(folder, "lam_test_missing_method", _MISSING_METHOD)


def install_hanging_encoder(folder: Path) -> Path:
    """A folder for the import path that makes a worker's encoder hang when the file of `HANG_VARIABLE` names it."""
    folder.mkdir(parents=True)
    (folder / "sitecustomize.py").write_text(_HANGING_ENCODER)
    return folder


def _install(folder: Path, name: str, source: str) -> Path:
    metadata = folder / f"{name}-1.dist-info"
    metadata.mkdir(parents=True)
    (folder / f"{name}.py").write_text(source)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text(f"[vllm.general_plugins]\n{name} = {name}:register\n")
    return folder
