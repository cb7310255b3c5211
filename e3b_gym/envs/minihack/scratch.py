"""Temporary directories that are deleted however the process ends.

Each NetHack game needs a separate directory (level file, score files). Each process keeps one root with a subdirectory
per game: in memory (/dev/shm) if possible, because resets are slower on a disk; otherwise, or if TMPDIR is set, in the
system's temporary directory. The root is deleted
* when the last game is closed or garbage-collected, and at interpreter exit;
* after kill -9 or a crash, by a small shell that waits on a pipe for the end of this process;
* at the latest when the next root is made: roots whose lock is free are removed (after a machine crash, or a batch
  system that kills all processes).
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

PREFIX = "e3b-minihack-"
MEMORY = Path("/dev/shm")
ROOM = 256 * 2**20  # bytes that must be free there: a game takes 0.13 MB, and other programs use the space too
_SWEEP_AGE_SECONDS = 60.0  # a root younger than this may not have taken its lock yet
_WATCH = "trap '' HUP INT TERM; read -r _; rm -rf -- \"$1\""


class _Root:
    """This process's root directory, its lock, and the shell that deletes it after the process has ended."""

    def __init__(self) -> None:
        for place in {MEMORY, Path(tempfile.gettempdir())}:
            _sweep(place)
        base = base_directory()
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=base))
        self.users = 0
        self._lock = os.open(self.path / "lock", os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self._watcher = subprocess.Popen(
            ["/bin/sh", "-c", _WATCH, "e3b-minihack-cleaner", str(self.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,  # Ctrl-C and kills of the process group must not stop it
        )

    def close(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        self.forget()
        self._watcher.wait()

    def forget(self) -> None:
        """Closes the handles only: a forked child must neither delete its parent's files nor keep the shell waiting."""
        os.close(self._lock)
        if self._watcher.stdin is not None:
            with contextlib.suppress(OSError):
                self._watcher.stdin.close()


_root: _Root | None = None


def base_directory() -> Path:
    """The folder of this process's root: in memory if there is room, unless an environment variable names another.

    A Python without memfd_create puts 3 MB of library into a game's directory, which must then allow to execute files.
    """
    chosen = any(os.environ.get(name) for name in ("TMPDIR", "TEMP", "TMP"))
    usable = hasattr(os, "memfd_create") and os.access(MEMORY, os.W_OK | os.X_OK)
    if not chosen and usable and shutil.disk_usage(MEMORY).free >= ROOM:
        return MEMORY
    return Path(tempfile.gettempdir())


def new_directory() -> Path:
    """Makes an empty directory for one game; give it back with `release`."""
    global _root
    if _root is None:
        _root = _Root()
    _root.users += 1
    return Path(tempfile.mkdtemp(dir=_root.path))


def release(directory: Path) -> None:
    """Deletes a directory of `new_directory`, and the root after the last one.

    Directories of a parent process stay.
    """
    global _root
    if _root is None or directory.parent != _root.path:
        return
    shutil.rmtree(directory, ignore_errors=True)
    _root.users -= 1
    if _root.users == 0:
        _root.close()
        _root = None


def _sweep(temporary: Path) -> None:
    for root in temporary.glob(PREFIX + "*"):
        with contextlib.suppress(OSError):  # already deleted, another user's, or locked by a running process
            if time.time() - root.stat().st_mtime < _SWEEP_AGE_SECONDS:
                continue
            lock = os.open(root / "lock", os.O_RDWR)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(root, ignore_errors=True)
            finally:
                os.close(lock)


def _after_fork_in_child() -> None:
    global _root
    if _root is not None:
        _root.forget()
        _root._watcher.returncode = 0  # the parent's child, not ours: do not warn that it still runs
        _root = None


def _at_exit() -> None:
    global _root
    if _root is not None:
        _root.close()
        _root = None


os.register_at_fork(after_in_child=_after_fork_in_child)
atexit.register(_at_exit)
