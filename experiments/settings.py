"""From `ENV=... METHOD=... learning_rate=3e-4` to the settings of a run.

    defaults of the dataclass < experiments/presets/<suite>.yaml < the command line

Dataclasses own defaults and checks; a preset holds differences only; a name that nobody knows is an error with the
closest names. Words in capitals say what to do (ENV, METHOD, AGENT, ...); a lower-case name is a field of the agent's
config, an option of the run, or an option of the bonus; `env.<name>` is an option of the environment.
"""

from __future__ import annotations

import dataclasses
import difflib
import types
import typing
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from agents.impala.config import Config
from e3b_gym.bonuses.methods import METHODS, method_types
from e3b_gym.encoders.minihack import env_options as minihack_options
from e3b_gym.envs.registry import all_tasks, suite_of
from experiments.ppo_config import PPOConfig
from experiments.random_agent import FORWARD, NOBODY, RANDOM_METHODS, RandomConfig

AGENTS: dict[str, type[Config] | type[PPOConfig]] = {"impala": Config, "recurrent_ppo": PPOConfig, "ppo": PPOConfig}
PRESET_FOLDER = Path(__file__).parent / "presets"
# Options that say how the bonus enters the reward (RewardMixer's).
MIXING = ("beta", "extrinsic", "normaliser", "clip", "floor")
# Capitals that are fields of the config under another spelling.
FIELDS_IN_CAPITALS = ("ENV", "METHOD", "STEPS", "SEED", "NET")


@dataclass(frozen=True)
class RunOptions:
    """What a run writes and when; it does not change what is learned.

    Attributes:
        checkpoint_minutes: between two checkpoints; the most that a crash can lose.
        keep: how many of the latest checkpoints stay.
        log_seconds: between two rows of progress.csv and two points of TensorBoard's curves.
    """

    checkpoint_minutes: float = 10.0
    keep: int = 3
    log_seconds: float = 10.0

    def __post_init__(self) -> None:
        if not self.checkpoint_minutes > 0:
            raise ValueError(f"checkpoint_minutes must be positive; got {self.checkpoint_minutes}")
        if self.keep < 1:
            raise ValueError(f"keep must be at least 1; got {self.keep}")
        if not self.log_seconds >= 0:
            raise ValueError(f"log_seconds must be 0 or more; got {self.log_seconds}")


@dataclass(frozen=True)
class Settings:
    """All of a run: who learns, which preset it began from, the resolved config, and the run's options.

    A random agent is a run, too, so that it can be played like any other: `agent` is NOBODY, `config` a RandomConfig.
    """

    agent: str
    preset: str
    config: Config | PPOConfig | RandomConfig
    run: RunOptions = RunOptions()


def split_arguments(arguments: Iterable[str], capitals: Collection[str]) -> tuple[dict[str, str], dict[str, str]]:
    """`NAME=value` arguments as (capitals, fields); capitals that are fields come out as fields.

    Args:
        arguments: of the command line.
        capitals: those that the command knows besides FIELDS_IN_CAPITALS.
    """
    words: dict[str, str] = {}
    fields: dict[str, str] = {}
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if not equals or not name:
            raise ValueError(f"expected NAME=value, got {argument!r}")
        if name in FIELDS_IN_CAPITALS:
            fields[name.lower()] = value
        elif name in capitals:
            words[name] = value
        elif name.isupper():
            raise ValueError(f"unknown word {name}={value}; {closest(name, [*capitals, *FIELDS_IN_CAPITALS])}")
        else:
            fields[name] = value
    return words, fields


def is_set(words: Mapping[str, str], name: str) -> bool:
    """Whether a switch such as RESUME=1 is on."""
    value = words.get(name, "0").lower()
    if value not in ("0", "1", "no", "yes", "true", "false", ""):
        raise ValueError(f"{name} is a switch: {name}=1 or {name}=0; got {value!r}")
    return value in ("1", "yes", "true")


def resolve(agent: str, preset: str, given: Mapping[str, Any]) -> Settings:
    """The settings of a new run.

    Args:
        agent: a key of AGENTS.
        preset: a section of the suite's preset file.
        given: by name, as on the command line; must name `env`.
    """
    if agent not in AGENTS:
        raise ValueError(f"unknown AGENT={agent}; choose from {', '.join(AGENTS)}")
    if not given.get("env"):
        raise ValueError("which environment? e.g. ENV=Rooms-K4-v0; `python -m e3b_gym.envs` lists them")
    env, method = str(given["env"]), str(given.get("method", "e3b"))
    check_method(method, env)
    chosen, run = sort_options(agent, method, given)
    config = _merged([*preset_layers(preset, agent, env, method), needed_options(env, method, chosen), chosen])
    if method in RANDOM_METHODS:
        own = {name: config[name] for name in ("env", "env_options", "method", "seed") if name in config}
        return Settings(NOBODY, preset, RandomConfig(**own), RunOptions(**run))
    return Settings(agent, preset, AGENTS[agent](**config), RunOptions(**run))


