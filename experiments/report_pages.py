"""The pages of a report: index.html, which needs no other file, and README.md, which GitHub shows."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from html import escape
from pathlib import Path

import yaml

from e3b_gym.files import atomic_write
from experiments.report import Report
from experiments.report_tables import Table, markdown, run_table, score_table
from experiments.statistics import FEW_SEEDS

CSS = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 1180px; margin: 2rem auto; padding: 0 1.2rem; }
h1 { font-size: 1.6rem; margin-bottom: .2rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
.source { color: #666; margin-top: 0; }
.note { background: #fdf6e3; border-left: 4px solid #e69f00; padding: .5rem .9rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: 13px; }
th, td { padding: .3rem .7rem; border-bottom: 1px solid #ddd; text-align: left; vertical-align: top; }
th { background: #f4f4f2; white-space: nowrap; } td.number { font-variant-numeric: tabular-nums; white-space: nowrap; }
figure { margin: 1.2rem 0; } figure img { max-width: 100%; height: auto; } figcaption { color: #555; font-size: 13px; }
.verdict { border-radius: 3px; padding: .1rem .5rem; white-space: nowrap; color: #fff; background: #7f7f7f; }
.agrees { background: #2b7a4b; } .disagrees { background: #b3261e; } .agrees-in-part { background: #a86e00; }
details { margin: .3rem 0; } summary { cursor: pointer; }
pre { background: #f7f7f5; padding: .6rem; overflow-x: auto; font-size: 12px; }
"""


def write_pages(report: Report) -> None:
    """index.html and README.md in the report's folder."""
    report.out.mkdir(parents=True, exist_ok=True)
    for name, text in (("index.html", html_page(report)), ("README.md", markdown_page(report))):
        with atomic_write(report.out / name) as temporary:
            temporary.write_text(text)


def seeds_text(report: Report) -> str:
    """The number of runs and seeds, with a warning if they are few."""
    seeds = sorted({result.run.seed for result in report.results})
    counts: dict[tuple[str, str], int] = {}
    for result in report.results:
        if result.run.learns:
            cell = str(result.run.task), result.run.method.name
            counts[cell] = counts.get(cell, 0) + 1
    fewest, most = (min(counts.values()), max(counts.values())) if counts else (len(seeds), len(seeds))
    number = str(most) if fewest == most else f"{fewest} to {most}"
    text = f"{len(report.results)} runs, {number} seed{'s' * (most > 1)} per method and task"
    if most == 1:
        text += f"; one seed says little (the paper has {FEW_SEEDS}, 3 in Habitat), and has no interval over seeds"
    elif fewest < FEW_SEEDS:
        text += (
            f"; these are few seeds (the paper has {FEW_SEEDS}, 3 in Habitat), so intervals over seeds are too narrow"
        )
    if report.missing:
        text += f". {missing_text(report)}"
    return text + "."


def missing_text(report: Report) -> str:
    """The number of runs that are missing."""
    return f"{len(report.missing)} run{'s' * (len(report.missing) > 1)} of the plan missing"


def made_by(report: Report) -> str:
    """The commands, machines and hours."""
    name, scale = report.study.name, report.scale
    machines = sorted({str(part["machine"]) for r in report.results for part in r.content["provenance"][-1:]})
    hours = sum(result.hours for result in report.results)
    return (
        f"`make reproduce FIGURE={name} SCALE={scale}`, then `make report FIGURE={name} SCALE={scale}`. "
        f"{hours:.1f} hours of training in all ({'; '.join(machines)}). Commits are in the table of runs."
    )


def html_page(report: Report) -> str:
    """One file with everything in it."""
    study = report.study
    parts = [
        f"<h1>{escape(study.title)}</h1>",
        f'<p class="source">{escape(study.source)} &middot; scale {escape(report.scale)}</p>',
        f"<p>{escape(study.shows)}</p>",
        f'<p class="note">{escape(seeds_text(report))}{" " + _inline(study.note) if study.note else ""}</p>',
        *_html_claims(report),
        "<h2>Scores</h2>",
        f"<p>Score: {escape(study.measure)}.{' Methods with * use knowledge of the task.' * _has_prior(report)}</p>",
        _html_table(score_table(study, report.scale, report.results)),
        "<h2>Plots</h2>",
        *(_html_plot(report.out, plot.name, plot.caption) for plot in report.plots),
        *_html_films(report),
        "<h2>Runs</h2>",
        _html_table(run_table(study, report.results)),
        *_html_missing(report),
        "<h2>Settings</h2>",
        *_html_settings(report),
        "<h2>How this was made</h2>",
        f"<p>{_inline(made_by(report))}</p>",
    ]
    head = (
        f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{escape(study.title)}</title>'
    )
    return (
        f"<!doctype html>\n<html lang=en><head>{head}<style>{CSS}</style></head><body>\n"
        + "\n".join(parts)
        + "\n</body></html>\n"
    )


