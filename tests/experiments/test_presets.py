"""Presets and options: the config holds what the command line says, and an option without meaning is an error."""

import dataclasses

import pytest

from agents.impala.actor import make_envs
from agents.impala.config import Config
from agents.impala.learner import Learner
from agents.ppo.config import PPOConfig
from agents.registry import AGENTS
from e3b_gym.bonuses import METHODS
from e3b_gym.config import BonusConfig
from e3b_gym.envs.registry import GENERAL_PRESETS, SUITES, Suite, all_tasks
from experiments import settings
from experiments.presets import load_presets, presets_of
from experiments.settings import resolve, split_arguments

ENVS = {
    "rooms": "Rooms-K4-v0",
    "minihack": "MiniHack-MultiRoom-N6-Lava-v0",
    "vizdoom": "VizdoomMyWayHomeSparse-v0",
    "habitat": "Habitat-FloorPlan-v0",
    "minigrid": "MiniGrid-MultiRoom-N4-S5-v1",
    "other": "CartPole-v1",
}
MINIHACK_BONUS = BonusConfig.of("e3b", beta=0.03, extrinsic=4.0, penalties=0.1, ridge=0.0004)
N6_LAVA = "MiniHack-MultiRoom-N6-Lava-v0"  # a task with its own steps


def paper(env, method="e3b"):
    return resolve("impala", "paper", {"env": ENVS[env], "method": method}).config


LEARNING = {name for name, agent in AGENTS.items() if agent.trainer is not None}


def test_every_suite_has_a_preset_file_and_every_file_a_suite():
    files = {suite.presets() for suite in SUITES}
    assert len(files | {GENERAL_PRESETS}) == len(SUITES) + 1 == len(ENVS)
    assert files == set(GENERAL_PRESETS.parent.glob("*/presets.yaml"))


@pytest.mark.parametrize("suite", ENVS)
def test_every_preset_resolves_for_every_method(suite):
    for preset, agents in presets_of(ENVS[suite]).items():
        for agent in agents:
            for method in METHODS:
                assert resolve(agent, preset, {"env": ENVS[suite], "method": method}).config.method == method


@pytest.mark.parametrize("suite", ENVS)
def test_home_is_there_for_every_agent(suite):
    assert set(presets_of(ENVS[suite])["home"]) == LEARNING


@pytest.mark.parametrize("suite", ENVS)
def test_a_preset_holds_differences_only(suite):
    for agents in presets_of(ENVS[suite]).values():
        for agent, sections in agents.items():
            defaults = {field.name: field.default for field in dataclasses.fields(AGENTS[agent].config)}
            tasks = {name: parts for name, parts in sections.items() if name in all_tasks()}
            for name, value in sections["all"].items():
                assert value != defaults[name], f"{name} is the default already"
            for parts in tasks.values():
                for name, value in parts.get("all", {}).items():
                    assert value != sections["all"].get(name, defaults[name]), f"{name} is {agent}'s already"


@pytest.mark.parametrize("suite", ENVS)
def test_every_task_of_a_preset_resolves_for_every_method(suite):
    for preset, agents in presets_of(ENVS[suite]).items():
        for agent, sections in agents.items():
            for task in set(sections) & set(all_tasks()):
                for method in METHODS:
                    assert resolve(agent, preset, {"env": task, "method": method}).config.env == task


def test_minihack_has_one_list_of_numbers_for_all_tasks():
    sections = presets_of(ENVS["minihack"])["home"]["impala"]
    for task in set(sections) & set(all_tasks()):
        assert set(sections[task]) == {"all"}
        assert set(sections[task]["all"]) == {"steps"}, f"{task} has its own settings"


def test_a_task_has_its_own_steps_and_the_command_line_wins():
    config = resolve("impala", "home", {"env": N6_LAVA}).config
    assert (config.ent_coef, config.steps, config.n_envs) == (0.03, 2_000_000, 64)
    assert {**config.bonus.as_dict(), "dim": 64} == MINIHACK_BONUS.as_dict()
    assert resolve("impala", "home", {"env": N6_LAVA, "steps": "10k"}).config.steps == 10_000
    assert resolve("impala", "home", {"env": N6_LAVA, "beta": "0.5"}).config.bonus.beta == 0.5
    assert resolve("impala", "home", {"env": N6_LAVA, "method": "noveld"}).config.bonus.beta == 0.03
    assert resolve("impala", "home", {"env": "MiniHack-WoD-Hard-Restricted-v0"}).config.steps == 10_000_000


