"""The claims of the pairs study, from records whose verdicts are worked out by hand."""

from __future__ import annotations

import numpy as np
from pair_records import (
    SMALL,
    counts,
    options,
    row,
    scores_of,
    titled,
    train_record,
    trained,
    with_urns,
)

from diffurn_studies.harness.tables import Table
from diffurn_studies.pairs.claims import _told
from diffurn_studies.pairs.methods import ADAPTIVE, HYPERGEOMETRIC, LABEL
from diffurn_studies.pairs.tables import tables, verdict_of


def test_the_verdict_says_where_each_claim_holds() -> None:
    known = scores_of(SMALL, {"LabelVAE": 0.1, "AdaVAE": 0.2, "HGVAE": 0.2})
    papers, ours = verdict_of(SMALL | known)
    assert papers == (
        "HGVAE in the paper's metrics: MSE(s, ŝ) is below the baselines' at every s; ŝ follows s; "
        "I is at least the baselines' at every s; S is at least the baselines' at every s."
    )
    assert ours.startswith("HGVAE in ours: by draws MSE(7−s, k̂) is below the baselines' at every s")


def test_a_verdict_is_open_partial_negative_or_counted() -> None:
    error, follows = "MSE(s, ŝ) below the baselines'", "ŝ follows s"
    assert _told(error, [(False, True)]) == (
        "MSE(s, ŝ) is below the baselines' over all s, not at every s"
    )
    assert _told(error, [(False, False)]) == "MSE(s, ŝ) is not below the baselines'"
    assert _told(error, [(None, None)]) == "whether MSE(s, ŝ) is below the baselines' is open"
    assert _told(error, [(True, True), (False, True), (False, False)]) == (
        "MSE(s, ŝ) is below the baselines' over all s for 2 of 3 variants, at every s for 1"
    )
    assert _told(follows, [(None, False)]) == "ŝ does not follow s"
    assert _told(follows, [(None, True), (None, False)]) == "ŝ follows s for 1 of 2 variants"


def test_missing_scores_leave_cells_empty_and_claims_open() -> None:
    found = tables(SMALL, options())
    for cells in titled(found, "know").rows:
        assert (cells[2], cells[4], *cells[6:]) == (None,) * 6
    claim = row(titled(found, "claims"), "I at least the baselines'", "HGVAE")
    assert (claim["at every s"], claim["over all s"]) == ("–", "–")


def verdicts(table: Table, *start: str) -> tuple[str, str]:
    """The verdicts of a claim at every s and over all s."""
    found = row(table, *start)
    return found["at every s"], found["over all s"]


def test_claims_hold_where_they_do() -> None:
    table = titled(
        tables(SMALL | scores_of(SMALL, {"LabelVAE": 0.1, "AdaVAE": 0.2, "HGVAE": 0.2}), options()),
        "claims",
    )
    ours, papers = "MSE(7−s, k̂) below the baselines'", "MSE(s, ŝ) below the baselines'"
    errors = row(table, ours, "HGVAE")
    assert verdicts(table, ours, "HGVAE") == ("yes", "yes")
    assert errors["figures by s"] == "s = 0: 0.20<25.00, 3: 0.00<6.50, all: 0.10<15.75"
    assert (
        row(table, papers, "HGVAE")["figures by s"]
        == "s = 0: 10.40<64.00, 3: 9.00<30.50, all: 9.70<47.25"
    )
    known = row(table, "I at least the baselines'", "HGVAE")
    assert known["figures by s"] == "s = 0: 0.200≥0.200, 3: 0.200≥0.200, all: 0.200≥0.200"
    assert verdicts(table, "I at least the baselines'", "HGVAE") == ("yes", "yes")
    follows = row(table, "ŝ follows s", "HGVAE")  # from 3.2 to 6
    assert follows["over all s"] == "yes"
    assert follows["figures by s"] == "s = 0: 3.20, 3: 6.00; rises by 2.80 of 3, r = 1.00"
    assert row(table, "ŝ does not follow s", "LabelVAE")["figures by s"].endswith(
        "rises by 0.00 of 3, r = 0.00"
    )
    # from 8 to 8.5
    assert row(table, "ŝ does not follow s", "AdaVAE")["over all s"] == "yes"


