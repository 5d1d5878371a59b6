"""How long a look-up of removed text takes, and whether the time tells what is not the caller's to know.

A real `lam-vllm service` over HTTP, with each store in turn: the memory of the process, a SQLite file. One client asks,
one look-up after the other and the kinds in random order, for ids that are

- found: made under its own salt, the text is there;
- expired: made under its own salt, the text was deleted (410, as when it was dropped at the cap or for its age);
- foreign: made under another tenant's salt, whose text is there (404);
- unknown: made up, of the right length (404);
- control: made up in the same way, apart from those (404);
- malformed: no id at all (404).

Foreign and unknown ids must not be told apart: the Kolmogorov-Smirnov statistic between their times is the largest
difference of the two distributions, and p the chance of so large a one between equal distributions. Between control and
unknown ids there is none by construction: what these differ by is the machine's noise. Reads of the store are counted
apart, in this process, by the same code: one for each kind of id.

Prints a table, and the figures as one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import TypeAlias

import httpx
from corpus_data import machine
from lookup_figures import STATUS, Figures, differences, quantiles, table, told_apart
from lookup_reads import SALTS, asking_salt, reads_by_kind
from service_process import service

from lam_vllm.errors import LamError
from lam_vllm.records import ID_LENGTH

STORES = ("memory", "sqlite")
Ids: TypeAlias = dict[str, list[str]]


def measure(store: str, asked: argparse.Namespace, folder: Path) -> Figures:
    """The figures of one store."""
    url = {"LAM_STORE_URL": str(folder / "store.sqlite")} if store == "sqlite" else {}
    environment = {"LAM_KEY": "a key of the benchmark", **url}
    with (
        service(log=folder / f"{store}.log", environment=environment) as address,
        httpx.Client(base_url=f"{address}/v1/lam", timeout=30) as client,
    ):
        ids = make_ids(client, asked.ids, random.Random(asked.seed))
        times = look_up(client, ids, asked.lookups, random.Random(asked.seed))
    return {
        "milliseconds": {kind: quantiles(each) for kind, each in times.items()},
        "told_apart": {kind: told_apart(times[kind], times["unknown"]) for kind in ("foreign", "control")},
    }


def make_ids(client: httpx.Client, many: int, draw: random.Random) -> Ids:
    """So many ids of every kind, of texts that are all alike in length."""
    ids = {kind: _kept(client, many, salt) for kind, salt in SALTS.items()}
    client.request("DELETE", "/records", headers=_as(SALTS["expired"])).raise_for_status()
    return {
        **ids,
        "unknown": _made_up(many, draw),
        "control": _made_up(many, draw),
        "malformed": [f"{draw.getrandbits(80):020x}" for _ in range(many)],
    }


def _made_up(many: int, draw: random.Random) -> list[str]:
    return [f"{draw.getrandbits(4 * ID_LENGTH):0{ID_LENGTH}x}" for _ in range(many)]


def _kept(client: httpx.Client, many: int, salt: str) -> list[str]:
    """Ids of texts that a tool printed twice, kept under the salt."""
    ids: list[str] = []
    for number in range(many):
        text = "\n".join(f"{salt:>16} {number:05}, line {line:03} of a listing" for line in range(20))
        messages = 2 * [{"role": "assistant", "content": "ls"}, {"role": "tool", "content": text}]
        body = {"messages": messages, "cache_salt": salt, "lam": {"profile": "exact"}}
        decisions = client.post("/compact", json=body).raise_for_status().json()["decisions"]
        ids += [decision["record"] for decision in decisions]
    return ids


def look_up(client: httpx.Client, ids: Ids, many: int, draw: random.Random) -> dict[str, list[float]]:
    """Seconds of so many look-ups of each kind, which come in random order, by the caller whose salt is `mine`.

    Raises:
        LamError: one is not answered as its kind has to be.
    """
    order = [kind for kind in STATUS for _ in range(many)]
    draw.shuffle(order)
    times: dict[str, list[float]] = {kind: [] for kind in STATUS}
    for kind in order:
        identity, headers = draw.choice(ids[kind]), _as(asking_salt(kind))
        began = time.perf_counter()
        answer = client.get(f"/records/{identity}", headers=headers)
        times[kind].append(time.perf_counter() - began)
        if answer.status_code != STATUS[kind]:
            raise LamError(f"an id that is {kind} was answered with {answer.status_code}")
    return times


def _as(salt: str) -> dict[str, str]:
    return {"x-lam-cache-salt": salt}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ids", type=int, default=300, help="of every kind (default: %(default)s)")
    parser.add_argument("--lookups", type=int, default=10_000, help="of every kind (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of ids and order")
    return parser.parse_args()


def main() -> int:
    asked = arguments()
    folder = Path(tempfile.mkdtemp(prefix="lookups-"))
    stores = {store: measure(store, asked, folder) for store in STORES}
    for store, url in zip(STORES, (None, str(folder / "counted.sqlite")), strict=True):
        stores[store]["reads"] = reads_by_kind(url)
    figures = {"machine": machine(), **vars(asked), "stores": stores}
    print(figures["machine"])
    print(table(figures))
    print()
    print(differences(figures))
    print(json.dumps(figures))
    one_each = all(set(measured["reads"].values()) == {1} for measured in stores.values())
    return 0 if one_each else 1


if __name__ == "__main__":
    sys.exit(main())
