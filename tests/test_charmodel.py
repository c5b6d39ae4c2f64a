"""The torch model: its size, its NumPy twin, its caches, and what it refuses."""

import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from labsupport import charmodel, charweights
from labsupport.charcache import ConcatCache, PreallocatedCache, new_caches
from labsupport.charmodel import CharConfig, CharModel, attention, causal_mask

SMALL = {"vocab_size": 31, "context": 24, "d_model": 24, "n_blocks": 2, "n_heads": 6}
KINDS = {ConcatCache: {}, PreallocatedCache: {"capacity": 24}}
TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-12}  # logits are near 1

each_kind = pytest.mark.parametrize("kind", KINDS)
seeds = st.integers(0, 2**32 - 1)


def small(seed=0, dtype=torch.float64, **changes):
    """A model whose logits differ from token to token: its matrices are larger than at the start
    of training, and its biases and gains are not those that do nothing."""
    model = CharModel(CharConfig(**SMALL | changes), seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.1 * torch.randn(weight.shape, generator=generator)
    return model.to(dtype)


def some_tokens(n, seed=0, batch=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(SMALL["vocab_size"], (batch, n), generator=generator)


def held(caches):
    return [len(cache) for cache in caches]


# What it computes


def test_the_default_model_is_the_source_s():
    assert CharModel(CharConfig()).n_parameters() == 637_156
    assert CharModel(CharConfig(context=256)).n_parameters() == 637_156 + 128 * 128


@settings(max_examples=25, deadline=None)
@given(seed=seeds, n_kv_heads=st.sampled_from([6, 3, 2, 1]), n=st.integers(1, 24))
def test_it_is_the_numpy_decoder(seed, n_kv_heads, n):
    model = small(seed, n_kv_heads=n_kv_heads)
    weights = charweights.flat(model)
    tokens = some_tokens(n, seed)
    logits = model(tokens)[0].detach().numpy()
    assert logits.dtype == np.float64
    assert np.abs(logits).max() > 0.05
    twin = charweights.numpy_decoder(model.config, weights)
    np.testing.assert_allclose(logits, twin.forward(tokens[0].numpy()), rtol=0, atol=1e-12)
    again = charweights.model(model.config, weights)
    assert torch.equal(again(tokens)[0].detach(), torch.from_numpy(logits))


@each_kind
@pytest.mark.parametrize("dtype", TOLERANCE)
@settings(max_examples=15, deadline=None)
@given(
    seed=seeds,
    n_kv_heads=st.sampled_from([6, 3, 1]),
    batch=st.integers(1, 3),
    chunks=st.lists(st.integers(1, 9), min_size=1, max_size=6),
)
def test_chunks_of_any_sizes_give_what_one_piece_gives(
    kind, dtype, seed, n_kv_heads, batch, chunks
):
    model = small(seed, dtype, n_kv_heads=n_kv_heads)
    tokens = some_tokens(min(sum(chunks), 24), seed, batch)
    whole = model(tokens)
    caches = new_caches(model, kind, batch, **KINDS[kind])
    pieces = [model(piece, caches) for piece in tokens.split(chunks[0], dim=1)]
    assert held(caches) == [tokens.shape[1]] * 2

    caches = new_caches(model, kind, batch, **KINDS[kind])
    cuts = torch.tensor(chunks).cumsum(0)[:-1]
    uneven = [model(p, caches) for p in tokens.tensor_split(cuts, dim=1) if p.shape[1]]
    for logits in (torch.cat(pieces, 1), torch.cat(uneven, 1)):
        assert logits.dtype == dtype
        assert (logits - whole).abs().max() <= TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_earlier_activations_stay_when_a_token_is_appended_thanks_to_the_mask(dtype):
    model, tokens = small(dtype=dtype), some_tokens(12)
    for causal, stays in ((True, True), (False, False)):
        before = model.activations(tokens[:, :11], causal)
        after = model.activations(tokens, causal)
        assert len(before) == len(after) == 3
        moved = [(a[:, :11] - b).abs().max() for a, b in zip(after, before, strict=True)]
        assert moved[0] == 0  # the embedding, before any attention
        if stays:
            assert max(moved) <= TOLERANCE[dtype]
        else:
            assert min(moved[1:]) > 1e-3


def test_the_last_activation_is_what_the_head_reads():
    model, tokens = small(), some_tokens(9)
    assert torch.equal(model.head(model.norm(model.activations(tokens)[-1])), model(tokens))


def test_the_mask_written_out():
    assert causal_mask(2, 5).int().tolist() == [[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]
    assert causal_mask(3, 3).int().tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]


def test_is_causal_with_fewer_queries_than_keys_is_another_mask():
    generator = torch.Generator().manual_seed(0)
    q, k, v = torch.randn(3, 1, 2, 8, 4, dtype=torch.float64, generator=generator)
    whole = attention(q, k, v)
    chunk = attention(q[:, :, 5:], k, v)
    trap = F.scaled_dot_product_attention(q[:, :, 5:], k, v, is_causal=True)
    assert (chunk - whole[:, :, 5:]).abs().max() < 1e-14
    assert (trap - whole[:, :, 5:]).abs().max() > 0.1
    only_the_first = attention(q[:, :, 5:6], k[:, :, :1], v[:, :, :1])
    assert torch.allclose(trap[:, :, :1], only_the_first)  # as if it stood at position 0


@each_kind
def test_generation_is_the_same_with_and_without_caches(kind):
    model = small(4)
    prompt = some_tokens(5)[0]
    caches = new_caches(model, kind, **KINDS[kind])
    alone = model.generate(prompt, 19)
    assert len(alone) == 19
    assert len(set(alone)) > 1
    assert model.generate(prompt.tolist(), 19, caches) == alone
    assert held(caches) == [23, 23]  # the last token is not fed back

    step, sequence = new_caches(model, kind, **KINDS[kind]), prompt.tolist()
    first = model.generate(sequence, 7, step)
    assert model.generate(first[-1:], 12, step) == alone[7:]  # goes on from what is held
    after = model([alone[-1:]], caches)[0, -1]  # as does a pass outside `generate`
    assert torch.allclose(after, model([[*prompt, *alone]])[0, -1])


def test_what_chooses_is_given_the_logits():
    model, seen = small(), []

    def smallest(logits):
        seen.append(logits)
        return logits.argmin()

    drawn = model.generate([1, 2], 3, choose=smallest)
    for i, logits in enumerate(seen):
        assert torch.equal(logits, model([[1, 2, *drawn[:i]]])[0, -1])
        assert logits.argmin() == drawn[i]


def test_the_context_can_be_filled_and_no_more():
    model = small()
    assert len(model.generate([3], 24)) == 24  # the last token drawn needs no position
    assert len(model.generate([3], 24, new_caches(model))) == 24
    for caches in (None, new_caches(model)):
        with pytest.raises(ValueError, match=r"24 more pass the context of 24|context of 24"):
            model.generate([3], 25, caches)
        with pytest.raises(ValueError, match="0 tokens and 25 more pass the context of 24"):
            model(some_tokens(25), caches)
    caches = new_caches(model)
    model(some_tokens(20), caches)
    with pytest.raises(ValueError, match="20 tokens and 5 more pass the context of 24"):
        model(some_tokens(5), caches)
    assert held(caches) == [20, 20]


# What it refuses, and how caches are left


@pytest.mark.parametrize(
    ("tokens", "error", "said"),
    [
        ([[]], ValueError, r"one or more each, not \[1, 0\]"),
        ([], ValueError, r"not \[0\]"),
        ([1, 2], ValueError, r"not \[2\]"),
        ([[1, 2], [3]], ValueError, "must have one length"),
        ([[2**70]], ValueError, "tokens must be integers, .*Overflow"),
        ([["a"]], ValueError, "tokens must be integers"),
        ([[None]], ValueError, "tokens must be integers"),
        ([[31]], ValueError, "token 31 is not in 0..30"),
        ([[5, -1]], ValueError, "token -1 is not in 0..30"),
        ([[1.0]], TypeError, "must be integers, as torch.int64, not torch.float32"),
        ([[True]], TypeError, "must be integers, as torch.int64, not torch.bool"),
        ([[1j]], TypeError, "must be integers, as torch.int64, not torch.complex64"),
    ],
)
def test_tokens_that_are_none(tokens, error, said):
    model = small()
    for call in (model, model.activations):
        with pytest.raises(error, match=said):
            call(tokens)


@pytest.mark.parametrize("kind", [torch.int8, torch.uint8, torch.int16, torch.int32])
def test_integers_of_any_width_are_tokens(kind):
    model, tokens = small(), some_tokens(7)
    assert torch.equal(model(tokens.to(kind)), model(tokens))


@pytest.mark.parametrize(
    ("prompt", "n_new", "error", "said"),
    [
        ([], 3, ValueError, r"one or more each, not \[1, 0\]"),
        ([[1, 2], [3]], 3, ValueError, "must have one length"),
        ([[1, 2], [3, 4]], 3, ValueError, r"not \[1, 2, 2\]"),
        ([1], -1, ValueError, "n_new must be at least 0"),
        ([1], 2.0, TypeError, "n_new must be an int"),
    ],
)
def test_what_cannot_be_generated(prompt, n_new, error, said):
    model = small()
    caches = new_caches(model)
    with pytest.raises(error, match=said):
        model.generate(prompt, n_new, caches)
    assert held(caches) == [0, 0]


def test_nothing_to_generate_is_nothing():
    model = small()
    caches = new_caches(model)
    assert model.generate([1, 2], 0, caches) == []
    assert held(caches) == [0, 0]


def test_a_prompt_longer_than_the_cache_is_refused_before_anything_is_computed():
    model, calls = small(), []
    model.embed = lambda *args: calls.append(args)
    caches = new_caches(model, PreallocatedCache, capacity=6)
    with pytest.raises(ValueError, match="0 tokens and 7 more pass this cache's 6"):
        model.generate(some_tokens(7)[0], 1, caches)
    with pytest.raises(ValueError, match="0 tokens and 7 more"):
        model.generate(some_tokens(3)[0], 5, caches)
    with pytest.raises(ValueError, match="0 tokens and 7 more"):
        model(some_tokens(7), caches)
    assert (held(caches), calls) == ([0, 0], [])


@each_kind
@pytest.mark.parametrize(
    "other",
    [
        pytest.param(lambda: small(1), id="other weights, same shapes"),
        pytest.param(lambda: copy.deepcopy(FIRST), id="a copy"),
    ],
)
def test_a_cache_that_another_model_filled_is_refused(kind, other):
    filled, stranger = new_caches(FIRST, kind, **KINDS[kind]), other()
    FIRST(some_tokens(4), filled)
    before = [t.clone() for cache in filled for t in cache.append(*NOTHING)]
    for call in (
        lambda: stranger(some_tokens(2), filled),
        lambda: stranger.generate([1], 2, filled),
    ):
        with pytest.raises(ValueError, match="block 0 holds what another model computed"):
            call()
    assert held(filled) == [4, 4]
    after = [t for cache in filled for t in cache.append(*NOTHING)]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    FIRST(some_tokens(2), filled)  # still the first model's
    for cache in filled:
        cache.truncate(0)
    tokens = some_tokens(3)
    assert torch.allclose(stranger(tokens, filled), stranger(tokens))  # an emptied one is anyone's


FIRST = small()
NOTHING = torch.empty(2, 1, 6, 0, 4, dtype=torch.float64)  # k and v of no tokens


def test_a_cache_filled_by_hand_is_no_model_s():
    model = small()
    caches = new_caches(model)
    for cache in caches:
        cache.append(*torch.zeros(2, 1, 6, 1, 4, dtype=torch.float64))
    with pytest.raises(ValueError, match="another model"):
        model(some_tokens(2), caches)


@pytest.mark.parametrize(
    ("changes", "dtype", "batch"),
    [
        ({}, torch.float32, 1),
        ({"n_kv_heads": 3}, torch.float64, 1),
        ({"d_model": 12}, torch.float64, 1),
        ({}, torch.float64, 2),
    ],
)
@each_kind
def test_a_cache_of_other_sizes_or_dtype_is_refused(kind, changes, dtype, batch):
    model = small()
    caches = new_caches(small(dtype=dtype, **changes), kind, batch, **KINDS[kind])
    with pytest.raises(ValueError, match="block 0 needs a cache of"):
        model(some_tokens(2), caches)
    assert held(caches) == [0, 0]


def test_caches_that_do_not_belong_together_are_refused():
    model = small()
    one, *_ = caches = new_caches(model)
    for wrong in ([one], [*caches, one], [one, one], []):
        with pytest.raises(ValueError, match="give 2 caches, one a block"):
            model(some_tokens(2), wrong)
    model(some_tokens(5), caches)
    one.truncate(3)
    with pytest.raises(ValueError, match=r"hold \[3, 5\] tokens; truncate"):
        model(some_tokens(2), caches)
    assert held(caches) == [3, 5]


@each_kind
@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_caches_are_as_before_after_an_exception_in_any_block(kind, error, monkeypatch):
    model, tokens = small(), some_tokens(9)
    caches = new_caches(model, kind, **KINDS[kind])
    model(tokens[:, :4], caches)

    def fails(x):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(model.blocks[1].up, "forward", fails)
        with pytest.raises(error):
            model(tokens[:, 4:], caches)
        assert held(caches) == [4, 4]
    whole = model(tokens)
    assert (model(tokens[:, 4:], caches) - whole[:, 4:]).abs().max() < 1e-12


@each_kind
def test_caches_are_as_before_when_generation_breaks_off(kind):
    model = small()
    caches = new_caches(model, kind, **KINDS[kind])
    model(some_tokens(4), caches)
    for wrong, error in (
        (lambda logits: 1 / 0, ZeroDivisionError),
        (lambda logits: 31, ValueError),
    ):
        choices = iter([lambda logits: 1, lambda logits: 2, wrong, wrong])
        with pytest.raises(error):
            model.generate([5], 4, caches, lambda logits, c=choices: next(c)(logits))
        assert held(caches) == [4, 4]


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_logits_that_are_not_finite_are_an_error(value):
    model = small()
    embed = model.embed

    def spoiled(tokens, start=0):  # by the seventh token, though all weights are finite
        return embed(tokens, start) + (value if start + tokens.shape[1] > 6 else 0.0)

    model.embed = spoiled
    caches = new_caches(model)
    assert len(model.generate([1, 2], 4, caches)) == 4
    for some in (None, new_caches(model)):
        with pytest.raises(FloatingPointError, match="logits after 7 tokens are not finite"):
            model.generate([1, 2], 8, some)
        assert some is None or held(some) == [0, 0]


def test_a_failing_cache_does_not_keep_the_others_from_being_restored():
    model = small()
    caches = new_caches(model)
    caches[0].truncate = lambda n: 1 / 0
    model.norm = None
    with pytest.raises(TypeError):
        model(some_tokens(2), caches)
    assert held(caches)[1] == 0


def test_with_caches_no_gradients_are_kept():
    model, tokens = small(), some_tokens(3)
    assert model(tokens).requires_grad
    for kind, options in KINDS.items():
        caches = new_caches(model, kind, **options)
        model(tokens, caches)
        assert not model(tokens, caches).requires_grad
        assert not any(t.requires_grad for c in caches for t in c.append(*NOTHING))


@pytest.mark.parametrize(
    ("kind", "room"), [(ConcatCache, {}), (PreallocatedCache, {"capacity": 300})]
)
def test_numpy_counts_do_not_wrap_around(kind, room):
    model, tokens = small(context=300), some_tokens(257)
    whole, caches = model(tokens), new_caches(model, kind, **room)
    model(tokens[:, :256], caches)
    for cache in caches:
        cache.truncate(np.uint8(255))
    model(tokens[:, 255:256], caches)
    assert (model(tokens[:, 256:], caches)[0, 0] - whole[0, 256]).abs().max() < 1e-12
    assert held(caches) == [257, 257]
    assert model.generate([1, 2], np.uint8(3)) == model.generate([1, 2], 3)


def test_sizes_of_numpy_become_ints():
    sizes = CharConfig(**{name: np.uint8(size) for name, size in SMALL.items()})
    assert sizes == CharConfig(**SMALL)
    assert {type(size) for size in vars(sizes).values()} == {int}


@pytest.mark.filterwarnings("error")
def test_weights_may_be_views_that_cannot_be_written():
    model = small()
    turned = {name: w[::-1].copy()[::-1] for name, w in charweights.flat(model).items()}
    for view in turned.values():
        view.flags.writeable = False
    again = charweights.model(model.config, turned)
    assert (again(some_tokens(5)) == model(some_tokens(5))).all()


@pytest.mark.parametrize("name", ["0.q.b", "1.k.w", "head.b"])
@pytest.mark.parametrize("wrong", [np.nan, -np.inf])
def test_weights_that_are_not_finite_are_told(name, wrong):
    model = small()
    weights = charweights.flat(model)
    weights[name].flat[0] = wrong
    model, caches = charweights.model(model.config, weights), new_caches(model)
    for given_caches in (None, caches):
        with pytest.raises(FloatingPointError, match="not finite; check the weights"):
            model.generate([1, 2, 3], 4, given_caches)
    assert held(caches) == [0, 0]


@each_kind
def test_truncating(kind):
    model, tokens = small(), some_tokens(9)
    caches = new_caches(model, kind, **KINDS[kind])
    whole = model(tokens, caches)
    for cache in caches:
        cache.truncate(5)
        for wrong, error in ((6, ValueError), (-1, ValueError), (2.0, TypeError)):
            with pytest.raises(error):
                cache.truncate(wrong)
    assert held(caches) == [5, 5]
    assert (model(tokens[:, 5:], caches) - whole[:, 5:]).abs().max() < 1e-12


@pytest.mark.parametrize(
    "sizes",
    [{"d_model": 25}, {"n_kv_heads": 4}, {"vocab_size": 0}, {"context": True}, {"n_blocks": 1.0}],
)
def test_sizes_that_make_no_model(sizes):
    with pytest.raises((ValueError, TypeError)):
        CharConfig(**SMALL | sizes)
    with pytest.raises(ValueError, match="capacity"):
        PreallocatedCache(1, 2, 4, capacity=0)


def test_the_weights_follow_from_the_seed_and_leave_torch_s_own_generator_alone():
    torch.manual_seed(5)
    wanted = torch.rand(3)
    torch.manual_seed(5)
    a, b, c = (CharModel(CharConfig(**SMALL), seed) for seed in (1, 1, 2))
    assert torch.equal(torch.rand(3), wanted)
    assert torch.equal(a.head.weight, b.head.weight)
    assert not torch.equal(a.head.weight, c.head.weight)
    inner = a.blocks[0].o.weight.std() / a.blocks[0].up.weight.std()
    assert inner.item() == pytest.approx(0.5, rel=0.2)  # 1 / sqrt(2 * n_blocks)


# Weights


def test_flat_weights_are_copies():
    model = small()
    before = [weight.clone() for weight in model.parameters()]
    weights = charweights.flat(model)
    for array in weights.values():
        array += 1
    again = charweights.model(model.config, weights)
    for array in weights.values():
        array += 1
    for weight, old, new in zip(model.parameters(), before, again.parameters(), strict=True):
        assert torch.equal(weight, old)
        assert torch.allclose(new, old + 1)


def test_weights_that_do_not_fit_are_named():
    model = small()
    weights = charweights.flat(model)
    wrong = {
        "'1.up.b' is missing or left over": {k: w for k, w in weights.items() if k != "1.up.b"},
        "'head.w' is missing or left over": {k: w for k, w in weights.items() if k != "head.w"},
        "'more' is missing or left over": {**weights, "more": weights["head.b"]},
        r"'head.w' must be \[24, 31\], not \[31, 24\]": {**weights, "head.w": weights["head.w"].T},
    }
    for make in (charweights.model, charweights.numpy_decoder):
        for said, given_weights in wrong.items():
            with pytest.raises(ValueError, match=said):
                make(model.config, given_weights)


def test_weights_survive_the_file():
    weights = charweights.flat(small(dtype=torch.float32))
    again = charweights.from_bytes(charweights.to_bytes(weights))
    assert again.keys() == weights.keys()
    assert all(np.array_equal(again[name], weights[name]) for name in weights)
    assert {array.dtype for array in again.values()} == {np.dtype("float32")}
    for damaged in (b"", b"x" * 40, charweights.to_bytes(weights)[:-1]):
        with pytest.raises(ValueError, match="not weights in safetensors"):
            charweights.from_bytes(damaged)


def test_a_longer_model_is_the_same_up_to_where_it_ended():
    model = small()
    config, weights = charweights.longer(model.config, charweights.flat(model), 40)
    long = charweights.model(config, weights)
    assert long.config == CharConfig(**SMALL | {"context": 40})
    assert torch.equal(long(some_tokens(24)), model(some_tokens(24)))
    assert long(some_tokens(40)).isfinite().all()
    had, fresh = np.split(weights["positions"], [24])
    assert fresh.std() == pytest.approx(had.std(), rel=0.2)
    with pytest.raises(ValueError, match="context must be at least 24"):
        charweights.longer(model.config, weights, 23)


def test_the_mask_comes_from_causal_mask(monkeypatch):
    """So that a page can show what happens without it."""
    model, tokens = small(), some_tokens(8)
    right = model(tokens)[:, 4:]
    caches = new_caches(model)
    model(tokens[:, :4], caches)
    monkeypatch.setattr(charmodel, "causal_mask", lambda *n: torch.ones(*n, dtype=torch.bool))
    assert (model(tokens[:, 4:], caches) - right).abs().max() > 1e-3
