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

_LINK = re.compile(r"(\]\()([^)\s#]+)((?:#[^)\s]*)?\))")
_SOURCES = (".py", ".yml", ".yaml", ".json", ".csv", ".ipynb", ".cff", ".txt")


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
    for name, target in (("README.md", "index.md"), ("CHANGELOG.md", "CHANGELOG.md")):
        files.append(File.generated(config, target, content=_relinked((ROOT / name).read_text(), name, target)))
    for path, text in generated_pages().items():
        files.append(File.generated(config, path, content=text))
    for page in sorted((ROOT / "results").glob("*/*.md")):
        path = page.relative_to(ROOT).as_posix()
        files.append(File.generated(config, path, content=_relinked(page.read_text(), path, path)))
    for folder in ("results/*/*.png", "examples/*", "e3b_gym/*.py", "e3b_gym/bonuses/*.py", "docs/images/*"):
        for file in sorted(ROOT.glob(folder)):
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
    """Relative links of a page that lies at `source` in the repository and at `target` on the site."""

    def link(match: re.Match[str]) -> str:
        before, to, after = match.groups()
        if "://" in to or to.startswith("mailto:"):
            return match.group()
        place = posixpath.normpath(posixpath.join(posixpath.dirname(source), to))
        if (ROOT / place).is_dir():
            place = f"{place}/README.md" if (ROOT / place / "README.md").exists() else ""
        if place == "README.md":
            place = "index.md"
        place = place.removeprefix("docs/")
        on_site = place.endswith((".md", ".png", ".gif", ".svg")) or place.endswith(_SOURCES)
        return (
            f"{before}{posixpath.relpath(place, posixpath.dirname(target) or '.')}{after}"
            if place and on_site
            else "](#)"
        )

    return _LINK.sub(link, text)