def _html_claims(report: Report) -> Iterator[str]:
    if not report.judged:
        return
    heading = "What the paper shows, and what we got" if report.study.of_paper else "Findings"
    yield f"<h2>{heading}</h2>"
    yield '<div class="wide"><table><tr><th>claim</th><th>our runs</th><th></th></tr>'
    for one in report.judged:
        style = one.verdict.replace(" ", "-")
        evidence = "<br>".join(escape(part) for part in one.evidence.split("; "))
        verdict = f'<span class="verdict {style}">{escape(one.verdict)}</span>'
        yield f"<tr><td>{escape(one.claim.text)}</td><td>{evidence}</td><td>{verdict}</td></tr>"
    yield "</table></div>"


def _html_table(table: Table) -> str:
    heads, rows = table
    text = "".join(f"<th>{escape(head)}</th>" for head in heads)
    lines = [f'<div class="wide"><table><tr>{text}</tr>']
    for row in rows:
        lines.append("<tr>" + "".join(f'<td class="number">{escape(cell)}</td>' for cell in row) + "</tr>")
    return "\n".join([*lines, "</table></div>"])


def _html_plot(out: Path, name: str, caption: str) -> str:
    text = f"{escape(caption)} Drawn from <code>{name}.csv</code>."
    picture = f'<img alt="{escape(caption)}" src="{_data(out / f"{name}.svg")}">'
    return f"<figure>{picture}<figcaption>{text}</figcaption></figure>"


def _html_films(report: Report) -> Iterator[str]:
    films = [(result, film) for result in report.results for film in result.films]
    paths = report.out / "trajectories.png"  # of `make homes` with several runs
    if films or paths.exists():
        yield "<h2>Films and paths</h2>"
    if paths.exists():
        caption = "<figcaption>What agents saw of the same homes.</figcaption>"
        yield f'<figure><img alt="" src="{_data(paths)}">{caption}</figure>'
    for result, film in films:
        tag = (
            f'<img alt="" src="{_data(film)}">'
            if film.suffix != ".mp4"
            else f'<video controls src="{_data(film)}"></video>'
        )
        yield f"<figure>{tag}<figcaption>{escape(result.run.name)}</figcaption></figure>"


def _html_missing(report: Report) -> Iterator[str]:
    if report.missing:
        yield f"<details><summary>{missing_text(report)}</summary><ul>"
        yield from (f"<li>{escape(run.name)}</li>" for run in report.missing)
        yield "</ul></details>"


def _html_settings(report: Report) -> Iterator[str]:
    """The settings of every run; runs that differ only in their seed share an entry."""
    groups: dict[str, list[str]] = {}
    for result in report.results:
        config = {name: value for name, value in result.content["config"].items() if name != "seed"}
        head = {name: result.content.get(name) for name in ("agent", "preset") if name in result.content}
        groups.setdefault(yaml.safe_dump(head | {"config": config}, sort_keys=False), []).append(result.run.name)
    for text, names in groups.items():
        summary = names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "")
        yield f"<details><summary>{escape(summary)}</summary><pre>{escape(text)}</pre></details>"


def _inline(text: str) -> str:
    """`code` and [links](target) of Markdown."""
    import re

    text = re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))
    return re.sub(r"\[([^\]]+)\]\(([^)]+)\)", r'<a href="\2">\1</a>', text)


def _data(path: Path) -> str:
    kind = {".svg": "image/svg+xml", ".gif": "image/gif", ".mp4": "video/mp4", ".png": "image/png"}[path.suffix]
    return f"data:{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"


def _has_prior(report: Report) -> bool:
    return any(method.prior for method in report.study.methods)


def markdown_page(report: Report) -> str:
    """A short form of the page in Markdown."""
    study = report.study
    parts = [
        f"# {study.title}",
        f"{study.source}, scale {report.scale}. {study.shows}",
        seeds_text(report) + f" {study.note}",
    ]
    if report.judged:
        rows = [[one.claim.text, one.evidence, one.verdict.value] for one in report.judged]
        parts.append(markdown((["claim", "our runs", ""], rows)))
    parts.append(f"Score: {study.measure}.{' Methods with * use knowledge of the task.' * _has_prior(report)}")
    parts.append(markdown(score_table(study, report.scale, report.results)))
    parts += [
        f"![{plot.caption}]({plot.name}.png)\n\n*{plot.caption} Drawn from {plot.name}.csv.*" for plot in report.plots
    ]
    if (report.out / "trajectories.png").exists():
        parts.append("![paths and what they revealed](trajectories.png)")
    parts.append("## Runs\n\n" + markdown(run_table(study, report.results)))
    where = "../runs" if report.out.parent.name == "results" else "the run folders"
    parts.append(
        f"Made by {made_by(report)} Settings, curve and evaluation of each run: {where}. `index.html` has everything."
    )
    return "\n\n".join(parts) + "\n"
