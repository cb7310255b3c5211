"""Command lines that a user might type: right ones, nearly right ones, and nonsense."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path

from agents.impala.config import Config
from agents.ppo.config import PPOConfig
from e3b_gym.bonuses.methods import METHODS
from e3b_gym.config import option_types
from experiments.settings import RunOptions

VALUES = (
    "0", "1", "2", "4", "8", "-1", "-5", "0.5", "1.5", "3e-4", "1e-9", "1e400", "-1e400", "1e400k", "nan", "inf",
    "-inf", "1e9M", "10M", "2k", "k", "M", "1_000", "0x10", "\u0661", str(2**31), str(2**63), str(2**70), "true",
    "false", "yes", "no", "on", "off", "True", "None", "null", "none", "", " ", "abc", "e3b", "paper", "default",
    "authors", "home", "std", "message", "[message", "[message, blstats]", "[1, 2]", "{a: 1}", "[[]]", "*x",
    "&a [*a]", "a b", "a,b", "a;b", "!!python/name:os.system", "!!python/object/apply:os.mkdir [payload]", "\\", "'",
    '"', "$x", "$(x)", "`x`", "../..", "/", "/dev/null", "/dev/null/x", "/proc/x", "\t", "\n", "a\nb", "\u00e9",
    "\udcff", "\U0001f600", "%s", "{}", "x" * 300, "-" * 50, "=", "a=b", "--help", "-h", "help",
)  # fmt: skip
ENVIRONMENTS = (
    "Rooms-K3-v0", "Rooms-K4-v0", "CartPole-v1", "Blackjack-v1", "Pendulum-v1", "MiniGrid-Empty-5x5-v0", "Rooms-K0-v0",
    "Rooms-K99999-v0", "Rooms-Kx-v0", "Rooms-K3", "Rooms K3 v0", "rooms-k3-v0", "MiniHack-Nothing-v0", "Vizdoom-v0",
    "Habitat-v0", "Nothing-v0", "no_module:Thing-v0", "a:b:c", ":", "-v0", "../../etc/passwd", "CartPole-v9",
    "CartPole",    "FrozenLake-v1", "Taxi-v3",
)  # fmt: skip
PLAIN = ("env", "method", "engine", "env_options", "bonus", "threads", "actors")
"""Fields that are not mutated at random: they start processes, or have their own mutations."""
SIZES = ("n_envs", "n_steps", "n_epochs", "batch_size", "encoder_batch_size", "encoder_epochs", "dim", "hidden", "lstm")
SIZES += ("episodes", "noise", "clock", "max_steps", "num_envs", "value_heads", "key_size", "num_actions")
FIELDS = sorted(
    {field.name for kind in (Config, PPOConfig, RunOptions) for field in dataclasses.fields(kind)} - set(PLAIN)
)
BONUS = sorted({name for method in METHODS for name in option_types(method)})
ENV_OPTIONS = ("max_steps", "clock", "noise", "flat", "seed", "num_envs", "id", "kind", "render_mode", "nothing", "")


def train_line(draw: random.Random, agent: str, tiny: list[str], place: Path) -> list[str]:
    """A tiny run with some options changed."""
    line = [*tiny, f"RUN={place / 'new'}", "STEPS=64"]
    for _ in range(draw.choice([1, 1, 1, 2, 3])):
        what = draw.random()
        value = draw.choice(VALUES)
        if what < 0.4:
            line.append(f"{draw.choice(FIELDS)}={value}")
        elif what < 0.6:
            prefix = draw.choice(["", "bonus.", "bonus."])
            line += [f"{prefix}{draw.choice(BONUS)}={value}", f"METHOD={draw.choice(list(METHODS))}"]
        elif what < 0.7:
            line.append(f"env.{draw.choice(ENV_OPTIONS)}={value}")
        elif what < 0.8:
            line.append(f"ENV={draw.choice(ENVIRONMENTS)}")
        elif what < 0.9:
            line.append(
                f"{draw.choice(['AGENT', 'METHOD', 'PRESET', 'SEED', 'NET', 'STEPS', 'RESUME', 'FPS'])}={value}"
            )
        else:
            line = [argument for argument in line if not argument.startswith("RUN=")]
            line.append(f"RUN={folder_of(draw, place)}")
    return line


def folder_of(draw: random.Random, place: Path) -> str:
    """Folders of which most cannot be that of a run."""
    (place / "file").write_text("mine")
    (place / "full").mkdir(exist_ok=True)
    (place / "full" / "notes").write_text("mine")
    if not (place / "link").is_symlink():
        (place / "link").symlink_to(place / "nowhere" / "deep")
        (place / "loop").symlink_to(place / "loop")
    names = ["file", "file/below", "full", "link", "loop", "x" * 300, "new\n", "a b", "it's", "a$x", "\udcff", "new"]
    return draw.choice([str(place / draw.choice(names)), "", "/proc/run", "/dev/null", "/dev/null/x"])


def look_line(draw: random.Random, command: str, run: Path, place: Path) -> list[str]:
    """evaluate or watch with some options changed."""
    line = [f"RUN={run}", "EPISODES=1"]
    for _ in range(draw.choice([1, 1, 2])):
        name = draw.choice(["EPISODES", "SEED", "CHECKPOINT", "GREEDY", "FPS", "RECORD", "RUN", "ENV", "beta", "STEPS"])
        value = draw.choice([*VALUES, "latest", "best"])
        if name == "RUN":
            value = folder_of(draw, place)
        if name == "RECORD":
            value = draw.choice(
                [str(place / "film.gif"), str(place / "file" / "film.gif"), str(place), "film.avi", value]
            )
            (place / "file").write_text("mine")
        line.append(f"{name}={value}")
    return line


def envs_line(draw: random.Random, place: Path) -> list[str]:
    """`python -m e3b_gym.envs` with some options changed."""
    line = [f"ENV={draw.choice(ENVIRONMENTS)}", "STEPS=3"]
    for _ in range(draw.choice([0, 1, 1, 2])):
        name = draw.choice(["WATCH", "KEYS", "SEED", "STEPS", "FPS", "RECORD", "NOTHING", "stray"])
        value = "1"
        if name in ("SEED", "STEPS", "FPS"):
            value = draw.choice([value for value in VALUES[:40] if not _takes_long(f"episodes={value}")])
        if name == "RECORD":
            (place / "file").write_text("mine")
            names = [
                place / "film.gif",
                place / "file" / "film.gif",
                place / "film.avi",
                place,
                Path("/dev/null/x.gif"),
            ]
            value = str(draw.choice(names))
        line.append(name if name == "stray" else f"{name}={value}")
    return line


def coverage_line(draw: random.Random, runs: Path, place: Path) -> list[str]:
    """`python -m experiments.coverage` with some options changed."""
    (place / "file").write_text("mine")
    run = draw.choice([runs / "homes", runs / "impala", place / "nowhere", place / "file"])
    line = {"RUNS": run, "EPISODES": 1, "MAX_STEPS": 2, "PICTURES": 0, "OUT": place / "out"}
    option = draw.choice(["EPISODES", "SEED", "MAX_STEPS", "SPLIT", "CHECKPOINT", "OUT", "RUNS", "RANDOM", "X"])
    value = draw.choice([*VALUES[:40], str(place / "file"), str(place / "file" / "x"), "train", "best"])
    if _takes_long(f"episodes={value}"):
        value = "0"
    words = [f"{name}={text}" for name, text in {**line, option: value}.items()]
    return [*words, *([option] if draw.random() < 0.1 else [])]


def garbled(draw: random.Random, line: list[str]) -> list[str]:
    """Now and then something is lost, doubled, swapped or mistyped."""
    if draw.random() < 0.2 and line:
        place = draw.randrange(len(line))
        word = line[place]
        spot = draw.randrange(len(word) + 1)
        line[place] = draw.choice(
            [
                word[:spot] + word[spot + 1 :],
                word[:spot] + draw.choice("=. -[]{}:$'\"\\xZ0") + word[spot:],
                word.lower(),
                word.upper() if not word.startswith("RUN=") else word,
                word.replace("=", "", 1),
                draw.choice(VALUES),
            ]
        )
    if draw.random() < 0.05:
        line = draw.sample(line, draw.randrange(len(line) + 1))
    # Options that start processes or set the length of a run would only make the case slow.
    quick = [word for word in line if not word.lower().startswith(("engine=p", "actors=", "threads="))]
    return [word for word in quick if not _takes_long(word)]


def _takes_long(word: str) -> bool:
    """Whether a size is valid and large."""
    name, _, value = word.partition("=")
    if name.split(".")[-1].lower() not in SIZES:
        return False
    scale = {"k": 1e3, "M": 1e6}.get(value.strip()[-1:], 1.0)
    try:
        return 64 < float(value.strip().rstrip("kM")) * scale < float("inf")
    except ValueError:
        return False
