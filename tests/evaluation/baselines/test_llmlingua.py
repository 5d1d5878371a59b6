"""LLMLingua-2: the real library over checkpoints of the real kinds, small and untrained, made here."""

from __future__ import annotations

from pathlib import Path

import pytest

from lam_vllm.errors import OptionError
from lam_vllm.evaluation.baselines.llmlingua import LLMLingua2
from lam_vllm.evaluation.baselines.unavailable import BaselineUnavailableError
from tests.evaluation.baselines.hand_made import count_words, results_of, run_of

WORDS = ("def", "return", "total", "of", "line", "error", "value", "12")
TEXT = "def total\nerror of line 12\nreturn value\n" * 8


def bert(folder: Path) -> Path:
    from transformers import BertConfig, BertForTokenClassification, BertTokenizerFast

    names = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS)
    tokenizer = BertTokenizerFast(vocab={name: place for place, name in enumerate(names)}, do_lower_case=False)
    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    model = BertForTokenClassification(BertConfig(vocab_size=len(names), num_labels=2, **small))
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)
    return folder


def xlm_roberta(folder: Path) -> Path:
    from transformers import XLMRobertaConfig, XLMRobertaForTokenClassification, XLMRobertaTokenizerFast

    pieces = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *((f"▁{word}", -1.0) for word in WORDS)]
    tokenizer = XLMRobertaTokenizerFast(vocab=[*pieces, ("▁", -2.0), ("<mask>", 0.0)])
    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    config = XLMRobertaConfig(vocab_size=len(tokenizer), num_labels=2, max_position_embeddings=514, **small)
    model = XLMRobertaForTokenClassification(config)
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)
    return folder


@pytest.fixture(params=[bert, xlm_roberta], ids=["bert", "xlm_roberta"], scope="module")
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    import torch

    torch.manual_seed(0)
    made: Path = request.param(tmp_path_factory.mktemp("weights"))
    return made


def test_some_words_go_and_those_that_stay_keep_their_order(checkpoint: Path) -> None:
    method = LLMLingua2("llmlingua2", str(checkpoint), 0.5, count_words)
    (short,) = results_of(method.shorten(run_of(TEXT)))
    rest = iter(TEXT.split())
    assert all(word in rest for word in short.split())  # a subsequence: `in` moves the iterator on
    assert 0 < len(short.split()) < len(TEXT.split())
    assert short.count("\n") > 0


def test_a_higher_rate_keeps_more_and_blank_texts_stay(checkpoint: Path) -> None:
    sizes = []
    for rate in (0.2, 0.8):
        blank, short = results_of(
            LLMLingua2("llmlingua2", str(checkpoint), rate, count_words).shorten(run_of(" \n", TEXT))
        )
        assert blank == " \n"
        sizes.append(len(short.split()))
    assert sizes[0] < sizes[1]


def test_absent_weights_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(BaselineUnavailableError, match="no weights 'nobody/has-this'"):
        LLMLingua2("llmlingua2", "nobody/has-this", 0.5, count_words)


def test_a_folder_that_is_no_checkpoint_is_named(tmp_path: Path) -> None:
    with pytest.raises(BaselineUnavailableError, match="config.json"):
        LLMLingua2("llmlingua2", str(tmp_path), 0.5, count_words)
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    with pytest.raises(BaselineUnavailableError, match="of type 'gpt2'; needed: xlm-roberta, bert"):
        LLMLingua2("llmlingua2", str(tmp_path), 0.5, count_words)


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_a_rate_that_is_no_share_is_refused(rate: float) -> None:
    with pytest.raises(OptionError, match="llmlingua rate"):
        LLMLingua2("llmlingua2", "any", rate, count_words)
