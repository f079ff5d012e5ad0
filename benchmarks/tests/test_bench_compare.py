"""`python -m benchmarks compare`: ratios of two source trees."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from benchmarks.__main__ import app
from benchmarks.compare import (
    Comparison,
    Effort,
    NotCompared,
    compared,
    is_suspect,
    pooled,
)
from benchmarks.compare_tables import compare_tables
from benchmarks.ours import Cell, Inputs, marginals
from benchmarks.registry import cells_of_ours
from benchmarks.trees import source_of
from benchmarks.worker import Timer, answer
from benchmarks.workers import Worker, WorkerError
from diffurn import FisherHypergeometric

CPU = torch.device("cpu")
runner = CliRunner()


@dataclass
class Tree:
    """A source tree whose runs take `first` seconds, then those of each round; None is an error."""

    first: float | None
    rounds: list[float] = field(default_factory=list)
    questions: list[dict[str, Any]] = field(default_factory=list)

    def seconds(self, **question: Any) -> float:
        self.questions.append(question)
        if self.first is None:
            raise WorkerError("AttributeError: no such thing")
        return self.first if "cell" in question else self.rounds.pop(0)


def test_the_ratio_is_the_median_of_the_rounds_ratios() -> None:
    before, after = Tree(0.01, [1.0, 4.0, 1.0]), Tree(0.02, [1.1, 4.0, 3.0])
    outcome = compared(before, after, "cell", Effort(rounds=3, turns=1))
    assert isinstance(outcome, Comparison)
    assert outcome.ratios == pytest.approx([1.1, 1.0, 3.0])
    assert outcome.ratio == pytest.approx(1.1)


def test_trees_take_turns_with_equal_numbers_of_runs() -> None:
    before, after = Tree(1e-4, [3.0, 1.0, 2.0]), Tree(2e-4, [4.0, 5.0, 6.0])
    outcome = compared(before, after, "cell", Effort(rounds=1, seconds=0.03, turns=3))
    assert before.questions[1:] == after.questions[1:] == [{"runs": 10}] * 3
    assert outcome == Comparison("cell", (1.0,), (4.0,))


def test_cells_that_one_tree_lacks_or_that_take_long_are_not_compared() -> None:
    lacking = compared(Tree(None), Tree(0.1), "cell", Effort())
    assert lacking == NotCompared("cell", "AttributeError: no such thing", "")
    long = compared(Tree(1.0), Tree(9.0), "cell", Effort(longest=3.0))
    assert long == NotCompared("cell", "a run takes 1.0 s", "a run takes 9.0 s")


def test_rounds_of_repeated_measurements_are_pooled() -> None:
    first, second = Comparison("a", (1.0,), (1.2,)), Comparison("a", (2.0, 2.0), (2.0, 2.0))
    assert is_suspect(first)
    assert pooled(None, first) is first
    assert pooled(first, second) == Comparison("a", (1.0, 2.0, 2.0), (1.2, 2.0, 2.0))
    assert not is_suspect(pooled(first, second))


def test_the_table_has_the_slowest_first_and_the_later_outcome_counts() -> None:
    outcomes = [
        Comparison("a", (1.0, 1.0), (1.2, 1.2)),
        Comparison("b", (1.0, 1.0), (1.5, 1.5)),
        NotCompared("c", "", "TypeError: no"),
        Comparison("a", (1.0,) * 3, (0.5, 0.6, 0.7)),
    ]
    ratios, missing = compare_tables(outcomes)
    assert ratios.rows == [
        ["b", "1 s", "1.5 s", "1.500", "1.50 to 1.50", "1.500", 2],
        ["a", "1 s", "600 ms", "0.600", "0.55 to 0.65", "0.500", 3],
    ]
    assert ratios.notes[0].startswith("2 cells: 1 slower by more than 10%, 1 faster")
    assert missing.rows == [["c", "–", "TypeError: no"]]


def test_a_worker_times_its_runs_after_a_warm_up() -> None:
    now, durations = [0.0], iter([9.0, 2.0, 1.0, 2.0])

    def run() -> None:
        now[0] += next(durations)

    timer = Timer({"a": Cell("a", 1, lambda inputs: run)}, Inputs(CPU), clock=lambda: now[0])
    assert answer(timer, {"cell": "a", "longest": 100.0}) == {"seconds": 2.0}
    assert answer(timer, {"runs": 2}) == {"seconds": 1.5}
    assert answer(timer, {"cell": "b", "longest": 1.0}) == {"error": "KeyError: 'b'"}


def test_drawn_inputs_are_the_same_for_both_trees(tmp_path: Path) -> None:
    draws = iter([torch.tensor([1.0]), torch.tensor([2.0])])
    for _ in range(2):
        assert Inputs(CPU, tmp_path).kept("name", lambda: next(draws)).item() == 1.0


def test_cells_of_small_urns_run() -> None:
    urns = "c = 2, m = 10, n = 10, B = 64, float32", "c = 3, m = 10, n = 15, B = 1,"
    small = [cell for name, cell in cells_of_ours().items() if any(part in name for part in urns)]
    eager = [cell for cell in small if not cell.name.startswith("compiled")]
    assert len(eager) > 50
    refused = []
    for cell in eager:
        try:
            cell.prepare(Inputs(CPU))()
        except NotImplementedError:
            refused.append(cell.name)
    assert all("wallenius" in name for name in refused)


def test_marginals_have_one_spelling_for_all_revisions() -> None:
    urn = FisherHypergeometric([4, 5], 3, weights=torch.tensor([1.0, 2.0]))
    counts = torch.tensor([1.0, 2.0])
    expected = urn.log_prob(counts)
    torch.testing.assert_close(marginals(urn).log_prob(counts)[0], expected)


def git(folder: Path, *arguments: str) -> None:
    who = ["-c", "user.name=Nobody", "-c", "user.email=nobody@example.org"]
    subprocess.run(["git", "-C", str(folder), *who, *arguments], check=True, capture_output=True)


def test_trees_are_folders_or_revisions(tmp_path: Path) -> None:
    package = tmp_path / "repository" / "src" / "diffurn"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("old = True")
    git(tmp_path / "repository", "init")
    git(tmp_path / "repository", "add", ".")
    git(tmp_path / "repository", "commit", "-m", "first")
    (package / "__init__.py").write_text("old = False")
    repository = tmp_path / "repository"
    revision = source_of("HEAD", repository, tmp_path / "unpacked")
    assert (revision / "diffurn" / "__init__.py").read_text() == "old = True"
    folder = source_of(str(repository), repository, tmp_path / "unused")
    assert (folder / "diffurn" / "__init__.py").read_text() == "old = False"
    with pytest.raises(ValueError, match="neither a folder nor a git revision"):
        source_of("no-such-revision", repository, tmp_path / "unused")
    with pytest.raises(ValueError, match="has no src/diffurn"):
        source_of(str(tmp_path), repository, tmp_path / "unused")


def test_a_library_that_cannot_be_loaded_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "diffurn").mkdir()
    (tmp_path / "diffurn" / "__init__.py").write_text("raise SystemExit(3)")
    with (
        pytest.raises(WorkerError, match="cannot be loaded: the process ended"),
        Worker(tmp_path, tmp_path),
    ):
        pass


def test_the_command_compares_a_tree_with_itself(tmp_path: Path) -> None:
    source = str(Path(__file__).parents[2])
    name = "mean, fisher: c = 3, m = 10, n = 15, B = 1, sizes as a list"
    arguments = ["compare", source, source, "--only", name, "--rounds", "2", "--out", str(tmp_path)]
    result = runner.invoke(app, arguments)
    assert result.exit_code == 0, result.output
    report = json.loads((tmp_path / "compare.json").read_text(encoding="utf-8"))
    assert {outcome["cell"] for outcome in report["outcomes"]} == {name}
    assert 0.2 < report["outcomes"][0]["ratio"] < 5
    assert "Time after / time before" in (tmp_path / "compare.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["no-such-revision"], "no-such-revision is neither a folder nor a git revision"),
        ([".", "--only", "abacus"], "--only abacus: no cell has this in its name"),
    ],
)
def test_wrong_trees_and_cells_are_one_sentence(
    arguments: list[str], sentence: str, tmp_path: Path
) -> None:
    result = runner.invoke(app, ["compare", *arguments, "--out", str(tmp_path / "new")])
    assert result.exit_code == 2
    assert sentence in " ".join(result.output.split())
