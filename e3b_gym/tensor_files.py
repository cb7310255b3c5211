"""Files of tensors and plain values (str, int, float, bool, None) in dicts, lists and tuples. Reading runs no code.

A file contains a checksum of its content, so that a changed value is detected when the file is read, not in the middle
of training. Files without one (of earlier versions) are read without this check.
"""

from __future__ import annotations

import hashlib
import io
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from e3b_gym.errors import DamagedFileError, first_line
from e3b_gym.files import atomic_write

_DICTS, _SEQUENCES = (dict, OrderedDict), (list, tuple)
_CHECKSUM = "checksum"
_PLAIN = (str, int, float, bool, type(None), Tensor, nn.Parameter)


def save_tensors(path: str | Path, content: dict[str, Any]) -> None:
    """Writes `content`, all or nothing; tensors of other devices are stored as CPU tensors.

    Raises:
        ValueError: `content` holds something that `load_tensors` could not read back; nothing was written.
    """
    content = {name: _on_cpu(value) for name, value in content.items()}
    for name, value in content.items():
        _require_plain(value, name)
    serialised = io.BytesIO()  # first: torch.save hides the error of a full disk behind its own
    torch.save({**content, _CHECKSUM: checksum(content)}, serialised)
    with atomic_write(path) as temporary:
        temporary.write_bytes(serialised.getbuffer())


def _on_cpu(value: Any) -> Any:
    """The value with all its tensors on the CPU."""
    if isinstance(value, Tensor):
        return value if value.device.type == "cpu" else value.detach().cpu()
    if type(value) in _DICTS:
        return {key: _on_cpu(part) for key, part in value.items()}
    return type(value)(map(_on_cpu, value)) if type(value) in _SEQUENCES else value


def load_tensors(path: str | Path, *, mapped: bool = False) -> Any:
    """Returns what `save_tensors` wrote, on the CPU.

    Args:
        path: the file.
        mapped: read tensors from the disk when they are first used, without verifying checksums; the file must not
            change until then.

    Raises:
        DamagedFileError: the file is damaged, or was written by something else.
    """
    try:
        if not mapped:
            _verify(path)
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
        expected = content.pop(_CHECKSUM, None) if isinstance(content, dict) else None
        if expected is not None and not mapped and expected != checksum(content):
            raise DamagedFileError("its content differs from what was saved")
        return content
    except FileNotFoundError:
        raise
    except pickle.UnpicklingError as error:  # whose text advises to load it anyway
        raise DamagedFileError(
            f"{path} is damaged, or holds more than tensors and plain values; do not trust it"
        ) from error
    except Exception as error:
        raise DamagedFileError(f"{path} is damaged, or is not a tensor file ({first_line(error)})") from error


def _verify(path: str | Path) -> None:
    """Raises DamagedFileError if the content does not match its checksums; torch.load accepts flipped bits."""
    with zipfile.ZipFile(path) as archive:
        if (damaged := archive.testzip()) is not None:
            raise DamagedFileError(f"the checksum of its part {damaged} is wrong")


def checksum(content: Any) -> str:
    """A hash of tensors and plain values, with their types, shapes, names and order."""
    found = hashlib.blake2b(digest_size=16)

    def add(value: Any) -> None:
        if isinstance(value, Tensor):
            found.update(f"{value.dtype}{list(value.shape)}".encode())
            found.update(value.detach().reshape(-1).view(torch.uint8).numpy().data)
        elif isinstance(value, (*_DICTS, *_SEQUENCES)):
            found.update(f"{type(value).__name__}{len(value)}".encode())
            for key, part in _items(value):
                add(key)
                add(part)
        else:
            found.update(f"{value!r};".encode(errors="backslashreplace"))

    add(content)
    return found.hexdigest()


def _require_plain(value: Any, name: str) -> None:
    """Refuses before writing what `weights_only` would refuse when the file is read."""
    if type(value) in _DICTS or type(value) in _SEQUENCES:
        for key, part in _items(value):
            _require_plain(key, f"a key of {name}")
            _require_plain(part, f"{name}[{key!r}]")
    elif type(value) not in _PLAIN:
        raise ValueError(
            f"{name} is a {type(value).__module__}.{type(value).__qualname__}, but the file can hold tensors, str, "
            "int, float, bool and None only, in dicts, lists and tuples; convert it"
        )


def _items(value: Any) -> Iterator[tuple[Any, Any]]:
    yield from value.items() if isinstance(value, dict) else enumerate(value)
