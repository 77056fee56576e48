"""A whole run: train, evaluate, save, resume, test. One implementation for every condition."""

import signal
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graph_machine.errors import GraphMachineError
from graph_machine.files import write_json
from graph_machine.lab.config import ExperimentConfig
from graph_machine.lab.plugins import loaded
from graph_machine.lab.run_files import RESULT_FILE, RUN_FILE, DataInfo, RunInfo, RunResult
from graph_machine.lab.tasks.base import Split, Task, make_task, task_of
from graph_machine.lab.tasks.batch import check_batch
from graph_machine.lab.tasks.scores import Scores
from graph_machine.lab.training import checkpoints, cost, devices, log, schedule
from graph_machine.lab.training.checkpoints import Position, disk_errors
from graph_machine.lab.training.devices import Interrupted, StopRequest
from graph_machine.lab.training.evaluate import evaluate, evaluate_rounds
from graph_machine.lab.training.flops import flops_per_step
from graph_machine.lab.training.log import Progress, Record, Sink
from graph_machine.lab.training.optim import take_weights
from graph_machine.lab.training.run import RunFolder, commit, default_out
from graph_machine.lab.training.trainer import Trainer
from graph_machine.machine import choose_device, hardware, tune_cpu, versions
from graph_machine.models import save_model

PROJECTED = 6  # the step after which the length of a run is projected


@dataclass(frozen=True)
class Result:
    """The result of a run and its folder. Made by `train`."""

    folder: Path
    record: RunResult

    @property
    def metrics(self) -> dict[str, Any]:
        """The contents of `result.json`."""
        return self.record.to_dict()

    @property
    def score(self) -> float:
        """The metric that decides, on the test split."""
        return float(self.record.score or 0.0)


def train(
    config: ExperimentConfig,
    *,
    seed: int = 0,
    out: str | Path | None = None,
    data: str | None = None,
    task: Task | None = None,
    resume: bool = False,
    condition: str | None = None,
    budget: str = "custom",
    init_from: str | None = None,
    device: str | None = None,
    progress: Progress = "auto",
    sinks: Sequence[Sink] = (),
    ignore_memory: bool = False,
) -> Result:
    """Train one model and test it; everything about it is left in the folder `out`.

    With `resume`, a finished run returns its result, an interrupted run continues from its newest
    checkpoint to the same bits as if it had never stopped, and a run that never began begins.
    `init_from` names a model to begin with; a resumed run knows its own.
    Ctrl-C saves and raises `Interrupted`. Under torchrun every process calls this.
    A step that will not fit into the free memory is refused, unless `ignore_memory` is set.

    >>> from graph_machine.lab.conditions import config_for
    >>> config = config_for("gm", "smoke", settings=["train.steps=2"])
    >>> result = train(config, seed=0, out="run", progress="none")
    >>> sorted(path.name for path in result.folder.glob("*.json"))
    ['result.json', 'run.json']
    """
    # Before any data is made.
    shown = log.progress_sink(progress, (task or task_of(config.task)).metrics)
    schedule.check_schedules(config)
    folder = RunFolder(Path(out) if out else default_out(config, condition, budget, seed))
    with ExitStack() as closing:
        processes = closing.enter_context(devices.joined_processes(device))
        where = choose_device(device, processes.local_rank)
        if where.type == "cpu":
            tune_cpu()
        devices.allow_tf32(config.train, where)
        closing.enter_context(schedule.own_random_state(where))
        closing.enter_context(schedule.deterministic(where))
        folder.check_free(resume)
        if processes.is_first:
            closing.enter_context(folder.locked())
        task = task or make_task(config.task, data, seed)
        before = folder.check_same(config, task, seed, init_from) if folder.exists else None
        if folder.finished:
            if processes.is_first:
                folder.close()
            return Result(folder.path, folder.result())
        sized = {"device": where, "processes": processes.size}
        if not ignore_memory:
            cost.check_fits(config, task, **sized)
        first = task.batch(0, config.train.batch_size, seed, 0.0)
        check_batch(first, task.spec, f"The task {config.task.name}")
        if not ignore_memory:
            cost.check_memory(config, task, seed=seed, **sized)
        if processes.size == 1:
            recorded = None if before is None else before.hardware.get("threads")
            how = {"seed": seed, "device": where, "recorded": recorded}
            closing.enter_context(cost.best_threads(config, task, **how))
        trainer = Trainer(config, task, seed=seed, device=where, processes=processes)
        info = before or RunInfo(
            config=config.to_dict(),
            data=DataInfo(task.identity, task.source, sum(task.sizes.values())),
            seed=seed,
            condition=condition,
            budget=budget,
            init_from=init_from,
            imports=loaded(),
            commit=commit(),
            versions=versions(),
            hardware=hardware(),
            started=time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        )
        run = Run(trainer, folder, info)
        run.open()
        if processes.is_first:
            run.sinks = [log.JsonLines(folder.metrics), *sinks, *([shown] if shown else [])]
        title = f"{run.info.condition or 'custom'} seed {seed} {task.label}"
        for sink in run.sinks:
            closing.enter_context(sink).start(config.train.steps, run.position.step, title)
        with StopRequest() as request:
            return run.recorded(request)