def check_method(method: str, env: str) -> None:
    """Raises ValueError for a METHOD that nobody knows, or that makes no sense in the environment."""
    if method not in METHODS and method not in RANDOM_METHODS:
        raise ValueError(f"unknown METHOD={method}; {closest(method, [*METHODS, *RANDOM_METHODS])}")
    if method == FORWARD and suite_file(env) != "habitat":
        raise ValueError(
            f"METHOD={method} walks 80 % forward and turns else, which are Habitat's actions and not those of {env}; "
            "METHOD=random acts at random anywhere"
        )
    if env.startswith("MiniHack-") and method not in RANDOM_METHODS and env not in (known := all_tasks()):
        raise ValueError(
            f"{env} is not among the MiniHack tasks that the networks here can see; "
            f"{closest(env, [id for id in known if id.startswith('MiniHack-')])} `python -m e3b_gym.envs` lists them"
        )


def sort_options(agent: str, method: str, given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Names and values as the fields of the config and of RunOptions; an unknown name is an error."""
    config: dict[str, Any] = {}
    run: dict[str, Any] = {}
    bonus_options = (*MIXING, *(sorted(set(method_types(method)) - {"dim", "encoder"}) if method in METHODS else ()))
    fields, run_fields = field_types(AGENTS[agent]), field_types(RunOptions)
    for name, value in given.items():
        group, dot, option = name.partition(".")
        if name in ("bonus", "env_options") and isinstance(value, Mapping):
            config[name] = {**config.get(name, {}), **{key: scalar(item) for key, item in value.items()}}
        elif dot and group == "env":
            config.setdefault("env_options", {})[option] = scalar(value)
        elif (option if dot and group == "bonus" else name) in bonus_options and name not in fields:
            config.setdefault("bonus", {})[option if dot else name] = scalar(value)
        elif name in run_fields:
            run[name] = convert(name, value, run_fields[name])
        elif name in fields and name not in ("bonus", "env_options"):
            config[name] = convert(name, value, fields[name])
        else:
            known = [*fields, *run_fields, *(f"bonus.{name}" for name in bonus_options), *bonus_options]
            raise ValueError(
                f"{agent} with {method} has no option {name!r}; {closest(name, known)} Options of the environment are "
                "written env.<name>=<value>"
            )
    if wrong := sorted(set(config.get("bonus", {})) - set(bonus_options)):
        raise ValueError(f"{method} has no option {', '.join(wrong)}; it has {', '.join(bonus_options)}")
    return config, run


def preset_layers(preset: str, agent: str, env: str, method: str) -> list[dict[str, Any]]:
    """The differences of a preset: for all methods, for the method's family, for the method; then those of the task."""
    return general_layers(preset, agent, env, method) + task_layers(preset, agent, env, method)


def general_layers(preset: str, agent: str, env: str, method: str) -> list[dict[str, Any]]:
    """Those for every task of the suite."""
    return _pick(preset_sections(preset, agent, env), agent, method)


def task_layers(preset: str, agent: str, env: str, method: str) -> list[dict[str, Any]]:
    """Those for this environment alone."""
    return _pick(preset_sections(preset, agent, env).get(env, {}), agent, method)


def _pick(sections: Mapping[str, Any], agent: str, method: str) -> list[dict[str, Any]]:
    wanted = dict.fromkeys(("all", method.split("-")[0], method))  # each once, in this order
    return [sort_options(agent, method, sections[section])[0] for section in wanted if section in sections]


def usual_settings(preset: str, agent: str, env: str, method: str) -> dict[str, Any]:
    """What a preset has for every task of the suite, by the words of the command line."""
    config = _merged([{"env": env, "method": method}, *general_layers(preset, agent, env, method)])
    return by_word(dataclasses.asdict(AGENTS[agent](**config)))


def task_settings(settings: Settings) -> dict[str, Any]:
    """What a run takes from its preset's section for the task alone, by word."""
    config = settings.config
    which = settings.preset, settings.agent, config.env, config.method
    taken, usual = by_word(dataclasses.asdict(config)), usual_settings(*which)
    own = by_word(_merged(task_layers(*which)))
    return {word: value for word, value in own.items() if taken.get(word) == value != usual.get(word)}


def _merged(layers: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Fields of a config; later layers win, option by option in `bonus` and `env_options`."""
    config: dict[str, Any] = {"bonus": {}, "env_options": {}}
    for layer in layers:
        for name, value in layer.items():
            config[name] = {**config[name], **value} if name in ("bonus", "env_options") else value
    return config


def by_word(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a config by the names that they have on the command line."""
    words = {name: value for name, value in fields.items() if name not in ("bonus", "env_options")}
    bonus = {f"bonus.{name}" if name in words else name: value for name, value in fields.get("bonus", {}).items()}
    return words | bonus | {f"env.{name}": value for name, value in fields.get("env_options", {}).items()}


def as_words(values: Mapping[str, Any]) -> str:
    """As one writes them on the command line."""
    return " ".join(f"{word}={value}" for word, value in values.items())


def preset_sections(preset: str, agent: str, env: str) -> dict[str, dict[str, Any]]:
    """What the environment's preset file holds for a preset and an agent."""
    name = suite_file(env)
    presets = load_presets(name)
    if preset not in presets:
        raise ValueError(
            f"{name} has no PRESET={preset}; it has {', '.join(presets)} (experiments/presets/{name}.yaml)"
        )
    if agent not in presets[preset]:
        raise ValueError(
            f"PRESET={preset} of {name} is for AGENT={' or '.join(presets[preset])}, not for {agent}; take PRESET=home"
        )
    return presets[preset][agent]


def suite_file(env: str) -> str:
    """The name of the preset file for an environment."""
    suite = suite_of(env)
    return "other" if suite is None else suite.name.lower()


def load_presets(name: str) -> dict[str, dict[str, dict[str, dict[str, Any]]]]:
    """preset -> agent -> section -> fields, or -> task -> section -> fields, checked for names that mean nothing."""
    path = PRESET_FOLDER / f"{name}.yaml"
    content = yaml.safe_load(path.read_text())
    tasks = {task for task in all_tasks() if suite_file(task) == name}
    sections = {"all", *METHODS, *(method.split("-")[0] for method in METHODS)}

    def check(where: str, parts: Any, kind: str, known: Collection[str]) -> None:
        if not isinstance(parts, Mapping):
            raise ValueError(f"{path.name}: {where} must hold sections; got {parts!r}")
        for wrong in (part for part in parts if part not in known):
            raise ValueError(f"{path.name}: {where} has no {kind} {wrong!r}; {closest(wrong, known)}")

    for preset, agents in content.items():
        check(preset, agents, "agent", AGENTS)
        for agent, parts in agents.items():
            where = f"{preset}.{agent}"
            check(where, parts, "method or task", {*sections, *tasks})
            for task in (part for part in parts if part in tasks):
                check(f"{where}.{task}", parts[task], "method (fields go under all, or under a method)", sections)
    return content  # type: ignore[no-any-return]


def needed_options(env: str, method: str, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """What the environment must show so that the method can count what it counts, and must not let it do."""
    suite = suite_file(env)
    if method in RANDOM_METHODS:  # drawn from four actions, the one that stops would come every fourth step
        return {"env_options": {"allow_stop": False}} if suite == "habitat" else {}
    key = chosen.get("bonus", {}).get("key", getattr(METHODS[method], "keywords", {}).get("key"))
    if key == "position" and suite == "minigrid":
        return {"env_options": {"position": True}}
    if key == "image" and suite == "minihack":
        return {"env_options": {"observation_keys": list(minihack_options("paper")["observation_keys"])}}
    return {}


def field_types(kind: type[Any]) -> dict[str, Any]:
    """name -> type of a dataclass's fields."""
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def convert(name: str, value: Any, kind: Any) -> Any:
    """A value, or text of the command line, as a field's type."""
    if typing.get_origin(kind) is types.UnionType:
        return None if scalar(value) in (None, "none") else convert(name, value, typing.get_args(kind)[0])
    if kind is str:
        return str(value)
    given, value = value, scalar(value)
    if typing.get_origin(kind) is typing.Literal:
        if value not in typing.get_args(kind):
            raise ValueError(f"{name} must be {' or '.join(map(str, typing.get_args(kind)))}; got {given!r}")
        return value
    if kind is int and isinstance(value, float) and value.is_integer():
        value = int(value)  # 1e6
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind:
        raise ValueError(f"{name} must be {'a whole number' if kind is int else 'a number'}; got {given!r}")
    return value


def scalar(value: Any) -> Any:
    """Text as the number, truth value, list or None that it spells (10M, 3e-4, true, [a, b], null); else as it is."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    scale = {"k": 10**3, "M": 10**6}.get(text[-1:], 1)
    digits = text[:-1] if scale > 1 else text
    for kind in (int, float):
        try:
            number = kind(digits) * scale
        except ValueError:
            continue
        return int(number) if scale > 1 and number == int(number) else number
    if text in ("true", "True", "false", "False"):
        return text in ("true", "True")
    if text in ("null", "None"):
        return None
    return yaml.safe_load(text) if text.startswith("[") else text


def closest(name: str, known: Iterable[str]) -> str:
    """ "did you mean ...?", or all that there is."""
    choices = sorted(set(known))
    close = difflib.get_close_matches(name, choices, n=3, cutoff=0.5)
    return f"did you mean {' or '.join(close)}?" if close else f"choose from {', '.join(choices)}."
