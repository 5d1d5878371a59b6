"""Removal of the paper's two layers on the recorded SWE-smith runs: L0 alone, L1 alone, and both in either order.

Tokens are the encoder's wordpieces, over all tool observations of the eight `swesmith_samples` runs together. L1 cuts
each observation into fixed windows and drops one that lies within delta of a retained window of the same run; net
charges 14 tokens for each dropped window. L0 drops lines that are byte-equal to an earlier kept line of the run.
Embeddings of equal texts are computed once. Prints a row for each run at t = 0.95, one for each t over all runs, and
the same figures as one line of JSON.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from functools import reduce
from operator import add

from corpus_data import corpus_runs, machine, observed

from lam_vllm.encoders import load_encoder
from lam_vllm.evaluation.measures.ecr import THRESHOLDS_COS
from lam_vllm.evaluation.measures.layers import STUB_TOKENS, LayerOrders, layer_orders

SOURCE = "swesmith_samples"
THRESHOLD_COS = 0.95


def shares(orders: LayerOrders) -> dict[str, float]:
    """Removed share of observation tokens, in percent."""
    removed = {
        "l0": orders.l0,
        "l1_gross": orders.l1,
        "l1_net": orders.l1_net,
        "l1_l0_gross": orders.l1_then_l0,
        "l1_l0_net": orders.l1_then_l0_net,
        "l0_l1_gross": orders.l0_then_l1,
        "l0_l1_net": orders.l0_then_l1_net,
        "independence": orders.independence_estimate,
    }
    return {name: round(100 * share, 2) for name, share in removed.items()}


def print_row(label: str, orders: LayerOrders) -> None:
    figures = " ".join(f"{share:>11.2f}%" for share in shares(orders).values())
    print(f"{label:>7} {orders.observation_tokens:>8} {orders.windows:>8} {orders.dropped_windows:>8} {figures}")


def main() -> None:
    encoder, began = load_encoder("minilm", THRESHOLD_COS), time.perf_counter()
    runs = [layer_orders(observed(run.messages), encoder, THRESHOLDS_COS) for run in corpus_runs([SOURCE])]
    totals = {threshold: reduce(add, [run[threshold] for run in runs]) for threshold in THRESHOLDS_COS}
    total = totals[THRESHOLD_COS]
    headings = " ".join(f"{name:>12}" for name in shares(total))
    print(f"{machine()}\n{'':>7} {'tokens':>8} {'windows':>8} {'dropped':>8} {headings}")
    for number, run in enumerate(runs, start=1):
        print_row(f"run {number}", run[THRESHOLD_COS])
    for threshold, orders in totals.items():
        print_row(f"t={threshold:g}", orders)
    figures = {
        "machine": machine(),
        "source": SOURCE,
        "runs": len(runs),
        "threshold_cos": THRESHOLD_COS,
        "stub_tokens": STUB_TOKENS,
        **asdict(total),
        **shares(total),
        "by_threshold": {f"{threshold:g}": shares(orders) for threshold, orders in totals.items()},
        "encoder": encoder.name,
        "seconds": round(time.perf_counter() - began, 1),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
