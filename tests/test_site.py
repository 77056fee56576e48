"""The documentation site: what its pages of reference name exists."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "graph_machine"


def test_reference_pages_name_modules_that_exist() -> None:
    for page in (ROOT / "docs" / "api").glob("*.md"):
        for name in re.findall(r"automodule:: graph_machine\.([\w.]+)", page.read_text()):
            path = PACKAGE / name.replace(".", "/")
            assert path.with_suffix(".py").exists() or (path / "__init__.py").exists(), page.name
