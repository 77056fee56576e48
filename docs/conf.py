"""The documentation site: `make docs` builds it into build/docs, with warnings as errors.

The source folder is the root of the repository, so that a link from one Markdown page to another
works the same on GitHub and in the site.
"""

import re
from pathlib import Path

from sphinx.application import Sphinx

from graph_machine import __version__

ROOT = Path(__file__).parent.parent

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
autodoc_inherit_docstrings = False
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


def setup(app: Sphinx) -> None:
    app.connect("source-read", list_remaining_pages)
