"""EncoderUpdateCallback: trains the encoder of an E3BRewardWrapper while a Stable-Baselines3 algorithm learns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stable_baselines3.common.callbacks import BaseCallback, CallbackList, EvalCallback, EventCallback
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm

from e3b_gym.building import RECORD_STEPS
from e3b_gym.encoder_training import TrainerConfig
from e3b_gym.options import Count, check
from e3b_gym.sb3.order import warn_about_order, wrappers_outside
from e3b_gym.sb3.policies import LogitsTap, PolicyEncoder, reads_policy_features, reads_policy_logits
from e3b_gym.sb3.wrapper import find_wrapper


class EncoderUpdateCallback(BaseCallback):
    """Trains the encoder on each rollout (on-policy) or every `every` steps (the others), and logs under `e3b/`.

    Logged: losses (`inverse_loss`) and `inverse_accuracy`; `bonus_mean` and `bonus_std`, before scaling; `sigma`, what
    it is divided by; `reward_share`, the bonus's share of all reward; `phi_norm` and `phi_rank`, length and number of
    directions of the embeddings.

    Args:
        learning_rate: learning rate of the encoder's Adam; None, here and below: that of `TrainerConfig`.
        epochs: passes over the recorded steps.
        batch_size: steps per update.
        max_grad_norm: the encoder's gradients are clipped to this norm.
        every: steps of each environment between trainings, for algorithms that are not on-policy; None: 128.

    Examples:
        >>> from stable_baselines3 import A2C
        >>> from stable_baselines3.common.env_util import make_vec_env
        >>> from e3b_gym import E3BRewardWrapper, EncoderUpdateCallback
        >>> venv = E3BRewardWrapper(make_vec_env("CartPole-v1", n_envs=2), seed=0)
        >>> callback = EncoderUpdateCallback(learning_rate=3e-4, epochs=2)
        >>> model = A2C("MlpPolicy", venv, n_steps=8, device="cpu").learn(32, callback=callback)
        >>> venv.explorer.trainer.learning_rate
        0.0003
    """

    def __init__(
        self,
        *,
        learning_rate: float | None = None,
        epochs: int | None = None,
        batch_size: int | None = None,
        max_grad_norm: float | None = None,
        every: int | None = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(verbose)
        self.every: int | None = check("every", every, Count | None)
        settings: dict[str, Any] = {
            "learning_rate": learning_rate,
            "epochs": epochs,
            "batch_size": batch_size,
            "max_grad_norm": max_grad_norm,
        }
        self._settings = {name: value for name, value in settings.items() if value is not None}
        TrainerConfig(**self._settings)  # a wrong setting is an error here, not at the first rollout

    def _init_callback(self) -> None:
        wrapper = find_wrapper(self.training_env)
        if wrapper is None:
            raise ValueError("the model's environment has no E3BRewardWrapper; wrap it: E3BRewardWrapper(venv)")
        self.wrapper = wrapper
        self.wrapper.watched = True
        self._by_rollout = isinstance(self.model, OnPolicyAlgorithm)
        if wrapper.device == "auto":
            wrapper.explorer.to(self.model.device)
        wrapper.explorer.configure(**self._settings)
        wrapper.explorer.record_up_to(self._steps())
        warn_about_order(self.model, self.training_env, wrapper)
        if reads_policy_features(wrapper.bonus):
            wrapper.bonus.bind_policy(PolicyEncoder(self.model, wrappers_outside(self.training_env, wrapper)))
        if reads_policy_logits(wrapper.bonus):
            if isinstance(wrapper.policy_logits, LogitsTap):  # of an earlier call of learn()
                wrapper.policy_logits.close()
            wrapper.policy_logits = LogitsTap(self.model)

    def _steps(self) -> int:
        """Steps of each environment between trainings."""
        if not isinstance(self.model, OnPolicyAlgorithm):
            return self.every or RECORD_STEPS
        if self.every is not None:
            name = type(self.model).__name__
            raise ValueError(f"every has no effect: with {name} the encoder is trained after each rollout; remove it")
        return self.model.n_steps

    def _on_training_start(self) -> None:
        # rl-zoo3 wraps the evaluation environment like the one for training; the encoder is not trained there.
        for callback in _each(self.locals.get("callback")):
            if isinstance(callback, EvalCallback) and (evaluated := find_wrapper(callback.eval_env)) is not None:
                evaluated.training = False

    def _on_step(self) -> bool:
        if not self._by_rollout and self.wrapper.explorer.record.full:
            self._train()
        return True

    def _on_rollout_end(self) -> None:
        if self._by_rollout:
            self._train()

    def _train(self) -> None:
        for name, value in self.wrapper.train_encoder().items():
            self.logger.record(f"e3b/{name}", value)


def _each(callback: Any) -> Iterator[BaseCallback]:
    """A callback and those inside it."""
    if isinstance(callback, BaseCallback):
        yield callback
    inner = callback.callbacks if isinstance(callback, CallbackList) else [getattr(callback, "callback", None)]
    for part in inner if isinstance(callback, (CallbackList, EventCallback)) else []:
        yield from _each(part)
