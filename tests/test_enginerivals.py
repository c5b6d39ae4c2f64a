"""The rivals get the very weights, or are named with what to install; without them, stand-ins."""

from types import SimpleNamespace

import numpy as np
import pytest

from labsupport import charweights, enginebench, enginerivals
from labsupport.charcache import new_caches
from labsupport.charmodel import CharConfig
from labsupport.enginepaths import Path, stepping

CONFIG = CharConfig(vocab_size=13, context=24, d_model=16, n_blocks=2, n_heads=2)
SUBJECT = enginebench.subject(CONFIG, 20)


def model():
    return charweights.model(CONFIG, SUBJECT.weights)


class StandIn:
    """What transformers' model looks like to the loops here: a CharModel beneath."""

    def __init__(self):
        self.model, self.n_fed = model(), []

    def __call__(self, fed, cache=None, use_cache=None):
        assert use_cache is (cache is not None)
        self.n_fed.append(fed.shape[1])
        return SimpleNamespace(logits=self.model(fed, cache))


def check(path):
    """The path generates what the subject says, twice, with the logits of float64."""
    first, *wanted = SUBJECT.tokens
    for _ in range(2):
        assert path.run(first, len(wanted)) == wanted
        assert path.run(first, 3) == wanted[:3]
        assert enginebench.differences({"rival": path}, SUBJECT)["rival"] > 0


def test_the_loop_without_a_cache_feeds_all_tokens_again():
    fake = StandIn()
    path = enginerivals.no_cache(fake)
    path.run(SUBJECT.tokens[0], 5)
    assert fake.n_fed == [1, 2, 3, 4, 5]
    check(path)


def test_the_bare_loop_feeds_one_token_to_a_fresh_cache():
    fake = StandIn()
    path = stepping(enginerivals.BareLoop(fake, lambda: new_caches(fake.model)))
    path.run(SUBJECT.tokens[0], 5)
    assert fake.n_fed == [1] * 5
    check(path)


def test_a_block_in_gpt2s_names_holds_the_models_own_matrices():
    block = model().blocks[1]
    theirs = enginerivals.block_weights(SUBJECT.weights, 1)
    ours = {
        "ln_1": block.norm_1,
        "attn.c_attn": block.qkv,
        "attn.c_proj": block.o,
        "ln_2": block.norm_2,
        "mlp.c_fc": block.up,
        "mlp.c_proj": block.down,
    }
    assert list(theirs) == list(ours)  # the order in which they are used
    for name, layer in ours.items():
        weight, bias = theirs[name]
        np.testing.assert_array_equal(weight, layer.weight.detach().numpy().T)
        np.testing.assert_array_equal(bias, layer.bias.detach().numpy())


def test_all_rivals_give_the_same_answer_or_say_what_to_install():
    if absent := enginerivals.missing():
        with pytest.raises(ModuleNotFoundError, match=f"pip install {' '.join(absent)}"):
            enginerivals.paths(CONFIG, SUBJECT.weights)
        return
    ways, left_out = enginerivals.paths(CONFIG, SUBJECT.weights, compiler=lambda model: model)
    assert left_out == {}
    assert len(ways) == 5
    assert {enginerivals.NO_CACHE, enginerivals.USUAL, enginerivals.COMPILED} < set(ways)
    for path in ways.values():
        check(path)


@pytest.fixture
def stand_ins(monkeypatch):
    """Every program is installed, and none is needed."""
    fake = StandIn()
    path = stepping(enginerivals.BareLoop(fake, lambda: new_caches(fake.model)))
    monkeypatch.setattr(enginerivals, "missing", list)
    monkeypatch.setattr(enginerivals, "gpt2", lambda config, weights, attention: attention)
    for name in ("no_cache", "generate", "dynamic"):
        monkeypatch.setattr(enginerivals, name, lambda model, path=path: path)
    monkeypatch.setattr(enginerivals, "ctranslate2", lambda config, weights: path)
    monkeypatch.setattr(enginerivals, "static", lambda model, compiler: Path(compiler, None))


def test_a_step_that_cannot_be_compiled_is_left_out_with_the_reason(stand_ins):
    def no_compiler(*_):
        raise RuntimeError("InvalidCxxCompiler: none found\nand more")

    ways, left_out = enginerivals.paths(CONFIG, SUBJECT.weights, no_compiler)
    said = "torch.compile failed: InvalidCxxCompiler: none found"
    assert left_out == {enginerivals.COMPILED: said}
    assert enginerivals.COMPILED not in ways
    assert len(ways) == 4
    ways, left_out = enginerivals.paths(CONFIG, SUBJECT.weights, lambda *_: None)
    assert enginerivals.COMPILED in ways
    assert left_out == {}


def test_another_failure_of_a_compiled_step_is_not_hidden(stand_ins):
    def wrong(*_):
        raise TypeError("a slip")

    with pytest.raises(TypeError, match="a slip"):
        enginerivals.paths(CONFIG, SUBJECT.weights, wrong)


@pytest.mark.parametrize("there", [(), ("transformers",), ("transformers", "ctranslate2")])
def test_what_is_missing_is_named_as_pip_takes_it(monkeypatch, there):
    def find_spec(name):
        return name if name in there else None

    monkeypatch.setattr(enginerivals.importlib.util, "find_spec", find_spec)
    absent = enginerivals.missing()
    assert [pin.split("==")[0] for pin in absent] == [
        n for n in enginerivals.PINS if n not in there
    ]
    if absent:
        with pytest.raises(ModuleNotFoundError) as refused:
            enginerivals.paths(CONFIG, SUBJECT.weights)
        assert f"python -m pip install {' '.join(absent)}" in str(refused.value)


@pytest.mark.parametrize("program", [enginerivals.gpt2, enginerivals.ctranslate2])
def test_shared_heads_are_refused(program):
    shared = CharConfig(vocab_size=13, context=24, d_model=16, n_blocks=2, n_heads=2, n_kv_heads=1)
    with pytest.raises(ValueError, match="1 key/value heads for 2"):
        program(shared, {})
