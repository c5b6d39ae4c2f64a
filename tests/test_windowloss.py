"""The loss with windows: without one it is the recorded loss, and it is taken as torch takes it."""

import numpy as np
import pytest
import torch
from scipy import special
from torch.nn import functional as F

from labsupport import charweights, evidence, training, windowloss
from labsupport.windowloss import losses, piece_losses, pieces, windowed


@pytest.fixture(scope="module")
def table():
    return losses([None, 128, 32, (8, None, 8), 8])


def test_without_a_window_it_is_the_loss_that_was_recorded(table):
    recorded = evidence.read(training.RECORD).manifest["config"]
    assert abs(table.loc["None", "loss"] - recorded["kept"]["held_out"]) < 1e-4
    assert pieces().shape == (recorded["characters"]["held_out"] // 129, 129)


def test_a_window_as_long_as_the_context_changes_nothing_and_a_short_one_costs(table):
    assert table.loc["None", ["more", "least", "most"]].tolist() == [0, 0, 0]
    assert table.loc["128", ["least", "most"]].abs().max() < 1e-6
    assert 0 < table.loc["32", "least"]
    assert table.loc["32", "most"] < table.loc["8", "least"]
    np.testing.assert_allclose(table["loss"] - table.loc["None", "loss"], table["more"], atol=1e-9)


def test_bytes_are_those_of_the_windows(table):
    a_token = 2 * 4 * 32 * 4  # of a layer: keys and values, heads, head_dim, float32
    tokens = [3 * 128, 3 * 128, 3 * 32, 8 + 128 + 8, 3 * 8]
    assert table["cache_bytes"].tolist() == [a_token * n for n in tokens]


def test_each_piece_has_the_loss_that_torch_gives_it():
    config, weights = training.recorded()
    texts = pieces(4)
    each, _ = piece_losses(windowed(config, weights, [None] * 3), texts)
    with torch.no_grad():
        logits = charweights.model(config, weights)(texts[:, :-1].tolist())
    told = F.cross_entropy(logits.swapaxes(1, 2), torch.tensor(texts[:, 1:]), reduction="none")
    np.testing.assert_allclose(each, told.mean(axis=1), rtol=0, atol=1e-5)


def test_through_rings_it_is_the_loss_without_any_cache():
    model, texts = windowed(*training.recorded(), [8, None, 16]), pieces(3)
    each, _ = piece_losses(model, texts)
    for loss, ids in zip(each, texts, strict=True):
        chances = special.log_softmax(model.forward(ids[:-1]), axis=1)
        assert abs(loss + chances[np.arange(128), ids[1:]].mean()) < 1e-5


def test_pieces_are_spread_over_the_held_out_text():
    all_of_them, few = pieces(), pieces(3)
    assert few.shape == (3, 129)
    np.testing.assert_array_equal(few[[0, -1]], all_of_them[[0, -1]])
    alphabet, text = training.recorded_text()
    assert text.endswith(alphabet.decode(few[-1].tolist()))


@pytest.mark.parametrize(
    ("act", "error", "says"),
    [
        (lambda: losses([(8, 8)], n_pieces=2), ValueError, "give 3 windows, one a layer, not 2"),
        (lambda: losses([0], n_pieces=2), ValueError, "window must be at least 1"),
        (lambda: losses(n_pieces=0), ValueError, "n_windows must be at least 2"),
    ],
)
def test_what_does_not_fit_is_refused(act, error, says):
    with pytest.raises(error, match=says):
        act()


def test_pieces_that_overlap_are_refused():
    most = len(windowloss.pieces())
    assert len(windowloss.pieces(most)) == most
    with pytest.raises(ValueError, match="overlap"):
        windowloss.pieces(most + 1)
