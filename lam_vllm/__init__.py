"""lam-vllm: repeated tool output becomes a short reference before it is prefilled."""

from lam_vllm.compactor import Compactor
from lam_vllm.config import CompactorConfig, load_config, make_config
from lam_vllm.errors import EncoderError, InputFileError, LamError, MissingExtraError, OptionError
from lam_vllm.prefix import prefix_breaks
from lam_vllm.reconstruct import ReconstructionError, look_up, reconstruct
from lam_vllm.types import Compaction, Decision, Report

__version__ = "0.1.0"

__all__ = [
    "Compaction",
    "Compactor",
    "CompactorConfig",
    "Decision",
    "EncoderError",
    "InputFileError",
    "LamError",
    "MissingExtraError",
    "OptionError",
    "ReconstructionError",
    "Report",
    "load_config",
    "look_up",
    "make_config",
    "prefix_breaks",
    "reconstruct",
]