def test_claims_in_the_papers_metrics_come_first() -> None:
    claims = [cells[0] for cells in titled(tables(SMALL, options()), "claims").rows]
    assert list(dict.fromkeys(claims)) == [
        "MSE(s, ŝ) below the baselines'",
        "ŝ does not follow s",
        "ŝ follows s",
        "I at least the baselines'",
        "S at least the baselines'",
        "MSE(7−s, k̂) below the baselines'",
    ]


def test_a_claim_may_fail_at_one_s_and_hold_over_all() -> None:
    records = {
        "train-s0": train_record(
            trained(LABEL, 0, counts(k1=1)), trained(HYPERGEOMETRIC, 0, counts(k7=1))
        ),  # errors 36 and 0
        "train-s5": train_record(
            trained(LABEL, 5, counts(k1=1)), trained(HYPERGEOMETRIC, 5, counts(k4=1))
        ),  # errors 1 and 4
    }
    table = titled(tables(records, options(shared=(0, 5))), "claims")
    claim = row(table, "MSE(7−s, k̂) below the baselines'", "HGVAE")
    assert (claim["at every s"], claim["over all s"]) == ("no", "yes")
    assert claim["figures by s"] == "s = 0: 0.00<36.00, 5: 4.00≥1.00, all: 2.00<18.50"


def test_over_all_s_the_rival_is_one_baseline() -> None:
    records = {
        f"train-s{shared}": train_record(
            trained(LABEL, shared, counts(**{label: 1})),
            trained(ADAPTIVE, shared, counts(**{adaptive: 1})),
            trained(HYPERGEOMETRIC, shared, counts(**{own: 1})),
        )
        for shared, label, adaptive, own in ((0, "k7", "k3", "k6"), (3, "k1", "k4", "k5"))
    }  # errors at s = 0 and 3: LabelVAE 0 and 9, AdaVAE 16 and 0, HGVAE 1 and 1
    table = titled(tables(records, options()), "claims")
    claim = row(table, "MSE(7−s, k̂) below the baselines'", "HGVAE")
    assert claim["figures by s"] == "s = 0: 1.00≥0.00, 3: 1.00≥0.00, all: 1.00<4.50"
    assert (claim["at every s"], claim["over all s"]) == ("no", "yes")


def test_the_claim_about_s_leaves_out_pairs_that_share_nothing() -> None:
    records = scores_of(SMALL, {"LabelVAE": 0.1, "AdaVAE": 0.2, "HGVAE": 0.2})
    for place, model in enumerate(records["score-s0"]["models"]):
        model["shared_accuracy"] = None
        records["score-s3"]["models"][place]["shared_accuracy"] = (0.4, 0.5, 0.3)[place]
    table = titled(tables(SMALL | records, options()), "claims")
    claim = row(table, "S at least the baselines'", "HGVAE")
    assert claim["figures by s"] == "s = 3: 0.300<0.500"
    assert (claim["at every s"], claim["over all s"]) == ("no", "no")


def test_claims_fail_where_they_do() -> None:
    records = {
        "train-s0": train_record(
            trained(ADAPTIVE, 0, counts(k7=1)), trained(HYPERGEOMETRIC, 0, counts(k7=1))
        ),
        "train-s3": train_record(
            trained(ADAPTIVE, 3, counts(k4=1)), trained(HYPERGEOMETRIC, 3, counts(k7=1))
        ),
    }
    table = titled(
        tables(records | scores_of(records, {"AdaVAE": 0.25, "HGVAE": 0.24}), options()),
        "claims",
    )
    ours = "MSE(7−s, k̂) below the baselines'"
    assert (
        row(table, ours, "HGVAE")["figures by s"]
        == "s = 0: 0.00≥0.00, 3: 9.00≥0.00, all: 4.50≥0.00"
    )
    assert verdicts(table, ours, "HGVAE") == ("no", "no")
    assert verdicts(table, "I at least the baselines'", "HGVAE") == ("no", "no")
    assert row(table, "ŝ follows s", "HGVAE")["over all s"] == "no"
    assert row(table, "ŝ does not follow s", "AdaVAE")["over all s"] == "no"


