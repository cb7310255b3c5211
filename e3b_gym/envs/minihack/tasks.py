"""MiniHack's tasks as data: the meaning of each id, without importing the simulator.

The sixteen ids of Henaff et al. 2022 (Appendix C.1.1) have `paper=True`; the others are the unrestricted
skill tasks, under MiniHack's name ("-Full-v0") and the paper's ("-v0"), the half of LavaCross without wands and horns,
WoD with a sleeping monster, and the MultiRoom and LavaCrossing families they come from. Actions, time limits and levels
are MiniHack 1.0's, with two fixes: an id with "N4" has four rooms (MiniGrid's N4-S5-v0 has six), and LavaCrossing is
made on its own 19x19 grid.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

MAP_WIDTH, MAP_HEIGHT = 76, 21
"""The largest MAP block that a NetHack level holds within its borders (columns, rows)."""

Layout = Literal["standard", "authors"]
"""Layout of MultiRoom: MiniHack 1.0's grid with the number of rooms in the id, or that of the paper's authors."""

MOVES = ("N", "E", "S", "W", "NE", "SE", "SW", "NW")
_COMMANDS = """
DOWN WAIT MORE ADJUST APPLY ATTRIBUTES CALL CAST CHAT CLOSE DIP DROP DROPTYPE EAT ENGRAVE ENHANCE ESC
FIGHT FIRE FORCE INVENTORY INVENTTYPE INVOKE JUMP KICK LOOK LOOT MONSTER MOVE MOVEFAR OFFER OPEN PAY
PICKUP PRAY PUTON QUAFF QUIVER READ REMOVE RIDE RUB RUSH RUSH2 SEARCH SEEARMOR SEERINGS SEETOOLS SEETRAP
SEEWEAPON SHELL SIT SWAP TAKEOFF TAKEOFFALL THROW TIP TURN TWOWEAPON UNTRAP VERSIONSHORT WEAR WIELD WIPE
ZAP PLUS QUOTE DOLLAR SPACE
"""
FULL_ACTIONS = (*MOVES, *(f"FAR_{move}" for move in MOVES), *_COMMANDS.split())
"""NetHack commands by NLE's names; FAR_N is "move north until something interesting"."""


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


@dataclass(frozen=True)
class MultiRoom:
    """A chain of rooms joined by doors, drawn again for every episode by MiniGrid's generator."""

    rooms: int
    max_room_size: int = 10
    doors: Literal["open", "closed", "locked"] = "closed"
    lava_walls: bool = False
    monsters: int = 0
    width: int = MAP_WIDTH
    height: int = MAP_HEIGHT

    def __str__(self) -> str:
        walls = "lava walls" if self.lava_walls else "stone walls"
        monsters = f", {_count(self.monsters, 'monster')}" if self.monsters else ""
        return f"{self.rooms} rooms, {self.doors} doors, {walls}{monsters} (MiniGrid generator)"


@dataclass(frozen=True)
class LavaCrossing:
    """A square room divided by lava rivers with one gap each, drawn again for every episode by MiniGrid's generator."""

    size: int
    rivers: int

    def __str__(self) -> str:
        return f"{self.size}x{self.size} room, {_count(self.rivers, 'lava river')} (MiniGrid generator)"


@dataclass(frozen=True)
class StockLevel:
    """The level file and goal of one of MiniHack's own classes ("module:class" inside `minihack.envs`)."""

    entry_point: str

    def __str__(self) -> str:
        return f"MiniHack level of {self.entry_point}"


@dataclass(frozen=True)
class Task:
    """One environment id.

    Attributes:
        actions: Names of the NetHack commands behind the discrete actions, in order.
        max_steps: Environment steps until `truncated`.
        paper: Whether it is one of the paper's sixteen tasks.
    """

    id: str
    kind: Literal["navigation", "skill"]
    actions: tuple[str, ...]
    max_steps: int
    level: MultiRoom | LavaCrossing | StockLevel
    paper: bool = False

    @property
    def source(self) -> str:
        """Returns who used it and where the level comes from."""
        return f"{'the paper; ' if self.paper else ''}{self.level}"


_AUTHORS_GRID = 25  # columns and rows; levels of more than 21 rows are drawn again
_AUTHORS_ROOMS = {4: 6}  # MiniGrid's N4-S5-v0, which MiniHack used, has six rooms


def with_layout(task: Task, layout: Layout) -> Task:
    """A MultiRoom task with the levels of a layout; "standard" is the task itself."""
    if layout == "standard":
        return task
    if not isinstance(task.level, MultiRoom):
        raise ValueError(f"layout={layout!r}: {task.id} is not a MultiRoom task; remove the option")
    rooms = _AUTHORS_ROOMS.get(task.level.rooms, task.level.rooms)
    return replace(task, level=replace(task.level, rooms=rooms, width=_AUTHORS_GRID, height=_AUTHORS_GRID))


