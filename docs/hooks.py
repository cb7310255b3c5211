"""Hooks of mkdocs: adds the generated pages (`experiments.site`) and files outside docs/ that pages link to."""

from __future__ import annotations

import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from experiments.site import generated_pages  # noqa: E402  # the clone, whatever is installed

_LINK = re.compile(r"(\[[^\]]*\])\(([^)\s#]+)((?:#[^)\s]*)?)\)")
_SHOWN = (".md", ".png", ".gif", ".svg", ".py", ".yml", ".yaml", ".ipynb", ".cff")
_PAGES = {"README.md": "index.md", "CHANGELOG.md": "CHANGELOG.md", "CONTRIBUTING.md": "CONTRIBUTING.md"}
_LAST_IN_SEARCH = "---\nsearch:\n  boost: 0.3\n---\n\n"
"""Logs of experiments mention every option; the pages that explain it come before them."""
_FILES = (
    "results/*/*.png",
    "examples/*",
    "docs/images/*",
    "CITATION.cff",
    "e3b_gym/**/*.yaml",
    "agents/trained/*/config.yaml",
)
_FILES += tuple(f"{folder}/**/*.py" for folder in ("e3b_gym", "agents", "experiments", "benchmarks", "tests"))


def on_config(config: Any) -> Any:
    """Puts the generated pages, and pages that mkdocs.yml does not name, into the navigation."""
    listed = str(config.nav)
    sections = {name: pages for entry in config.nav for name, pages in entry.items()}
    for path in generated_pages():
        section = {"methods": "Methods", "suites": "Suites", "reference": "Reference"}[path.split("/")[0]]
        if not path.endswith("index.md"):
            sections[section].append(path)
    others = [page.name for page in sorted((ROOT / "docs").glob("*.md")) if f"'{page.name}'" not in listed]
    sections["Guides"].extend(others)
    return config


def on_files(files: Files, config: Any) -> Files:
    """Adds README.md as the start page, the generated pages, and results, examples and sources that pages link to."""
    for name, target in _PAGES.items():
        files.append(File.generated(config, target, content=_relinked((ROOT / name).read_text(), name, target)))
    for path, text in generated_pages().items():
        files.append(File.generated(config, path, content=text))
    for page in sorted((ROOT / "results").glob("*/*.md")):
        path = page.relative_to(ROOT).as_posix()
        text = _relinked(page.read_text(), path, path)
        files.append(File.generated(config, path, content=f"{_LAST_IN_SEARCH}{text}"))
    for pattern in _FILES:
        for file in sorted(ROOT.glob(pattern)):
            path = file.relative_to(ROOT).as_posix().removeprefix("docs/")
            if files.get_file_from_path(path) is None and file.is_file():
                files.append(File.generated(config, path, abs_src_path=str(file)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Links of docs/ to files outside of it."""
    uri = page.file.src_uri
    hand_written = (ROOT / "docs" / uri).exists()
    return _relinked(markdown, f"docs/{uri}", uri) if hand_written else markdown


def _relinked(text: str, source: str, target: str) -> str:
    """Relative links of a page that lies at `source` in the repository and at `target` on the site.

    A link to a folder, or to a file that the site does not have, becomes plain text.
    """

    def link(match: re.Match[str]) -> str:
        words, to, anchor = match.groups()
        if "://" in to or to.startswith("mailto:"):
            return match.group()
        place = posixpath.normpath(posixpath.join(posixpath.dirname(source), to))
        if (ROOT / place).is_dir():
            place = f"{place}/README.md"
        if not (ROOT / place).exists() or not place.endswith(_SHOWN):
            return words.strip("[]")
        place = "index.md" if place == "README.md" else place.removeprefix("docs/")
        return f"{words}({posixpath.relpath(place, posixpath.dirname(target) or '.')}{anchor})"

    return _LINK.sub(link, text)