@pytest.mark.parametrize(
    ("given", "own"),
    [
        ({}, {"steps": 2_000_000}),
        ({"steps": "10k", "beta": "0.5"}, {}),
        ({"method": "none"}, {"steps": 2_000_000}),
        ({"env": "MiniHack-WoD-Hard-Restricted-v0"}, {}),
    ],
)
def test_what_a_run_takes_from_its_task_is_what_is_in_effect(given, own):
    assert settings.task_settings(resolve("impala", "home", {"env": N6_LAVA, **given})) == own


def test_an_option_of_the_bonus_with_the_name_of_a_field_keeps_its_own():
    config = resolve("ppo", "home", {"env": ENVS["rooms"], "hidden": "64", "bonus.hidden": "32"}).config
    names = settings.by_name(config.as_dict())
    assert (names["hidden"], names["bonus.hidden"]) == (64, 32)


@pytest.mark.parametrize("method", [method for method in METHODS if method.startswith("e3b")])
def test_settings_of_a_task_suit_every_method_of_the_family(method):
    config = resolve("impala", "home", {"env": N6_LAVA, "method": method, "n_envs": 8}).config
    envs = make_envs(config, 1, seed=0)
    Learner(config, envs.single_observation_space, envs.single_action_space)
    envs.close()


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("home: {impalla: {all: {}}}", "home has no agent 'impalla'; did you mean impala"),
        ("home: {impala: {e4b: {}}}", "home.impala has no method or task 'e4b'; did you mean e3b"),
        ("home: {impala: {Rooms-K4-v0: {al: {}}}}", "home.impala.Rooms-K4-v0 has no method .* 'al'; did you mean all"),
        ("home: {impala: {Rooms-K4-v0: {steps: 5}}}", "fields go under all, or under a method"),
        ("home: {impala: {Rooms-K4-v0: }}", "home.impala.Rooms-K4-v0 must hold sections; got None"),
        ("home: {impala: {MiniHack-MultiRoom-N6-v0: {all: {}}}}", "has no method or task 'MiniHack-MultiRoom-N6-v0'"),
    ],
)
def test_names_that_mean_nothing_in_a_preset_file_are_refused(tmp_path, monkeypatch, written, message):
    with pytest.raises(ValueError, match=message):
        load_presets(rooms_with(tmp_path, monkeypatch, written))


def rooms_with(tmp_path, monkeypatch, written):
    """A preset file for Rooms in place of the shipped one."""
    path = tmp_path / "presets.yaml"
    path.write_text(written)
    own = Suite.presets
    monkeypatch.setattr(Suite, "presets", lambda suite: path if suite.name == "Rooms" else own(suite))
    return path


def test_a_preset_file_is_read_once(monkeypatch):
    resolve("impala", "home", {"env": ENVS["rooms"]})
    monkeypatch.setattr("omegaconf.OmegaConf.load", lambda path: pytest.fail(f"{path} was read again"))
    settings.task_settings(resolve("impala", "home", {"env": ENVS["rooms"]}))


def test_a_number_in_a_preset_may_be_written_without_a_point(tmp_path, monkeypatch):
    rooms_with(tmp_path, monkeypatch, "home: {impala: {all: {learning_rate: 3e-4, steps: 1e6}}}")
    config = resolve("impala", "home", {"env": ENVS["rooms"]}).config
    assert (config.learning_rate, config.steps) == (3e-4, 1_000_000)


def test_the_papers_table_of_minihack():
    common = {
        "learning_rate": 1e-4,
        "rms_alpha": 0.99,
        "rms_eps": 1e-5,
        "n_steps": 80,
        "n_envs": 80,  # its 80 buffers
        "max_grad_norm": 40.0,
        "vf_coef": 0.5,
        "gamma": 0.99,
        "steps": 50_000_000,
        "net": "paper",
    }
    entropy = {
        "none": 0.0005,
        "e3b": 0.005,
        "e3b-random": 0.005,
        "noveld-message": 0.005,
        "ride": 0.0005,
        "icm": 0.0005,
    }
    for method, cost in entropy.items():
        config = paper("minihack", method)
        assert {name: getattr(config, name) for name in common} == common
        assert config.ent_coef == cost, method
        assert config.bonus.as_dict().items() <= BonusConfig.of(method, "paper").as_dict().items()


