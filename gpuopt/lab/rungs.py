"""Rungs in words: two side by side, and what the counts of one say.

`diff("reduce", "v2", "v3")` shows what changes between two rungs, and with arguments their
counts; `explain("reduce", x, variant="v1")` says where a rung loses.
Order: a rung's story, the difference, the explanation.
"""

from __future__ import annotations

import difflib
import html
import re
import textwrap
from collections.abc import Sequence
from typing import Any

import gpuopt
from gpuopt import _core
from gpuopt.lab.profile import Counts, Kernel, Profile, profile

__all__ = ["Diff", "Explanation", "diff", "explain"]

HEADINGS = ("Was", "Now", "Cost", "Left", "Measured")
COLUMN = 46  # characters of a rung's story beside another
SECTOR_BYTES = 32

# ---- a rung's story ----

_PART = re.compile(
    rf"^ \* ({'|'.join(HEADINGS)}):\s+(.*?)(?=^ \* (?:{'|'.join(HEADINGS)}):|^ \*/)",
    re.MULTILINE | re.DOTALL,
)


def story(op: str, variant: str) -> dict[str, str]:
    """Return the idea of a rung, as "", and the parts of its comment by heading."""
    text = gpuopt.source(op, variant)
    comment = text[: text.index("*/") + 2]
    found = {head: re.sub(r"\s*\n \*\s*", " ", part).strip() for head, part in
             _PART.findall(comment)}  # fmt: skip
    if "Now" not in found:
        raise ValueError(f"{op} {variant} is no rung: its comment has no Was, Now, Cost, Left")
    idea = next(row["idea"] for row in _core.variants(op) if row["name"] == variant)
    return {"": idea, **found}


def code(op: str, variant: str) -> list[str]:
    """Return the lines of a rung after its first comment."""
    text = gpuopt.source(op, variant)
    return text[text.index("*/") + 2 :].strip("\n").splitlines()


# ---- the difference ----


class Diff:
    """Two rungs side by side: their stories, their counts if there are any, their code.

    stories : the parts of each comment, "Was", "Now", "Cost", "Left"; "" is the idea
    profile : the counts of both, or None
    code : the lines of the second beside the first, as `diff -u` shows them
    """

    def __init__(self, op: str, names: tuple[str, str], counts: Profile | None) -> None:
        self.op, self.names, self.profile = op, names, counts
        self.stories = (story(op, names[0]), story(op, names[1]))
        old, new = (code(op, name) for name in names)
        self.code = list(difflib.unified_diff(old, new, *names, lineterm="", n=2))

    def _parts(self) -> list[tuple[str, str, str]]:
        first, second = self.stories
        return [
            (head, first.get(head, ""), second.get(head, ""))
            for head in ("", *HEADINGS)
            if first.get(head) or second.get(head)
        ]

    def __repr__(self) -> str:
        lines = [f"{'':6}{self.names[0]:{COLUMN + 2}}{self.names[1]}"]
        for head, *both in self._parts():
            left, right = (textwrap.wrap(part, COLUMN) for part in both)
            for i in range(max(len(left), len(right))):
                a, b = (part[i] if i < len(part) else "" for part in (left, right))
                lines.append(f"{head if i == 0 else '':6}{a:{COLUMN + 2}}{b}".rstrip())
            lines.append("")
        if self.profile is not None:
            lines += [repr(self.profile), ""]
        changed = sum(line[0] in "+-" for line in self.code) - 2
        return "\n".join([*lines, f"{max(changed, 0)} lines of code differ: see .code"])

    def _repr_html_(self) -> str:
        def td(text: str, tag: str = "td") -> str:
            return f'<{tag} style="text-align:left;vertical-align:top">{text}</{tag}>'

        rows = ["<tr>" + td("") + "".join(td(n, "th") for n in self.names) + "</tr>"]
        for head, *both in self._parts():
            cells = "".join(td(html.escape(part)) for part in both)
            rows.append(f"<tr>{td(head, 'th')}{cells}</tr>")
        counts = "" if self.profile is None else self.profile._repr_html_()
        body = html.escape("\n".join(self.code))
        return (
            f"<table>{''.join(rows)}</table>{counts}"
            f"<details><summary>code</summary><pre>{body}</pre></details>"
        )


def diff(op: str, first: str, second: str, /, *args: Any, **kwargs: Any) -> Diff:
    """Show two rungs of an operator side by side.

    With arguments of the operator the simulator counts what both do with them.

    Raises ValueError if a variant has no story to tell: shape kernels and CPU loops.
    """
    counts = None
    if args:
        first_counts = profile(op, *args, variant=first, **kwargs)
        counts = first_counts + profile(op, *args, variant=second, **kwargs)
    return Diff(op, (first, second), counts)


