"""Short names of directories in listings: their wordings, and questions whose answer is a path that they shorten."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from posixpath import basename

from wording_questions import OPENING_CHARACTERS, SYSTEM, Question, TokenCounter, occurrences

from lam_vllm import Compactor, CompactorConfig
from lam_vllm.aliases import MOST_ALIASES
from lam_vllm.evaluation.corpus import Run
from lam_vllm.stubs import parse_stub
from lam_vllm.types import Message

SOURCES = ("openhands_study", "swesmith_samples")
LISTING_TOKENS = 800
LISTINGS = 3
FEWEST_PATHS = 6
_ALIASED = re.compile(r"@([1-9])/")
_PATH = re.compile(r"/[^\s:]*[^\s:/]")
_NAME_CHARACTERS = range(4, 41)
TEMPLATES: dict[str, tuple[str, str, str]] = {
    "path": ("Give the full paths of {names}.", "", "- `{name}`: `{path}`\n"),
    "command": ("Write commands that print {names}, with full paths.", "```bash\n", "# {name}\ncat {path}\n"),
}
"""The question, how its answer begins, and what it says of each path; the last path asked for is left to the model."""
EXAMPLES = 3


@dataclass(frozen=True, slots=True)
class AliasWording:
    """How a directory is defined (`{name}`, `{directory}`), and the short name of number `{number}`."""

    name: str = "@{number}/"
    definition: str = "[{name} is {directory} below]"

    def short_name(self, number: int) -> str:
        """What stands in place of directory `number`."""
        return self.name.format(number=number)

    def short_names(self) -> list[str]:
        """All that a listing can hold."""
        return [self.short_name(number) for number in range(1, MOST_ALIASES + 1)]

    def defined(self, number: int, directory: str) -> str:
        """The line that defines it."""
        return self.definition.format(name=self.short_name(number), directory=directory)


ALIAS_WORDINGS = {
    "is ... below": AliasWording(),
    "stands for": AliasWording(definition="[below, {name} stands for {directory}]"),
    "paths that start": AliasWording(definition="[paths that start with {name} start with {directory}]"),
    "<1>/": AliasWording("<{number}>/"),
    "$1/": AliasWording("${number}/"),
    "~1/": AliasWording("~{number}/"),
}
"""By name; the first is the plugin's. The last three change its short name."""


def realiased(messages: Sequence[Message], wording: AliasWording) -> list[Message]:
    """Compacted messages with definitions and short names in other words."""
    return [
        {**message, "content": "\n".join(_realiased(line, wording) for line in message["content"].split("\n"))}
        if message["role"] == "tool" and "[@1/" in message["content"]
        else message
        for message in messages
    ]


def _realiased(line: str, wording: AliasWording) -> str:
    stub = parse_stub(line)
    if stub is not None and stub.kind == "alias":
        return wording.defined(stub.first, stub.prefix)
    found = _ALIASED.match(line)
    return wording.short_name(int(found[1])) + line[found.end() :] if found else line


def alias_questions(runs: Sequence[Run], count_tokens: TokenCounter) -> list[Question]:
    """Questions for the full path of a name that one line of a listing shows, of each listing one for each template.

    Long listings are cut into shorter ones of whole lines. Which of them, and which names, digests fix.
    """
    compactor = Compactor(CompactorConfig(profile="exact", directory_aliases=True), count_tokens)
    questions = []
    for run in (run for run in runs if run.source in SOURCES):
        for index, message in enumerate(run.messages):
            if message["role"] != "tool" or message["content"].count("\n/") < FEWEST_PATHS:
                continue
            pages = sorted(_pages(message["content"], count_tokens), key=_digest)
            found = (_questions_of(run, index, page, compactor) for page in pages)
            questions += [one for some in islice(filter(None, found), LISTINGS) for one in some]
    return questions


def _questions_of(run: Run, index: int, listing: str, compactor: Compactor) -> list[Question]:
    """A question for each template; none where too few paths of the listing can be asked for."""
    printed = compactor.compact([{"role": "tool", "content": listing}]).messages[0]["content"]
    paths = sorted(_askable(listing, printed), key=_digest)
    answers = [path for path in paths if not any(other.startswith(f"{path}/") for other in paths)][: len(TEMPLATES)]
    examples = [path for path in paths if path not in answers][:EXAMPLES]
    if "[@1/" not in printed or len(answers) < len(TEMPLATES) or len(examples) < EXAMPLES:
        return []
    return [
        _question(run, index, listing, [*examples, answer], template)
        for answer, template in zip(answers, TEMPLATES, strict=True)
    ]


def _digest(text: str) -> bytes:
    return sha256(text.encode()).digest()


def _pages(text: str, count_tokens: TokenCounter) -> Iterator[str]:
    """The text in pages of whole lines, each but a longer line of at most `LISTING_TOKENS`."""
    page: list[str] = []
    tokens = 0
    for line in text.split("\n"):
        size = count_tokens(line) + 1
        if page and tokens + size > LISTING_TOKENS:
            yield "\n".join(page)
            page, tokens = [], 0
        page.append(line)
        tokens += size
    yield "\n".join(page)


def _askable(listing: str, printed: str) -> Iterator[str]:
    """The paths whose last name stands in one place of the listing, and which are printed with a short name."""
    for line in listing.split("\n"):
        found = _PATH.match(line)
        name = basename(found[0]) if found else ""
        if found and len(name) in _NAME_CHARACTERS and occurrences(name, listing) == 1 and found[0] not in printed:
            yield found[0]


def _question(run: Run, index: int, listing: str, paths: Sequence[str], template: str) -> Question:
    """Asks for the last of the paths; the others are examples of a right answer."""
    words, begun, each = TEMPLATES[template]
    path = paths[-1]
    said = next((message["content"] for message in run.messages[index::-1] if message["role"] == "assistant"), "")
    written = "".join(each.format(name=basename(path), path=path) for path in paths)
    messages: tuple[Message, ...] = (
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": "Look around in the repository."},
        {"role": "assistant", "content": str(said)[-OPENING_CHARACTERS:]},
        {"role": "tool", "content": listing},
        {"role": "user", "content": words.format(names=", ".join(f"`{basename(path)}`" for path in paths))},
    )
    return Question(
        id=f"{run.id}#{index}:{path}:{template}",
        run=run.id,
        source=run.source,
        kind="alias",
        template=template,
        messages=messages,
        begun=begun + written[: written.rindex(path)].rstrip(" "),
        answer=path,
    )
