"""Makes a small agent of a finished run: policy and bonus in float16, without optimisers; then measures it.

    make export RUN=runs/... [CHECKPOINT=latest|best] [EPISODES=200] [SEED=0] [OUT=agents/trained/<id>]

`agents.exported` describes the files. What is measured is the exported agent, as read back from them: success and
return (`make evaluate`), or coverage in Habitat (`make homes`). In agents/trained, `make agents` lists it and
`make watch ENV=<id>` plays it.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from agents.checkpoint import load_checkpoint, loading
from agents.exported import TRAINED, write_exported
from agents.registry import AGENTS, find_agent
from e3b_gym.command import answer
from e3b_gym.envs.registry import suite_of
from e3b_gym.files import atomic_write
from experiments.command import folder, options_and_seed, positive
from experiments.coverage import cover
from experiments.evaluate import evaluate
from experiments.runs import RunFolder
from experiments.settings import Settings
from experiments.trained import nearby

OPTIONS = ("RUN", "CHECKPOINT", "EPISODES", "OUT")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit code."""
    return answer(arguments, __doc__, _run)


def _run(given: list[str]) -> int:
    options, seed = options_and_seed(given, OPTIONS, "export")
    source, episodes = RunFolder.existing(options.get("RUN")), positive(options, "EPISODES", "200")
    out = folder(options, "OUT", str(nearby(TRAINED / source.load()[0].config.env)))
    target = export(source, out, options.get("CHECKPOINT", "latest"))
    try:
        measure(target, episodes, seed)
    except BaseException:
        shutil.rmtree(target.path)  # an agent that was not measured is not to be shipped
        raise
    forget_folders(target.path)
    for file in sorted(target.path.glob("*.npz")):
        print(f"{file}: {file.stat().st_size / 1e6:.2f} MB")
    return 0


def export(source: RunFolder, out: Path, which: str = "latest") -> RunFolder:
    """Writes the agent of a run to the new folder `out`."""
    settings, _ = source.load()
    if source.exported:
        raise ValueError(f"{source.path} is an exported agent already")
    if out.exists():
        raise ValueError(f"{out} exists already; remove it, or choose another OUT=")
    kind = kind_of(settings)
    checkpoint = load_checkpoint(source.checkpoints, kind, which)
    tables = find_agent(settings.agent).initial_tables(settings.config)
    out.mkdir(parents=True)
    try:
        with loading(checkpoint):
            write_exported(out, kind, checkpoint.state, checkpoint.frames, tables)
        shutil.copyfile(source.config_file, out / "config.yaml")
    except BaseException:
        shutil.rmtree(out)
        raise
    return RunFolder(out)


def forget_folders(folder: Path) -> None:
    """Absolute folders in the recorded commands, which mean nothing on another machine, become names."""
    for file in (file for file in folder.iterdir() if file.suffix in (".yaml", ".json")):
        text = file.read_text()
        with atomic_write(file) as temporary:
            temporary.write_text(re.sub(r"\b(RUN|RUNS|OUT)=/[^\s\"]*/", r"\1=", text))


def kind_of(settings: Settings) -> str:
    """Kind of its checkpoints."""
    kind = find_agent(settings.agent).kind
    if kind is None:
        able = ", ".join(name for name, agent in AGENTS.items() if agent.kind is not None)
        raise ValueError(f"AGENT={settings.agent} cannot be exported; these can: {able}")
    return kind


def measure(folder: RunFolder, episodes: int, seed: int = 0) -> None:
    """Plays the exported agent in unseen environments and writes what it did to its folder."""
    suite = suite_of(folder.load()[0].config.env)
    if suite is None or not suite.reward_free:
        evaluate(folder, episodes, seed)
        return
    with tempfile.TemporaryDirectory() as drawn:  # the report's pictures stay there
        cover([str(folder.path)], min(episodes, 100), "val", seed, Path(drawn), pictures=0, random=False)
        shutil.copyfile(Path(drawn) / "coverage.json", folder.path / "coverage.json")


if __name__ == "__main__":
    sys.exit(main())
