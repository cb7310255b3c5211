"""SAC with E3B on continuous actions: MountainCarContinuous-v0, where moving costs and only the flag is rewarded."""

from stable_baselines3 import SAC
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

from e3b_gym import E3BRewardWrapper, EncoderUpdateCallback

STEPS = 30_000

venv = make_vec_env("MountainCarContinuous-v0", n_envs=4, seed=0)
venv = E3BRewardWrapper(venv, beta=0.5, seed=0)  # the flag is worth 100, full throttle costs 0.1 per step
model = SAC("MlpPolicy", venv, train_freq=4, gradient_steps=4, learning_starts=1_000, seed=0, device="cpu")
model.learn(STEPS, callback=EncoderUpdateCallback(every=256))

held_out = make_vec_env("MountainCarContinuous-v0", n_envs=4, seed=100)
mean, deviation = evaluate_policy(model, held_out, n_eval_episodes=20)
print(f"return without the bonus {mean:.0f} +- {deviation:.0f} (above 90: solved; near 0: the car stands still)")
