"""Which runs a sweep has, and what is in their folders already."""

from pathlib import Path

import pytest

from graph_machine.errors import ConfigError, DataError
from graph_machine.lab.conditions.registry import CONDITIONS
from graph_machine.lab.config import parse_numbers
from graph_machine.lab.sweeps.grid import Job, choose_conditions, make_grid
from support.run_folders import make_run


@pytest.mark.parametrize(
    ("text", "numbers"), [("3", (3,)), ("0-2", (0, 1, 2)), ("5, 0-1,1", (5, 0, 1))]
)
def test_numbers(text: str, numbers: tuple[int, ...]) -> None:
    assert parse_numbers(text) == numbers


@pytest.mark.parametrize("text", ["", "a", "1-", "-1", "1-b", "3-1", "0,,1", "²", "0-99999999"])
def test_bad_numbers(text: str) -> None:
    with pytest.raises(ConfigError, match="--seeds"):
        parse_numbers(text, "--seeds")


def test_conditions_by_table_by_name_and_all() -> None:
    assert choose_conditions(["7"], ["gm", "gm-rope"]) == ["gm-no-factor-temps", "gm", "gm-rope"]
    assert choose_conditions(every=True) == list(CONDITIONS)
    assert len(choose_conditions([f"{n}" for n in range(1, 9)])) == 18
    with pytest.raises(ConfigError, match="--table"):
        choose_conditions()
    with pytest.raises(ConfigError, match="'gm-rope'"):
        choose_conditions(conditions=["gm-rop"])
    with pytest.raises(ConfigError, match="'9'"):
        choose_conditions(["9"])


def grid(tmp_path: Path, *settings: str, **options: str) -> list[Job]:
    return make_grid(
        ["gm", "transformer"], [0, 1], budget="smoke", settings=settings, out=tmp_path, **options
    )


def test_first_seeds_come_first_and_settings_reach_all(tmp_path: Path) -> None:
    jobs = grid(tmp_path, "train.steps=7", size="2x3")
    assert [job.name for job in jobs] == [
        "gm seed 0",
        "transformer seed 0",
        "gm seed 1",
        "transformer seed 1",
    ]
    assert {job.config.train.steps for job in jobs} == {7}
    assert jobs[0].out == tmp_path / "smoke" / "6x6" / "gm" / "seed-0"
    assert jobs[1].config.model.attention_experts == "node"
    assert Job.from_dict(jobs[1].to_dict()) == jobs[1]


def test_states_on_disk(tmp_path: Path) -> None:
    jobs = grid(tmp_path)
    assert [job.state() for job in jobs] == ["new"] * 4
    at = {"budget": "smoke"}
    make_run(tmp_path, "gm", 0, name="smoke/4x4/gm/seed-0", budget="smoke")
    make_run(tmp_path, "gm", 1, None, name="smoke/4x4/gm/seed-1", status="failed", **at)
    assert [job.state() for job in jobs] == ["finished", "new", "unfinished", "new"]
    with pytest.raises(ConfigError, match=r"other settings here \(train.steps was 20, is 7\)"):
        grid(tmp_path, "train.steps=7")[0].state()


@pytest.mark.parametrize("text", ["{", "{}", '{"config": 3}'])
def test_damaged_folders(tmp_path: Path, text: str) -> None:
    job = grid(tmp_path)[0]
    job.out.mkdir(parents=True)
    (job.out / "run.json").write_text(text)
    with pytest.raises(DataError, match=r"run\.json"):
        job.state()


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"board_accuracy": "high"}'])
def test_damaged_results(tmp_path: Path, text: str) -> None:
    job = grid(tmp_path)[0]
    make_run(tmp_path, "gm", 0, name="smoke/4x4/gm/seed-0", budget="smoke")
    (job.out / "result.json").write_text(text)
    with pytest.raises(DataError, match=r"result\.json"):
        job.state()


def test_axes_make_every_combination(tmp_path: Path) -> None:
    axes = ["train.peak_lr=1e-3,2e-3", "model.d_node=8,16,8"]
    jobs = make_grid(["gm"], [0, 1], budget="smoke", axes=axes, out=tmp_path)
    assert len({job.out for job in jobs}) == len({job.name for job in jobs}) == len(jobs) == 8
    assert jobs[1].name == "gm train.peak_lr=1e-3,model.d_node=16 seed 0"
    assert (jobs[1].config.train.peak_lr, jobs[1].config.model.d_node) == (1e-3, 16)
    place = "smoke/4x4/gm/train.peak_lr=1e-3,model.d_node=16/seed-0"
    assert jobs[1].out == tmp_path / place
    assert Job.from_dict(jobs[1].to_dict()) == jobs[1]


@pytest.mark.parametrize("axis", ["train.steps", "train.steps=", "=3", "train.stps=3,4"])
def test_bad_axes(tmp_path: Path, axis: str) -> None:
    with pytest.raises(ConfigError, match=r"--grid takes|Did you mean"):
        make_grid(["gm"], [0], budget="smoke", axes=[axis], out=tmp_path)
