"""A study: what the harness runs.

A study is a module with a few names (`Study`), such as::

    \"\"\"How often does a coin fall on its head?\"\"\"      # shown above its tables

    NAME = "coins"

    @dataclass(frozen=True)
    class Options:
        seeds: int = 5       # `--set seeds=3` sets it; a field `device` follows `--device`

        def quick(self) -> Options:
            return replace(self, seeds=2)

    def units(options: Options) -> list[str]:
        return [f"seed{seed}" for seed in range(options.seeds)]

    def run_unit(options: Options, unit: str, workspace: Workspace) -> dict[str, Any]:
        torch.manual_seed(int(unit.removeprefix("seed")))      # a unit seeds itself
        return {"heads": float(torch.rand(1000).round().mean())}

    def table(results: Results) -> list[Table]:
        rows = [[unit, record["heads"]] for unit, record in results.records.items()]
        return [Table("Heads", ["unit", "ours"], rows)]

    def verdict(results: Results) -> list[str]:            # two or three sentences below them
        return [f"{results.options.seeds} coins were thrown."]

    def figure(results: Results) -> dict[str, Figure]:      # in the order of the paper
        return {}

    CAPTIONS: dict[str, str] = {}                           # by the names of the figures

Its arms are modules of a package beside it, one of them called ``paper``
(`diffurn_studies.harness.arms`). `diffurn_studies.registry` lists both; then ``diffurn reproduce
coins`` runs the study.

A class variable ``FREE`` of `Options` names the options that change where and how fast a run
computes, but not its records: they may change when the run is resumed. If later units need files of
earlier ones, the module has a function ``stages(options)`` as well: lists of units, each of which
starts when the one before is finished. `units` then are those of all stages.

A long unit saves its state now and then with `Workspace.save_checkpoint`, starts with
`Workspace.load_checkpoint`, and reports on the way with `Workspace.scalars`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from diffurn_studies.harness.tables import Table
    from diffurn_studies.harness.workspace import Workspace

# Called with the number of finished units, the number of all units, and the name of the next unit
# ("" at the end).
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Results:
    """All records of a study, in the order of its units; its tables and figures are made of
    them.
    """

    experiment: str
    options: Any
    environment: dict[str, str]
    records: dict[str, dict[str, Any]]


class Study(Protocol):
    """The names that a study has; a module with them is a study."""

    NAME: str
    CAPTIONS: dict[str, str]

    def units(self, options: Any, /) -> list[str]: ...

    def run_unit(self, options: Any, unit: str, workspace: Workspace, /) -> dict[str, Any]: ...

    def table(self, results: Results, /) -> list[Table]: ...

    def verdict(self, results: Results, /) -> list[str]: ...

    def figure(self, results: Results, /) -> dict[str, Figure]: ...


def stages_of(study: Study, options: Any) -> list[list[str]]:
    """The units of a study, in lists that run one after another."""
    stages: list[list[str]] = (
        study.stages(options) if hasattr(study, "stages") else [study.units(options)]
    )
    return stages