# ---- the explanation ----


class Explanation:
    """What the counts of a rung say, in `sentences`."""

    def __init__(self, title: str, sentences: Sequence[str]) -> None:
        self.title, self.sentences = title, tuple(sentences)

    def __repr__(self) -> str:
        wrapped = [
            textwrap.fill(s, 88, initial_indent="- ", subsequent_indent="  ")
            for s in self.sentences
        ]
        return "\n".join([self.title, *wrapped])

    def _repr_html_(self) -> str:
        items = "".join(f"<li>{html.escape(s)}</li>" for s in self.sentences)
        return f"<b>{html.escape(self.title)}</b><ul>{items}</ul>"


def _most(kernels: Sequence[Kernel], excess: Any) -> str:
    """The line with the largest excess, in words."""
    lines = [line for kernel in kernels for line in kernel.lines if line.line]
    worst = max(lines, key=excess, default=None)
    if worst is None or excess(worst) <= 0:
        return ""
    return f", most of all at {worst.file.rpartition('/')[2]}:{worst.line}"


def _memory(total: Counts, kernels: Sequence[Kernel], must_move: int | None) -> list[str]:
    sentences = []
    if total.global_requests:
        moved = SECTOR_BYTES * total.global_sectors
        text = (
            f"Global memory: {total.global_requests:,} requests ask for "
            f"{total.global_sectors:,} sectors, {moved:,} bytes"
        )
        if must_move:
            text += f", {moved / must_move:.2f} times the {must_move:,} that must move"
        if total.efficiency < 0.95:
            where = _most(kernels, lambda n: n.global_sectors - n.global_ideal)
            text += f"; only {total.efficiency:.0%} of them are used{where}"
        sentences.append(text + ".")
    if total.shared_requests:
        extra = total.shared_wavefronts - total.shared_ideal
        text = f"Shared memory: {total.shared_requests:,} requests"
        if extra:
            where = _most(kernels, lambda n: n.shared_wavefronts - n.shared_ideal)
            text += (
                f" take {total.shared_wavefronts:,} passes, {total.conflict_ways:.2f} times "
                f"the fewest, because of bank conflicts{where}"
            )
        else:
            text += " without bank conflicts"
        sentences.append(text + ".")
    if total.atomic_requests:
        times = total.atomic_serialised / total.atomic_requests
        where = _most(kernels, lambda n: n.atomic_serialised - n.atomic_requests)
        text = f"Atomics: {total.atomic_requests:,} requests"
        text += f", each taking {times:.1f} turns{where}" if times > 1 else ", one turn each"
        sentences.append(text + ".")
    return sentences


def _explained(seen: Profile, must_move: int | None) -> list[str]:
    total = Counts()
    for kernel in seen:
        total.add(kernel)
    launches = ", ".join(
        f"{k.kernel} with {k.blocks:,} block{'s' * (k.blocks != 1)} of "
        f"{k.threads // max(k.blocks, 1):,} threads"
        for k in seen
    )
    sentences = [f"Kernels: {launches}.", *_memory(total, seen.kernels, must_move)]
    if total.code_divergent:
        where = _most(seen.kernels, lambda n: n.code_divergent)
        sentences.append(
            f"Divergence: {total.divergence:.0%} of the pieces of code run with some lanes of "
            f"a warp only{where}; on average {total.active_lanes:.0%} of the lanes are active."
        )
    blocks = sum(k.blocks for k in seen)
    if total.barriers:
        sentences.append(f"Barriers: {total.barriers / blocks:.1f} per block.")
    if total.races:
        sentences.append(f"Races: {total.races:,}: the result is not defined.")
    return sentences


def explain(what: str | Profile, /, *args: Any, variant: str | None = None,
            **kwargs: Any) -> Explanation:  # fmt: skip
    """Say in words what a CUDA rung asks of the hardware, by the simulator's counts.

    what : an operator, with its arguments and `variant`; or a Profile, of `profile` or of a
        kernel of your own.

    gpuopt.explain says which variant a call takes; this says what one costs.
    """
    if isinstance(what, Profile):
        return Explanation(what.op, _explained(what, None))
    if variant is None:
        raise TypeError(f"name the rung of '{what}' to explain: variant='v1'")
    seen = profile(what, *args, variant=variant, **kwargs)
    plan = _core.plan(what, *args, **kwargs)
    sentences = _explained(seen, int(plan["read_bytes"] + plan["written_bytes"]))
    try:
        told = story(what, variant)
    except ValueError:
        return Explanation(f"{what} {variant}", sentences)
    if "Left" in told:
        sentences.append(f"Left, by the rung's own comment: {told['Left']}")
    return Explanation(f"{what} {variant}: {told['']}", sentences)
