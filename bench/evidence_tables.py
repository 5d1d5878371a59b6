"""Tables of the measures in embedding space, of determinism, of second reads and of the wordings, for README.md."""

from __future__ import annotations

from stored import markdown, stored


def embedding_space() -> str:
    """By t, all sources together: what goes and what could, how far it lies, what a search still finds."""
    lines = stored("embedding_space")["sources"]["all"]["thresholds"]
    return markdown(
        ("t", "removed", "ceiling", "median d", "p99", "max", "mean/delta", "R@10", "log2 R(2 delta)", "H", "log2 R"),
        (
            (
                f"{line['t']:.2f}",
                f"{line['removed']:.2%}",
                f"{line['ceiling']:.2%}",
                *(f"{line['distances'][name]:.4f}" for name in ("median", "p99", "max")),
                f"{line['distances']['mean_over_delta']:.3f}",
                f"{line['search']['recall_at_10']:.4f}",
                *(f"{line['rate'][name]:.2f}" for name in ("log2_packing", "entropy", "log2_retained")),
            )
            for line in lines
        ),
    )


def margins() -> str:
    lines = stored("embedding_space")["sources"]["all"]["margins"]
    return markdown(
        ("k", "queries", "median", "p90", "p99", "max"),
        (
            (str(line["k"]), f"{line['queries']:,}", *(f"{line[name]:.4f}" for name in ("median", "p90", "p99", "max")))
            for line in lines
        ),
    )


def relations() -> str:
    """Share of queries whose top k cannot change, at t = 0.95, by the relation that windows are near under."""
    thresholds = stored("embedding_space")["sources"]["all"]["thresholds"]
    (lines,) = (line["relations"] for line in thresholds if line["t"] == 0.95)
    return markdown(
        ("relation", "radius", "windows removed", "top 1 unchanged", "top 5", "top 10"),
        (
            (
                line["name"].replace("_", " "),
                f"{line['radius']:.4f}",
                f"{line['removed']:.2%}",
                *(f"{line['unchanged'][k]:.2%}" for k in ("1", "5", "10")),
            )
            for line in lines
        ),
    )


def encoders() -> str:
    return markdown(
        ("source, encoder", "windows", "dropped", "L1", "L1 net", "L1, L0 net", "t with MiniLM's L1"),
        (
            (
                f"{line['source']}, {line['encoder']}",
                f"{line['windows']:,}",
                f"{line['dropped']:,}",
                *(f"{line[name]:.2f}%" for name in ("l1_gross_pct", "l1_net_pct", "l1_l0_net_pct")),
                f"{line['matching_t']:.3f}",
            )
            for line in stored("encoders")["rows"]
        ),
    )


def determinism() -> str:
    return markdown(
        ("cpu, batch, threads, arrival", "largest movement", "digest at t = 0.99", "digest at t = 0.95"),
        (
            (
                f"{line['cpu']}, {line['batch']}, {line['threads']}, {line['arrival']}",
                f"{line['moved']:.1e}",
                *(f"`{line[t]['digest']}`" for t in ("t=0.99", "t=0.95")),
            )
            for line in stored("determinism")["encodings"]
        ),
    )


def semdedup_seeds() -> str:
    return markdown(
        ("scope, t", "dropped by each seed", "pairwise Jaccard", "dropped by all"),
        (
            (
                f"{line['scope']}, {line['t']}",
                " ".join(map(str, line["dropped"])),
                f"{line['pairwise_jaccard']:.3f}",
                f"{line['shared_by_all_seeds']:.1%}",
            )
            for line in stored("determinism")["semdedup"]
        ),
    )


def rereads() -> str:
    """What a second read hides of an edit, by kind of pair, all sources together."""
    titles = {
        "any": "any action",
        "by_command": "a command that may edit",
        "by_content": "the assistant wrote a changed line",
    }
    lines = {(line["kind"], line["method"]): line for line in stored("rereads")["counts"] if line["source"] == "all"}
    return markdown(
        (
            "between the reads",
            "pairs",
            "changed lines",
            "hidden by `exact`",
            "by `guarded`",
            "new lines shown by both",
            "`paper`: changed lines hidden",
            "pairs that hide one",
            "new lines not shown",
        ),
        (
            (
                title,
                f"{paper['rereads']:,}",
                f"{paper['changed']:,}",
                f"{exact['hidden']:,}",
                f"{guarded['hidden']:,}",
                f"{min(exact['new_shown'], guarded['new_shown']):,} of {exact['new']:,}",
                f"{paper['hidden']:,} ({paper['hidden'] / paper['changed']:.0%})",
                f"{paper['hiding']:,} ({paper['hiding'] / paper['rereads']:.0%})",
                f"{paper['new'] - paper['new_shown']:,}",
            )
            for kind, title in titles.items()
            for exact, guarded, paper in [[lines[kind, method] for method in ("exact", "guarded", "paper")]]
        ),
    )


def wordings(kind: str) -> str:
    """Right answers under every wording, with its mean tokens a reference (aliases: points of removal)."""
    figures = stored("stub_wording")[kind]
    length = "tokens a reference" if kind == "references" else "points of removal"
    return markdown(
        ("wording", length, "right", "of", "95% interval", "lost", "gained"),
        (
            (
                f"`{name}`",
                f"{figures['lengths'][name]:.2f}" if name in figures["lengths"] else "-",
                str(line["right"]),
                str(line["questions"]),
                "{} to {}%".format(*line["interval95"]),
                str(line["off_right_on_wrong"]),
                str(line["off_wrong_on_right"]),
            )
            for name, line in figures["accuracy"].items()
        ),
    )
