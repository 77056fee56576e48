"""Records from elsewhere: nothing in them runs in a page, and one bad record costs only itself."""

import json
from pathlib import Path

import pytest

from graph_machine.lab.cli import run as command
from graph_machine.lab.reports import read_runs
from graph_machine.lab.reports.page import render_page
from graph_machine.lab.reports.render import escaped, html, report_markdown
from graph_machine.lab.reports.runs import load_runs
from graph_machine.lab.reports.summary import build_report
from support.browser import browser_marks
from support.run_folders import make_run

ATTACK = '<img src=x onerror="document.title=1"><script>document.title=2</script>'
MATHS = r"$\nosuch{$"  # matplotlib would read it as mathematics


def metrics(title: object = "boards", **others: object) -> dict[str, object]:
    named = {"title": title, "share": True, "higher_is_better": True} | others
    return {"board_accuracy": named, "cell_accuracy": named | {"title": "cells"}}


@pytest.fixture
def attacked(tmp_path: Path) -> Path:
    """Runs with markup in every text that a report shows."""
    for seed in (0, 1):
        result = {
            "metrics": metrics(f"{ATTACK}{MATHS}"),
            "baselines": {ATTACK: 0.8},
            "groups": {ATTACK: {ATTACK: {"examples": 8, "cell_accuracy": 0.5}}},
        }
        facts = {"result": result, "source": ATTACK}
        make_run(tmp_path / "runs", "gm", seed, 0.9, **facts)
        other = make_run(tmp_path / "runs", "gm", seed, 0.9, name=f"my/{seed}", **facts)
        record = json.loads((other / "run.json").read_text())
        record["condition"] = f"{ATTACK} | {MATHS}\n# mine"
        (other / "run.json").write_text(json.dumps(record))
    make_run(tmp_path / "runs", "gm", 2, None, status=ATTACK, source=ATTACK)
    (tmp_path / "runs" / ATTACK.replace("/", "-")).mkdir()
    (tmp_path / "runs" / ATTACK.replace("/", "-") / "run.json").write_text("{")
    return tmp_path / "runs"


@pytest.mark.parametrize("packed", [pytest.param(p, marks=browser_marks) for p in (False, True)])
def test_nothing_from_a_file_runs_in_a_browser(
    attacked: Path, tmp_path: Path, browser, packed: bool
) -> None:
    source = attacked
    if packed:
        source = tmp_path / "a.study.jsonl"
        assert command(["report", str(attacked), "--pack", str(source)]) == 0
    page = tmp_path / "page.html"
    assert command(["report", str(source), "--out", str(page)]) == 0
    tab = browser.new_page()
    asked: list[str] = []
    tab.on("request", lambda request: asked.append(request.url))
    tab.goto(page.as_uri())
    assert tab.title() == "Graph Machine: runs"
    assert tab.locator("img, script").count() == 0
    assert tab.locator("th", has_text="<img src=x").count() > 0
    assert asked == [page.as_uri()]
    # Even if markup got in, the page's policy would not run it.
    tab.evaluate("document.body.innerHTML += '<img src=x onerror=\"document.title=1\">'")
    tab.wait_for_timeout(200)
    assert tab.title() == "Graph Machine: runs"
    tab.close()


def test_markup_is_text_in_every_renderer(attacked: Path, tmp_path: Path) -> None:
    found = load_runs([attacked])
    report = build_report(found)
    mark = "<!-- conditions board=4x4 -->\n<!-- end -->\n"
    markdown = [report_markdown(report), render_page(mark, found, tmp_path / "page.md")]
    for text in (*markdown, html(report)):
        assert "<img" not in text
        assert "<script" not in text
        assert "&lt;img" in text
    assert not any("\n# mine" in text for text in markdown)


def test_plain_text() -> None:
    assert escaped("a|b\\|c") == "a\\|b\\\\\\|c"
    assert escaped("[x](javascript:y) \x1b[31m\n#") == "\\[x](javascript:y)  \\[31m #"


def test_the_command_reports_the_rest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(tmp_path, "gm", 0)
    make_run(tmp_path, "gm", 1, result={"metrics": metrics(5)})
    assert command(["report", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert "| GM | 1x | each | node, edge | 90.0 |" in out
    assert "## Not counted" in out
    assert "not counted" in err


def test_runs_as_a_data_frame(tmp_path: Path) -> None:
    for seed, right in enumerate((0.5, 0.75)):
        make_run(tmp_path, "gm", seed, right)
    make_run(tmp_path, "transformer", 0, None, status="failed")
    runs = read_runs(tmp_path)
    assert runs.groupby("condition")["score"].mean().to_dict()["gm"] == 62.5
    assert runs["board_accuracy"].dropna().tolist() == [0.5, 0.75]
    assert runs["status"].tolist() == ["finished", "finished", "failed"]
    assert runs["flops"].notna().tolist() == [True, True, False]
    assert runs.attrs["problems"] == []
