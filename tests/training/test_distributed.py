"""Two processes with half of the batch each do what one process does with all of it."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from graph_machine.lab.config import ExperimentConfig
from graph_machine.lab.training import train
from support.runs import recurrent, tiny, weights_of
from support.shell import scripts

SCRIPT = """
import sys
from graph_machine.lab.config import ExperimentConfig
from graph_machine.lab.training import train
out, data, config, *source = sys.argv[1:]
config = ExperimentConfig.from_json(config)
source = source[0] if source else None
train(config, out=out, data=data, progress="none", device="cpu", init_from=source)
"""


def by_torchrun(words: Sequence[object], script: Path) -> None:
    script.write_text(SCRIPT)
    torchrun = [sys.executable, "-m", "torch.distributed.run"]
    done = subprocess.run(
        [*torchrun, "--standalone", "--nproc-per-node=2", script, *map(str, words)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr


def by_forks(words: Sequence[object]) -> None:
    """What torchrun tells its processes, without its own time and their imports."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    common |= {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    ranks = [common | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(2)]
    for code, text in scripts(SCRIPT, words, ranks):
        assert code == 0, text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "warm"),
    [(tiny(), False), (recurrent(freeze="nodes,stack.layers.0"), True)],
    ids=["plain", "core, average, frozen parts, warm start"],
)
def test_two_processes_equal_one(
    tmp_path: Path, puzzles: str, config: ExperimentConfig, warm: bool
) -> None:
    source = str(tmp_path / "source") if warm else None
    if source:
        train(recurrent(steps=1), seed=1, out=source, data=puzzles, progress="none")
    halves = config.with_train(accumulate=2).to_json()
    words = [tmp_path / "two", puzzles, halves, *([source] if source else [])]
    if warm:
        by_forks(words)
    else:
        by_torchrun(words, tmp_path / "script.py")
    train(config, out=tmp_path / "one", data=puzzles, progress="none", init_from=source)
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
    if source:
        before, after = weights_of(Path(source)), weights_of(tmp_path / "two")
        kept = {name for name in before if torch.equal(before[name], after[name])}
        assert kept == {n for n in before if n.startswith(("nodes.", "stack.layers.0."))}
    results = [json.loads((tmp_path / n / "result.json").read_text()) for n in ("one", "two")]
    assert results[0]["board_accuracy"] == results[1]["board_accuracy"]
    assert results[0]["loss"] == pytest.approx(results[1]["loss"], rel=1e-4)
