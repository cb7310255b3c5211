"""Every figure and table of the paper that holds a result, as data (Henaff et al. 2022, arXiv:2210.05805).

Labels are those of the paper's LaTeX source. Where the text does not name a task or a number of frames (the plots of
MiniGrid), the study's note names our choice. `docs/reproduction.md` compares what the paper shows with our runs.
"""

from __future__ import annotations

from e3b_gym.envs.minihack.tasks import PAPER_IDS, TASKS
from experiments.studies import Claim, Method, Scale, Study, Task

NAVIGATION = tuple(env for env in PAPER_IDS if TASKS[env].kind == "navigation")
SKILL = tuple(env for env in PAPER_IDS if TASKS[env].kind == "skill")
# Three of each kind, chosen before any baseline was run on them, by the frames that E3B needs; with the two of `keys`.
# A random policy solves Levitate-Boots in 35 % and the Freeze tasks in 4 to 11 % of the episodes (results/minihack).
HOME = (
    "MiniHack-MultiRoom-N6-Lava-v0",
    "MiniHack-MultiRoom-N4-Locked-v0",
    "MiniHack-LavaCrossingS19N13-v0",
    "MiniHack-Freeze-Random-Restricted-v0",
    "MiniHack-LavaCross-Restricted-v0",
    "MiniHack-Levitate-Boots-Restricted-v0",
)
MULTIROOM, FREEZE = "MiniHack-MultiRoom-N6-Lava-v0", "MiniHack-Freeze-Random-Restricted-v0"
MINIHACK = tuple(Task(env) for env in NAVIGATION + SKILL)
GROUPS = {"navigation": NAVIGATION, "skill": SKILL}

E3B, NONE = Method("E3B", "e3b"), Method("IMPALA", "none")
RND, ICM, RIDE = Method("RND", "rnd"), Method("ICM", "icm"), Method("RIDE", "ride")
NOVELD = Method("NovelD", "noveld")
POSITION = Method("NovelD-position", "noveld-position", prior=True)
IMAGE = Method("NovelD-image", "noveld-image", prior=True)
MESSAGE = Method("NovelD-message", "noveld-message", prior=True)
BASELINES = (NONE, RND, ICM, RIDE, NOVELD, POSITION, IMAGE, MESSAGE)

# The smallest possible runs: they show that everything runs, and nothing about learning.
SMOKE = {"n_envs": 4, "n_steps": 8, "batch_size": 16, "log_seconds": 0}
SMOKE_FRAMES = 64


def home(*tasks: str, seeds: int = 2) -> Scale:
    """MiniHack with the `home` preset, which was found with seed 0."""
    return Scale("home", seeds, tasks=tasks or None, first_seed=1)


def smoke(*tasks: str, agent: str | None = None) -> Scale:
    """A minute or two for everything: one seed, two rollouts."""
    return Scale("home", 1, SMOKE_FRAMES, tasks or None, 2, SMOKE, agent)


COUNTS = tuple(
    method
    for name in ("NovelD", "RIDE", "AGAC")
    for method in (Method(name, name.lower()), Method(f"{name} without its count", f"{name.lower()}-nocount"))
)
COUNT_CLAIMS = tuple(
    Claim(f"{name} needs its episodic count", "above", (name.lower(),), (f"{name.lower()}-nocount",))
    for name in ("NovelD", "RIDE", "AGAC")
)
MINIGRID_NOTE = (
    "The paper ran each author's code with its defaults; all methods share one agent here. The text names neither the "
    "task of the main figure nor the frames."
)

counts = Study(
    "counts",
    "Counts are essential: RIDE, AGAC and NovelD with and without their episodic count",
    "Figure 1 (fig:counts_ablation)",
    "On a MiniGrid task all three methods learn with their count of the episode's states and fail without it.",
    (Task("MiniGrid-MultiRoom-N4-S5-v1"), Task("MiniGrid-MultiRoom-N6-v0")),
    COUNTS,
    {
        "paper": Scale("home", 5, 20_000_000, ("MiniGrid-MultiRoom-N6-v0",)),
        "home": Scale("home", 3, 1_000_000, ("MiniGrid-MultiRoom-N4-S5-v1",)),
        "smoke": smoke("MiniGrid-MultiRoom-N4-S5-v1"),
    },
    agent="ppo",
    claims=COUNT_CLAIMS,
    note=MINIGRID_NOTE,
)

counts_appendix = Study(
    "counts-appendix",
    "Counts are essential: further MiniGrid tasks",
    "Appendix (fig:counts_ablation2)",
    "Without the count all three methods fail or learn much more slowly, as RIDE does on ObstructedMaze-2Dlh.",
    (
        Task("MiniGrid-MultiRoom-N7-S8-v0"),
        Task("MiniGrid-KeyCorridorS3R3-v0"),
        Task("MiniGrid-ObstructedMaze-2Dlh-v0"),
    ),
    COUNTS,
    {
        "paper": Scale("home", 5, 30_000_000),
        "home": Scale("home", 2, 5_000_000),
        "smoke": smoke("MiniGrid-KeyCorridorS3R3-v0"),
    },
    agent="ppo",
    claims=COUNT_CLAIMS,
    note=MINIGRID_NOTE + " It names only ObstructedMaze-2Dlh in the appendix.",
)

