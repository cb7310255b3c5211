"""MiniHack is faster than the stock package, each time in one interleaved run (ratios, not seconds)."""

import pytest

from benchmarks.envs import measure
from benchmarks.envs_minihack import measure_crop, measure_vector

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # the stock packages warn at every turn


@pytest.mark.parametrize(
    "id", ["MiniHack-MultiRoom-N4-Locked-v0", "MiniHack-MultiRoom-N6-Lava-v0", "MiniHack-MultiRoom-N10-OpenDoor-v0"]
)
def test_resets_of_minigrid_levels_take_at_most_half_the_time(id):
    seconds = measure(id, rounds=25, steps=20)
    assert seconds["stock"][1] > 2 * seconds["ours"][1]


@pytest.mark.parametrize("id", ["MiniHack-Freeze-Random-Restricted-v0", "MiniHack-Labyrinth-Big-v0"])
def test_resets_of_stock_levels_keep_up_although_they_end_the_game(id):
    seconds = measure(id, rounds=60, steps=20)
    assert seconds["stock"][1] > 0.8 * seconds["ours"][1]


@pytest.mark.parametrize("id", ["MiniHack-Freeze-Random-Restricted-v0", "MiniHack-MultiRoom-N10-OpenDoor-v0"])
def test_the_inline_vector_env_outruns_others_by_half_at_32_envs(id):
    frames = measure_vector(id)
    assert frames["inline"] > 1.5 * frames["SB3 DummyVecEnv"]
    assert frames["inline"] > 1.5 * frames["Gymnasium SyncVectorEnv"]


def test_crops_take_a_fifth_of_the_time():
    microseconds = measure_crop()
    assert microseconds["MiniHack glyphs_crop"] > 5 * microseconds["ours"]
