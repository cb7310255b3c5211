"""What a disk, an editor or an attacker can do to the files of a run."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml

TAGS = (
    "!!python/object/apply:os.mkdir [{payload}]",
    "!!python/object/new:os.mkdir [{payload}]",
    "!!python/name:os.system",
    "!!python/module:os",
)
ODD: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    2.5,
    10**30,
    float("nan"),
    float("inf"),
    "abc",
    "",
    [],
    [1, 2],
    {},
    {"a": 1},
    "é",
)


class Payload:
    """Makes a folder when a pickle that holds it is loaded."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, (str(self._folder),)


def spoilt(draw: random.Random, content: bytes) -> bytes:
    """Bytes cut, flipped, lost, doubled or overwritten anywhere."""
    if not content:
        return b"\0"
    place, length = draw.randrange(len(content)), draw.choice([1, 4, 64, 4096])
    kind = draw.randrange(6)
    if kind == 0:
        return content[:place]
    if kind == 1:
        flipped = bytearray(content)
        for _ in range(draw.choice([1, 1, 8])):
            flipped[draw.randrange(len(flipped))] ^= 1 << draw.randrange(8)
        return bytes(flipped)
    if kind == 2:
        return content[:place] + content[place + length :]
    if kind == 3:
        return content[:place] + content[place : place + length] + content[place:]
    if kind == 4:
        return content[:place] + bytes(length) + content[place + length :]
    return content[:place] + draw.randbytes(length) + content[place + length :]


def damaged_config(draw: random.Random, run: Path, payload: Path) -> None:
    """config.yaml, as text or as values."""
    file = run / "config.yaml"
    kind = draw.random()
    if kind < 0.3:
        file.write_bytes(spoilt(draw, file.read_bytes()))
    elif kind < 0.4:
        file.write_text(draw.choice(TAGS).format(payload=payload))
    elif kind < 0.45:
        file.unlink()
    else:
        content = yaml.safe_load(file.read_text())
        change(
            draw, content, draw.choice([*ODD, 7, 16, "Rooms-K4-v0", "CartPole-v1", "noveld", "ppo", "impala", "paper"])
        )
        file.write_text(yaml.safe_dump(content))


def damaged_curve(draw: random.Random, run: Path, payload: Path) -> None:
    """progress.csv."""
    file = run / "progress.csv"
    content = file.read_bytes()
    rows = content.splitlines(keepends=True)
    kind = draw.randrange(6)
    if kind <= 2:
        file.write_bytes(spoilt(draw, content))
    elif kind == 3:
        file.write_bytes(
            content + draw.choice([b"3", b"12.5\r\n", b"abc,def\r\n", b"\0" * 64, b"\xff\xfe", b",,,\r\n", b"\n"])
        )
    elif kind == 4:
        draw.shuffle(rows)
        file.write_bytes(b"".join(rows))
    else:
        file.unlink()
        if draw.random() < 0.5:
            file.mkdir()


def damaged_checkpoint(draw: random.Random, run: Path, payload: Path) -> None:
    """The newest checkpoint, or all of them."""
    files = sorted((run / "checkpoints").glob("checkpoint-*.pt"))
    for file in files if draw.random() < 0.4 else files[-1:]:
        kind = draw.random()
        if kind < 0.5:
            file.write_bytes(spoilt(draw, file.read_bytes()))
        elif kind < 0.6:
            file.unlink()
        else:
            content = torch.load(file, weights_only=True)
            if draw.random() < 0.5:
                del content["checksum"]  # as in files of earlier versions
            value = draw.choice([*ODD, torch.zeros(3), torch.full((2, 2), float("nan"))])
            change(draw, content, Payload(payload) if draw.random() < 0.3 else value)
            torch.save(content, file)


def damaged_agent(draw: random.Random, agent: Path, payload: Path) -> None:
    """A file of an exported agent: arrays, agent.json, config.yaml, or what was measured."""
    if draw.random() < 0.2:
        damaged_config(draw, agent, payload)
        return
    file = draw.choice([path for path in sorted(agent.iterdir()) if path.name != "config.yaml"])
    kind = draw.random()
    if kind < 0.1:
        file.unlink()
    elif kind < 0.5:
        file.write_bytes(spoilt(draw, file.read_bytes()))
    elif file.suffix == ".json":
        content = json.loads(file.read_text())
        change(draw, content, draw.choice(ODD))
        file.write_text(json.dumps(content))
    else:
        with np.load(file) as arrays:
            content = {name: arrays[name] for name in arrays}
        values = [np.array(Payload(payload), dtype=object), np.zeros(3), np.full((2, 2), np.nan), np.array("abc")]
        change(draw, content, draw.choice(values))
        np.savez(file, **content)


def change(draw: random.Random, content: Any, value: Any) -> None:
    """Somewhere in dicts and lists: a part is lost, replaced or added."""
    while True:
        keys: list[Any] = list(content) if isinstance(content, dict) else list(range(len(content)))
        if not keys:
            return
        key = draw.choice(keys)
        inner = content[key]
        if isinstance(inner, (dict, list)) and inner and draw.random() < 0.75:
            content = inner
            continue
        kind = draw.random()
        if kind < 0.3:
            del content[key]
        elif kind < 0.9 or isinstance(content, list):
            content[key] = value
        else:
            content["nothing"] = value
        return