def test_a_claim_about_broken_models_is_open_unless_refuted() -> None:
    broken = trained(HYPERGEOMETRIC, 0, None)
    for independent, outcome in ((4, "–"), (7, "no")):
        records = {
            "train-s0": train_record(trained(ADAPTIVE, 0, counts(k2=1)), broken),
            "train-s3": train_record(
                trained(ADAPTIVE, 3, counts(k2=1)),
                trained(HYPERGEOMETRIC, 3, counts(**{f"k{independent}": 1})),
            ),
        }
        table = titled(tables(records, options()), "claims")
        ours = "MSE(7−s, k̂) below the baselines'"
        assert verdicts(table, ours, "HGVAE") == (outcome, "–")
        assert row(table, ours, "HGVAE")["figures by s"].startswith("s = 0: –, 3: ")


def test_modes_and_means_have_errors_of_their_own() -> None:
    """Ten pairs with s = 3: the mode is 4 in nine of them, 5 in one; the mean is 3 or 5."""
    model = with_urns(
        trained(HYPERGEOMETRIC, 3, counts(k2=5, k6=5)),
        {"3": counts(k4=9, k5=1)},
        {"3": [4.0, 17.0]},
    )
    records = {"train-s3": train_record(trained(LABEL, 3, counts(k1=1)), model)}
    found = tables(records, options(shared=(3,)))
    numbers = row(titled(found, "how many"), "3", "HGVAE")
    assert [numbers[f"MSE(7−s, k̂){how}"] for how in ("", ", by mode", ", by mean")] == [
        "4.00",
        "0.10",
        "1.00",
    ]
    assert [numbers[f"MSE(s, ŝ){how}"] for how in ("", ", by mode", ", by mean")] == [
        "13.00",
        "8.50",  # ŝ = 6 or 5
        "10.00",  # ŝ = 7 or 5
    ]
    label = row(titled(found, "how many"), "3", "LabelVAE")
    assert label["MSE(7−s, k̂), by mode"] == label["MSE(7−s, k̂)"] == "9.00"
    claims = titled(found, "claims")
    ours = "MSE(7−s, k̂) below the baselines'"
    told = {
        how: row(claims, ours, "HGVAE", how)["figures by s"] for how in ("draw", "mode", "mean")
    }
    assert told == {
        "draw": "s = 3: 4.00<9.00",
        "mode": "s = 3: 0.10<9.00",
        "mean": "s = 3: 1.00<9.00",
    }
    assert row(titled(found, "every run"), "3", "HGVAE")["MSE(s, ŝ), by mean"] == "10.00"


def test_runs_that_kept_draws_alone_have_no_claims_about_modes() -> None:
    found = tables(SMALL, options())
    assert {cells[2] for cells in titled(found, "claims").rows} == {"draw"}
    assert row(titled(found, "how many"), "3", "HGVAE")["MSE(7−s, k̂), by mode"] == "–"


def test_following_in_pairs_is_the_correlation_over_pairs() -> None:
    found = {"1": counts(k6=3, k2=1), "4": counts(k3=2, k5=2), "6": counts(k1=4)}
    records = {
        "train-srandom": train_record(
            trained(ADAPTIVE, None, {"1": counts(k1=2), "6": counts(k1=2)}),
            trained(HYPERGEOMETRIC, None, found),
        )
    }
    table = titled(tables(records, options(shared=(-1,))), "claims")
    shared = np.repeat([1, 4, 6], 4)
    estimate = 10 - np.array([6, 6, 6, 2, 3, 3, 5, 5, 1, 1, 1, 1])
    r = np.corrcoef(shared, estimate)[0, 1]
    claim = row(table, "ŝ follows s in pairs", "HGVAE")
    assert (
        claim["figures by s"] == f"s = 1: 5.00, 4: 6.00, 6: 9.00; rises by 4.00 of 5, r = {r:.2f}"
    )
    assert claim["over all s"] == "yes"
    assert row(table, "ŝ does not follow s in pairs", "AdaVAE")["over all s"] == "yes"
    assert row(table, "ŝ follows s", "HGVAE")["over all s"] == "–"
