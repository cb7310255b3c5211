"""Why an agent does or does not explore: recorded episodes -> measures -> findings -> text, JSON, picture.

This package depends on no RL framework. `e3b_gym.diagnose` plays a Stable-Baselines3 model, `make doctor` a run of
`make train`.
"""

from e3b_gym.diagnosis.episodes import End, Episode, Recording, Setup
from e3b_gym.diagnosis.findings import HEALTHY, Finding, find
from e3b_gym.diagnosis.probe import Probe, bonus_setup
from e3b_gym.diagnosis.report import Diagnosis

__all__ = [
    "HEALTHY",
    "Diagnosis",
    "End",
    "Episode",
    "Finding",
    "Probe",
    "Recording",
    "Setup",
    "bonus_setup",
    "find",
]
