"""Episodes are written once for all tests, outside the user's cache."""

import pytest

from e3b_gym.envs.habitat import dataset


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("E3B_CACHE", str(tmp_path_factory.mktemp("cache")))
        dataset._directory.cache_clear()
        yield
    dataset._directory.cache_clear()