@pytest.mark.parametrize(
    ("method", "bonus"),
    [
        ("e3b", {"normaliser": "none", "beta": 3e-6, "ridge": 0.1}),
        ("ride", {"normaliser": "none", "beta": 3e-2, "forward_coef": 0.5, "inverse_coef": 0.8}),
        ("icm", {"normaliser": "none", "beta": 3e-3, "forward_coef": 0.2, "inverse_coef": 0.8}),
    ],
)
def test_the_papers_tables_of_vizdoom(method, bonus):
    assert bonus.items() <= paper("vizdoom", method).bonus.as_dict().items()


def test_the_paper_did_not_train_everywhere_or_with_everything():
    with pytest.raises(ValueError, match="Rooms has no PRESET=paper; it has home"):
        paper("rooms")
    with pytest.raises(ValueError, match="is for AGENT=impala, not for ppo"):
        resolve("ppo", "paper", {"env": ENVS["minihack"]})


def test_the_command_line_wins_over_the_preset_and_the_preset_over_the_defaults():
    config = resolve("impala", "home", {"env": ENVS["minihack"], "ent_coef": "0.02"}).config
    assert (config.ent_coef, config.net, config.gamma) == (0.02, "moves", Config("x").gamma)


def test_options_of_the_bonus_the_environment_and_the_run_by_name():
    given = {"env": ENVS["rooms"], "beta": "0.1", "bonus.ridge": "0.01", "env.max_steps": "100", "keep": "5"}
    made = resolve("impala", "home", given)
    assert (made.config.bonus.beta, made.config.bonus.options["ridge"]) == (0.1, 0.01)
    assert made.config.env_options == {"max_steps": 100}
    assert made.run.keep == 5


def test_what_the_count_needs_is_asked_of_the_environment():
    def options(env, method, **bonus):
        return resolve("impala", "home", {"env": ENVS[env], "method": method, **bonus}).config.env_options

    assert options("minigrid", "noveld-position") == {"position": True}
    assert options("minigrid", "count", **{"bonus.key": "position"}) == {"position": True}
    assert options("minigrid", "noveld") == {}
    assert "glyphs" in options("minihack", "count-image")["observation_keys"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("learningrate", "did you mean learning_rate"),
        ("bonus.rigde", "did you mean bonus.ridge"),
        ("alpha", "has no option 'alpha'"),  # NovelD has it, E3B has not
        ("encoder_epochs", "has no option 'encoder_epochs'"),  # PPO has it
    ],
)
def test_an_unknown_name_is_answered_with_the_closest(name, message):
    with pytest.raises(ValueError, match=message):
        resolve("impala", "home", {"env": ENVS["rooms"], name: "1"})


def test_unknown_options_methods_and_agents_raise_errors_with_the_closest_names():
    with pytest.raises(ValueError, match="did you mean STEPS"):
        split_arguments(["STEP=3"], ("RUN",), ("STEPS",))
    with pytest.raises(ValueError, match="expected NAME=value, got '--steps'"):
        split_arguments(["--steps"], ("RUN",))
    with pytest.raises(ValueError, match="did you mean noveld"):
        resolve("impala", "home", {"env": ENVS["rooms"], "method": "noveldd"})
    with pytest.raises(ValueError, match="choose from impala, ppo, random, random-forward, recurrent_ppo"):
        resolve("dqn", "home", {"env": ENVS["rooms"]})
    with pytest.raises(ValueError, match="ENV= is missing"):
        resolve("impala", "home", {})


@pytest.mark.parametrize(
    "content", ["home: {impala: {all: {learn_rate: 1}}}", "home: {impala: {e4b: {}}}", "home: {imp: {}}"]
)
def test_a_preset_file_with_a_name_that_means_nothing_is_an_error(content, tmp_path, monkeypatch):
    rooms_with(tmp_path, monkeypatch, content)
    with pytest.raises(ValueError, match=r"learn_rate|e4b|imp"):
        resolve("impala", "home", {"env": ENVS["rooms"]})


