"""STUDIES: the paper's figures (`experiments.paper`) and the studies made for this library, by name."""

from __future__ import annotations

from collections.abc import Sequence

from experiments import paper
from experiments.paper import E3B, smoke
from experiments.settings import split_arguments
from experiments.studies import OURS, SCALES, Claim, Method, Scale, Study, Task

NO_BONUS = Method("no bonus", "none")
COUNT = Method("episodic count, full observation", "first-visit")
CLOCK = Task("Rooms-K6-v0", {"clock": True}, "Rooms-K6-clock")
# Under 256 noise bits E3B needs four rooms and more steps; with six it had not begun to learn at 2M.
NOISE = Task("Rooms-K4-v0", {"noise": 256}, "Rooms-K4-noise")
NEITHER = Task("Rooms-K6-v0", {}, "Rooms-K6")
ROOMS_FRAMES = {str(CLOCK): 1_250_000, str(NOISE): 1_750_000, str(NEITHER): 1_250_000}

demo = Study(
    "demo",
    "Rooms with a clock: E3B, no bonus and an episodic count",
    OURS,
    "A new chain of rooms every episode, reward only in the last one, and a clock that makes every observation new. "
    "A bonus on what the agent controls leads through the rooms; a count of whole observations does not.",
    (CLOCK,),
    (E3B, NO_BONUS, COUNT),
    {"home": Scale("home", 1, ROOMS_FRAMES), "smoke": smoke()},
    agent="ppo",
    measure="training success",
)

rooms = Study(
    "rooms",
    "Rooms: success by method, with a clock, with noise and with neither",
    OURS,
    "Which bonus still explores when every observation is new, and what does each part of E3B contribute?",
    (CLOCK, NOISE, NEITHER),
    (
        E3B,
        NO_BONUS,
        COUNT,
        Method("NovelD, full observation", "noveld"),
        Method("E3B, non-episodic", "e3b-nonepisodic"),
        Method("E3B, random encoder", "e3b-random"),
        Method("E3B, policy encoder", "e3b-policy"),
    ),
    {"home": Scale("home", 3, ROOMS_FRAMES), "smoke": smoke(str(CLOCK))},
    agent="ppo",
    measure="training success",
    claims=(
        Claim("E3B solves the rooms with a clock", "solves", ("e3b",), group=str(CLOCK)),
        Claim(
            "without a bonus, with a count and with NovelD the rooms with a clock are not solved",
            "fails",
            ("none", "first-visit", "noveld"),
            group=str(CLOCK),
        ),
        Claim("a memory that is never cleared fails", "fails", ("e3b-nonepisodic",), group=str(CLOCK)),
        Claim(
            "under noise the encoder has to be learned",
            "above",
            ("e3b",),
            ("e3b-random", "e3b-policy"),
            group=str(NOISE),
        ),
    ),
    note="[What this shows and what it does not](findings.md).",
)

rooms_nonepisodic = Study(
    "rooms-nonepisodic",
    "Rooms with a clock: the non-episodic E3B with a larger bonus",
    OURS,
    "Does the non-episodic E3B fail because its bonus is small?",
    (CLOCK,),
    tuple(Method(f"E3B, non-episodic, beta {beta}", "e3b-nonepisodic", {"beta": beta}) for beta in (0.1, 1.0)),
    {"home": Scale("home", 1, ROOMS_FRAMES), "smoke": smoke()},
    agent="ppo",
    measure="training success",
    claims=(
        Claim(
            "ten and a hundred times the bonus fail, too",
            "fails",
            ("e3b-nonepisodic,beta=0.1", "e3b-nonepisodic,beta=1.0"),
        ),
    ),
)

minigrid = Study(
    "minigrid",
    "MiniGrid MultiRoom with four rooms: PPO with E3B and without a bonus",
    OURS,
    "Does E3B solve a task of the suite that prior work used?",
    (Task("MiniGrid-MultiRoom-N4-S5-v1"),),
    (E3B, NO_BONUS),
    {"home": Scale("home", 3, 600_000), "smoke": smoke()},
    agent="ppo",
    measure="training success",
    claims=(Claim("E3B is above no bonus", "above", ("e3b",), ("none",)),),
)

minihack = Study(
    "minihack",
    "MiniHack: the paper's sixteen tasks with one list of settings, E3B and no bonus",
    OURS,
    "Which tasks does E3B solve within 90 minutes on a small machine, with the same settings for all?",
    paper.MINIHACK,
    (E3B, NO_BONUS, Method("random policy", "random")),
    {"home": paper.home(), "smoke": smoke("MiniHack-MultiRoom-N6-Lava-v0")},
    groups=paper.GROUPS,
    claims=(Claim("E3B is above no bonus", "above", ("e3b",), ("none",)),),
    note="[How the settings were found](tuning.md), with what did not work; seed 0 was used for that and is not shown.",
)

LOCKED = "MiniHack-MultiRoom-N4-Locked-v0"
AUTHORS_LOCKED = Task(LOCKED, {"layout": "authors"}, "MiniHack-MultiRoom-N4-Locked-authors")

