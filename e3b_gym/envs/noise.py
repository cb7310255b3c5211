"""Noise: adds a step counter and random bits to any observation.

Either makes every observation unique. A bonus that counts whole observations then finds every state novel, while
features that predict the agent's action ignore what the agent cannot control: the argument of the paper.

The result is always a Dict: a Dict observation gets the entries `clock` and `noise`; any other observation becomes the
entry `observation`. Bits are spaces.MultiBinary, least significant first.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from e3b_gym.envs.seeds import seeds_for
from e3b_gym.options import Bound, WholeNumber, check

Bits = Annotated[int, Bound(lambda value: 0 <= value <= 63, "a number of bits from 0 to 63")]
Clock = bool | Bits | Literal["scalar"]
DEFAULT_BITS = 10
# Mixed into the seed, so that the noise does not use the random stream of the environment.
_NOISE_STREAM = 0x6E6F697365


class _Extras:
    """The added entries: their spaces, and their values for one environment at one step."""

    def __init__(self, clock: Clock, noise: int) -> None:
        clock = check("clock", clock, Clock)
        self.scalar = clock == "scalar"
        self.bits = 0 if isinstance(clock, str) else DEFAULT_BITS if clock is True else int(clock)
        self.noise: int = check("noise", noise, WholeNumber)
        if not (self.scalar or self.bits or self.noise):
            raise ValueError("nothing to add: set clock, noise or both")

    def space(self, inner: spaces.Space[Any]) -> spaces.Dict:
        parts = dict(inner.spaces) if isinstance(inner, spaces.Dict) else {"observation": inner}
        added: dict[str, spaces.Space[Any]] = {}
        if self.scalar:
            added["clock"] = spaces.Box(0.0, np.inf, (1,), np.float32)
        elif self.bits:
            added["clock"] = spaces.MultiBinary(self.bits)
        if self.noise:
            added["noise"] = spaces.MultiBinary(self.noise)
        if taken := parts.keys() & added.keys():
            raise ValueError(f"the observation already has {', '.join(sorted(taken))}; do not add it twice")
        return spaces.Dict({**parts, **added})

    def draw(self, elapsed: int, generator: np.random.Generator) -> dict[str, NDArray[Any]]:
        """Returns new arrays for step `elapsed` of an episode."""
        added: dict[str, NDArray[Any]] = {}
        if self.scalar:
            added["clock"] = np.array([elapsed], np.float32)
        elif self.bits:
            added["clock"] = (elapsed >> np.arange(self.bits) & 1).astype(np.int8)
        if self.noise:
            raw = np.frombuffer(generator.bytes((self.noise + 7) // 8), np.uint8)
            added["noise"] = np.unpackbits(raw, count=self.noise).view(np.int8)
        return added


def _generator(seed: int | None) -> np.random.Generator:
    return np.random.default_rng(None if seed is None else [_NOISE_STREAM, seed])


def _merge(observation: Any, added: dict[str, Any]) -> dict[str, Any]:
    return {**(observation if isinstance(observation, dict) else {"observation": observation}), **added}


class NoisyObservation(gymnasium.Wrapper[Any, Any, Any, Any], gymnasium.utils.RecordConstructorArgs):
    """Adds a step counter and random bits to the observation of one environment; `reset(seed=)` also seeds the bits.

    Args:
        env: The environment; its observation must not have the added entries.
        clock: True for 10 bits, a number for that many bits (the count wraps around), "scalar" for the count.
        noise: Number of fair random bits, drawn at every step.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], clock: Clock = False, noise: int = 0) -> None:
        gymnasium.utils.RecordConstructorArgs.__init__(self, clock=clock, noise=noise)
        super().__init__(env)
        self._extras = _Extras(clock, noise)
        self.observation_space = self._extras.space(env.observation_space)
        self._generator = _generator(None)
        self._elapsed = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        if seed is not None:
            self._generator = _generator(seed)
        observation, info = self.env.reset(seed=seed, options=options)
        self._elapsed = 0
        return _merge(observation, self._extras.draw(0, self._generator)), info

    def step(self, action: Any) -> tuple[dict[str, Any], Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._elapsed += 1
        added = self._extras.draw(self._elapsed, self._generator)
        return _merge(observation, added), reward, terminated, truncated, info


class NoisyVectorObservation(VectorWrapper):
    """`NoisyObservation` for a vector environment with SAME_STEP autoreset; environment i gets the same values as a
    single environment with its seed."""

    def __init__(self, env: VectorEnv[Any, Any, Any], clock: Clock = False, noise: int = 0) -> None:
        super().__init__(env)
        if env.metadata.get("autoreset_mode") != AutoresetMode.SAME_STEP:
            raise ValueError(
                f"NoisyVectorObservation needs autoreset mode SAME_STEP, got {env.metadata.get('autoreset_mode')}; "
                "make the vector environment with autoreset_mode=AutoresetMode.SAME_STEP"
            )
        self._extras = _Extras(clock, noise)
        self.single_observation_space = self._extras.space(env.single_observation_space)
        self.observation_space = batch_space(self.single_observation_space, env.num_envs)
        self._generators = [_generator(None) for _ in range(env.num_envs)]
        self._elapsed = np.zeros(env.num_envs, np.int64)

    def reset(
        self, *, seed: int | list[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        seed = int(seed) if isinstance(seed, np.integer) else seed
        for i, own in enumerate(seeds_for(seed, self.num_envs)):
            if own is not None:
                self._generators[i] = _generator(int(own))
        observations, infos = self.env.reset(seed=seed, options=options)  # type: ignore[arg-type]  # lists too
        self._elapsed[:] = 0
        return _merge(observations, self._draw_all()), infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        self._elapsed += 1
        for i in np.flatnonzero(terminated | truncated):
            added = self._extras.draw(int(self._elapsed[i]), self._generators[i])
            infos["final_obs"][i] = _merge(infos["final_obs"][i], added)
            self._elapsed[i] = 0
        return _merge(observations, self._draw_all()), rewards, terminated, truncated, infos

    def _draw_all(self) -> dict[str, NDArray[Any]]:
        drawn = [self._extras.draw(int(t), g) for t, g in zip(self._elapsed, self._generators, strict=True)]
        return {name: np.stack([one[name] for one in drawn]) for name in drawn[0]}  # each [N, bits]
