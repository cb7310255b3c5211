"""The learners of a run as a torch.distributed group: gloo on CPUs, nccl between GPUs.

    g = sum_k grad(loss_k / K)        gradients of policy and encoder, in one buffer and one all-reduce each

The encoder's gradients are exchanged while the policy's are computed. Every learner applies the same sum to the same
weights, so the weights stay equal to the bit, which `check_equal` verifies.

Policy and encoder have separate channels, because two threads may use them at the same time. A third channel carries
learner 0's orders, a fourth everything else. A learner that ends closes its connections, and the others raise
PeerLostError. A learner that hangs, or whose machine is lost, does not close them; learner 0 then detects that its
pulse has stopped.
"""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor
from torch.distributed import PrefixStore, ProcessGroupGloo, TCPStore  # type: ignore[attr-defined]

_EXCHANGE_TIMEOUT = timedelta(days=30)  # one learner may wait for actors, and the user's program may take any time
_JOIN_TIMEOUT = timedelta(minutes=5)
_PULSE_SECONDS = 5.0  # between two heartbeats of a learner
_SILENCE_SECONDS = 120.0  # without a heartbeat
_LOOK = timedelta(seconds=0.2)  # between two checks for signals such as Ctrl-C and for lost learners, during a wait
_NCCL_PAUSE = 0.0005  # seconds between two checks whether an exchange of nccl has ended


class LearnerError(RuntimeError):
    """The learners of a run cannot continue together."""


class PeerLostError(LearnerError):
    """Another learner has ended or does not respond."""


class LearnersDifferError(LearnerError):
    """The weights of two learners are not the same."""


class Channel:
    """One connection between all learners; an implementation of `e3b_gym.explorer.Peers`.

    Args:
        group: a process group of torch.distributed.
        rank, size: number of this learner, and how many there are.
        check: called while this learner waits; raises PeerLostError where another one is lost.

    Attributes:
        seconds: spent here, waiting for the others included.
    """

    def __init__(self, group: Any, rank: int, size: int, check: Callable[[], None]) -> None:
        self._group, self.rank, self.size, self._check = group, rank, size, check
        self._flat: Tensor | None = None
        self.seconds = 0.0

    def pool(self, values: Tensor) -> Tensor:
        return torch.cat(self._all(values), dim=1)

    def add_up(self, weights: list[Tensor]) -> Callable[[], None]:
        sizes = [weight.numel() for weight in weights]
        if self._flat is None or self._flat.numel() != sum(sizes):
            self._flat = torch.empty(sum(sizes), device=weights[0].device)
        gradients = [torch.zeros_like(weight) if weight.grad is None else weight.grad for weight in weights]
        torch.cat([gradient.reshape(-1) for gradient in gradients], out=self._flat)
        for weight, part in zip(weights, torch.split(self._flat, sizes), strict=True):
            weight.grad = part.view_as(weight)  # valid until the next call
        return self._start(lambda: self._group.allreduce([self._flat]))

    def mean(self, values: Tensor) -> Tensor:
        """The average of the learners' values, in the same shape."""
        return torch.stack(self._all(values)).mean(0)

    def send_to_all(self, value: Any = None) -> Any:
        """Learner 0's value, for all."""
        content = _packed(value)
        length = torch.tensor([len(content)])
        self._wait(lambda: self._group.broadcast([length]))
        if self.rank > 0:
            content = torch.empty(int(length), dtype=torch.uint8)
        self._wait(lambda: self._group.broadcast([content]))
        return _unpacked(content)

    def collect(self, value: Any) -> list[Any]:
        """Returns the values of all learners in order on learner 0, and an empty list on the others."""
        content = _packed(value)
        lengths = [int(length) for length in self._all(torch.tensor([len(content)]))]
        padded = torch.cat([content, content.new_zeros(max(lengths) - len(content))])
        parts = [torch.empty_like(padded) for _ in lengths] if self.rank == 0 else []
        self._wait(lambda: self._group.gather([parts] if parts else [], [padded]))
        return [_unpacked(part[:length]) for part, length in zip(parts, lengths, strict=False)]

    def check_equal(self, checksum: int, frames: int) -> None:
        """Raises LearnersDifferError in all learners where their checksums differ."""
        values = [int(value) for value in self._all(torch.tensor([checksum % 2**63]))]
        if len(set(values)) > 1:
            raise LearnersDifferError(
                f"the weights of the {self.size} learners differ at frame {frames:,}, so averaging their gradients "
                "is invalid; resume from the last checkpoint, and if it happens again check the machines' memory and "
                "versions"
            )

    def _all(self, values: Tensor) -> list[Tensor]:
        """The tensors of all learners, which have the same shape."""
        parts = [torch.empty_like(values, memory_format=torch.contiguous_format) for _ in range(self.size)]
        self._wait(lambda: self._group.allgather([parts], [values.contiguous()]))
        return parts

    def _wait(self, start: Callable[[], Any]) -> None:
        self._start(start)()

    def _start(self, start: Callable[[], Any]) -> Callable[[], None]:
        """Starts an exchange; the returned function waits for its end."""
        with self._exchanging():
            work = start()

        def wait() -> None:
            with self._exchanging():
                while not work.is_completed():
                    self._look(work)
                    self._check()
                work.wait()

        return wait

    def _look(self, work: Any) -> None:
        """Waits for a moment at most, or until the exchange has ended."""
        if isinstance(self._group, ProcessGroupGloo):
            with suppress(RuntimeError):  # it has not; or it has failed, which the caller's `wait` raises
                work.wait(_LOOK)
        else:
            time.sleep(_NCCL_PAUSE)  # nccl's `wait` with a limit would end the group

    @contextmanager
    def _exchanging(self) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        except LearnerError:
            raise
        except RuntimeError as error:  # gloo's and nccl's way to say so
            raise PeerLostError("a learner does not respond") from error
        finally:
            self.seconds += time.perf_counter() - began


