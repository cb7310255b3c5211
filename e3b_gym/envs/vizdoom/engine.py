"""Starting the Doom engine so that it leaves nothing behind, however this process ends.

ViZDoom runs the engine as a child process. Left to itself the engine creates `_vizdoom/` in the working
directory, lives on when the process that plays is killed, and then keeps its shared memory (10 MB each). Here
it starts through a launcher (this file, run as a script) in a scratch directory that is gone once it runs; on
Linux the kernel ends it together with its parent, and the names of its shared memory are removed as soon as
both sides have it open.
"""

from __future__ import annotations

import os
import shlex
import sys
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vizdoom import DoomGame

_PR_SET_PDEATHSIG, _SIGKILL = 1, 9


def start(game: DoomGame, wad: bytes, engine: Path) -> None:
    """Initialises `game` on the map `wad`; `engine` is ViZDoom's executable."""
    with TemporaryDirectory(prefix="e3b-doom-", ignore_cleanup_errors=True) as name:
        scratch = Path(name)
        (scratch / "map.wad").write_bytes(wad)
        game.set_doom_scenario_path(str(scratch / "map.wad"))
        game.set_doom_config_path(os.devnull)
        if os.name == "posix":
            game.set_vizdoom_path(str(_write_launcher(scratch, engine)))
        game.init()
        _unlink_shared_memory(scratch)


def _write_launcher(scratch: Path, engine: Path) -> Path:
    """An executable that ViZDoom can start in place of the engine."""
    command = shlex.join([sys.executable, "-I", "-S", __file__, str(scratch), str(engine)])
    launcher = scratch / "launch"
    launcher.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    launcher.chmod(0o700)
    return launcher


def _unlink_shared_memory(scratch: Path) -> None:
    with suppress(FileNotFoundError):  # no launcher, or a system that keeps shared memory elsewhere
        instance = (scratch / "instance").read_text()
        for kind in ("MQCtr", "MQDoom", "SM"):
            Path("/dev/shm", f"ViZDoom{kind}{instance}").unlink()


def _become_engine(scratch: str, engine: str, *arguments: str) -> None:
    """In the child: note the instance, move to the scratch directory, tie this process to its parent, and
    turn into the engine."""
    os.chdir(scratch)
    Path("instance").write_text(arguments[arguments.index("+viz_instance_id") + 1])
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, _SIGKILL)
    os.execv(engine, [engine, *arguments])


if __name__ == "__main__":
    _become_engine(*sys.argv[1:])
