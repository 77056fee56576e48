"""kill -9 at any moment, then resume: the same weights to the bit."""

from pathlib import Path

import pytest
import torch

from graph_machine.lab.training import RunFolder, train
from support.runs import recurrent, same_bits, weights_of
from support.shell import script

KILLS = """
import sys
from pathlib import Path
from support.kills import main
main(Path(sys.argv[1]), *sys.argv[2:])
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["plain", "warm start, frozen parts"])
def test_killed_runs_end_in_the_same_bits(tmp_path: Path, puzzles: str, kind: str) -> None:
    begun = []
    if kind != "plain":
        begun = [str(tmp_path / "source")]
        train(recurrent(steps=1), out=begun[0], data=puzzles, progress="none")
    stepwise, _ = map(int, script(KILLS, tmp_path, puzzles, *begun).split()[1:])
    assert stepwise >= (6 if begun else 10)
    for name in ("stepwise", "random"):
        assert same_bits(tmp_path / "whole", tmp_path / name)
        assert RunFolder(tmp_path / name).info().status == "finished"
        left = {p.name for p in (tmp_path / name / "checkpoints").iterdir()}
        steps = {"step-3"} if begun else {"step-5", "step-6"}
        assert {"latest", "best"} | steps <= left
        assert len(left) <= 5
        assert not list((tmp_path / name).rglob("*.tmp"))
        assert RunFolder(tmp_path / name).result().init_from in (None, *begun)
    for source in begun:
        before, after = weights_of(Path(source)), weights_of(tmp_path / "stepwise")
        kept = {name for name in before if torch.equal(before[name], after[name])}
        assert kept == {name for name in before if name.startswith(("nodes.", "stack."))}
