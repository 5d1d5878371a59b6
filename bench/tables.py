"""Writes the tables of README.md anew from the results that are kept beside it."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import Any

import baseline_tables
import bge_base
import certificates
import codec_tables
import duplicates
import ecr_tables
import evidence_tables
import fuzz_figures
import lookup_figures
import schedules_tables
import search_tables
import shared_batches
import soak
import turn_latency
import two_pass_figures
import two_pass_speed
from heartbeat import IDLE, REPEATS
from removal_rows import RESULTS, RemovalRow
from removal_table import print_table, table
from serving_tables import serving_setups, serving_table
from stored import HERE, markdown, stored

from lam_vllm.evaluation.rows import read_rows

README = HERE / "README.md"


def speed() -> str:
    figures = stored("compactor")
    lines = {**figures["sources"], "all": figures}
    return markdown(
        ("source", "tool output", "all messages", "exact", "counting", "recognise"),
        (
            (
                source,
                f"{line['new_tokens']:,.0f}",
                f"{line['history_tokens']:,.0f}",
                f"{line['exact_cpu_ms_per_10k_tokens']:.2f}",
                f"{line['token_count_ms_per_10k_tokens']:.2f}",
                f"{line['recognise_ms_per_10k_tokens']:.3f}",
            )
            for source, line in lines.items()
        ),
    )


def late_turn() -> str:
    figures = stored("compactor")
    return markdown(
        ("profile, turn", "lines", "windows", "encoder calls", "CPU ms", "without recognising"),
        (
            (
                f"{profile}, {number}",
                *(str(turn[name]) for name in ("lines", "windows", "encoder_calls")),
                *(f"{1e3 * turn[name]:.2f}" for name in ("cpu_seconds", "new_cpu_seconds")),
            )
            for profile in ("exact", "guarded")
            for number in (10, 100)
            for turn in [figures[f"{profile}_turns"][f"turn{number}"]]
        ),
    )


def keys() -> str:
    figures = stored("compactor")
    return markdown(
        ("key", "value"),
        ((f"`{name}`", str(value)) for name, value in figures.items() if isinstance(value, float)),
    )


def removal() -> str:
    with redirect_stdout(io.StringIO()) as printed:
        print_table(table(read_rows(RESULTS, RemovalRow)))
    return printed.getvalue().strip()


def setup() -> str:
    return "\n".join(sorted({row.setup for row in read_rows(RESULTS, RemovalRow)}))


def heartbeat() -> str:
    """The longest stall of another thread, by what one compacts meanwhile."""
    stalls = {name: stall for name, stall in stored("heartbeat").items() if isinstance(stall, dict)}
    return markdown(
        ("workload", "compaction ms", "longest stall ms", f"worst of {REPEATS}"),
        (
            (
                name,
                "-" if name == IDLE else f"{stall['work_ms']:.1f}",
                *(f"{stall[key]:.2f}" for key in ("longest_ms", "worst_ms")),
            )
            for name, stall in stalls.items()
        ),
    )


def paper() -> str:
    """The two layers in both orders, and what independence would predict, at every t (the paper's table 12)."""
    figures = stored("paper_numbers")
    shares = ("l0", "l1_gross", "l1_net", "l1_l0_gross", "l1_l0_net", "l0_l1_gross", "l0_l1_net", "independence")
    return markdown(
        ("t", "L0", "L1", "L1 net", "L1, L0", "L1, L0 net", "L0, L1", "L0, L1 net", "if independent"),
        ((t, *(f"{line[name]:.2f}%" for name in shares)) for t, line in figures["by_threshold"].items()),
    )


def two_pass_ways() -> str:
    """What bench/two_pass.py found, way by way."""
    with redirect_stdout(io.StringIO()) as printed:
        two_pass_figures.print_tables(stored("two_pass"))
    return printed.getvalue().strip()


def of(name: str, make: Callable[[dict[str, Any]], str]) -> Callable[[], str]:
    """One table of what bench/NAME.py found."""
    return lambda: make(stored(name))


def soaked() -> str:
    """What bench/soak.py found; JSON has made texts of the percents."""
    figures = stored("soak")
    figures["resident_mb"] = {int(percent): megabytes for percent, megabytes in figures["resident_mb"].items()}
    return soak.table(figures)


def setups() -> str:
    """Every arm of the runs of bench/serving.py that are kept."""
    return serving_setups([stored(file.stem) for file in sorted((HERE / "results").glob("serving*.json"))])


def main() -> None:
    makers: dict[str, Callable[[], str]] = {
        "machine": setup,
        "speed": speed,
        "late_turn": late_turn,
        "two_pass": lambda: two_pass_speed.table(stored("compactor")["two_pass"]),
        "shared_batches": lambda: shared_batches.table(stored("compactor")),
        "bge_base": lambda: bge_base.table(stored("compactor")),
        "turns": lambda: turn_latency.table(stored("compactor")),
        "encoder_rates": lambda: turn_latency.encoder_rates(stored("compactor")),
        "keys": keys,
        "removal": removal,
        "heartbeat": heartbeat,
        "duplicates": lambda: duplicates.table(stored("duplicates")),
        "baselines": baseline_tables.baselines,
        "left_out": baseline_tables.left_out,
        "ratios": baseline_tables.ratios,
        "sizes": baseline_tables.sizes,
        "ecr": ecr_tables.ecr,
        "floors": ecr_tables.floors,
        "outcomes": ecr_tables.outcomes,
        "paper": paper,
        "embedding_space": evidence_tables.embedding_space,
        "margins": evidence_tables.margins,
        "relations": evidence_tables.relations,
        "encoders": evidence_tables.encoders,
        "determinism": evidence_tables.determinism,
        "two_pass_ways": two_pass_ways,
        "semdedup_seeds": evidence_tables.semdedup_seeds,
        "rereads": evidence_tables.rereads,
        "references": lambda: evidence_tables.wordings("references"),
        "aliases": lambda: evidence_tables.wordings("aliases"),
        "serving": lambda: serving_table(stored("serving")),
        "serving_setups": setups,
        **{f"schedule_{name}": of("schedules", make) for name, make in schedules_tables.MAKERS.items()},
        **{f"codec_{name}": of("codec", make) for name, make in codec_tables.MAKERS.items()},
        "certificates": of("certificates", certificates.tables),
        "search_grid": search_tables.grid,
        "search_drops": search_tables.drops,
        "search_left_out": search_tables.left_out,
        "search_growth": search_tables.growth,
        "search_equal": search_tables.equal,
        "fuzz": lambda: fuzz_figures.table(stored("fuzz")["parts"]),
        "soak": soaked,
        "lookups": lambda: lookup_figures.table(stored("lookup_timing")),
        "lookup_differences": lambda: lookup_figures.differences(stored("lookup_timing")),
    }
    text = README.read_text(encoding="utf-8")
    for name, make in makers.items():
        before, begin, rest = text.partition(f"<!-- {name} -->\n")
        _, end, after = rest.partition(f"<!-- /{name} -->")
        assert end, f"README.md has no place for {name}"
        text = f"{before}{begin}{make()}\n{end}{after}"
    README.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
