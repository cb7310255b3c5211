"""Files: whole or not at all, and only what can be read back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from e3b_gym.errors import DamagedFileError
from e3b_gym.files import atomic_write
from e3b_gym.tensor_files import checksum, load_tensors, save_tensors


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


def test_a_shared_file_may_be_written_by_several_at_the_same_time(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    with atomic_write(path, shared=True) as one:
        with atomic_write(path, shared=True) as other:
            one.write_text("one")
            other.write_text("the other")
        assert path.read_text() == "the other"
    assert path.read_text() == "one"
    assert list(tmp_path.iterdir()) == [path]


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


@pytest.mark.parametrize("value", [None, 2.0, "abc", torch.zeros(2), torch.tensor([0.0, 1.0, float("nan")])])
def test_a_value_that_was_changed_after_saving_is_found(tmp_path: Path, value: object) -> None:
    path = tmp_path / "file.pt"
    save_tensors(path, {"updates": 2, "parts": [{"weights": torch.arange(3.0)}]})
    for name in ("updates", "weights"):
        content = torch.load(path, weights_only=True)
        (content if name in content else content["parts"][0])[name] = value
        torch.save(content, tmp_path / "changed.pt")
        with pytest.raises(DamagedFileError, match="its content differs from what was saved"):
            load_tensors(tmp_path / "changed.pt")


def test_files_of_earlier_versions_without_a_checksum_are_read(tmp_path: Path) -> None:
    torch.save({"updates": 2}, tmp_path / "file.pt")
    assert load_tensors(tmp_path / "file.pt") == {"updates": 2}


def test_the_checksum_covers_every_kind_of_tensor_and_value() -> None:
    tensors = [torch.zeros(3, dtype=kind) for kind in (torch.float32, torch.bfloat16, torch.int64, torch.bool)]
    tensors += [torch.tensor(0.0), torch.zeros(0), torch.zeros(1, 3), torch.zeros(3).expand(2, 3)]
    values = [*tensors, None, 0, 0.0, False, "", "0", [], (), {}, [0], (0,), {"0": 0}, {0: "0"}]
    assert len({checksum({"a": value}) for value in values}) == len(values)