PAPER_IDS = (
    "MiniHack-MultiRoom-N4-Locked-v0",
    "MiniHack-MultiRoom-N6-Lava-v0",
    "MiniHack-MultiRoom-N6-Lava-OpenDoor-v0",
    "MiniHack-MultiRoom-N6-LavaMonsters-v0",
    "MiniHack-MultiRoom-N10-OpenDoor-v0",
    "MiniHack-MultiRoom-N10-Lava-OpenDoor-v0",
    "MiniHack-LavaCrossingS19N13-v0",
    "MiniHack-LavaCrossingS19N17-v0",
    "MiniHack-Labyrinth-Big-v0",
    "MiniHack-Levitate-Potion-Restricted-v0",
    "MiniHack-Levitate-Boots-Restricted-v0",
    "MiniHack-Freeze-Horn-Restricted-v0",
    "MiniHack-Freeze-Wand-Restricted-v0",
    "MiniHack-Freeze-Random-Restricted-v0",
    "MiniHack-LavaCross-Restricted-v0",
    "MiniHack-WoD-Hard-Restricted-v0",
)
"""The nine navigation and seven skill tasks of the paper, in the paper's order."""


def _multirooms() -> list[Task]:
    max_steps = {2: 40, 4: 120, 6: 240, 10: 360}
    max_room_size = {2: 4, 4: 5, 6: 10, 10: 10}
    all_sizes, up_to_six = (2, 4, 6, 10), (2, 4, 6)
    # suffix, sizes, doors, lava walls, monsters per two rooms
    variants: list[tuple[str, tuple[int, ...], Literal["open", "closed", "locked"], bool, int]] = [
        ("", all_sizes, "closed", False, 0),
        ("-OpenDoor", (6, 10), "open", False, 0),
        ("-Locked", up_to_six, "locked", False, 0),
        ("-Lava", all_sizes, "closed", True, 0),
        ("-Lava-OpenDoor", (6, 10), "open", True, 0),
        ("-Monster", up_to_six, "closed", False, 3),
        ("-LavaMonsters", up_to_six, "closed", True, 1),
        ("-Extreme", up_to_six, "locked", True, 3),
    ]
    return [
        Task(
            f"MiniHack-MultiRoom-N{rooms}{suffix}-v0",
            "navigation",
            (*MOVES, "OPEN", "KICK") if doors == "locked" else MOVES,
            max_steps[rooms],
            MultiRoom(rooms, max_room_size[rooms], doors, lava, monsters * rooms // 2),
        )
        for suffix, sizes, doors, lava, monsters in variants
        for rooms in sizes
    ]


def _skills() -> list[Task]:
    # name, stock class, commands of the restricted variant, time limit
    skills = [
        ("Levitate-Potion", "skills_levitate:MiniHackLevitatePotion", "PICKUP QUAFF FIRE", 250),
        ("Levitate-Boots", "skills_levitate:MiniHackLevitateBoots", "PICKUP WEAR FIRE", 250),
        ("Freeze-Horn", "skills_freeze:MiniHackFreezeHorn", "PICKUP APPLY FIRE", 250),
        ("Freeze-Wand", "skills_freeze:MiniHackFreezeWand", "PICKUP ZAP FIRE", 250),
        ("Freeze-Random", "skills_freeze:MiniHackFreezeRandom", "PICKUP ZAP APPLY FIRE", 250),
        ("LavaCross", "skills_lava:MiniHackLC", "PICKUP ZAP WEAR APPLY QUAFF PUTON FIRE READ", 250),
        ("LavaCross-Levitate", "skills_lava:MiniHackLCLevitate", "PICKUP WEAR QUAFF PUTON FIRE READ", 400),
        ("WoD-Medium", "skills_wod:MiniHackWoDMedium", "PICKUP ZAP FIRE", 150),
        ("WoD-Hard", "skills_wod:MiniHackWoDHard", "PICKUP ZAP FIRE", 400),
    ]
    return [
        Task(f"MiniHack-{name}{variant}-v0", "skill", actions, max_steps, StockLevel(stock_class))
        for name, stock_class, commands, max_steps in skills
        for variant, actions in (
            ("-Restricted", (*MOVES, *commands.split())),
            ("-Full", FULL_ACTIONS),  # MiniHack's name for the unrestricted task
            ("", FULL_ACTIONS),  # the paper's name for it
        )
    ]


def _tasks() -> dict[str, Task]:
    crossings = [
        Task(f"MiniHack-LavaCrossingS{size}N{rivers}-v0", "navigation", MOVES, 100, LavaCrossing(size, rivers))
        for size, rivers in ((9, 1), (9, 2), (9, 3), (11, 5), (19, 13), (19, 17))
    ]
    labyrinths = [
        Task("MiniHack-Labyrinth-Big-v0", "navigation", MOVES, 1000, StockLevel("lab:MiniHackLabyrinth")),
        Task("MiniHack-Labyrinth-Small-v0", "navigation", MOVES, 400, StockLevel("lab:MiniHackLabyrinthSmall")),
    ]
    tasks = {task.id: task for task in (*_multirooms(), *crossings, *labyrinths, *_skills())}
    return {id: _marked(tasks[id]) for id in (*PAPER_IDS, *(id for id in tasks if id not in PAPER_IDS))}


def _marked(task: Task) -> Task:
    return Task(task.id, task.kind, task.actions, task.max_steps, task.level, paper=task.id in PAPER_IDS)


TASKS: dict[str, Task] = _tasks()
"""Every id of `e3b_gym.envs.minihack.make`, the paper's sixteen first."""
