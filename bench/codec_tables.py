"""The tables of bench/codec.py, made of its figures."""

from __future__ import annotations

from typing import Any

from stored import markdown

BOUNDS = {"3pct": "3%", "1pct": "1%", "03pct": "0.3%"}
SCALES = {"max_abs": "max abs x", "value_range": "value range"}
PAPER = {"3pct": (9.46, 0.6354), "1pct": (6.53, 0.6491), "03pct": (4.94, 0.6549)}
"""Table 20, bge-base, D = 768, t = 0.90: ratio of the index and R@10."""
PAPER_OTHERS = {"fp32": (1.0, 0.6536), "int8, scale a row": (3.96, 0.6556), "sign": (30.72, 0.6204)}
PAPER_CEILING = 0.6536
PAPER_COMPOSITE = 4.63
Figures = dict[str, Any]


def sources_table(figures: Figures) -> str:
    """Of every source, at 1% under both definitions: ratio of the codec and composite ratio, of both layouts."""
    headings = ["source", "runs", "windows", "retained"]
    for scale in SCALES.values():
        headings += [f"{what}, 1% of {scale}" for what in ("fixed", "dense", "dense composite")]
    rows = []
    for source, found in figures["sources"].items():
        cells = [source, *(f"{found[name]:,}" for name in ("runs", "windows", "retained"))]
        for scale in SCALES:
            bound = found["bounds"][f"1pct_{scale}"]
            cells += [f"{bound['fixed']['ratio']:.2f}", f"{bound['dense']['ratio']:.2f}"]
            cells.append(f"{bound['dense']['composite']:.2f}")
        rows.append(cells)
    return markdown(headings, rows)


def bounds_table(figures: Figures) -> str:
    """The whole corpus under each bound and both definitions."""
    headings = ("bound", "eps", "fixed", "fixed composite", "dense", "dense composite", "values over the bound")
    whole = list(figures["sources"].values())[-1]["bounds"]
    rows = []
    for scale, scale_name in SCALES.items():
        for name, share in BOUNDS.items():
            found = whole[f"{name}_{scale}"]
            cells = [f"{found[mode][key]:.2f}" for mode in ("fixed", "dense") for key in ("ratio", "composite")]
            over = sum(found[mode]["violations"] for mode in ("fixed", "dense"))
            rows.append([f"{share} of {scale_name}", f"{found['eps']:.6f}", *cells, str(over)])
    return markdown(headings, rows)


def kept_table(figures: Figures) -> str:
    """What fp32 embeddings of all windows take, over what is counted: the codec's bytes alone, or the whole index.

    The index holds for every window its place in the text and a distance, and for every row the error of its decoding.
    """
    kept, whole = figures["kept"], list(figures["sources"].values())[-1]
    codec = whole["bounds"]["1pct_max_abs"]["dense"]["composite"]
    return markdown(
        ("counted", "windows", "retained", "composite"),
        (
            ("streams, 4 B a dropped window", f"{whole['windows']:,}", f"{whole['retained']:,}", f"{codec:.2f}"),
            ("index rows as kept", f"{kept['windows']:,}", f"{kept['retained']:,}", f"{kept['composite_kept']:.2f}"),
            ("and what the store charges for a row", "", "", f"{kept['composite_charged']:.2f}"),
        ),
    )


def ways_table(figures: Figures) -> str:
    """Every way under every bound: one matrix of all retained rows."""
    headings = (
        "way",
        "bound",
        "ratio",
        "a stream a run",
        "encode MB/s",
        "decode MB/s",
        "error / eps",
        "R@10",
        "equal rows",
    )
    rows = []
    for line in figures["ways"]:
        error = line["error_over_eps"]
        rows.append(
            [
                line["way"],
                BOUNDS.get(line["bound"], "none"),
                f"{line['ratio']:.2f}",
                f"{line['ratio_per_run']:.2f}",
                f"{line['encode_mb_per_second']:,.0f}",
                f"{line['decode_mb_per_second']:,.0f}",
                "-" if error is None else f"{error:.5f}",
                f"{line['recall_at_10']:.4f}",
                "stay equal" if line["equal_rows_stay_equal"] else "differ",
            ]
        )
    return markdown(headings, rows)


def paper_table(figures: Figures) -> str:
    """The paper's table 20 beside the same rows here; R@10 as a share of what the uncompressed index reaches."""
    found = {(line["way"], line["bound"]): line for line in figures["ways"]}
    whole = list(figures["sources"].values())[-1]["bounds"]
    rows = [["fp32", *_paper(PAPER_OTHERS["fp32"]), "1.00", "1.00", "1.0000"]]
    for name, share in BOUNDS.items():
        by_scale = [whole[f"{name}_{scale}"]["dense"]["ratio"] for scale in SCALES]
        recall = found["dense", name]["recall_at_10"]
        rows.append([f"codec, {share}", *_paper(PAPER[name]), *(f"{ratio:.2f}" for ratio in by_scale), f"{recall:.4f}"])
    for way in ("int8, scale a row", "sign"):
        line = found[way, None]
        ratio = f"{line['ratio']:.2f}"
        rows.append([way, *_paper(PAPER_OTHERS[way]), ratio, ratio, f"{line['recall_at_10']:.4f}"])
    composite = [f"{whole[f'1pct_{scale}']['dense']['composite']:.2f}" for scale in SCALES]
    rows.append(["deduplication and codec, 1%", f"{PAPER_COMPOSITE}", "-", "-", *composite, "-"])
    headings = ("index", "paper: ratio", "paper: R@10", "of its ceiling .6536")
    return markdown((*headings, "here: of max abs x", "here: of the range", "here: R@10, of max abs x"), rows)


def _paper(row: tuple[float, float]) -> list[str]:
    ratio, recall = row
    return [f"{ratio:.2f}", f"{recall:.4f}", f"{recall / PAPER_CEILING:.4f}"]


MAKERS = {
    "sources": sources_table,
    "bounds": bounds_table,
    "kept": kept_table,
    "ways": ways_table,
    "paper": paper_table,
}


def tables(figures: Figures) -> str:
    """All of them."""
    return "\n\n".join(make(figures) for make in MAKERS.values())
