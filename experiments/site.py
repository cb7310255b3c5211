"""Pages of the documentation site that are made from the code: a page per method and suite, and the API reference.

`generated_pages` returns path -> Markdown; docs/hooks.py hands them to mkdocs. Equation, source and use of each method
are written by hand in `experiments.site_methods`.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from agents.exported import TRAINED
from e3b_gym import options
from e3b_gym.bonuses import METHODS
from e3b_gym.bonuses.methods import method_defaults
from e3b_gym.config import PRESETS, BonusConfig
from e3b_gym.envs.registry import SUITES, Suite
from e3b_gym.options import describe
from experiments.catalogue import STUDIES
from experiments.site_methods import FAMILIES, MEANINGS, VARIANTS, family_of

ROOT = Path(__file__).resolve().parents[1]
REFERENCE: dict[str, tuple[str, tuple[str, ...]]] = {
    "sb3": (
        "Stable-Baselines3",
        (
            "e3b_gym.sb3.wrapper.E3BRewardWrapper",
            "e3b_gym.sb3.callbacks.EncoderUpdateCallback",
            "e3b_gym.sb3.checkpoints.E3BCheckpointCallback",
            "e3b_gym.sb3.checkpoints.resume",
            "e3b_gym.sb3.envs.make_vec_env",
            "e3b_gym.sb3.recurrent_ppo.RecurrentPPO",
            "e3b_gym.sb3.extractor.EncoderExtractor",
            "e3b_gym.sb3.diagnosing.diagnose",
        ),
    ),
    "gymnasium": ("Gymnasium", ("e3b_gym.gymnasium.E3BVectorReward", "e3b_gym.gymnasium.E3BReward")),
    "config": (
        "Settings of a bonus",
        (
            "e3b_gym.config.BonusConfig",
            "e3b_gym.reward.RewardMixer",
            "e3b_gym.encoder_training.TrainerConfig",
        ),
    ),
    "bonuses": (
        "Bonuses",
        (
            "e3b_gym.bonuses.methods.make_bonus",
            "e3b_gym.bonuses.base.Bonus",
            "e3b_gym.checks.check_bonus",
            "e3b_gym.bonuses.elliptical.Elliptical",
            "e3b_gym.bonuses.rnd",
            "e3b_gym.bonuses.dynamics",
            "e3b_gym.bonuses.counts",
            "e3b_gym.bonuses.divergence",
            "e3b_gym.bonuses.representations",
            "e3b_gym.unroll.Unroll",
        ),
    ),
    "memory": (
        "Memory: the kernel",
        ("e3b_gym.memory.elliptical.EllipticalMemory", "e3b_gym.memory.counts.CountMemory"),
    ),
    "envs": (
        "Environments",
        (
            "e3b_gym.envs.make",
            "e3b_gym.envs.make_vec",
            "e3b_gym.envs.registry.Suite",
            "e3b_gym.envs.registry.register_suite",
        ),
    ),
    "impala": ("IMPALA", ("agents.impala.model.IMPALA", "agents.impala.config.Config")),
    "ppo": (
        "PPO runs of make train",
        ("agents.ppo.config.PPOConfig", "agents.ppo.config.RecurrentPPOConfig", "agents.run_config.RunConfig"),
    ),
    "runs": ("Options of a run", ("experiments.settings.RunOptions",)),
}
"""Page -> title, and what mkdocstrings shows there."""

_INHERITING = ("agents.impala.config.Config", "agents.ppo.config.PPOConfig", "agents.ppo.config.RecurrentPPOConfig")
_WITH_INHERITED = "    options:\n      inherited_members: true\n"
_UNSET = (
    "An option with the default `UNSET` has the value of the preset; the [page of a method](../methods/index.md) has "
    "the values of every preset, and the options of the method.\n\n"
)
_NOTES = {"sb3": _UNSET, "gymnasium": _UNSET}
"""Page of the reference -> what stands above its objects."""

_PRESETS = (
    "## Presets of `make train`\n\nWhat differs from the defaults of the agents "
    "([IMPALA](../reference/impala.md), [PPO](../reference/ppo.md)), by preset, agent and method or task:\n\n"
)


_TYPES = ("Positive", "NotNegative", "Share", "Count", "WholeNumber", "Seed")

_NO_RUN = (
    "No run of this method is stored in `results/`, so there is no curve. `make train METHOD=...` makes one, and "
    "`make reproduce` runs the [studies](../reproduction.md) that compare it."
)


@cache
def generated_pages() -> dict[str, str]:
    """All generated pages: path on the site -> Markdown."""
    pages = {"methods/index.md": _methods_index(), "suites/index.md": _suites_index()}
    pages |= {f"methods/{name}.md": method_page(name) for name in METHODS}
    pages |= {f"suites/{suite.name.lower()}.md": suite_page(suite) for suite in SUITES}
    pages["reference/index.md"] = _reference_index()
    for name, (title, objects) in REFERENCE.items():
        shown = "".join(f"::: {path}\n{_WITH_INHERITED if path in _INHERITING else ''}\n" for path in objects)
        pages[f"reference/{name}.md"] = f"# {title}\n\n{_NOTES.get(name, '')}{shown}"
    return pages


def method_page(name: str) -> str:
    """Equation, source, composition, settings, use and curves of a method."""
    family = FAMILIES[family_of(name)]
    parts = [
        f"# {name}\n\n{family.says} {VARIANTS.get(name, '')}".rstrip(),
        f"```text\n{family.equation}\n```",
        f"**Source.** {family.source}",
        f"**Composition.** `{family.composition(name)}`",
        f"**When.** {family.when}",
        "## Use\n\n" + _use(name),
        "## Settings\n\n" + _settings(name),
        _curves(name),
        "[All methods](index.md) · [options in detail](../bonuses.md) · [the classes](../reference/bonuses.md)",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _use(name: str) -> str:
    """A program and a command, in an environment that has what the method reads."""
    family = "MiniHack-MultiRoom-N{}-v0" if name.endswith("-message") else "Rooms-K{}-v0"
    small, large = family.format(4), family.format(6)
    return (
        "```python\nfrom stable_baselines3 import PPO\n"
        "from e3b_gym import E3BRewardWrapper, EncoderUpdateCallback, make_vec_env\n\n"
        f'venv = E3BRewardWrapper(make_vec_env("{small}", n_envs=8), bonus="{name}")\n'
        'model = PPO("MultiInputPolicy", venv).learn(100_000, callback=EncoderUpdateCallback())\n```\n\n'
        f"```bash\nmake train ENV={large} METHOD={name}\n```\n\n"
        f'For Gymnasium\'s vector environments: [`E3BVectorReward(envs, bonus="{name}")`](../reference/gymnasium.md).'
    )


def _settings(name: str) -> str:
    """A row per option: the default of `make_bonus`, and what each preset of the wrappers and agents sets."""
    plain = method_defaults(name)
    configs = {preset: BonusConfig.of(name, preset) for preset in PRESETS}
    values = {preset: {**_mixing(config), **config.options} for preset, config in configs.items()}
    names = [*_mixing(configs["default"]), *plain]
    heads = ["option", "meaning", "`make_bonus`", *(f"`{preset}`" for preset in PRESETS)]
    rows = [
        [f"`{one}`", MEANINGS[one], _code(plain.get(one, "")), *(_code(v.get(one, "")) for v in values.values())]
        for one in names
    ]
    presets = (
        "The last three columns are the presets of the wrappers and agents; `default` is in effect unless you choose."
    )
    return f"{markdown_table(heads, rows)}\n\n{presets}"


def _mixing(config: BonusConfig) -> dict[str, Any]:
    return {field: getattr(config, field) for field in BonusConfig.MIXING}


def _curves(name: str) -> str:
    """Curves of the studies whose stored runs include the method; without any, how to make one."""
    found = []
    for study in STUDIES.values():
        folder = ROOT / "results" / study.name
        methods = {method.method for method in study.methods}
        stored = any((ROOT / "results/runs/home" / str(task) / f"{name}-seed0").exists() for task in study.tasks)
        pictures = [picture for picture in ("curves.png", "scores.png") if (folder / picture).exists()]
        if name in methods and stored and pictures:
            link = f"../results/{study.name}"
            found.append(f"[{study.title}]({link}/README.md)\n\n![{study.title}]({link}/{pictures[0]})")
    return "## Results\n\n" + ("\n\n".join(found) or _NO_RUN)


def _methods_index() -> str:
    rows = [
        [f"[`{name}`]({name}.md)", f"`{FAMILIES[family_of(name)].composition(name)}`", FAMILIES[family_of(name)].source]
        for name in METHODS
    ]
    return (
        "# Methods\n\nEvery method is a composition of a few terms, made by name: "
        "`E3BRewardWrapper(venv, bonus=...)`, `make train METHOD=...`.\n\n"
        + markdown_table(["method", "composition", "source"], rows)
        + "\n"
    )


def suite_page(suite: Suite) -> str:
    """Tasks, options, presets and trained agents of a suite."""
    tasks = suite.load_tasks()
    install = f"`pip install 'e3b-gym[{suite.extra}]'`" if suite.extra else "nothing: it is part of the library"
    doc = inspect.cleandoc(suite.load().__doc__ or "")
    rows = [[f"`{id}`", task.kind, len(task.actions), task.max_steps or "", task.source] for id, task in tasks.items()]
    parts = [
        f"# {suite.name}",
        doc.split("\n\n")[0],
        f"**Install.** {install}. **Ids** start with `{suite.prefix}`"
        + (", and any id of the simulator with that prefix works." if suite.serves_all else ".")
        + " [Guide to the environments](../environments.md).",
        "## Tasks\n\n" + markdown_table(["id", "kind", "actions", "steps", "source"], rows),
        "## Options\n\nOf `e3b_gym.make(id, ...)`; `env.<name>=` of `make train`.\n\n" + _suite_options(suite),
        _trained(tasks),
        _PRESETS + f"```yaml\n{suite.presets().read_text().strip()}\n```",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _suite_options(suite: Suite) -> str:
    defaults = suite.option_defaults()
    rows = [
        [f"`{name}`", describe(kind), f"`{defaults[name]!r}`" if name in defaults else "the task's"]
        for name, kind in suite.option_types().items()
        if name not in ("id", "render_mode")
    ]
    return markdown_table(["option", "value", "default"], rows) if rows else "None."


def _trained(tasks: Iterable[str]) -> str:
    rows = []
    for id in tasks:
        file = TRAINED / id / "evaluation-latest-seed0.json"
        if file.exists():
            found = json.loads(file.read_text())
            value = "{mean:.3f} [{low:.3f}, {high:.3f}]".format(**found["success"])
            config = yaml.safe_load((TRAINED / id / "config.yaml").read_text())
            rows.append([f"`{id}`", config["agent"], f"{found['frames']:,}", value])
    if not rows:
        return ""
    text = "## Trained agents\n\nThese come with the repository; `make watch ENV=<id>` plays one.\n\n"
    return text + markdown_table(["id", "agent", "frames", "success in unseen environments, 95 % interval"], rows)


def _suites_index() -> str:
    rows = [
        [
            f"[{suite.name}]({suite.name.lower()}.md)",
            f"`{suite.prefix}...`",
            len(suite.load_tasks()),
            suite.simulator or "-",
        ]
        for suite in SUITES
    ]
    return (
        "# Suites\n\nAny id registered with Gymnasium works; these families have tasks, networks and presets here.\n\n"
        + markdown_table(["suite", "ids", "tasks", "simulator"], rows)
        + "\n"
    )


def _reference_index() -> str:
    rows = [
        [f"[{title}]({name}.md)", ", ".join(f"`{path.rsplit('.', 1)[-1]}`" for path in objects)]
        for name, (title, objects) in REFERENCE.items()
    ]
    types = ", ".join(f"`{name}` ({describe(getattr(options, name))})" for name in _TYPES)
    return (
        "# API reference\n\nFrom the docstrings.\n\n"
        + markdown_table(["page", "content"], rows)
        + f"\n\nTypes of options, which are checked: {types}.\n"
    )


def markdown_table(heads: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """A Markdown table; `|` in cells is escaped."""
    lines = [list(heads), *rows]
    texts = [[str(cell).replace("|", "\\|").replace("\n", " ") for cell in line] for line in lines]
    texts.insert(1, ["---"] * len(texts[0]))
    return "\n".join(f"| {' | '.join(line)} |" for line in texts)


def _code(value: Any) -> str:
    if value == "" or isinstance(value, Mapping):
        return ""
    return f"`{value}`"
