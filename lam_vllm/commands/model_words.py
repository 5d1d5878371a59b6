"""When compaction does not pay, in plain words with the figures of the case at hand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from lam_vllm.commands.model_report import Report
from lam_vllm.performance_model.capacity import most_context_tokens
from lam_vllm.performance_model.engine import Engine


@dataclass(frozen=True, slots=True)
class Caveat:
    """One way in which it may not pay: its name, whether it is so here (None: it always holds), and why."""

    about: str
    applies: bool | None
    text: str


def caveats(report: Report) -> list[Caveat]:
    """All that is to be said, the same points for every case."""
    return list(_caveats(report))


def _caveats(report: Report) -> Iterator[Caveat]:
    yield _short_prompts(report)
    yield _slow_compactor(report)
    yield _little_removed(report)
    yield _decode_bound(report)
    yield _hard_budget(report)
    yield _broken_prefix(report)
    yield _schedule(report)
    yield basis(report.engine)
    yield Caveat(
        "spare CPU",
        None,
        "The compactor is taken to have a core of its own. Where the server's cores are busy, its seconds come on top "
        "of other requests', which is not modelled; nor are queues.",
    )


def basis(engine: Engine) -> Caveat:
    """What the times rest on; it applies where something was measured that cannot be used."""
    about, served = "what times rest on", engine.device.served
    rates = f"Prefills and decode steps go by the rates of {engine.device.name}"
    if engine.served:
        text = "Prefills and decode steps go by what was measured of this model, one request at a time"
        more = f"; {engine.batch} at a time are taken to share a step as its bytes do" if engine.batch > 1 else ""
        return Caveat(about, None, f"{text}{more}: {engine.served.source}.")
    if served is None:
        return Caveat(about, None, f"{rates}; no engine was measured on it (lam-vllm calibrate device --url).")
    if not engine.accounting.takes_measured:
        return Caveat(about, None, f"{rates}; accounting {engine.accounting.name} takes nothing measured of an engine.")
    whose = f"those of {served.model.name}" if served.model else "the file does not say of which model they are"
    return Caveat(
        about,
        True,
        f"{rates}, each a mean over some prompts: the coefficients measured on it are not those of "
        f"{engine.model.name} ({whose}).",
    )


def _short_prompts(report: Report) -> Caveat:
    turns = [cost for run in report.plain.costs for cost in run]
    best = max(turns, key=lambda cost: cost.phi)
    text = (
        f"The context is at most {best.phi:.1%} of a turn here (phi): whatever shortens it makes no turn more than "
        f"{best.ceiling:.2f} times as fast. "
    )
    free = report.break_even.free_prefill_tokens
    if free:
        text += (
            f"A prefill of up to {free:,.0f} tokens takes no longer than reading the weights once: "
            "taking tokens out of one as short saves none of its time."
        )
    arriving = [turn.arriving_tokens for run in report.first.runs for turn in run]
    return Caveat("short prompts", sum(arriving) / len(arriving) <= free or best.phi < 0.05, text.strip())


def _slow_compactor(report: Report) -> Caveat:
    needed, name = report.break_even.tokens_per_second, report.first.name
    spent = report.of_first("admit").turn.compaction
    if needed is None:
        text = f"{name} removes nothing that would save time: no compactor is fast enough, and this one takes "
        return Caveat("slow compactor", True, f"{text}{spent:.3g} s a turn.")
    tested = _examined_tokens(report)
    rate = tested / spent if spent else float("inf")
    return Caveat(
        "slow compactor",
        rate < needed,
        f"{name} looks at {tested:,.0f} tokens of a turn in {1e3 * spent:.3g} ms ({rate:,.0f} tok/s); what it removes "
        f"pays for that from {needed:,.0f} tok/s on.",
    )


def _little_removed(report: Report) -> Caveat:
    turns = list(chain.from_iterable(report.first.runs))
    observed = sum(turn.observed_tokens for turn in turns)
    removal = sum(turn.removed_tokens for turn in turns) / observed if observed else 0.0
    least = report.break_even.removal
    if not observed:
        return Caveat("little removed", True, "There is no tool output, so that nothing can be removed.")
    if least is None:
        return Caveat("little removed", True, "Removing all tool output would not pay for the compactor.")
    return Caveat(
        "little removed",
        removal < least,
        f"{removal:.1%} of the tool output is removed; from {least:.3%} on it pays for the compactor.",
    )


def _decode_bound(report: Report) -> Caveat:
    turn = report.plain.turn
    share = turn.weights / turn.total
    return Caveat(
        "decode-bound",
        share > 0.5,
        f"{share:.1%} of a turn without compaction is reading the weights while the answer is decoded, "
        "which no removal shortens; a larger batch shares it.",
    )


def _hard_budget(report: Report) -> Caveat:
    most = most_context_tokens(report.engine)
    text = f"Where the context is held at a budget ({report.budget_tokens:,.0f} tokens here; {most:,.0f} fit), "
    text += (
        "it is as long with compaction as without once it is full, and a turn takes as long: what is gained is that "
    )
    turns = {each.policy: each.answered for each in report.budgeted}
    if len(turns) < 2:
        return Caveat("hard budget", None, text + "this is later. Not one turn fits here.")
    before, after = list(turns.values())[:2]
    what = "turn" if len(report.first.runs) == 1 else "all turns of all runs that fit"
    return Caveat("hard budget", None, f"{text}this is later ({what}: {after:,} in place of {before:,}).")


def _broken_prefix(report: Report) -> Caveat:
    """No turn-by-turn policy breaks one; what does is not known here, so that this always holds."""
    least = report.break_even
    text = f"A cached prefix that is lost (evicted, edited by the client) costs {least.broken_prefix_seconds:.3g} s "
    if least.turns_a_break is None:
        return Caveat("broken prefix", None, text + "when it is prefilled again whole.")
    text += f"when it is prefilled again whole: what admission saves in {least.turns_a_break:,.1f} turns."
    return Caveat("broken prefix", None, text)


def _schedule(report: Report) -> Caveat:
    admit, suffix, whole = (report.of_first(name).turn.total for name in ("admit", "suffix", "in_place"))
    plain = report.plain.turn.total
    return Caveat(
        "where the gain comes from",
        None,
        f"Against no compaction admission makes a turn {plain / admit:.3f} times as fast; against removing the same "
        f"one turn later {suffix / admit:.3f} times, and {whole / admit:.1f} times if every turn then prefills its "
        "whole cache again, as the paper assumes. That is the schedule's gain: any rule that keeps the prefix has it.",
    )


def _examined_tokens(report: Report) -> float:
    """Per turn, over the turns that were forecast."""
    accounting = report.engine.accounting
    turns = [
        turn
        for run, costs in zip(report.first.runs, report.of_first("admit").costs, strict=True)
        for turn in run[: len(costs)]
    ]
    return sum(map(accounting.examined_tokens, turns)) / len(turns)
