"""Two processes with half of the batch each do what one process does with all of it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from graph_machine.training import train
from support.runs import tiny, weights_of

SCRIPT = """
import sys
from support.runs import tiny
from graph_machine.training import train
train(tiny(accumulate=2), out=sys.argv[1], data=sys.argv[2], progress="none", device="cpu")
"""


@pytest.mark.slow
def test_two_processes_equal_one(tmp_path: Path, puzzles: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    tests = str(Path(__file__).parent.parent)
    torchrun = [sys.executable, "-m", "torch.distributed.run"]
    done = subprocess.run(
        [*torchrun, "--standalone", "--nproc-per-node=2", script, tmp_path / "two", puzzles],
        env={**os.environ, "PYTHONPATH": tests, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    train(tiny(), out=tmp_path / "one", data=puzzles, progress="none")
    one, two = (
        [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        for name in ("one", "two")
    )
    assert len(one) == len(two) == 5
    for ours, theirs in zip(one, two, strict=True):
        for name in ours.keys() - {"kind", "seconds", "steps_per_second"}:
            assert ours[name] == pytest.approx(theirs[name], rel=2e-4), name
    for name, tensor in weights_of(tmp_path / "one").items():
        torch.testing.assert_close(weights_of(tmp_path / "two")[name], tensor, rtol=1e-2, atol=1e-4)
    results = [json.loads((tmp_path / n / "result.json").read_text()) for n in ("one", "two")]
    assert results[0]["board_accuracy"] == results[1]["board_accuracy"]
    assert results[0]["loss"] == pytest.approx(results[1]["loss"], rel=1e-4)
