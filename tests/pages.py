"""What README and docs show: blocks of code, and the code within sentences."""

import re
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
PAGES = sorted([*ROOT.glob("*.md"), *(page for at in ("docs", "examples") for page in (ROOT / at).rglob("*.md"))])
MARK = re.compile(r"<!-- not run: (\S.*?) -->", re.S)
"""What stands right before a block that no test runs: why."""
_MARKDOWN = MarkdownIt("commonmark").enable("table")


@dataclass(frozen=True)
class Snippet:
    """A block of code, or code within a sentence.

    Attributes:
        kind: the word behind a block's fence; ``sh`` of an indented block; ``words`` within a sentence.
        why_not: why no test runs it; None where one does.
    """

    page: str
    line: int
    kind: str
    text: str
    why_not: str | None = None

    def __str__(self):
        return f"{self.page}:{self.line}"


def snippets():
    """Those of all pages, in their order."""
    for path in PAGES:
        page, why = path.relative_to(ROOT).as_posix(), None
        for token in _MARKDOWN.parse(path.read_text(encoding="utf-8")):
            line = token.map[0] + 1 if token.map else 0
            if token.type in ("fence", "code_block"):
                kind = token.info.strip() if token.type == "fence" else "sh"
                yield Snippet(page, line, kind, token.content, why)
            for inner in token.children or ():
                if inner.type == "code_inline":
                    yield Snippet(page, line, "words", inner.content)
            marked = MARK.fullmatch(token.content.strip()) if token.type == "html_block" else None
            why = marked[1] if marked else None
