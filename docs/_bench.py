"""The records of `results/bench-*`: curves of time, and one table that a reader can filter."""

from __future__ import annotations

import gzip
import html
import json
import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from matplotlib.figure import Figure

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
MACHINES = {"bench-cpu": "2 CPU cores", "bench-h200": "H200"}
_NOTE = re.compile(r"(?P<ratio>[\d.,e+-]+)(?: \[(?P<note>.*)\])?")
_FLOORS = "torch Binomial", "torch Multinomial"  # samplers of easier distributions


class Html(str):
    """Text that a page shows as HTML."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return self


class Comparison(NamedTuple):
    """A job on urns of c groups of about m balls, B at a time: our time beside a peer's."""

    machine: str
    law: str
    job: str
    c: str
    m: str
    B: str
    ours: str
    peer: str
    ratio: str  # our time over the peer's, as it is printed, or a dash
    note: str  # that the peer's numbers differ, or why it has no time

    @property
    def is_fair(self) -> bool:
        """Whether the other is no part of diffurn, and computes the same numbers as accurately."""
        same_job = self.peer not in _FLOORS and not self.peer.endswith("(diffurn)")
        return same_job and self.ratio != "–" and "differs" not in self.note

    @property
    def faster(self) -> str:
        """Who is faster, among equals."""
        if not self.is_fair:
            return "–"
        return "diffurn" if float(self.ratio.replace(",", "")) <= 1 else "the peer"


def comparisons() -> list[Comparison]:
    return [
        each
        for folder, machine in MACHINES.items()
        for each in _read(machine, (RESULTS / folder / "ratios.md").read_text(encoding="utf-8"))
    ]


def _read(machine: str, text: str) -> Iterator[Comparison]:
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        title, _, body = section.partition("\n")
        lines = [line.strip("| ").split(" | ") for line in body.splitlines() if line[:1] == "|"]
        if not lines or lines[0][3:4] != ["diffurn, per item"]:
            continue  # lists of cells, and exponents
        job, _, law = title.rpartition(", ")
        peers = lines[0][4:]
        for c, m, B, ours, *cells in lines[2:]:
            for peer, cell in zip(peers, cells, strict=True):
                found = _NOTE.fullmatch(cell)
                ratio, note = (found["ratio"], found["note"] or "") if found else ("–", cell)
                if note != "–":
                    yield Comparison(machine, law, job, c, m, B, ours, peer, ratio, note)


def curves(folder: str, law: str, over: str) -> Figure | None:
    """Time of each operation on three groups over m, and over another axis of the benchmarks."""
    sys.path.append(str(ROOT))
    from benchmarks.figure import scaling
    from benchmarks.growth import growths

    with gzip.open(RESULTS / folder / "bench.json.gz") as file:
        found = growths(json.load(file)["records"])
    chosen = [g for g in found if g.axis == over or (g.axis == "m" and "c = 3" in g.fixed)]
    figure = scaling(chosen, law, "time", MACHINES[folder])
    if figure:
        figure.set_dpi(150)
    return figure


def by_peer() -> str:
    """A Markdown table: in how many comparisons diffurn is faster, peer by peer."""
    head = "machine | law | peer | comparisons | diffurn is faster | its time over the peer's"
    rows = [f"| {head}, median |", "|---|---|---|--:|--:|--:|"]
    groups: dict[tuple[str, str, str], list[Comparison]] = {}
    for each in comparisons():
        if each.is_fair:
            groups.setdefault((each.machine, each.law, each.peer), []).append(each)
    for names, found in groups.items():
        ratios = sorted(float(each.ratio.replace(",", "")) for each in found)
        middle = math.exp(sum(math.log(ratios[(len(ratios) - k) // 2]) for k in (0, 1)) / 2)
        won = sum(ratio <= 1 for ratio in ratios)
        rows.append(f"| {' | '.join(names)} | {len(found)} | {won} | {middle:.2g} |")
    return "\n".join(rows)


def table() -> Html:
    """All comparisons; the script `filter.js` adds a choice to each column of few values."""
    columns = ["machine", "law", "job", "c", "m", "B", "diffurn, per item", "peer"]
    columns += ["its time over the peer's", "faster", "note"]
    chosen = {"machine", "law", "job", "c", "peer", "faster"}
    head = "".join(
        f"<th{' data-filter' if name in chosen else ''}>{html.escape(name)}</th>"
        for name in columns
    )
    rows = [[*each[:9], each.faster, each.note] for each in comparisons()]
    body = "\n".join(
        f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in rows
    )
    return Html(
        '<div class="filterable"><table class="docutils"><thead><tr>'
        f"{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )
