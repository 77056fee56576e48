"""Marked tables inside a page: prose stays, tables come from run records."""

import re
import shutil
from pathlib import Path

import pytest

from graph_machine.errors import ConfigError
from graph_machine.lab.cli import run
from graph_machine.lab.conditions.budgets import config_for
from graph_machine.lab.reports.curves import curves_of
from graph_machine.lab.reports.page import MARK, parse_mark, render_page
from graph_machine.lab.reports.runs import Runs, load_runs
from graph_machine.lab.reports.summary import make_group
from support.run_folders import make_run

PAGE = """# Mine

Prose | with a bar.
<!-- conditions board=4x4 seeds=0-2 -->
old
<!-- end -->
Between.
<!-- settings board=4x4 keys=train.peak_lr conditions=gm,transformer -->
<!-- end -->
After.
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs that no test changes."""
    tmp_path = tmp_path_factory.mktemp("runs")
    for seed, (gm, transformer) in enumerate([(0.98, 0.7), (1.0, 0.8), (0.99, 0.6)]):
        make_run(tmp_path, "gm", seed, gm)
        make_run(tmp_path, "transformer", seed, transformer)
    make_run(tmp_path, "gm-conditional", 0, 0.9)
    make_run(tmp_path, "gm", 100, 0.5)
    fast = config_for("gm", "cpu").with_train(peak_lr=3e-3)
    make_run(tmp_path / "fast", "gm", 0, 0.4, config=fast)
    make_run(tmp_path / "fast", "gm-rope", 0, None, status="failed")
    return tmp_path


@pytest.fixture(scope="module")
def runs(folder: Path) -> Runs:
    return load_runs([folder])


def test_prose_stays_and_tables_are_renewed(runs: Runs) -> None:
    text = render_page(PAGE, runs, Path("page.md"))
    assert text.startswith("# Mine\n\nProse | with a bar.\n<!-- conditions")
    assert "\nold\n" not in text
    assert "\nBetween.\n" in text
    assert text.endswith("<!-- end -->\nAfter.\n")
    assert render_page(text, runs, Path("page.md")) == text


def test_rows_say_seeds_differences_and_the_papers_value(runs: Runs) -> None:
    lines = render_page(PAGE, runs, Path("page.md")).splitlines()
    rows = {line.split(" | ")[0].strip("| "): line for line in lines if line.startswith("| ")}
    assert "99.0 (98.0, 100.0, 99.0)" in rows["gm"]
    assert rows["gm"].endswith("| 86.0 |")
    assert "70.0 (70.0, 80.0, 60.0)" in rows["transformer"]
    assert "-29.0 (-52.7 to -5.3)" in rows["transformer"]
    assert "| 90.0 |" in rows["gm-conditional"]
    assert "| -8.0 |" in rows["gm-conditional"]
    # Of the held-apart seed and of failed runs there is nothing in the first table.
    assert "gm-rope" not in rows
    assert rows["train.peak_lr=0.003"] == "| train.peak_lr=0.003 | 40.0 | 95.0 | -58.0 |  |  |  |"
    assert "(98.0, 100.0, 99.0, 50.0)" in rows["default (train.peak_lr=0.001)"]


def test_the_papers_tables_and_how_far_the_order_agrees(tmp_path: Path) -> None:
    # Boards in the paper's order, but for the first two; of other conditions nothing is known.
    names = ["transformer", "gm-rope", "gm-sharpener-off", "gm-sin-pe", "gm-top-1", "gm-top-4"]
    names += ["gm-top-16", "gm-edge-expert", "gm"]
    paper = [71.7, 76.5, 77.5, 86.4, 36.2, 50.9, 70.3, 28.1, 86.0]
    for name, score in zip(names, [76.5, 71.7, *paper[2:]], strict=True):
        make_run(tmp_path, name, 0, score / 100)
    page = "<!-- tables board=4x4 -->\n<!-- end -->\n"
    text = render_page(page, load_runs([tmp_path]), Path("page.md"))
    assert text.count("\n**") == 14
    assert "| RoPE, base 10 | gm-rope | 71.7 | " in text
    assert "| 5 | gm-degree-5 |  |  | 63.2 |  |" in text  # not run
    # 1 - 6 * 2 / (9 * 80): two neighbours have changed places.
    assert "over the 9 conditions that it has: 0.98 by boards (95%: 0.89 to 1.00)" in text


def test_several_sets_of_settings_have_a_row_each(runs: Runs, tmp_path: Path) -> None:
    words = "board=4x4 seeds=0-2 conditions=gm,transformer overrides=|train.peak_lr=0.003"
    page = f"<!-- conditions {words} -->\n<!-- end -->\n"
    rows = [
        line for line in render_page(page, runs, Path("page.md")).splitlines() if line[:2] == "| "
    ]
    names = [row.split(" | ")[0].strip("| ") for row in rows]
    assert names[1:] == ["---", "transformer", "gm", "gm, train.peak_lr=0.003"]
    assert "| 40.0 | -58.0 |" in rows[-1]  # against the seed it shares with gm
    found = parse_mark(f"conditions {words}").rows(runs)
    group = make_group([run for row in found.values() for run in row], ())
    labels = ["transformer (3 seeds)", "gm (3 seeds)", "gm, train.peak_lr=0.003 (1 seed)"]
    assert [*curves_of(group, "steps")] == labels


def test_conditions_with_defaults_of_their_own_are_compared_by_value(tmp_path: Path) -> None:
    for name in ("jigsaw-gm", "jigsaw-transformer"):  # 4e-3 and 2e-3
        config = config_for(name, "cpu")
        make_run(tmp_path, name, 0, 0.5, config=config)
        make_run(tmp_path / "slow", name, 0, 0.25, config=config.with_train(peak_lr=1e-3))
    mark = "<!-- settings board=jigsaw-6x6 keys=train.peak_lr -->\n<!-- end -->\n"
    rows = render_page(mark, load_runs([tmp_path]), Path("page.md")).splitlines()[5:8]
    assert [row.split(" | ")[0] for row in rows] == [
        f"| train.peak_lr={rate}" for rate in ("0.001", "0.002", "0.004")
    ]
    assert [row.count("50.0") for row in rows] == [0, 1, 1]
    assert [row.count("25.0") for row in rows] == [2, 0, 0]


def test_pictures_are_beside_the_page(runs: Runs, tmp_path: Path) -> None:
    (tmp_path / "page").mkdir()
    (tmp_path / "page" / "link").symlink_to(tmp_path)
    mark, page = "<!-- curves board=4x4 file={} -->\n<!-- end -->\n", tmp_path / "page" / "page.md"
    assert "](images/curves.png)" in render_page(mark.format("images/curves.png"), runs, page)
    assert (tmp_path / "page" / "images" / "curves.png").stat().st_size > 1_000
    for file in ("../curves.png", "/tmp/curves.png", "link/curves.png"):
        with pytest.raises(ConfigError, match="folder"):
            render_page(mark.format(file), runs, page)


def test_accuracy_by_group_as_table_and_picture(tmp_path: Path) -> None:
    for seed, right in enumerate((0.5, 0.75)):
        clues = {"4": {"cell_accuracy": 1.0}, "5": {"cell_accuracy": right, "board_accuracy": 0.25}}
        clues = {name: part | {"examples": 8} for name, part in clues.items()}
        groups = {"rating": {}, "clues": clues}
        make_run(tmp_path, "gm", seed, 0.9, result={"groups": groups, "cpu_seconds": 90.0})
    make_run(tmp_path, "transformer", 0, 0.9, result={"groups": {"rating": {}, "clues": {}}})
    runs, page = load_runs([tmp_path]), tmp_path / "page.md"
    mark = "<!-- groups board=4x4 keys=clues file=images/clues.svg -->\n<!-- end -->\n"
    text = render_page(mark, runs, page)
    assert "| clues | parameters | CPU minutes | 4 | 5 |" in text
    assert "| gm (2 seeds) | 500,000 | 1.5 | 100.0 | 62.5 (50.0 to 75.0) |" in text
    assert "| transformer (1 seed) | 500,000 |  |  |  |" in text
    assert "](images/clues.svg)" in text
    assert (tmp_path / "images" / "clues.svg").stat().st_size > 1_000
    boards = mark.replace("keys=clues", "keys=clues metric=board_accuracy")
    assert "| gm (2 seeds) | 500,000 | 1.5 | 25.0 |" in render_page(boards, runs, page)
    wide = config_for("gm", "cpu", "2x3").with_task(augment="all")
    result = {"groups": {"clues": {"9": {"cell_accuracy": 0.5, "examples": 8}}}}
    make_run(tmp_path / "6x6", "gm", 0, 0.9, config=wide, result=result)
    several = "board=4x4,6x6 conditions=gm overrides=|task.augment=all"
    text = render_page(mark.replace("board=4x4", several), load_runs([tmp_path]), page)
    assert "| 4x4, gm (2 seeds) | 500,000 | 1.5 | 100.0 | 62.5 (50.0 to 75.0) |  |" in text
    assert "| 6x6, gm (1 seed) | 500,000 |  |  |  | 50.0 |" in text
    for wrong, message in (
        ("keys=hops", "no groups 'hops'; known: rating, clues"),
        ("seeds=0", "keys="),
        ("keys=clues metric=board_acuracy", "'board_acuracy'.*Did you mean 'board_accuracy'"),
    ):
        with pytest.raises(ConfigError, match=message):
            render_page(f"<!-- groups board=4x4 {wrong} -->\n<!-- end -->\n", runs, page)


def test_every_condition_at_its_best_setting_beside_published_scores(
    runs: Runs, tmp_path: Path
) -> None:
    slow = config_for("gm-conditional", "cpu").with_train(peak_lr=5e-4)
    make_run(tmp_path, "gm-conditional", 0, 0.95, config=slow, result={"cpu_seconds": 90.0})
    found = Runs([*runs.runs, *load_runs([tmp_path]).runs], [])
    (tmp_path / "published.toml").write_text('["Theirs, 2020"]\n4x4 = 97.25\n')
    words = "board=4x4 seeds=0-2 conditions=gm,gm-conditional,gm-rope published={} file=all.png"
    mark = f"<!-- best {words} -->\n<!-- end -->\n"
    text = render_page(mark.format("published.toml"), found, tmp_path / "page.md")
    # Three seeds of the default count more than one of a better setting.
    lines = text.splitlines()
    assert lines[1] == "|  | 4x4 | CPU minutes a run |"
    assert lines[3:6] == [
        "| gm | **99.0 ± 1.0** |  |",
        "| gm-conditional | 95.0 | 1.5 |",
        "| gm-rope |  |  |",
    ]
    assert lines[6] == "| Theirs, 2020 | 97.2 |  |"
    assert "(all.png)" in text
    assert (tmp_path / "all.png").stat().st_size > 1000
    (tmp_path / "bad.toml").write_text("[")
    for file in ("bad.toml", "missing.toml"):
        with pytest.raises(ConfigError, match=file):
            render_page(mark.format(file), found, tmp_path / "page.md")


def test_a_summary_is_rows_of_text_with_scores_in_them(runs: Runs, tmp_path: Path) -> None:
    clues = {"5": {"cell_accuracy": 0.25, "examples": 8}}
    result = {"groups": {"clues": clues}, "cpu_seconds": 90.0}
    make_run(tmp_path, "gm-rope", 0, 0.5, result=result)
    found = Runs([*runs.runs, *load_runs([tmp_path]).runs], [])
    mark, page = "<!-- summary seeds=0-2 file=some.toml -->\n<!-- end -->\n", tmp_path / "page.md"
    head = 'head = ["task", "GM", "rivals"]\n'

    def render(*cells: str) -> list[str]:
        (tmp_path / "some.toml").write_text(head + f"rows = [{[*cells]}]\n")
        return render_page(mark, found, page).splitlines()

    lines = render("4x4", "**{4x4 gm}**", "{4x4 gm train.peak_lr=0.003}, {4x4 gm-rope clues:5}")
    assert lines[1] == "| task | GM | rivals |"
    assert lines[3] == ("| 4x4 | **99.0% ± 1.0** | 40.0% (one seed), 25.0% (1.5 min, one seed) |")
    assert render("4x4", "{spread 4x4 transformer}", "")[3] == (
        "| 4x4 | 80.0 to 60.0 (0.75; 3 seeds) |  |"
    )
    with pytest.raises(ConfigError, match="a head, and rows"):
        render("4x4", "{4x4 gm}")
    with pytest.raises(ConfigError, match="no groups 'gm-rope'"):  # one condition in each
        render("4x4", "{4x4 gm gm-rope}", "")
    for wrong in ("{6x6 gm}", "{ }", "{spread}", "{4x4 gm-rope clues:9}", "{4x4}"):
        with pytest.raises(ConfigError, match=re.escape(wrong)):
            render("4x4", wrong, "")


@pytest.mark.parametrize(
    ("mark", "message"),
    [
        ("conditoins board=4x4", "'conditions'"),
        ("summary file=missing.toml", "missing.toml"),
        ("conditions seeds=0", "board="),
        ("conditions board=4x4 sedes=0", "'sedes'"),
        # Nothing to show.
        ("conditions board=6x6", r"page\.md"),
        ("settings board=6x6 keys=train.peak_lr", r"page\.md"),
        ("curves board=4x4", r"page\.md"),
        ("best board=6x6", r"page\.md"),
        ("", "no mark"),
    ],
)
def test_a_wrong_mark_is_an_error(runs: Runs, mark: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        render_page(f"<!-- {mark} -->\n<!-- end -->", runs, Path("page.md"))


def test_a_page_stays_the_file_that_it_is(folder: Path, tmp_path: Path, capsys) -> None:
    (tmp_path / "real").mkdir()
    page = tmp_path / "real" / "page.md"
    page.write_text(PAGE)
    page.chmod(0o640)
    link = tmp_path / "link.md"
    link.symlink_to(page)
    assert run(["report", str(folder), "--into", str(link)]) == 0
    assert "Renewed" in capsys.readouterr().err
    assert link.is_symlink()
    assert page.stat().st_mode & 0o777 == 0o640
    assert "| transformer |" in page.read_text()


def test_pages_with_tables_are_what_their_records_say(tmp_path: Path) -> None:
    """`make evidence` would change nothing, and it knows every page."""
    root = Path(__file__).parents[2]
    found = load_runs([root / "evidence"])
    pages = [root / "README.md", *(root / "docs").glob("*.md")]
    marked = {page.name: text for page in pages if MARK.search(text := page.read_text("utf-8"))}
    (listed,) = re.findall(r"^PAGES := .*$", (root / "Makefile").read_text(), re.M)
    assert {*re.findall(r"[\w-]+\.md", listed)} == {*marked}
    for file in ("published.toml", "spread.toml", "summary.toml"):
        (tmp_path / "docs").mkdir(exist_ok=True)
        shutil.copy(root / "docs" / file, tmp_path)
        shutil.copy(root / "docs" / file, tmp_path / "docs")
    for name, text in marked.items():
        assert render_page(text, found, tmp_path / name) == text