class Run:
    """A trainer with its folder: position, files, and when to write them."""

    def __init__(self, trainer: Trainer, folder: RunFolder, info: RunInfo) -> None:
        self.trainer, self.folder, self.info = trainer, folder, info
        self.config, self.task, self.processes = trainer.whole, trainer.task, trainer.processes
        self.position = Position()
        self.sinks: list[Sink] = []  # only the first process has some
        self._clock, self._cpu_clock = time.perf_counter(), time.process_time()

    def open(self) -> None:
        """Load the newest checkpoint or the initial weights; mark the run as running."""
        trainer, place = self.trainer, self.folder.checkpoints
        if self.processes.is_first:
            checkpoints.adopt(place)
        self.processes.barrier()
        found = checkpoints.find_latest(place)
        if found is not None:
            checkpoints.check_checkpoint(found, self.config, self.info)
            self.position = checkpoints.load_checkpoint(
                found, trainer.model, trainer.optimizer, trainer.average
            )
        elif self.info.init_from is not None:
            lines = take_weights(trainer.model, self.info.init_from)
            trainer.restart_average()
            if self.processes.is_first:
                print(*lines, sep="\n", end="\n" if lines else "", file=sys.stderr)
        if not self.processes.is_first:
            return
        with disk_errors(self.folder.path, "the run was not started"):
            if found is not None:
                checkpoints.point(place, self.position)
            if self.folder.exists:
                self.folder.tidy()
                if line := self.folder.truncate_metrics(self.position.step):
                    print(line, file=sys.stderr)
                self.folder.update(status="running", error=None)
            else:
                self.folder.path.mkdir(parents=True, exist_ok=True)
                write_json(self.folder.path / RUN_FILE, self.info.to_dict())

    def recorded(self, request: StopRequest) -> Result:
        """Run to the end, and record in run.json how it ended."""
        try:
            self.loop(request)
            # All steps are saved: there is nothing to wait for any more.
            request.at_once = True
            if request.signal_number:
                raise KeyboardInterrupt
            return self.finish()
        except KeyboardInterrupt as error:
            self._mark("interrupted", None)
            if request.at_once and not isinstance(error, Interrupted):
                step, number = self.position.step, request.signal_number or signal.SIGINT
                raise Interrupted(step, self.folder.path, number) from None
            raise
        except BaseException as error:
            self._mark("failed", f"{type(error).__name__}: {error}")
            raise

    def _mark(self, status: str, error: str | None) -> None:
        # The disk may be full, and the error that is on its way matters more.
        with suppress(OSError, GraphMachineError):
            if self.processes.is_first:
                self.folder.update(status=status, error=error)

    def loop(self, request: StopRequest) -> None:
        config, position = self.config.train, self.position
        begun, clock = position.step, 0.0
        while position.step < config.steps:
            stats = self.trainer.step(position.step, stop=bool(request.signal_number))
            position.step += 1
            for sink in self.sinks:
                sink.tick(position.step)
            if position.step == begun + 1:  # the first step warms up
                clock = time.perf_counter()
            if position.step == begun + PROJECTED and config.steps - begun > 100:
                pace = (time.perf_counter() - clock) / (PROJECTED - 1)
                for sink in self.sinks:
                    sink.note(log.projection(config.steps, pace, config.steps - position.step))
            self._collect(stats)
            last = position.step == config.steps
            if position.step % config.log_every == 0 or last:
                self._log_train(stats)
            better = False
            if position.step % config.eval_every == 0 or last:
                better = self._evaluate()
            # Every process sees the same sum, so all of them stop at the same step.
            stop = stats["stop"] > 0 and not last
            if better or position.step % config.save_every == 0 or last or stop:
                self.save()
            if stop:
                raise Interrupted(position.step, self.folder.path, request.signal_number)

    def _collect(self, stats: dict[str, float]) -> None:
        window = self.position.window
        took = {"seconds": time.perf_counter() - self._clock, "steps": 1.0}
        for name, value in (stats | took).items():
            if name not in ("stop", "grad_norm"):
                window[name] = window.get(name, 0.0) + value
        self._tick()

    def _tick(self) -> None:
        """Count the time since the last call; evaluation and saving are counted too."""
        now, cpu = time.perf_counter(), time.process_time()
        self.position.seconds += now - self._clock
        self.position.cpu_seconds += cpu - self._cpu_clock
        self._clock, self._cpu_clock = now, cpu

    def _log_train(self, stats: dict[str, float]) -> None:
        """Means over the steps since the last line."""
        window, step = self.position.window, self.position.step
        examples = window["examples"]
        record: Record = {
            "step": step,
            "kind": "train",
            "loss": window["loss"] / examples,
            **{metric.name: metric.value(window) for metric in self.task.metrics},
            "lr": schedule.learning_rate(step - 1, self.config.train),
            "grad_norm": stats["grad_norm"],
            **{n: v / examples for n, v in window.items() if n.startswith("entropy_")},
            "steps_per_second": window["steps"] / max(window["seconds"], 1e-9),
            "seconds": self.position.seconds,
        }
        for sink in self.sinks:
            sink.write(record)
        window.clear()

    def scores(self, split: Split, limit: int | None) -> Scores:
        self.trainer.model.set_progress(self.position.step / self.config.train.steps)
        how = {"config": self.config.train, "limit": limit, "processes": self.processes}
        with self.trainer.tested_weights():
            return evaluate(self.trainer.model, self.task, split, **how)

    def _evaluate(self) -> bool:
        """Log an evaluation; True if it is the best so far."""
        found = self.scores("eval", self.config.train.eval_examples).summary()
        self._tick()
        step = self.position.step
        chosen = {name: found[name] for name in found if name != "examples"}
        for sink in self.sinks:
            sink.write({"step": step, "kind": "eval", **chosen, "seconds": self.position.seconds})
        best = self.position.best
        if best is not None and self._rank(found) <= self._rank(best):
            return False
        self.position.best = {"step": step, **chosen}
        return True

    def _rank(self, found: dict[str, Any]) -> tuple[float, float]:
        """Higher is better: the metric that decides, then the loss."""
        deciding = self.task.metrics[0]
        value = found[deciding.name] or 0.0
        return (value if deciding.higher_is_better else -value), -found["loss"]

    def _extra(self) -> dict[str, Any]:
        """Entries of config.json about the run."""
        imports = {"imports": loaded()} if loaded() else {}
        about = {"task": self.config.task.to_dict(), "data_identity": self.task.identity}
        return about | imports | self.info.origin

    def save(self) -> None:
        if self.processes.is_first:
            for sink in self.sinks:
                sink.sync()
            self._tick()
            checkpoints.save_checkpoint(
                self.folder.checkpoints,
                self.trainer.model,
                self.trainer.optimizer,
                self.position,
                self._extra(),
                self.trainer.average,
                {"train": self.config.train.to_dict(), "init_from": self.info.init_from},
            )

    def finish(self) -> Result:
        """Test the final model on the whole test split and write what remains of it."""
        scores = self.scores("test", self.config.train.test_examples)
        self._tick()
        result = self.result(scores)
        if self.processes.is_first:
            with disk_errors(self.folder.path, "the result was not written"):
                with self.trainer.tested_weights():
                    save_model(self.trainer.model, self.folder.model, **self._extra())
                write_json(self.folder.path / RESULT_FILE, result.to_dict())
                self.folder.update(status="finished", error=None)
        self.processes.barrier()
        return Result(self.folder.path, result)

    def _by_rounds(self) -> dict[str, dict[str, Any]]:
        """Scores of the test split after each of the numbers of rounds that the config names."""
        train, model = self.config.train, self.trainer.model
        if not train.rounds_tested:
            return {}
        how = {"config": train, "limit": train.test_examples, "processes": self.processes}
        with self.trainer.tested_weights():
            found = evaluate_rounds(model, self.task, "test", train.rounds_tested, **how)
        return {"rounds": {str(number): scores.summary() for number, scores in found.items()}}

    def result(self, scores: Scores) -> RunResult:
        found = scores.summary()
        metrics = {metric.name: metric.facts() for metric in self.task.metrics}
        return RunResult(
            values={name: found[name] for name in metrics},
            loss=found["loss"],
            metrics=metrics,
            parameters=self.trainer.model.num_parameters,
            flops_per_step=flops_per_step(self.config, self.task),
            steps=self.position.step,
            seconds=self.position.seconds,
            cpu_seconds=self.position.cpu_seconds,
            **self.info.origin,
            label=self.task.label,
            test_examples=len(scores),
            groups={by.group: scores.by(by) for by in self.task.groupings} | self._by_rounds(),
            train=self.config.train.to_dict(),
        )