def _packed(value: Any) -> Tensor:
    return torch.frombuffer(bytearray(pickle.dumps(value)), dtype=torch.uint8)


def _unpacked(content: Tensor) -> Any:
    return pickle.loads(content.numpy().tobytes())  # of a process of the same run


class Pulse:
    """Heartbeats of all learners: each increments a count in the store, and learner 0 watches the others' counts.

    Args:
        rank, size: number of this learner, and how many there are.
        store: a connection to the store for this object alone.
    """

    def __init__(self, rank: int, size: int, store: TCPStore) -> None:
        self._rank, self._size, self._store = rank, size, store
        self._silent = dict.fromkeys(range(1, size) if rank == 0 else (), 0.0)
        self._ended = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()

    def check(self) -> None:
        """Raises PeerLostError if a learner has had no heartbeat for too long, or after `end`."""
        if self._ended.is_set():  # as for the encoder's thread, while the policy's ends the run
            raise PeerLostError("this learner has left the others")
        for rank, seconds in self._silent.items():
            if seconds >= _SILENCE_SECONDS:
                raise PeerLostError(f"learner {rank} has had no heartbeat for {_SILENCE_SECONDS:g} seconds")

    def end(self) -> None:
        """Ends the heartbeat of this learner, and all waits."""
        self._ended.set()

    def _run(self) -> None:
        counts: dict[int, int] = {}
        with suppress(RuntimeError):  # the store has ended
            while not self._ended.wait(_PULSE_SECONDS):
                if self._rank > 0:
                    self._store.add(f"pulse {self._rank}", 1)
                for rank in self._silent:
                    count = self._store.add(f"pulse {rank}", 0)
                    # Counted in checks, not by the clock: this process may have been stopped itself.
                    self._silent[rank] = self._silent[rank] + _PULSE_SECONDS if counts.get(rank) == count else 0.0
                    counts[rank] = count


class Group:
    """The group of learners, as this learner sees it.

    Args:
        rank, size: number of this learner, and how many there are.
        store: through which they find each other; `open_store` makes learner 0's, `find_store` the others'.
        device: where the gradients are.
        address: address of this learner's machine, as the others reach it.

    Attributes:
        policy, encoder, orders, control: the channels.
    """

    def __init__(self, rank: int, size: int, store: TCPStore, device: torch.device, address: str) -> None:
        self.rank, self.size = rank, size
        self._store = store  # answers the other processes while it exists
        self._address = address
        self.pulse = Pulse(rank, size, find_store(store.host, store.port))
        self.policy, self.encoder = (self._channel(name, device) for name in ("policy", "encoder"))
        self.orders, self.control = (self._channel(name, torch.device("cpu")) for name in ("orders", "control"))

    def _channel(self, name: str, device: torch.device) -> Channel:
        store = PrefixStore(name, self._store)
        group: Any
        if device.type == "cuda":
            from torch.distributed import ProcessGroupNCCL  # not in every build of PyTorch

            group = ProcessGroupNCCL(store, self.rank, self.size, _EXCHANGE_TIMEOUT)  # type: ignore[arg-type]
        else:
            options = ProcessGroupGloo._Options()  # type: ignore[attr-defined]
            # By address: the machine's own name may resolve to one that other machines cannot reach.
            options._devices = [ProcessGroupGloo.create_device(hostname=self._address)]
            options._timeout = _JOIN_TIMEOUT
            group = ProcessGroupGloo(store, self.rank, self.size, options)
            group.set_timeout(_EXCHANGE_TIMEOUT)
        return Channel(group, self.rank, self.size, self.pulse.check)

    def close(self) -> None:
        """Ends the heartbeats."""
        self.pulse.end()

    @property
    def seconds(self) -> float:
        """Spent in exchanges, waiting for the others included."""
        return sum(channel.seconds for channel in (self.policy, self.encoder, self.orders, self.control))


def open_store(host: str) -> TCPStore:
    """The store of learner 0, on a free port of this machine."""
    return TCPStore(host, 0, is_master=True, timeout=_JOIN_TIMEOUT, wait_for_workers=False)


def find_store(host: str, port: int) -> TCPStore:
    """The store of learner 0, as the other learners use it."""
    return TCPStore(host, port, is_master=False, timeout=_JOIN_TIMEOUT)
