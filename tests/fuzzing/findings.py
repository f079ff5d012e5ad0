"""Failures, grouped by law and check, each with a few small urns as one-line reproductions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

EXAMPLES = 4  # kept of each check


@dataclass(frozen=True, order=True)
class Example:
    """One urn that fails, and the line to paste into Python; small urns sort first."""

    size: tuple[int, int]
    line: str
    note: str = ""

    def __str__(self) -> str:
        return f"{self.line}{f'  ({self.note})' if self.note else ''}"


@dataclass
class Finding:
    """What one check found: how many urns failed, and the smallest of them."""

    law: str
    check: str
    count: int = 0
    families: dict[str, int] = field(default_factory=dict)
    examples: list[Example] = field(default_factory=list)
    is_of_a_call: bool = False  # that raised or did not return, and was traced to its urn already

    def is_like(self, other: Finding) -> bool:
        return (self.law, self.check) == (other.law, other.check)

    def add(self, other: Finding) -> None:
        self.count += other.count
        for family, count in other.families.items():
            self.families[family] = self.families.get(family, 0) + count
        self.examples = sorted({*self.examples, *other.examples})[:EXAMPLES]

    def __str__(self) -> str:
        families = ", ".join(
            f"{family} {count:,}"
            for family, count in sorted(self.families.items(), key=lambda item: -item[1])
        )
        return "\n".join(
            [
                f"{self.law}: {self.check}: {self.count:,} urns ({families})",
                *(f"    {example}" for example in self.examples),
            ]
        )


def merged(findings: Iterable[Finding]) -> list[Finding]:
    """One finding for each check of each law, the most frequent first."""
    together: dict[tuple[str, str], Finding] = {}
    for finding in findings:
        together.setdefault((finding.law, finding.check), Finding(finding.law, finding.check)).add(
            finding
        )
    return sorted(together.values(), key=lambda finding: (finding.law, -finding.count))
