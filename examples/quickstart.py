# %% [markdown] E3B against no bonus: PPO in a chain of rooms, in under three minutes on two cores
# Closed doors, a new layout every episode, reward only in the last room, and a clock that makes every observation new.
# Run the whole file, or cell by cell in an editor that supports `# %%`.
# %% Success rate: the share of the last 200 episodes that reached the goal
import matplotlib.pyplot as plt
import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback

from e3b_gym import E3BRewardWrapper, EncoderUpdateCallback, make_vec_env


class Success(BaseCallback):
    def _on_training_start(self):
        self.curve = []  # (steps, success)

    def _on_step(self):
        return True

    def _on_rollout_end(self):
        self.curve.append((self.num_timesteps, np.mean(self.model.ep_success_buffer or [0.0])))


# %% Two training runs that differ only in the bonus
torch.set_num_threads(1)
settings = {"learning_rate": 1e-3, "n_steps": 128, "batch_size": 1024, "n_epochs": 3, "ent_coef": 0.01}
settings |= {"policy_kwargs": {"net_arch": [128, 128], "activation_fn": torch.nn.ReLU}, "stats_window_size": 200}
for bonus in ("e3b", "none"):
    rooms = make_vec_env("Rooms-K5-v0", n_envs=64, seed=0, clock=True, flat=True)
    model = PPO("MlpPolicy", E3BRewardWrapper(rooms, bonus, seed=0), seed=0, device="cpu", **settings)
    model.learn(700_000, callback=[EncoderUpdateCallback(), success := Success()])
    print(f"bonus {bonus}: success {success.curve[-1][1]:.2f}")
    plt.plot(*zip(*success.curve, strict=True), label=f"bonus: {bonus}")

# %% The plot
plt.gca().set(xlabel="environment steps", ylabel="success", ylim=(0, 1), title="Rooms-K5-v0 with a clock")
plt.legend()
plt.savefig("quickstart.png")
