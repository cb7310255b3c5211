"""Files: whole or not at all, and only what can be read back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from e3b_gym.errors import DamagedFileError
from e3b_gym.files import atomic_write
from e3b_gym.tensor_files import load_tensors, save_tensors


def fail_to_write(path: Path) -> None:
    with atomic_write(path) as temporary:
        temporary.write_text("half of the sec")
        raise OSError("the disk is full")


def test_a_write_that_fails_leaves_the_earlier_content_and_no_temporary_file(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    with atomic_write(path) as temporary:
        temporary.write_text("first")
    with pytest.raises(OSError, match="full"):
        fail_to_write(path)
    assert path.read_text() == "first"
    assert list(tmp_path.iterdir()) == [path]


def test_the_earlier_content_stays_until_the_new_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    path.write_text("first")
    with atomic_write(path) as temporary:
        temporary.write_text("second")
        assert path.read_text() == "first"
    assert path.read_text() == "second"


def test_tensors_and_plain_values_come_back(tmp_path: Path) -> None:
    content = {"weights": torch.arange(3.0), "names": ["a", ("b", None)], "numbers": {"one": 1, "half": 0.5}}
    save_tensors(tmp_path / "file.pt", content)
    loaded = load_tensors(tmp_path / "file.pt")
    assert torch.equal(loaded.pop("weights"), content.pop("weights"))
    assert loaded == content


def test_what_could_not_be_read_back_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    path = tmp_path / "file.pt"
    with pytest.raises(ValueError, match=r"recipe\['seed'\] is a numpy.int64.*convert it"):
        save_tensors(path, {"recipe": {"seed": np.int64(3)}})
    assert not path.exists()


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "file.pt"
    save_tensors(path, {"weights": torch.arange(300.0)})
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(DamagedFileError, match=r"file\.pt is damaged"):
        load_tensors(path)
    with pytest.raises(FileNotFoundError):
        load_tensors(tmp_path / "none.pt")
