"""A real vLLM, measured as `lam-vllm calibrate device --url` does."""

from __future__ import annotations

import json
from pathlib import Path

from lam_vllm.commands.calibrate_device import Options, measure_engine, with_engine
from lam_vllm.performance_model.engine import Engine
from lam_vllm.performance_model.presets import GB10, find_device
from lam_vllm.performance_model.schedules import no_compaction
from lam_vllm.performance_model.workload import steady_run
from tests.server.conftest import BLOCK_TOKENS, LiveServer

LONGEST = 320


def test_a_running_vllm_becomes_a_device_that_the_model_takes(plain: LiveServer, tmp_path: Path) -> None:
    model, timings = measure_engine(Options(url=plain.url, longest_tokens=LONGEST, rounds=1))
    assert model.parameters == 134_515_008  # the server told where its config.json lies
    assert all(each.cached_tokens % BLOCK_TOKENS == 0 for each in timings)
    most = max(each.context_tokens for each in timings)
    assert 0.7 * LONGEST < most <= LONGEST
    longest = [each.uncached_tokens for each in timings if each.context_tokens > 0.9 * most]
    assert min(longest) < 0.4 * most  # behind what the turn before had cached
    assert max(longest) > 0.9 * most  # all of it, although its text was sent before

    path = tmp_path / "mine.json"
    path.write_text(json.dumps(with_engine(GB10, model, timings).json()), encoding="utf-8")
    device = find_device(str(path))
    assert device.served is not None and device.served.decode_fixed_seconds > 0
    (turn,) = no_compaction(Engine(device, model), steady_run(1, 100, 10))
    assert turn.total > 0
