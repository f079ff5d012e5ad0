"""``python -m fuzzing``: checks families of hard urns until time is up, and prints what fails as
lines to paste into Python.
"""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Mapping

import torch

from fuzzing import jobs
from fuzzing.families import FAMILIES
from fuzzing.findings import Example, Finding, merged
from fuzzing.jobs import Job, Result
from fuzzing.pool import Lost, work_off

JOB_LIMIT = (
    600.0  # seconds on the clock; jobs take one or two, and a minute where calls have to be ended
)


def parsed(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m fuzzing", description=__doc__.split(":")[1])
    parser.add_argument(
        "--seconds",
        type=float,
        default=900.0,
        help="no new batch begins after so long (default: 900)",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        help="the same seed gives the same urns in the same order (default: 0)",
    )
    parser.add_argument("--workers", type=int, default=2, help="processes (default: 2)")
    parser.add_argument(
        "--device", default="cpu", help="torch device, such as cpu or cuda (default: cpu)"
    )
    parser.add_argument(
        "--kinds",
        nargs="+",
        choices=jobs.KINDS,
        default=list(jobs.KINDS),
        help="sets of checks (default: all)",
    )
    parser.add_argument(
        "--families",
        nargs="+",
        choices=FAMILIES,
        default=list(FAMILIES),
        help="families of urns (default: all)",
    )
    parser.add_argument(
        "--job", metavar="KIND:FAMILY:INDEX", help="run this batch alone, in this process"
    )
    return parser.parse_args(arguments)


def lost(job: Job, reason: str) -> Finding:
    law = jobs.KINDS[job.kind].law
    line = f"python -m fuzzing --seed {job.seed} --job {job}  # {reason.strip().splitlines()[-1]}"
    check = "the fuzzer itself failed" if "Traceback" in reason else "a batch gives no result"
    return Finding(law, check, 1, {job.family: 1}, [Example((0, 0), line)])


def report(findings: list[Finding], done: Mapping[str, Result], seconds: float) -> None:
    print("\n" + "\n".join(map(str, findings)))
    print(f"\nafter {seconds:.0f} s:")
    for kind, result in done.items():
        print(
            f"{kind:24}{result.urns:>12,} urns{result.urns / max(result.seconds, 1e-9):>12,.0f} a "
            "second and core"
        )
    print(f"{len(findings)} checks failed" if findings else "no check failed")


def main(arguments: list[str] | None = None) -> int:
    options = parsed(arguments)
    device, began = torch.device(options.device), time.monotonic()
    done: dict[str, Result] = {}
    findings: list[Finding] = []
    if options.job:
        jobs.prepare(device)
        kind, family, index = options.job.split(":")
        done[kind] = jobs.run(Job(kind, family, options.seed, int(index)), device)
        findings += done[kind].findings
    else:
        queue = jobs.schedule(options.seed, options.kinds, options.families)
        work = functools.partial(jobs.run, device=device)
        for job, result in work_off(
            queue,
            work,
            functools.partial(jobs.prepare, device),
            options.workers,
            JOB_LIMIT,
            options.seconds,
        ):
            found = [lost(job, result.reason)] if isinstance(result, Lost) else result.findings
            if isinstance(result, Result):
                done.setdefault(job.kind, Result(0, 0.0, [])).add(result)
            for finding in found:
                if not any(finding.is_like(other) for other in findings):
                    print(f"after {time.monotonic() - began:.0f} s, {job}: {finding}", flush=True)
            findings = merged([*findings, *found])
    report(findings, done, time.monotonic() - began)
    return 1 if findings else 0


if __name__ == "__main__":
    raise SystemExit(main())
