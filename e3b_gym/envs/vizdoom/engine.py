"""Starts the Doom engine so that it leaves no files or processes, however this process ends.

ViZDoom runs the engine as a child process. By default the engine creates `_vizdoom/` in the working directory, keeps
running when its parent process is killed, and then keeps its shared memory (10 MB). Here a launcher (this file, run
as a script) starts it in a temporary directory that is deleted once it runs. On Linux the kernel kills it together with
its parent, and its shared memory is unlinked as soon as both sides have opened it.
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
    """Writes an executable that ViZDoom can start in place of the engine."""
    command = shlex.join([sys.executable, "-I", "-S", __file__, str(scratch), str(engine)])
    launcher = scratch / "launch"
    launcher.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    launcher.chmod(0o700)
    return launcher


def _unlink_shared_memory(scratch: Path) -> None:
    with suppress(FileNotFoundError):  # no launcher, or a system with shared memory elsewhere
        instance = (scratch / "instance").read_text()
        for kind in ("MQCtr", "MQDoom", "SM"):
            Path("/dev/shm", f"ViZDoom{kind}{instance}").unlink()


def _become_engine(scratch: str, engine: str, *arguments: str) -> None:
    """In the child: saves the instance id, changes to the temporary directory, requests to be killed with the parent,
    and executes the engine."""
    os.chdir(scratch)
    Path("instance").write_text(arguments[arguments.index("+viz_instance_id") + 1])
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, _SIGKILL)
    os.execv(engine, [engine, *arguments])


if __name__ == "__main__":
    _become_engine(*sys.argv[1:])
