"""Reads `ENV=... METHOD=... learning_rate=3e-4` into the settings of a run.

    defaults of the agent's config < the suite's presets.yaml < the command line

Dataclasses own defaults, types and checks; a preset holds differences only; an unknown option raises an error that
suggests the closest matches. Options in capitals say what to do (ENV, METHOD, AGENT, ...); a lower-case name is an
option of the agent or of the run; `bonus.<name>` is an option of the bonus (`<name>` alone where no other option has
that name); `env.<name>` is an option of the environment.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from agents.networks import env_options_for, networks_for
from agents.registry import AGENTS, find_agent
from agents.run_config import RunConfig
from e3b_gym.bonuses import METHODS
from e3b_gym.command import split_options
from e3b_gym.config import BonusConfig, option_types
from e3b_gym.envs import default_options, option_type
from e3b_gym.envs.registry import suite_of
from e3b_gym.options import TRUTH, Count, NotNegative, Positive, check_fields, closest, field_types, parse
from experiments.presets import preset_layers

# Capitals that are options of the config under another spelling.
FIELDS_IN_CAPITALS = ("ENV", "METHOD", "STEPS", "SEED", "NET")
_GROUPS = {"bonus": "bonus", "env": "env_options"}


@dataclass(frozen=True)
class RunOptions:
    """Options of what a run writes and when; they do not change what is learned."""

    checkpoint_minutes: Positive = 10.0
    """Minutes between two checkpoints; the most that a crash can lose."""
    keep: Count = 3
    """How many of the latest checkpoints stay."""
    log_seconds: NotNegative = 10.0
    """Seconds between two rows of progress.csv and two points of TensorBoard's curves."""

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class Settings:
    """All of a run: the agent, the preset it began from, the resolved config, and the run's options."""

    agent: str
    preset: str
    config: RunConfig
    run: RunOptions = RunOptions()

    @property
    def title(self) -> str:
        """The method and the agent, or an agent that learns nothing."""
        method = self.config.method
        return self.agent if method == self.agent else f"{method} with {self.agent}"


def split_arguments(
    arguments: Iterable[str], capitals: Collection[str], suggested: Collection[str] = ()
) -> tuple[dict[str, str], dict[str, str]]:
    """`NAME=value` arguments as (capitals, fields); capitals that are fields come out as fields.

    Args:
        arguments: arguments of the command line.
        capitals: the options of the command itself, in addition to FIELDS_IN_CAPITALS.
        suggested: the part of FIELDS_IN_CAPITALS that the command takes.
    """
    options: dict[str, str] = {}
    fields: dict[str, str] = {}
    for name, value in split_options(arguments):
        if name in FIELDS_IN_CAPITALS:
            fields[name.lower()] = value
        elif name in capitals:
            options[name] = value
        elif name.isupper():
            raise ValueError(f"unknown option {name}={value}; {closest(name, {*capitals, *suggested})}")
        else:
            fields[name] = value
    return options, fields


def is_set(options: Mapping[str, str], name: str) -> bool:
    """Whether a switch such as RESUME=1 is on."""
    value = options.get(name) or "0"
    if value.lower() not in TRUTH:
        raise ValueError(f"{name} is a switch: {name}=1 or {name}=0; got {value!r}")
    return TRUTH[value.lower()]


def resolve(agent: str, preset: str, given: Mapping[str, Any]) -> Settings:
    """The settings of a new run.

    Args:
        agent: a key of `agents.registry.AGENTS`.
        preset: a section of the suite's preset file.
        given: by name, as on the command line; must name `env`.

    Raises:
        ValueError: A name is unknown, a value has the wrong type, or an option would have no effect.
    """
    kind = find_agent(agent).config
    if not given.get("env"):
        raise ValueError("ENV= is missing, e.g. ENV=Rooms-K4-v0; `python -m e3b_gym.envs` lists them")
    env, method = str(given["env"]), str(given.get("method", "e3b"))
    check_method(method)
    check_learnable(agent, env)
    chosen, run = place_options(agent, method, given)
    general, own = preset_layers(preset, agent, env, method)
    layers = [place_options(agent, method, layer)[0] for layer in (*general, *own)]
    config = make_config(kind, env, method, [*layers, chosen])
    typed = {**by_name(chosen), **run, **({"method": method} if "method" in given else {})}
    reasons = config.without_effect()
    if not learns(kind):
        reasons |= dict.fromkeys(field_types(RunOptions), f"AGENT={agent} learns nothing")
    for option in (option for option, value in typed.items() if str(value).lower() not in ("none", "null")):
        reason = reasons.get(option, reasons.get("bonus") if option.startswith("bonus.") else None)
        if reason is not None:
            raise ValueError(f"{option}= has no effect: {reason}; leave it out")
    return Settings(agent, preset, complete(config), make_run_options(run))


def make_config(kind: type[RunConfig], env: str, method: str, layers: Iterable[Mapping[str, Any]]) -> RunConfig:
    """A config from layers of options, later ones first; text is converted to the type of its option."""
    try:
        merged: Any = OmegaConf.to_container(OmegaConf.merge({}, *layers))
    except OmegaConfBaseException as error:  # such as ${...}, which OmegaConf would look up
        raise ValueError(f"an option cannot be read: {str(error).splitlines()[0]}") from error
    bonus, options, types = merged.pop("bonus", {}), merged.pop("env_options", {}), field_types(kind)
    fields = {name: parse(name, value, types[name]) for name, value in merged.items()}
    if learns(kind):
        preset = str(bonus.pop("preset", kind.bonus_preset))
        fields["bonus"] = BonusConfig.parsed(method, preset, **bonus)
    config = kind(**{**fields, "env": env})
    return dataclasses.replace(config, env_options={**config.env_defaults(), **parse_env_options(env, options)})


