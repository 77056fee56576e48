"""A sweep on a Ray cluster: each run is a task with its CPU and accelerator request.

Ray is the only way to use more than one machine. It restarts a task whose worker or machine was
lost, and the task continues from the run's newest checkpoint, so the run folders must be on storage
that all machines share.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from graph_machine.errors import ConfigError, MissingExtraError
from graph_machine.lab.sweeps.progress import Entry, View
from graph_machine.lab.sweeps.runner import GRACE, Runner, attempt, conclude, skip_if_taken
from graph_machine.lab.training.run import RunFolder

RETRIES = 3
# Seconds until shared storage releases the lock of a machine that was lost.
PATIENCE = 120.0


def load_ray(address: str | None = None) -> Any:
    """The package; its environment variables must be set before it is imported."""
    if address == "local":
        # A cluster of this machine alone: its servers listen on the loopback interface.
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    # Ray otherwise warns of a setting of its next version, and sends usage statistics.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError:
        raise MissingExtraError("ray", "ray", "A sweep on a cluster") from None
    return ray


def join_cluster(ray: Any, address: str | None, **options: Any) -> None:
    """Join the cluster at `address`; `local` starts one here.

    Without an address: that of RAY_ADDRESS, else one that runs on this machine.
    """
    if ray.is_initialized():
        return
    if address == "local":
        options = {"include_dashboard": False, **options}
    try:
        ray.init(address=address or "auto", log_to_driver=False, logging_level="warning", **options)
    except (ConnectionError, ValueError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ConfigError(
            f"No Ray cluster could be reached at '{address or 'auto'}': {reason} (--ray local "
            "starts one here; one with token authentication needs RAY_AUTH_MODE=token)"
        ) from None


def task(data: dict[str, Any], threads: int, device: str | None) -> tuple[int, str]:
    """The function that the cluster runs; returns the exit code of a worker and one line."""
    import torch

    torch.set_num_threads(threads)
    return attempt(data, device=device, patience=PATIENCE)


class RayRunner(Runner):
    """Hands every run to a Ray cluster and follows them through their folders.

    Needs the extra `ray`. `cpus` and `gpus` are what each run asks the cluster for. A run that
    is lost is restarted up to `retries` times and resumes from its newest checkpoint.
    """

    def __init__(
        self,
        entries: Sequence[Entry],
        view: View,
        *,
        cpus: int = 1,
        gpus: float = 0.0,
        retries: int = RETRIES,
    ) -> None:
        if cpus < 1 or gpus < 0 or retries < 0:
            raise ConfigError("--cpus should be at least 1, --gpus and --retries not negative.")
        super().__init__(entries, view)
        self.pending: dict[Any, Entry] = {}
        self.ray: Any = None
        self.cpus, self.gpus, self.retries = cpus, gpus, retries

    def run(self, ray: Any, interval: float = 0.5) -> None:
        """Until every entry has an end. Ctrl-C lets the runs save themselves first."""
        self.ray = ray
        self.check(ray)
        remote = ray.remote(
            num_cpus=self.cpus, num_gpus=self.gpus, max_retries=self.retries, retry_exceptions=False
        )(task)
        # A run that asked for no accelerator must not find one that another run was given.
        device = None if self.gpus else "cpu"
        with self.ending():
            for entry in self.entries:
                if entry.status == "waiting" and not skip_if_taken(entry):
                    ref = remote.remote(entry.job.to_dict(), self.cpus, device)
                    self.pending[ref] = entry
            while self.pending:
                done, _ = ray.wait(list(self.pending), timeout=interval)
                for ref in done:
                    self.end(ray, self.pending.pop(ref), ref)
                # A task that has locked its run folder is running; the others wait for a place.
                for entry in self.pending.values():
                    free = RunFolder(entry.job.out).holder() is None
                    entry.status = "waiting" if free else "running"
                    entry.refresh()
                self.view.update(self.entries)

    def check(self, ray: Any) -> None:
        """A request that no machine can meet would wait for ever."""
        best = [n["Resources"] for n in ray.nodes() if n["Alive"]]
        for name, wanted in (("CPU", self.cpus), ("GPU", self.gpus)):
            most = max((node.get(name, 0.0) for node in best), default=0.0)
            if wanted > most:
                raise ConfigError(
                    f"Each run asks for {wanted:g} {name}, the largest machine of the cluster has "
                    f"{most:g}: change --{name.lower()}s."
                )

    def end(self, ray: Any, entry: Entry, ref: Any) -> None:
        """Read the outcome of a task."""
        try:
            conclude(entry, *ray.get(ref))
        except ray.exceptions.RayTaskError as error:
            entry.status = "failed"
            entry.message = f"{type(error.cause).__name__}: {error.cause}".splitlines()[0]
        except ray.exceptions.TaskCancelledError:
            entry.status = "interrupted"
        except ray.exceptions.RayError as error:
            entry.status = "failed"
            reason = str(error).strip().splitlines()[0]
            entry.message = f"lost after {self.retries} retries: {reason}"
        entry.refresh()

    def stop(self) -> None:
        with suppress(Exception):  # the cluster itself may be gone
            for ref in self.pending:
                self.ray.cancel(ref, force=False)
            self.ray.wait([*self.pending], num_returns=len(self.pending), timeout=GRACE)
        for entry in self.pending.values():
            entry.status = "interrupted" if RunFolder(entry.job.out).exists else "waiting"
            entry.refresh()
