"""VizDoom's MyWayHome, sparse: find the vest in a maze from pixels. PPO with an LSTM and the suite's own networks.

The maze takes millions of steps; docs/status.md has what was measured. `make train ENV=VizdoomMyWayHomeSparse-v0` does
the same with IMPALA, checkpoints and curves.
"""

import numpy as np

from e3b_gym import ENCODER_POLICY, E3BRewardWrapper, EncoderUpdateCallback, RecurrentPPO, make_vec_env

STEPS = 5_000_000

venv = make_vec_env("VizdoomMyWayHomeSparse-v0", n_envs=8, seed=0)
venv = E3BRewardWrapper(venv, seed=0)
policy = "MultiInputLstmPolicy" if hasattr(venv.observation_space, "spaces") else "MlpLstmPolicy"
settings = {"n_steps": 128, "batch_size": 256, "ent_coef": 0.01, "vf_coef": 10.0, "policy_kwargs": ENCODER_POLICY}
model = RecurrentPPO(policy, venv, seed=0, device="cpu", verbose=1, **settings)
model.learn(STEPS, callback=EncoderUpdateCallback())
model.save("vizdoom")
print(f"vest found in {np.mean(model.ep_success_buffer or [0.0]):.2f} of the last episodes")
