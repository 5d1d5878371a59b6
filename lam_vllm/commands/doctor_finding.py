"""What the doctor says about one thing."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. `wrong` says that the plugin does not work like this, `remedy` what to do."""

    what: str
    found: str
    why: str = ""
    wrong: bool = False
    remedy: str = ""
