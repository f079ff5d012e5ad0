"""Joins parts of one run: ``python tools/join.py results/pairs-kl-random runs/s1 runs/s3 runs/s5``.

The parts are finished runs of one arm, of which each has some entries of one list of its options,
such as ``shared``. The joined run has these entries in the order of the arm, and all records.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from diffurn_studies.harness.arms import Entry
from diffurn_studies.harness.records import write_json
from diffurn_studies.harness.run_directory import RunDirectory, Settings
from diffurn_studies.harness.runner import publish
from diffurn_studies.harness.study import Results
from diffurn_studies.registry import STUDIES


def joined_option(parts: Sequence[Settings], whole: Settings, free: Sequence[str]) -> str:
    """The name of the list whose entries are divided among the parts."""
    changed = set()
    for part in parts:
        if (part.experiment, part.arm) != (whole.experiment, whole.arm):
            raise SystemExit("the parts must be runs of one study and one arm")
        changed |= {
            name
            for name, value in whole.options.items()
            if name not in free and part.options[name] != value
        }
    if len(changed) != 1 or not isinstance(whole.options[min(changed)], list):
        raise SystemExit(
            f"the parts differ from the arm in {', '.join(sorted(changed)) or 'nothing'}, but must "
            "differ in one list"
        )
    return changed.pop()


def join(out: Path, parts: Sequence[Path], studies: Mapping[str, Entry] = STUDIES) -> None:
    directories = [RunDirectory(part) for part in parts]
    settings = [directory.settings() for directory in directories]
    experiment, arm = settings[0].experiment, settings[0].arm
    if arm is None:
        raise SystemExit(f"{parts[0]} names no arm")
    study, options = studies[experiment].load(), studies[experiment].options(arm)
    whole = Settings.of(experiment, arm, options, study.units(options))
    name = joined_option(settings, whole, getattr(options, "FREE", ()))

    found = [entry for part in settings for entry in part.options[name]]
    order = [entry for entry in getattr(options, name) if entry in found]
    if sorted(order) != sorted(found):
        raise SystemExit(f"{name} of the parts is {found}: each entry must be there once")
    options = replace(options, **{name: tuple(order)})
    units = study.units(options)
    records = {
        unit: record for directory in directories for unit, record in directory.records().items()
    }
    if missing := [unit for unit in units if unit not in records]:
        raise SystemExit(f"no part has a record of {', '.join(missing)}")

    out.mkdir(parents=True)
    joined = RunDirectory(out)
    made = settings[0]._replace(options={**settings[0].options, name: order}, units=units)
    write_json(out / "options.json", made._asdict())
    for directory in directories:
        for environment in directory.environments():
            joined.note_environment(environment)
    (out / "records").mkdir()
    for directory in directories:
        for record in sorted((directory.path / "records").iterdir()):
            shutil.copy(record, out / "records")
        for unit, seconds in directory.timings().items():
            joined.note_timing(unit, seconds)
    results = Results(study.NAME, options, {}, {unit: records[unit] for unit in units})
    publish(study, results, joined)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, help="the joined run, a new folder")
    parser.add_argument("parts", nargs="+", type=Path, help="finished runs")
    chosen = parser.parse_args()
    if chosen.out.exists():
        raise SystemExit(f"{chosen.out} exists, but must be a new folder")
    join(chosen.out, chosen.parts)


if __name__ == "__main__":
    main()
