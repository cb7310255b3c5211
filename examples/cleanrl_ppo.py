"""CleanRL's PPO in one file, with E3B; the lines that differ are marked. Rooms with a clock, reward in the last."""

import gymnasium as gym
import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

import e3b_gym

STEPS, ENVS, ROLLOUT, EPOCHS, BATCH = 700_000, 64, 128, 3, 1024
LR, GAMMA, LAMBDA, CLIP, ENTROPY, VALUE = 1e-3, 0.99, 0.95, 0.2, 0.01, 0.5

torch.manual_seed(0)
torch.set_num_threads(1)
envs = e3b_gym.make_vec("Rooms-K5-v0", ENVS, clock=True, flat=True)
envs = gym.wrappers.vector.RecordEpisodeStatistics(envs)  # inside: returns of the task, without the bonus
envs = e3b_gym.E3BVectorReward(envs, seed=0)  # E3B
size, actions = int(np.prod(envs.single_observation_space.shape)), int(envs.single_action_space.n)


def network(out):
    return nn.Sequential(nn.Linear(size, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, out))


policy, value = network(actions), network(1)
optimizer = torch.optim.Adam([*policy.parameters(), *value.parameters()], lr=LR, eps=1e-5)


def to_tensor(obs):
    return torch.as_tensor(np.asarray(obs), dtype=torch.float32).reshape(ENVS, size)


obs, done, returns = to_tensor(envs.reset(seed=0)[0]), torch.zeros(ENVS), []
for update in range(max(STEPS // (ENVS * ROLLOUT), 1)):
    kept = {name: [] for name in ("obs", "action", "logprob", "value", "reward", "done")}
    for _ in range(ROLLOUT):
        with torch.no_grad():
            chosen = Categorical(logits=policy(obs))
            action = chosen.sample()
            row = (obs, action, chosen.log_prob(action), value(obs)[:, 0])
        new, reward, terminated, truncated, infos = envs.step(action.numpy())  # E3B: reward with the bonus
        for name, item in zip(kept, (*row, torch.as_tensor(reward, dtype=torch.float32), done), strict=True):
            kept[name].append(item)
        obs, done = to_tensor(new), torch.as_tensor(np.logical_or(terminated, truncated), dtype=torch.float32)
        if "final_info" in infos:
            episode = infos["final_info"]["episode"]
            returns += episode["r"][infos["final_info"]["_episode"]].tolist()
    losses = envs.train_encoder()  # E3B: on this rollout
    data = {name: torch.stack(items) for name, items in kept.items()}  # [T, N, ...]
    with torch.no_grad():  # GAE
        last, advantage = value(obs)[:, 0], torch.zeros(ROLLOUT, ENVS)
        ends, ahead = torch.cat([data["done"][1:], done[None]]), torch.zeros(ENVS)
        following = torch.cat([data["value"][1:], last[None]])
        for t in reversed(range(ROLLOUT)):
            delta = data["reward"][t] + GAMMA * following[t] * (1 - ends[t]) - data["value"][t]
            advantage[t] = ahead = delta + GAMMA * LAMBDA * (1 - ends[t]) * ahead
    flat = {name: data[name].flatten(0, 1) for name in ("obs", "action", "logprob")}
    gain, target = advantage.flatten(), (advantage + data["value"]).flatten()
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(gain)).split(BATCH):
            chosen = Categorical(logits=policy(flat["obs"][rows]))
            ratio = (chosen.log_prob(flat["action"][rows]) - flat["logprob"][rows]).exp()
            better = (gain[rows] - gain[rows].mean()) / (gain[rows].std() + 1e-8)
            clipped = torch.max(-better * ratio, -better * ratio.clamp(1 - CLIP, 1 + CLIP)).mean()
            error = 0.5 * (value(flat["obs"][rows])[:, 0] - target[rows]).pow(2).mean()
            optimizer.zero_grad()
            (clipped + VALUE * error - ENTROPY * chosen.entropy().mean()).backward()
            optimizer.step()
    recent = np.mean(returns[-200:]) if returns else 0.0
    print(f"step {(update + 1) * ENVS * ROLLOUT:>8}  return {recent:.2f}  inverse loss {losses['inverse_loss']:.3f}")
envs.close()
