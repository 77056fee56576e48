"""Paired tests: against scipy, by hand, and honest about few seeds."""

import numpy as np
import pytest
from scipy import stats

from graph_machine.reports import compare as module
from graph_machine.reports.compare import (
    compare,
    incomplete_beta,
    sign_flip_p,
    t_quantile,
    t_two_sided,
)


@pytest.mark.parametrize("degrees", [1, 2, 3, 9, 30, 200])
def test_students_t(degrees: int) -> None:
    assert t_quantile(degrees) == pytest.approx(stats.t.ppf(0.975, degrees), rel=1e-9)
    for t in (0.0, 0.1, 1.0, 5.0, 40.0):
        assert t_two_sided(t, degrees) == pytest.approx(2 * stats.t.sf(t, degrees), rel=1e-9)


def test_the_ends_of_the_beta_function() -> None:
    assert incomplete_beta(2.0, 3.0, 0.0) == 0.0
    assert incomplete_beta(2.0, 3.0, 1.0) == 1.0


def test_against_scipy() -> None:
    rng = np.random.default_rng(3)
    first, second = rng.normal(1.0, 1.0, 8), rng.normal(0.0, 1.0, 8)
    found = compare("a", "b", dict(enumerate(first)), dict(enumerate(second)))
    assert found is not None
    interval = stats.ttest_rel(first, second).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))
    exact = stats.permutation_test(
        (first - second,),
        lambda x: np.mean(x),
        permutation_type="samples",
        n_resamples=np.inf,
    )
    assert found.p_value == pytest.approx(exact.pvalue)
    assert found.mean == pytest.approx((first - second).mean())
    assert found.note == ""


def test_three_seeds_that_agree() -> None:
    found = compare("a", "b", {0: 3.0, 1: 4.0, 2: 5.0}, {0: 1.0, 1: 1.0, 2: 1.0, 9: 0.0})
    assert found is not None
    assert found.seeds == (0, 1, 2)
    assert found.p_value == found.smallest_p == 0.25
    assert str(found) == (
        "a - b: +3.0 (95% interval +0.5 to +5.5), p = 0.25, "
        "3 seeds: too few for p below 0.25, whatever the difference"
    )


def test_one_seed_and_none() -> None:
    found = compare("a", "b", {0: 3.0}, {0: 1.0, 1: 1.0})
    assert found is not None
    assert (found.low, found.high, found.p_value) == (None, None, None)
    assert str(found) == "a - b: +2.0, one seed: no test is possible"
    assert compare("a", "b", {0: 3.0}, {1: 1.0}) is None


def test_no_difference_at_all() -> None:
    found = compare("a", "b", {0: 1.0, 1: 2.0}, {0: 1.0, 1: 2.0})
    assert found is not None
    assert (found.mean, found.low, found.high, found.p_value) == (0.0, 0.0, 0.0, 1.0)


def test_many_seeds_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    differences = np.random.default_rng(0).normal(0.3, 1.0, 10)
    exact, all_tried = sign_flip_p(differences)
    monkeypatch.setattr(module, "EXACT_UP_TO", 5)
    drawn, tried = sign_flip_p(differences)
    assert (all_tried, tried) == (True, False)
    assert drawn == pytest.approx(exact, abs=0.01)
