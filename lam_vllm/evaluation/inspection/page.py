"""An inspection as one HTML page that needs no network.

Texts of a trace are hostile. They stand in the page only as JSON in ASCII without `<`, `>` and `&`, the script puts
them into the document as text alone, and the page's policy lets no other script, style, image or request through.
"""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from string import Template
from typing import Any

from lam_vllm.evaluation.inspection.view import Block, Cut, Entry, Inspection, Tokens
from lam_vllm.types import Layer

ASSETS = Path(__file__).parent / "assets"
SCRIPTS = ("text.js", "compare.js", "conversation.js", "page.js")
LAYERS: dict[Layer, str] = {"l0": "repeated lines", "l1": "near windows", "alias": "short directory names"}


def render_page(inspection: Inspection) -> str:
    """The page, in ASCII."""
    style, script = _asset("page.css"), "".join(map(_asset, SCRIPTS))
    return _PAGE.substitute(
        policy="; ".join(
            (
                "default-src 'none'",
                f"script-src '{_digest(script)}'",
                f"style-src '{_digest(style)}'",
                "base-uri 'none'",
                "form-action 'none'",
                "require-trusted-types-for 'script'",
                "trusted-types 'none'",
            )
        ),
        style=style,
        script=script,
        data=_escaped_json(_page_data(inspection)),
    )


def _asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="ascii")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _escaped_json(value: Any) -> str:
    """JSON in which nothing can end a script element or begin a comment."""
    text = json.dumps(value, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _page_data(inspection: Inspection) -> dict[str, Any]:
    report = inspection.report
    return {
        "run": inspection.run,
        "source": inspection.source,
        "profile": report.profile,
        "delta": report.delta,
        "deltaHat": report.delta_hat,
        "reasons": dict(report.reasons),
        "cuts": len(inspection.cuts),
        "tokens": _tokens(inspection.tokens),
        "layers": [_layer(inspection, layer, title) for layer, title in LAYERS.items()],
        "turns": [
            {
                "number": turn.number,
                "tokens": _tokens(turn.tokens),
                "entries": [_entry(entry) for entry in turn.entries],
            }
            for turn in inspection.turns
        ],
    }


def _layer(inspection: Inspection, layer: Layer, title: str) -> dict[str, Any]:
    cuts = [cut for cut in inspection.cuts if cut.decision.layer == layer]
    return {
        "name": layer,
        "title": title,
        "cuts": len(cuts),
        "tokens": _tokens(sum((cut.tokens for cut in cuts), Tokens())),
    }


def _tokens(tokens: Tokens) -> dict[str, int]:
    return {"original": tokens.original, "removed": tokens.removed, "stubs": tokens.stubs, "net": tokens.net}


def _entry(entry: Entry) -> dict[str, Any]:
    return {
        "index": entry.index,
        "role": entry.role,
        "name": entry.name,
        "result": entry.result,
        "blocks": [_block(block) for block in entry.blocks],
    }


def _block(block: Block) -> dict[str, Any]:
    spans = [span if isinstance(span, str) else _cut(span) for span in block.spans]
    return {"kind": block.kind, "label": block.label, "spans": spans}


def _cut(cut: Cut) -> dict[str, Any]:
    """What the page tells of a cut; a representative equal to the original is not written twice."""
    decision = cut.decision
    return {
        "number": cut.number,
        "layer": decision.layer,
        "stub": decision.stub,
        "original": cut.original,
        "representative": None if cut.representative == cut.original else cut.representative,
        "kept": cut.kept,
        "result": decision.target_result,
        "lines": decision.target_lines,
        "unit": decision.unit,
        "shift": decision.shift,
        "distance": cut.distance,
        "tokens": _tokens(cut.tokens),
    }


_PAGE = Template("""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="$policy">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<meta name="color-scheme" content="light dark">
<title>lam-vllm inspect</title>
<style>$style</style>
</head>
<body>
<header class="top">
<div class="run">
<p class="product">lam-vllm inspect</p>
<h1 id="run"></h1>
<p id="facts" class="facts"></p>
</div>
<dl id="totals" class="totals"></dl>
<div class="settings">
<button type="button" id="theme" title="dark or light (d)" aria-label="dark or light">&#9680;</button>
<button type="button" id="help" title="keys (?)" aria-label="keys">?</button>
</div>
</header>
<nav class="bar" id="bar" aria-label="Cuts">
<div class="chips" id="layers" role="group" aria-label="Show cuts of these layers"></div>
<div class="tools">
<button type="button" id="previous" title="previous cut (k)" aria-label="previous cut">&#8593;</button>
<span id="place" class="place" aria-live="polite"></span>
<button type="button" id="next" title="next cut (j)" aria-label="next cut">&#8595;</button>
</div>
</nav>
<div class="columns">
<aside class="side">
<details id="index">
<summary>Turns</summary>
<div class="scroll"><table>
<thead><tr><th scope="col">turn</th><td></td><th scope="col">tokens</th><th scope="col">removed</th>
<th scope="col">stubs</th><th scope="col">net</th></tr></thead>
<tbody id="turns"></tbody>
<tfoot id="sum"></tfoot>
</table></div>
</details>
</aside>
<main id="main">
<noscript><p>This page shows a recorded run by its own script; turn scripts on to read it.</p></noscript>
</main>
</div>
<dialog id="keys" aria-labelledby="keys-title">
<h2 id="keys-title">Keys</h2>
<dl>
<div><dt><kbd>j</kbd> <kbd>k</kbd></dt><dd>next, previous cut</dd></div>
<div><dt><kbd>o</kbd> or <kbd>Enter</kbd></dt><dd>unfold the cut, fold it again</dd></div>
<div><dt><kbd>t</kbd> <kbd>T</kbd></dt><dd>next, previous turn</dd></div>
<div><dt><kbd>1</kbd> <kbd>2</kbd> <kbd>3</kbd></dt><dd>show or hide cuts of layer l0, l1, alias</dd></div>
<div><dt><kbd>0</kbd></dt><dd>show all layers</dd></div>
<div><dt><kbd>d</kbd></dt><dd>dark or light</dd></div>
<div><dt><kbd>?</kbd> <kbd>Esc</kbd></dt><dd>open, close this list</dd></div>
</dl>
<h2>Signs</h2>
<dl>
<div class="l0"><dt><span class="tag">l0</span></dt><dd>lines that stand earlier, as they are or alike</dd></div>
<div class="l1"><dt><span class="tag">l1</span></dt><dd>a window that the encoder finds near an earlier one</dd></div>
<div class="alias"><dt><span class="tag">alias</span></dt><dd>a short name for a directory in the lines below</dd></div>
<div><dt><mark>word</mark></dt><dd>stands on this side only</dd></div>
<div><dt><span class="hidden">ESC</span></dt><dd>a character that nobody sees, by its name</dd></div>
</dl>
<button type="button" id="close">close</button>
</dialog>
<script type="application/json" id="data">$data</script>
<script>$script</script>
</body>
</html>
""")