def complete(config: RunConfig) -> RunConfig:
    """Returns the config with the sizes of its networks, and None where an option has no effect."""
    reasons = config.without_effect()
    sizes: dict[str, Any] = {name: None for name in ("dim", "net", "lstm") if name in reasons}
    if config.recurrent and config.has_networks:
        sizes["lstm"] = networks_for(config).lstm
    return dataclasses.replace(config, **sizes)


def with_environment(settings: Settings) -> Settings:
    """Returns the settings with all options of the environment, its defaults included; imports the simulator."""
    config = settings.config
    options = {**default_options(config.env), **env_options_for(config)}
    return dataclasses.replace(settings, config=dataclasses.replace(config, env_options=options))


def learns(kind: type[RunConfig]) -> bool:
    """Whether runs of this config train anything."""
    return any(agent.config is kind and agent.trainer is not None for agent in AGENTS.values())


def check_method(method: str) -> None:
    """Raises ValueError for an unknown METHOD."""
    if method in AGENTS:
        raise ValueError(f"METHOD={method} is an agent; write AGENT={method}")
    if method not in METHODS:
        raise ValueError(f"unknown METHOD={method}; {closest(method, METHODS)}")


def check_learnable(agent: str, env: str) -> None:
    """Raises ValueError where the suite's networks cannot see the environment."""
    suite = suite_of(env)
    if suite is None or not suite.learns_tasks_only or AGENTS[agent].trainer is None or env in suite.load_tasks():
        return
    raise ValueError(
        f"{env} is not among the {suite.name} tasks that these networks support; "
        f"{closest(env, suite.load_tasks())} `python -m e3b_gym.envs` lists them"
    )


def _add_once(bonus: dict[str, Any], name: str, value: Any) -> None:
    if name in bonus:
        raise ValueError(f"{name} and bonus.{name} are the same option; write one of them")
    bonus[name] = value


def place_options(agent: str, method: str, given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Options by name as (layer of the config, options of the run); an unknown name is an error."""
    layer: dict[str, Any] = {}
    run: dict[str, Any] = {}
    fields = {name for name in field_types(AGENTS[agent].config) if name not in ("bonus", "env_options")}
    bonus = {"preset", *(set(option_types(method)) - {"seed", "dim", "encoder"})}
    for name, value in given.items():
        group, dot, option = name.partition(".")
        if dot and group == "env" and option:
            layer.setdefault("env_options", {})[option] = value
        elif dot and group == "bonus" and option in bonus:
            _add_once(layer.setdefault("bonus", {}), option, value)
        elif name in ("bonus", "env_options") and isinstance(value, Mapping):
            prefix = "bonus" if name == "bonus" else "env"
            inner, _ = place_options(agent, method, {f"{prefix}.{option}": item for option, item in value.items()})
            layer[name] = {**layer.get(name, {}), **inner.get(name, {})}
        elif name in fields:
            layer[name] = value
        elif name in field_types(RunOptions):
            run[name] = value
        elif name in bonus and name != "preset":
            _add_once(layer.setdefault("bonus", {}), name, value)
        elif name != "method":
            known = [*fields, *field_types(RunOptions), *(f"bonus.{one}" for one in bonus), *(bonus - {"preset"})]
            what = agent if AGENTS[agent].trainer is None else f"{agent} with {method}"
            raise ValueError(
                f"{what} has no option {name!r}; {closest(name, known)} Options of the environment are "
                "written env.<name>=<value>"
            )
    return layer, run


def make_run_options(given: Mapping[str, Any], current: RunOptions | None = None) -> RunOptions:
    """The run's options, with what is given as text or values."""
    types = field_types(RunOptions)
    parsed = {name: parse(name, value, types[name]) for name, value in given.items()}
    return dataclasses.replace(current or RunOptions(), **parsed)


def parse_env_options(env: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of the environment, converted to their types; the value of an option without a type is read as YAML."""
    parsed: dict[str, Any] = {}
    for name, value in options.items():
        kind = option_type(env, name)
        parsed[name] = _yaml(f"env.{name}", value) if kind is Any else parse(f"env.{name}", value, kind)
    return parsed


def _yaml(name: str, value: Any) -> Any:
    try:
        return yaml.safe_load(value) if isinstance(value, str) else value
    except yaml.YAMLError as error:
        raise ValueError(f"{name} must be a value as in YAML; got {value!r}") from error


def task_settings(settings: Settings) -> dict[str, Any]:
    """The options that a run takes from its preset's section for the task alone, by name."""
    config = settings.config
    if not learns(type(config)):
        return {}
    which = settings.agent, config.method
    general, own = (
        [place_options(*which, layer)[0] for layer in layers]
        for layers in preset_layers(settings.preset, settings.agent, config.env, config.method)
    )
    usual = by_name(complete(make_config(type(config), config.env, config.method, general)).as_dict())
    full = by_name(complete(make_config(type(config), config.env, config.method, [*general, *own])).as_dict())
    taken = by_name(config.as_dict())
    names = {name for layer in own for name in by_name(layer)}
    return {name: value for name, value in taken.items() if name in names and value == full[name] != usual[name]}


def by_name(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a config by the names that they have on the command line."""
    names = {name: value for name, value in fields.items() if name not in ("bonus", "env_options")}
    for prefix, group in _GROUPS.items():
        names |= {f"{prefix}.{name}": value for name, value in fields.get(group, {}).items()}
    if "bonus.method" in names:
        names["method"] = names.pop("bonus.method")
    return names


def as_options(values: Mapping[str, Any]) -> str:
    """The options as written on the command line."""
    return " ".join(f"{name}={value}" for name, value in values.items())