keys = Study(
    "keys",
    "What NovelD counts decides where it works",
    "Figure 2 (fig:small_table)",
    "NovelD that counts whole observations fails on both tasks, as a time counter makes each of them new. Counting "
    "positions solves MultiRoom and fails on Freeze; counting messages solves Freeze and fails on MultiRoom.",
    (Task(MULTIROOM), Task(FREEZE)),
    (NOVELD, POSITION, IMAGE, MESSAGE),
    {"paper": Scale("paper", 5), "home": home(), "smoke": smoke()},
    claims=(
        Claim("NovelD fails on both tasks", "fails", ("noveld",)),
        Claim("NovelD-position solves the MultiRoom task", "solves", ("noveld-position",), group=MULTIROOM),
        Claim("NovelD-position fails on the Freeze task", "fails", ("noveld-position",), group=FREEZE),
        Claim("NovelD-message solves the Freeze task", "solves", ("noveld-message",), group=FREEZE),
        Claim("NovelD-message fails on the MultiRoom task", "fails", ("noveld-message",), group=MULTIROOM),
    ),
    note="The figure's tasks are called MultiRoom and Freeze in the text; we take the two ids above. The image key is "
    "that of the aggregate figure.",
)

aggregate = Study(
    "aggregate",
    "E3B and eight baselines over 16 MiniHack tasks",
    "Figure 5 (fig:aggregate) and, task by task, the appendix (fig:all_big_table)",
    "E3B is above all other methods over the 16 tasks. NovelD-position is as good on the 9 navigation tasks and fails "
    "on the 7 skill tasks; NovelD-message is good on the skill tasks and poor on the navigation tasks.",
    MINIHACK,
    (E3B, *BASELINES),
    {"paper": Scale("paper", 5), "home": home(*HOME), "smoke": smoke(MULTIROOM, FREEZE)},
    groups=GROUPS,
    claims=(
        Claim("E3B is above every other method", "above", ("e3b",), tuple(method.name for method in BASELINES)),
        Claim("NovelD-position solves navigation tasks", "solves", ("noveld-position",), group="navigation"),
        Claim("NovelD-position fails on skill tasks", "fails", ("noveld-position",), group="skill"),
        Claim("NovelD-message solves skill tasks", "solves", ("noveld-message",), group="skill"),
        Claim("NovelD fails under the time counter", "fails", ("noveld",)),
        Claim(
            "NovelD-message fails where there are no messages",
            "fails",
            ("noveld-message",),
            group="MiniHack-LavaCrossingS19N13-v0",
        ),
        Claim(
            "NovelD-image fails on MultiRoom-N6-Lava, whose doors change the image",
            "fails",
            ("noveld-image",),
            group=MULTIROOM,
        ),
    ),
)

ablations = Study(
    "ablations",
    "E3B without its parts",
    "Figure 6 (fig:ablations)",
    "A random encoder, the policy's encoder and a memory that is never cleared are each worse than E3B.",
    MINIHACK,
    (
        E3B,
        Method("E3B, random encoder", "e3b-random"),
        Method("E3B, policy encoder", "e3b-policy"),
        Method("E3B, non-episodic", "e3b-nonepisodic"),
    ),
    {"paper": Scale("paper", 5), "home": home(*HOME), "smoke": smoke(MULTIROOM, FREEZE)},
    groups=GROUPS,
    claims=tuple(
        Claim(f"E3B is above its {text}", "above", ("e3b",), (name,))
        for text, name in (
            ("random encoder", "e3b-random"),
            ("policy encoder", "e3b-policy"),
            ("non-episodic variant", "e3b-nonepisodic"),
        )
    ),
)

DOOM = tuple(f"VizdoomMyWayHome{kind}-v0" for kind in ("Dense", "Sparse", "VerySparse"))
vizdoom = Study(
    "vizdoom",
    "VizDoom: MyWayHome with dense, sparse and very sparse reward",
    "Figure 7 (fig:vizdoom)",
    "Without a bonus IMPALA solves the dense task only; E3B, RIDE and ICM solve the two sparse ones as well.",
    tuple(Task(env) for env in DOOM),
    (E3B, NONE, RIDE, ICM),
    {"paper": Scale("paper", 5), "home": Scale("home", 2), "smoke": smoke(DOOM[1])},
    claims=(
        Claim("IMPALA solves the dense task", "solves", ("none",), group=DOOM[0]),
        Claim("IMPALA fails on the sparse task", "fails", ("none",), group=DOOM[1]),
        Claim("IMPALA fails on the very sparse task", "fails", ("none",), group=DOOM[2]),
        Claim("E3B solves the sparse task", "solves", ("e3b",), group=DOOM[1]),
        Claim("E3B solves the very sparse task", "solves", ("e3b",), group=DOOM[2]),
        Claim("RIDE and ICM solve the sparse task", "solves", ("ride", "icm"), group=DOOM[1]),
        Claim("RIDE and ICM solve the very sparse task", "solves", ("ride", "icm"), group=DOOM[2]),
    ),
)

