"""Claims: one process per run, stale ones recognised, nobody's run taken twice."""

import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from graph_machine.sweeps.claims import (
    CLAIM_FILE,
    Claim,
    ClaimedError,
    birth_of,
    claimed,
    holder,
    read_claim,
    take,
    this_host,
)


def write(folder: Path, claim: Claim, age: float = 0.0) -> None:
    (folder / CLAIM_FILE).write_text(json.dumps(asdict(claim)))
    then = time.time() - age
    os.utime(folder / CLAIM_FILE, (then, then))


@pytest.fixture
def living() -> Claim:
    return Claim(os.getpid(), this_host(), birth_of(os.getpid()) or "", time.time())


def test_a_claim_is_held_and_given_back(tmp_path: Path) -> None:
    with claimed(tmp_path / "run", "mine") as claim:
        assert holder(tmp_path / "run") == claim
        assert (claim.pid, claim.sweep) == (os.getpid(), "mine")
        with pytest.raises(
            ClaimedError, match=rf"Process {os.getpid()} on \S+ has been working on this run"
        ):
            take(tmp_path / "run")
    assert read_claim(tmp_path / "run") is None


def test_it_is_given_back_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="boom"), claimed(tmp_path):
        raise RuntimeError("boom")
    assert holder(tmp_path) is None


def test_a_process_that_is_gone_holds_nothing(tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    write(tmp_path, Claim(gone.pid, this_host(), "1", time.time()))
    assert holder(tmp_path) is None
    assert take(tmp_path).pid == os.getpid()


def test_a_pid_that_is_used_again_is_another_process(tmp_path: Path, living: Claim) -> None:
    write(tmp_path, living)
    assert holder(tmp_path) == living
    write(tmp_path, replace(living, born="1"))
    assert holder(tmp_path) is None


def test_here_a_living_process_needs_no_heartbeat(tmp_path: Path, living: Claim) -> None:
    write(tmp_path, living, age=10_000)
    assert holder(tmp_path) == living


def test_elsewhere_the_heartbeat_decides(tmp_path: Path) -> None:
    other = Claim(1, "other-machine pid:[7]", "1", time.time())
    write(tmp_path, other, age=5)
    assert holder(tmp_path) == other
    with pytest.raises(ClaimedError, match="on other-machine has"):
        take(tmp_path)
    write(tmp_path, other, age=10_000)
    assert holder(tmp_path) is None
    assert take(tmp_path).pid == os.getpid()


@pytest.mark.parametrize(
    "text",
    [
        "",
        '{"pid": 1',
        "[]",
        '{"pid": "1", "host": "h", "born": "", "started": 0.0}',
        '{"pid": 1, "host": "h", "born": "", "started": null}',
        '{"pid": 0, "host": "h", "born": "", "started": 0.0}',
        '{"pid": 10000000000, "host": "h", "born": "", "started": 0.0}',
        '{"pid": 1, "host": "h", "born": "", "started": 1e300}',
    ],
)
def test_a_damaged_claim_is_nobodys(tmp_path: Path, text: str) -> None:
    (tmp_path / CLAIM_FILE).write_text(text)
    assert holder(tmp_path) is None
    with claimed(tmp_path) as mine:
        assert read_claim(tmp_path) == mine


def test_storage_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "link", refuse)
    with claimed(tmp_path) as mine:
        assert read_claim(tmp_path) == mine
        with pytest.raises(ClaimedError):
            take(tmp_path)
    assert list(tmp_path.glob(".claim.json*")) == []


def test_the_heart_beats(tmp_path: Path) -> None:
    with claimed(tmp_path, heartbeat=0.02):
        os.utime(tmp_path / CLAIM_FILE, (0, 0))
        end = time.monotonic() + 10
        while (tmp_path / CLAIM_FILE).stat().st_mtime == 0 and time.monotonic() < end:
            time.sleep(0.01)
        assert (tmp_path / CLAIM_FILE).stat().st_mtime > 0


def test_a_claim_that_was_taken_over_is_left_alone(tmp_path: Path, living: Claim) -> None:
    with claimed(tmp_path):
        write(tmp_path, replace(living, sweep="another"))
    assert holder(tmp_path) == replace(living, sweep="another")


def test_of_many_processes_one_gets_a_stale_claim(tmp_path: Path) -> None:
    write(tmp_path, Claim(1, "other-machine", "1", 0.0), age=10_000)
    code = (
        "import sys, time; from pathlib import Path\n"
        "from graph_machine.sweeps.claims import ClaimedError, take\n"
        "try: take(Path(sys.argv[1])); print('mine', flush=True); sys.stdin.read()\n"
        "except ClaimedError: print('taken', flush=True)\n"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    answers = [p.stdout.readline().strip() for p in processes if p.stdout]
    for process in processes:
        process.communicate()
    assert sorted(answers) == ["mine", "taken", "taken", "taken"]