@pytest.mark.parametrize(
    ("agent", "given", "reason"),
    [
        ("impala", {"env": ENVS["minihack"], "dim": "32"}, "dim= has no effect: the networks of MiniHack have a fixed"),
        ("impala", {"net": "paper"}, "net= has no effect: there is one network for Rooms-K4-v0"),
        ("impala", {"env": ENVS["vizdoom"], "net": "paper"}, "net= has no effect"),
        ("ppo", {"lstm": "32"}, "lstm= has no effect: the policy of this agent has no LSTM"),
        ("impala", {"agac_coef": "1"}, "agac_coef= has no effect: it weighs AGAC's terms, and the bonus is e3b"),
        ("impala", {"optimizer": "adam", "rms_eps": "1"}, "rms_eps= has no effect: the optimizer is adam"),
        ("impala", {"intrinsic_gamma": "0.9"}, "set value_heads=2 as well"),
        ("impala", {"method": "e3b-random", "hidden": "8"}, "bonus.hidden= has no effect: it is the size"),
        (
            "impala",
            {"normaliser": "none", "floor": "0.5"},
            "bonus.floor= has no effect: it bounds the running deviation",
        ),
        ("impala", {"extrinsic": "0", "penalties": "0.5"}, "bonus.penalties= has no effect: extrinsic=0"),
        ("ppo", {"hidden": "0", "hidden_layers": "2"}, "hidden_layers= has no effect: hidden=0"),
        (
            "impala",
            {"method": "none", "encoder_learning_rate": "1e-3"},
            "encoder_learning_rate= has no effect: the bonus none has no weights to train",
        ),
        ("impala", {"method": "e3b-random", "encoder_max_grad_norm": "1"}, "encoder_max_grad_norm= has no effect"),
        ("impala", {"representation": "policy", "encoder_learning_rate": "1"}, "the bonus e3b has no weights"),
        ("ppo", {"method": "count-position", "encoder_batch_size": "64"}, "encoder_batch_size= has no effect"),
        ("recurrent_ppo", {"method": "first-visit", "encoder_epochs": "2"}, "encoder_epochs= has no effect"),
    ],
)
def test_an_option_without_effect_is_refused_with_the_reason(agent, given, reason):
    with pytest.raises(ValueError, match=reason):
        resolve(agent, "home", {"env": ENVS["rooms"], **given})


@pytest.mark.parametrize("suite", ENVS)
@pytest.mark.parametrize("agent", sorted(LEARNING))
@pytest.mark.parametrize("method", ["none", "count", "e3b-random"])
def test_methods_are_compared_with_the_same_options(agent, suite, method):
    given = {"env": ENVS[suite], "method": method, "beta": "0.1", "normaliser": "none"}
    assert resolve(agent, "home", given).config.bonus.beta == 0.1


@pytest.mark.parametrize("suite", ENVS)
@pytest.mark.parametrize("agent", sorted(LEARNING))
def test_the_sizes_of_the_networks_are_in_the_config(agent, suite):
    config = resolve(agent, "home", {"env": ENVS[suite]}).config
    assert (config.dim is None) == (suite in ("minihack", "vizdoom", "habitat"))
    assert (config.net is None) == (suite not in ("minihack", "habitat"))
    assert (config.lstm is None) == (agent == "ppo")


@pytest.mark.parametrize(
    ("change", "message"),
    [({"batch_size": 7}, "divide"), ({"gamma": 1.1}, "gamma"), ({"n_epochs": 0}, "n_epochs"), ({"lstm": 0}, "lstm"),
     ({"learning_rate": float("inf")}, "learning_rate"), ({"hidden": 2**62}, "hidden must be a whole number from 0"),
     ({"hidden_layers": 10**9}, "hidden_layers must be a whole number from 1 to 100")],
)  # fmt: skip
def test_the_config_of_ppo_checks_itself(change, message):
    with pytest.raises(ValueError, match=message):
        PPOConfig("Rooms-K3-v0", **change)