HOMES = "Habitat-FloorPlan-v0"
habitat = Study(
    "habitat",
    "Habitat: how much of a new home is revealed after training without reward",
    "Figures 8 and 9 (fig:habitat, fig:habitat-trajs)",
    "E3B reveals significantly more of the test homes than ICM, RND, NovelD and two random agents.",
    (Task(HOMES),),
    (
        E3B,
        ICM,
        Method("NovelD", "noveld-subsampled"),
        RND,
        Method("Random", "random"),
        Method("Random, forward 0.8", "random-forward"),
    ),
    {
        "paper": Scale("paper", 3, 225_000_000, episodes=100, agent="recurrent_ppo"),
        "home": Scale("home", 3, 1_000_000, episodes=100),
        "smoke": Scale("home", 1, SMOKE_FRAMES, None, 2, {**SMOKE, "env.size": 32, "env.max_steps": 5}),
    },
    measure="coverage",
    claims=(
        Claim(
            "E3B reveals more than every other agent",
            "above",
            ("e3b",),
            ("icm", "noveld-subsampled", "rnd", "random", "random-forward"),
        ),
    ),
    note="Generated homes, not HM3D.",
)

RIDE_BETAS = (0.0001, 0.001, 0.01, 0.1, 1, 10)
ride_keys = Study(
    "ride-keys",
    "RIDE with other keys: negative results",
    "Appendix (appendix:ride_modification)",
    "RIDE that counts positions or messages gets no reward on either task, whatever its coefficient, on three seeds.",
    (Task("MiniHack-MultiRoom-N10-v0"), Task("MiniHack-Freeze-Horn-Restricted-v0")),
    tuple(
        Method(f"{label}, beta {beta:g}", name, {"beta": beta})
        for label, name in (("RIDE-position", "ride-position"), ("RIDE-message", "ride-message"))
        for beta in RIDE_BETAS
    ),
    {"paper": Scale("paper", 3), "home": home(), "smoke": smoke("MiniHack-MultiRoom-N10-v0")},
    claims=(
        Claim(
            "no coefficient makes RIDE-position or RIDE-message succeed",
            "fails",
            tuple(f"{name},beta={beta}" for name in ("ride-position", "ride-message") for beta in RIDE_BETAS),
        ),
    ),
)

RIDGES = (0.001, 0.01, 0.1, 1.0)
ridge = Study(
    "lambda",
    "Sensitivity to the ridge lambda",
    "Appendix (fig:ridge_comparison)",
    "Lambda 0.01, 0.1 and 1 do not differ significantly; 0.001 is worse by the IQM only.",
    MINIHACK,
    tuple(Method(f"lambda {value:g}", "e3b", {"ridge": value}) for value in RIDGES),
    {"paper": Scale("paper", 5), "home": home(HOME[2], FREEZE), "smoke": smoke(MULTIROOM)},
    groups=GROUPS,
    claims=(
        Claim("0.01 and 1 do as well as 0.1", "same", ("e3b,ridge=0.01", "e3b,ridge=1.0"), ("e3b,ridge=0.1",)),
        Claim("0.001 does worse than 0.1", "above", ("e3b,ridge=0.1",), ("e3b,ridge=0.001",)),
    ),
)

rank1 = Study(
    "rank1",
    "Rank-1 updates against inversion: speed of the whole training loop",
    "Appendix (appendix:rank1_exp)",
    "E3B trains at 767 frames per second with rank-1 updates and at 256 with matrix inversion.",
    (Task(FREEZE),),
    (
        Method("exact memory", "e3b", {"ellipse": "exact"}),
        Method("rank-1 updates", "e3b", {"ellipse": "rank1"}),
        Method("direct solve", "e3b", {"ellipse": "solve"}),
    ),
    {
        "paper": Scale("paper", 3, 40_000),
        "home": Scale("home", 3, 100_000),
        "smoke": smoke(),
    },
    measure="frames per second",
    claims=(
        Claim("rank-1 updates are faster than a direct solve", "above", ("e3b,ellipse=rank1",), ("e3b,ellipse=solve",)),
        Claim(
            "our exact memory is faster than both",
            "above",
            ("e3b,ellipse=exact",),
            ("e3b,ellipse=rank1", "e3b,ellipse=solve"),
        ),
    ),
    note="The paper inverts the matrix; we factorise it, which is faster. Run it on an otherwise idle machine with "
    "CORES=1: the score is frames per second.",
)

FIGURES = (counts, keys, aggregate, ablations, vizdoom, habitat, counts_appendix, ride_keys, ridge, rank1)
