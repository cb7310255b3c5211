"""The expected result of a run: evaluations of stored runs (`results/runs`) with the same settings."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from e3b_gym.bonuses.methods import method_defaults
from experiments.results import EVALUATION
from experiments.run_files import read_evaluation
from experiments.runs import RunFolder
from experiments.settings import Settings, complete, with_environment

STORED = Path(__file__).resolve().parent.parent / "results" / "runs"
# These may differ: they change how long training takes, not what is learned from a frame.
MAY_DIFFER = ("seed", "steps", "engine", "threads", "device", "ray_address", "env_options")


def expected(settings: Settings, stored: Path | None = None) -> str | None:
    """One line about the stored runs with these settings; None where there is none.

    Args:
        settings: the options of a run.
        stored: folder of stored runs, `<preset>/<task>/<method>-seed<k>`; None for those of the repository.
    """
    config, found = settings.config, []
    for folder in sorted(((stored or STORED) / settings.preset / config.env).glob(f"{config.method}-seed*")):
        if (folder / EVALUATION).exists() and (result := _evaluation_of_same(settings, folder)) is not None:
            found.append(result)
    successes = [result["success"]["mean"] for result in found if result.get("success")]
    if not successes:
        return None
    frames = " and ".join(dict.fromkeys(f"{result['frames'] / 1e6:.1f}M" for result in found))
    return (
        f"measured with these settings: success {', '.join(f'{success:.3f}' for success in successes)} in "
        f"{found[0]['episodes']} new episodes after {frames} frames ({len(successes)} "
        f"seed{'s' if len(successes) > 1 else ''}; results/runs/{settings.preset}/{config.env})"
    )


def _evaluation_of_same(settings: Settings, folder: Path) -> dict[str, Any] | None:
    """The evaluation of a stored run; None where its settings are others or it cannot be read."""
    try:
        other, _ = RunFolder(folder).load()
        evaluation = read_evaluation(folder / EVALUATION)
    except (ValueError, OSError):  # damaged, or of a version whose options are gone
        return None
    return evaluation if other.agent == settings.agent and _compared(other) == _compared(settings) else None


def _compared(settings: Settings) -> dict[str, Any]:
    """The settings that decide what is learned; an option that a stored run lacks has its default."""
    settings = with_environment(dataclasses.replace(settings, config=complete(settings.config)))
    values = {name: value for name, value in settings.config.as_dict().items() if name not in MAY_DIFFER}
    bonus = {**method_defaults(settings.config.method), **values.pop("bonus", {})}
    defaults = {field.name: field.default for field in dataclasses.fields(settings.config)}
    options = {**settings.config.env_defaults(), **settings.config.env_options}
    kept = {name: value for name, value in defaults.items() if name not in MAY_DIFFER and name != "bonus"}
    return {
        **kept,
        **values,
        **{f"bonus.{n}": v for n, v in bonus.items()},
        **{f"env.{n}": v for n, v in options.items()},
    }