layouts = Study(
    "layouts",
    "MiniHack MultiRoom-N4-Locked: levels of MiniHack 1.0 and of the paper's authors",
    OURS,
    "How much harder are the authors' levels, six rooms on a grid of 25x25, than MiniHack 1.0's four rooms on 76x21?",
    (Task(LOCKED), AUTHORS_LOCKED),
    (E3B,),
    {"home": paper.home(), "smoke": smoke(str(AUTHORS_LOCKED))},
    claims=(Claim("E3B solves both", "solves", ("e3b",)),),
)

BOOTSTRAPPED = Method("E3B, bootstrapped at time limits", "e3b", {"bootstrap_truncated": True})

time_limits = Study(
    "time-limits",
    "MiniHack: a time limit as the end of the return, or a bootstrapped value",
    OURS,
    "Should IMPALA's return end at a time limit, as in the authors' code, or continue with the value predicted there?",
    (
        Task("MiniHack-MultiRoom-N6-Lava-v0"),
        Task("MiniHack-LavaCrossingS19N13-v0"),
        Task("MiniHack-Freeze-Wand-Restricted-v0"),
    ),
    (E3B, BOOTSTRAPPED),
    {"home": paper.home(), "smoke": smoke("MiniHack-MultiRoom-N6-Lava-v0")},
    claims=(Claim("the two are equally good", "same", (E3B.name,), (BOOTSTRAPPED.name,)),),
)

README = Task("Rooms-K5-v0", {"clock": True}, "Rooms-K5-clock")
DOOR_KEY, KEY_CORRIDOR = Task("MiniGrid-DoorKey-8x8-v0"), Task("MiniGrid-KeyCorridorS3R2-v0")
SPARSE = tuple(
    Task(f"experiments.sparse:{name}-v0", {}, name)
    for name in ("SparseMountainCar", "SparseMountainCarContinuous", "SparseAcrobot", "AtariFreeway")
)
SPARSE_FRAMES = {str(task): 500_000 for task in SPARSE}
SPARSE_FRAMES |= {str(README): 700_000, str(DOOR_KEY): 500_000, str(KEY_CORRIDOR): 1_000_000, "AtariFreeway": 200_000}

wrapper = Study(
    "wrapper",
    "Common sparse tasks: PPO with E3B, with RND and without a bonus",
    OURS,
    "Does the wrapper help, with its default settings, in tasks that were not chosen for it?",
    (README, DOOR_KEY, SPARSE[0], KEY_CORRIDOR, *SPARSE[1:]),
    (E3B, NO_BONUS, Method("RND", "rnd")),
    {
        "home": Scale("home", 3, SPARSE_FRAMES),
        "smoke": smoke(str(SPARSE[0])),
    },
    agent="ppo",
    claims=(
        Claim("E3B is above no bonus", "above", ("e3b",), ("none",)),
        Claim("E3B is above RND", "above", ("e3b",), ("rnd",)),
    ),
    note="The first task is the README's. PPO and all bonuses have the presets of `make train` as they are: nothing "
    "was tuned for the other six. All budgets were set before the first run; that of Freeway by its speed.",
)

beta = Study(
    "beta",
    "Common sparse tasks: PPO with E3B and a fifth of the default bonus",
    OURS,
    "Is the default beta of 0.01 too large where a policy without a bonus finds the goal, too?",
    (README, DOOR_KEY, KEY_CORRIDOR),
    (E3B, Method("E3B, beta 0.002", "e3b", {"beta": 0.002}), NO_BONUS),
    {"home": Scale("home", 3, SPARSE_FRAMES), "smoke": smoke(str(KEY_CORRIDOR))},
    agent="ppo",
    claims=(Claim("a fifth of the bonus is better", "above", ("e3b,beta=0.002",), ("e3b",)),),
    note="Made after the study `wrapper`, where E3B with its defaults learned KeyCorridor on no seed.",
)

OWN = (rooms, rooms_nonepisodic, minigrid, minihack, layouts, time_limits, wrapper, beta, demo)
STUDIES = {study.name: study for study in (*paper.FIGURES, *OWN)}


def read_choice(command: str, given: Sequence[str], known: Sequence[str]) -> tuple[dict[str, str], list[Study], str]:
    """The options of a command with FIGURE= and SCALE=, and the studies and the scale that they choose."""
    options, other = split_arguments(given, known)
    if other:
        raise ValueError(f"{command} takes {', '.join(known)}, not {', '.join(other)}")
    studies, scale = find_studies(options.get("FIGURE", "")), options.get("SCALE", "home")
    if scale not in SCALES:
        raise ValueError(f"SCALE must be {', '.join(SCALES[:-1])} or {SCALES[-1]}; got {scale!r}")
    return options, studies, scale


def find_studies(names: str) -> list[Study]:
    """The studies that FIGURE= names: one, several with commas, or `all` (but the demo, which is a part of rooms)."""
    if names == "all":
        return [study for study in STUDIES.values() if study is not demo]
    for name in names.split(","):
        if name not in STUDIES:
            raise ValueError(f"unknown FIGURE={name}; choose from all, {', '.join(STUDIES)}")
    return [STUDIES[name] for name in names.split(",")]
