"""Two-pass encoding against `SentenceTransformer.encode` in fp32, on the same texts.

Two passes: every window of recorded runs goes through an `EncoderPool` that remembers nothing of it, and the paper's L1
decides each, so that close pairs are encoded again canonically. The other side: one call for all texts with the
library's defaults (fp32, batches of 32, sorted by length), the model's whole 512 positions, as many threads. Both take
turns; the ratio is the median over the rounds. Afterwards the same runs are compacted once more with nothing but
canonical embeddings, and whatever differs is counted.

All of it once with what the CPU has, and once with oneDNN held to AVX-512 without bf16. Prints a table, and the figures
as one line of JSON.
"""

from __future__ import annotations

import json
from typing import Any

from corpus_data import machine
from pooled import vector_units
from programs import figures_of, parser_of
from stored import markdown

AS_IT_IS, OLDER = "as it is", "AVX-512 without bf16"
CPUS: dict[str, dict[str, str]] = {AS_IT_IS: {}, OLDER: {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE"}}


def table(by_cpu: dict[str, dict[str, Any]]) -> str:
    return markdown(
        ("oneDNN", "pass", "guard band", "windows", "again", "tok/s", "fp32 tok/s", "ratio", "of CPU time", "audit"),
        (
            (
                cpu,
                line["pass"],
                f"{line['guard_band']:.4f}",
                f"{line['windows']:,}",
                f"{line['canonical_share']:.1%}",
                f"{line['two_pass_tokens_per_second']:,}",
                f"{line['fp32_tokens_per_second']:,}",
                f"{line['two_pass_over_fp32']:.2f}",
                f"{line['two_pass_over_fp32_cpu']:.2f}",
                str(line["audit_differences"]),
            )
            for cpu, line in by_cpu.items()
        ),
    )


def main() -> None:
    asked = parser_of(__doc__).parse_args()
    options = [f"--threads={asked.threads}", *(["--quick"] if asked.quick else [])]
    by_cpu = {cpu: figures_of("two_pass_rounds", *options, **variables) for cpu, variables in CPUS.items()}
    flags = vector_units()
    print(f"{machine()}; encoder threads: {asked.threads}; CPU flags: {' '.join(flags)}\n{table(by_cpu)}")
    figures = {
        "two_pass_over_fp32": by_cpu[AS_IT_IS]["two_pass_over_fp32"],
        "two_pass_over_fp32_cpu": by_cpu[AS_IT_IS]["two_pass_over_fp32_cpu"],
        "two_pass_over_fp32_avx512": by_cpu[OLDER]["two_pass_over_fp32"],
        "canonical_share": by_cpu[AS_IT_IS]["canonical_share"],
        "audit_differences": sum(line["audit_differences"] for line in by_cpu.values()),
        "cpu_flags": flags,
        "two_pass_threads": asked.threads,
        "two_pass": by_cpu,
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
