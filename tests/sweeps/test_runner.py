"""Sweeps on this machine: shares, failures, kills, interruptions, and two sweeps at once."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from graph_machine.errors import ConfigError
from graph_machine.lab.sweeps.grid import make_grid
from graph_machine.lab.sweeps.progress import Entry, LiveView, View, summary
from graph_machine.lab.sweeps.runner import LocalRunner, Share, close_finished, prepare, shares
from graph_machine.lab.training import RunFolder
from support.run_folders import make_run
from support.sweeps import Watch, interrupt, kill, steps_of, tiny_jobs


@pytest.mark.parametrize(
    ("workers", "cores", "expected"),
    [
        (1, [0, 1, 2, 3], [(0, 1, 2, 3)]),
        (2, [0, 1, 2, 3], [(0, 1), (2, 3)]),
        (3, [4, 5, 6, 7], [(4,), (5,), (6, 7)]),
        (3, [0, 1], [(0,), (1,), (0,)]),
    ],
)
def test_cores_are_shared_out(
    workers: int, cores: list[int], expected: list[tuple[int, ...]]
) -> None:
    found = shares(workers, cores, environment={})
    assert [share.cores for share in found] == expected
    for share in found:
        assert share.environment["OMP_NUM_THREADS"] == str(len(share.cores))
    for share in shares(workers, cores, environment={"OMP_NUM_THREADS": "1"}):
        assert share.environment["OMP_NUM_THREADS"] == "1", "the user's limit"


def test_accelerators_are_shared_out() -> None:
    found = shares(3, [0, 1], accelerator="cuda", devices=2, environment={})
    assert [s.environment["CUDA_VISIBLE_DEVICES"] for s in found] == ["0", "1", "0"]
    limited = {"CUDA_VISIBLE_DEVICES": "5,7"}
    found = shares(2, [0, 1], accelerator="cuda", devices=2, environment=limited)
    assert [s.environment["CUDA_VISIBLE_DEVICES"] for s in found] == ["5", "7"]
    assert "CUDA_VISIBLE_DEVICES" not in shares(1, [0], environment={})[0].environment


def test_no_workers() -> None:
    with pytest.raises(ConfigError, match="--workers"):
        shares(0, [0])


def test_what_is_finished_or_locked_is_not_run(tmp_path: Path) -> None:
    jobs = make_grid(["gm", "transformer"], [0], budget="smoke", out=tmp_path)
    make_run(tmp_path, "gm", 0, 0.75, budget="smoke", name="smoke/4x4/gm/seed-0")
    with RunFolder(jobs[1].out).locked():
        entries = prepare(jobs)
        LocalRunner(entries, [Share((0,), {})], View()).run(interval=0.0)
        assert [entry.status for entry in entries] == ["skipped", "elsewhere"]
        assert entries[0].score == 0.75
        assert entries[1].message.startswith(f"process {os.getpid()} on ")
    assert summary(entries) == ("2 runs: 1 another process has it, 1 finished before")


def test_what_another_sweep_finishes_meanwhile_counts_as_finished(tmp_path: Path) -> None:
    jobs = make_grid(["gm"], [0], budget="smoke", out=tmp_path)
    entries = prepare(jobs)
    with RunFolder(jobs[0].out).locked():
        make_run(tmp_path, "gm", 0, 0.5, budget="smoke", name="other")
        runner = LocalRunner(entries, [Share((0,), {})], View())
        runner.start(entries[0])
        (tmp_path / "other" / "result.json").rename(jobs[0].out / "result.json")
        runner.run(interval=0.0)
    assert entries[0].status == "skipped"
    assert entries[0].score == 0.5


def test_a_run_that_was_killed_after_its_result_is_closed(tmp_path: Path) -> None:
    """Its status and the half-written file, but not while a process works on it."""
    (job,) = make_grid(["gm"], [0], budget="smoke", out=tmp_path)
    make_run(tmp_path, "gm", 0, 0.75, budget="smoke", name="smoke/4x4/gm/seed-0")
    RunFolder(job.out).update(status="running")
    (job.out / ".run.json.abc.tmp").write_text("{")
    (entry,) = prepare([job])
    with RunFolder(job.out).locked():
        close_finished([entry])
        assert RunFolder(job.out).info().status == "running"
    close_finished([entry])
    assert RunFolder(job.out).info().status == "finished"
    names = {"run.json", "metrics.jsonl", "result.json"}
    assert {path.name for path in job.out.iterdir()} - {".lock"} == names


STEPS = 250  # enough that a fast machine does not finish them before the signal arrives


@pytest.mark.slow
def test_killed_then_interrupted_then_finished(tmp_path: Path) -> None:
    """One run through everything that can happen to it; each time it goes on where it was."""
    (job,) = tiny_jobs(tmp_path, "transformer", steps=STEPS)
    slots = [Share((min(os.sched_getaffinity(0)),), {"OMP_NUM_THREADS": "1"})]

    (entry,) = prepare([job])
    LocalRunner([entry], slots, Watch(5, kill)).run()
    assert entry.status == "failed"
    assert entry.message.startswith("killed by signal 9 (log: ")
    assert RunFolder(job.out).holder() is None  # its process is gone
    began = json.loads((job.out / "run.json").read_text())["started"]

    (entry,) = prepare([job])
    runner = LocalRunner([entry], slots, Watch(max(steps_of(job.out)) + 5, interrupt))
    with pytest.raises(KeyboardInterrupt):
        runner.run()
    assert entry.status == "interrupted"
    assert json.loads((job.out / "run.json").read_text())["status"] == "interrupted"
    assert RunFolder(job.out).holder() is None
    reached = max(steps_of(job.out))
    assert 5 < reached < STEPS

    (entry,) = prepare([job])
    LocalRunner([entry], slots, View()).run()
    assert entry.status == "finished"
    assert entry.step == STEPS
    assert steps_of(job.out) == list(range(1, STEPS + 1))
    record = json.loads((job.out / "run.json").read_text())
    assert (record["status"], record["started"]) == ("finished", began)
    assert record["hardware"]["cores"] == 1
    assert prepare([job])[0].status == "skipped"


@pytest.mark.slow
def test_a_worker_stops_when_its_sweep_is_gone(tmp_path: Path) -> None:
    (job,) = tiny_jobs(tmp_path, "transformer", steps=100_000)
    order = {"job": job.to_dict(), "cores": []}
    process = subprocess.Popen(
        [sys.executable, "-m", "graph_machine.lab.sweeps.runner"],
        stdin=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps(order).encode() + b"\n")
    process.stdin.flush()
    end = time.monotonic() + 120
    while not (job.out / "metrics.jsonl").exists() and time.monotonic() < end:
        time.sleep(0.1)
    assert str(RunFolder(job.out).holder()).startswith(f"process {process.pid} on ")
    process.stdin.close()  # what the kernel does when the sweep dies
    assert process.wait(timeout=120) == 128 + signal.SIGTERM
    assert json.loads((job.out / "run.json").read_text())["status"] == "interrupted"


def test_why_a_run_failed(tmp_path: Path) -> None:
    (job,) = make_grid(["gm"], [0], budget="smoke", out=tmp_path)
    assert Entry(job).failure() == "its process ended without a message"
    job.out.mkdir(parents=True)
    (job.out / "worker.log").write_text("one\nout of memory\n")
    assert Entry(job).failure() == "out of memory"
    facts = {"format": "graph-machine-run", "version": 1, "config": {}}
    record = json.dumps(facts | {"data": {"identity": "a"}, "error": "TrainingError: loss"})
    (job.out / "run.json").write_text(record)
    assert Entry(job).failure() == "TrainingError: loss"


def test_one_screen(tmp_path: Path) -> None:
    from rich.console import Console

    jobs = make_grid(["gm"], range(30), budget="smoke", out=tmp_path)
    make_run(tmp_path, "gm", 0, None, budget="smoke", name="smoke/4x4/gm/seed-0")
    entries = [Entry(job) for job in jobs]
    entries[0].status = "running"
    entries[0].refresh()
    entries[1].status, entries[1].message = "failed", "x"
    console = Console(width=100, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    with console.file:
        console.print(LiveView.render(entries, 10))
    text = console.export_text()
    assert "30 runs: 1 running, 1 failed, 28 waiting" in text
    assert "and 20 more" in text
    assert "gm seed 0" in text
    assert len(text.splitlines()) <= 13


def test_plain_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    jobs = make_grid(["gm"], [0], budget="smoke", out=tmp_path)
    view, entry = View(interval=0.0), Entry(jobs[0])
    view.update([entry])
    entry.status, entry.step, entry.loss = "running", 5, 1.25
    view.update([entry])
    entry.status, entry.score = "finished", 0.5
    view.update([entry])
    view.update([entry])
    assert capsys.readouterr().out.splitlines() == [
        "gm seed 0: running, step 5 of 20, loss 1.250",
        "gm seed 0: running, step 5 of 20, loss 1.250",
        "gm seed 0: finished, boards 50.0%",
    ]


def test_a_task_is_shown_in_its_own_metric(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = make_grid(["text-gm"], [0], budget="smoke", out=tmp_path)
    entry = Entry(jobs[0], status="finished", score=3.4216)
    View().update([entry])
    assert capsys.readouterr().out == "text-gm seed 0: finished, bits per byte 3.422\n"
    names = [column.header for column in LiveView.render([entry], 10).columns]
    assert names[-2:] == ["bits per byte", "left"]
    sudoku = Entry(make_grid(["gm"], [0], budget="smoke", out=tmp_path)[0])
    names = [column.header for column in LiveView.render([entry, sudoku], 10).columns]
    assert names[-2:] == ["result", "left"]
