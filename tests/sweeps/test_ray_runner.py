"""A sweep on a real Ray cluster of two CPUs on this machine, with a worker killed in the middle."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from graph_machine.errors import ConfigError, MissingExtraError
from graph_machine.lab.sweeps.grid import make_grid
from graph_machine.lab.sweeps.progress import View
from graph_machine.lab.sweeps.ray_runner import RayRunner, join_cluster, load_ray
from graph_machine.lab.sweeps.runner import prepare
from graph_machine.lab.training import RunFolder
from support.sweeps import Watch, interrupt, kill, steps_of, tiny_jobs


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    module = load_ray("local")
    join_cluster(module, "local", num_cpus=2, object_store_memory=80 * 1024**2)
    yield module
    module.shutdown()


@pytest.mark.slow
def test_a_local_cluster_listens_on_loopback_only(ray: Any) -> None:
    ray.get(ray.remote(lambda: 0).remote())  # with a worker at work
    me = psutil.Process()
    listening = [
        socket
        for process in (me, *me.children(recursive=True))
        for socket in process.net_connections(kind="inet")
        if socket.status == psutil.CONN_LISTEN
    ]
    assert listening
    assert {socket.laddr.ip.removeprefix("::ffff:") for socket in listening} == {"127.0.0.1"}


@pytest.mark.slow
def test_a_killed_worker_is_replaced_and_goes_on(ray: Any, tmp_path: Path) -> None:
    """Three runs on two CPUs: one is killed, one fails, another process has one."""
    jobs = tiny_jobs(tmp_path, "transformer", "transformer-sin-pe", "gm", steps=40)
    seen: dict[str, Any] = {}

    def note_and_kill(entry: Any) -> None:
        seen["started"] = json.loads((entry.job.out / "run.json").read_text())["started"]
        kill(entry)

    damaged = jobs[1].out / "checkpoints" / "latest"
    damaged.mkdir(parents=True)
    (damaged / "state.json").write_text("{")
    entries = prepare(jobs)
    with RunFolder(jobs[2].out).locked():
        RayRunner(entries, Watch(5, note_and_kill), retries=2).run(ray, interval=0.1)
    assert [entry.status for entry in entries] == ["finished", "failed", "elsewhere"]
    assert entries[1].message.startswith("This folder has checkpoints, but no run.json")
    # It went on where it was killed: the same run, each step once.
    assert steps_of(jobs[0].out) == list(range(1, 41))
    record = json.loads((jobs[0].out / "run.json").read_text())
    assert (record["status"], record["started"]) == ("finished", seen["started"])


@pytest.mark.slow
def test_ctrl_c_saves_first(ray: Any, tmp_path: Path) -> None:
    (job,) = tiny_jobs(tmp_path, "transformer", steps=100_000)
    (entry,) = prepare([job])
    with pytest.raises(KeyboardInterrupt):
        RayRunner([entry], Watch(2, interrupt)).run(ray, interval=0.1)
    assert entry.status == "interrupted"
    assert json.loads((job.out / "run.json").read_text())["status"] == "interrupted"


@pytest.mark.slow
def test_a_request_that_no_machine_can_meet(ray: Any, tmp_path: Path) -> None:
    entries = prepare(make_grid(["gm"], [0], budget="smoke", out=tmp_path))
    with pytest.raises(ConfigError, match="64 CPU"):
        RayRunner(entries, View(), cpus=64).run(ray)
    with pytest.raises(ConfigError, match="1 GPU"):
        RayRunner(entries, View(), gpus=1.0).run(ray)


def test_bad_requests() -> None:
    with pytest.raises(ConfigError, match="--cpus"):
        RayRunner([], View(), cpus=0)


def test_no_cluster_there() -> None:
    class Absent:
        @staticmethod
        def is_initialized() -> bool:
            return False

        @staticmethod
        def init(**options: object) -> None:
            raise ConnectionError("nobody listens\nat all")

    with pytest.raises(ConfigError) as caught:
        join_cluster(Absent, "127.0.0.1:1")
    assert str(caught.value).startswith(
        "No Ray cluster could be reached at '127.0.0.1:1': nobody listens (--ray local"
    )


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"graph-machine\[ray\]"):
        load_ray()
