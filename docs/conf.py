"""The documentation site: `make docs` builds it into build/docs, with warnings as errors.

The source folder is the root of the repository, so that a link from one Markdown page to another
works the same on GitHub and in the site.
"""

import re
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path

from sphinx.application import Sphinx

from graph_machine import __version__, config
from graph_machine.config import Config

ROOT = Path(__file__).parent.parent
SETTINGS = {
    item.name
    for kind in vars(config).values()
    if isinstance(kind, type) and issubclass(kind, Config)
    for item in fields(kind)
}

project = "graph-machine"
author = "the graph-machine contributors"
project_copyright = author
release = version = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
root_doc = "docs/index"
include_patterns = ["docs/**", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"]
exclude_patterns = [".*", "build", "runs", "evidence", "src", "tests", "**/_templates"]
templates_path = ["_templates"]

myst_heading_anchors = 4  # links to headings, as GitHub makes them
# A language per code block is not required; blocks without one are shell commands or plain text.
highlight_language = "text"
suppress_warnings = ["misc.highlighting_failure"]

autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
# Docstrings put names into single backticks.
default_role = "code"

html_theme = "furo"
html_title = "graph-machine"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
# The site's pages live below docs/; its front door leads there.
html_additional_pages = {"index": "front.html"}


def list_remaining_pages(app: Sphinx, docname: str, source: list[str]) -> None:
    """Put the pages of docs/ that no list of the start page names where it says MORE-PAGES.

    A new page then shows up in the site without an edit of the start page.
    """
    if docname != root_doc:
        return
    named = set(re.findall(r"^([\w-]+)$", source[0], flags=re.MULTILINE))
    pages = sorted(page.stem for page in (ROOT / "docs").glob("*.md"))
    more = [page for page in pages if page not in named and page != "index"]
    source[0] = source[0].replace("MORE-PAGES", "\n".join(more))


def describe(
    app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]
) -> None:
    """Leave out what torch says of `forward`, and list the settings of a config."""
    if lines and lines[0].startswith("Define the computation performed at every call"):
        lines.clear()
    if what == "class" and isinstance(thing, type) and issubclass(thing, Config) and fields(thing):
        lines += ["", ".. list-table::", "   :header-rows: 1", ""]
        lines += ["   * - setting", "     - default", "     - meaning"]
        for item in fields(thing):
            shown = item.default is not MISSING and not is_dataclass(item.default)
            words = [f"``{item.name}``", f"``{item.default!r}``" if shown else ""]
            words.append(item.metadata.get("doc", ""))
            lines += [f"   {'  ' if n else '* '}- {word}" for n, word in enumerate(words)]


def hide_fields(
    app: Sphinx, what: str, name: str, thing: object, skip: bool, options: object
) -> bool | None:
    """Settings are in the table of their config; entries of their own would repeat them."""
    return True if name in SETTINGS and not callable(thing) else None


def hide_defaults(
    app: Sphinx, what: str, name: str, thing: object, options: object, given: str, returns: str
) -> tuple[str, str] | None:
    """The signature of a config would repeat all of its settings."""
    config_class = isinstance(thing, type) and issubclass(thing, Config)
    return ("(...)", returns) if config_class else None


def setup(app: Sphinx) -> None:
    app.connect("autodoc-process-signature", hide_defaults)
    app.connect("autodoc-process-docstring", describe)
    app.connect("autodoc-skip-member", hide_fields)
    app.connect("source-read", list_remaining_pages)
