"""The text, the training, the command that records it, and files attached to a run."""

import argparse
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import sample_run
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from repository import course

from labsupport import (
    audit,
    charweights,
    corpus,
    evidence,
    machine,
    seal,
    train_command,
    training,
)
from labsupport.charmodel import CharConfig, CharModel
from labsupport.corpus import ELSE, Alphabet
from labsupport.training import WEIGHTS, Plan

ROOT = Path(__file__).resolve().parents[1]
TINY = CharConfig(context=16, d_model=16, n_blocks=1, n_heads=2)
RHYME = "the cat sat on the mat and the rat sat on the cat; " * 40


@pytest.fixture(autouse=True)
def one_thread():
    """So that sums are taken in one order; the threads of other tests are left as they were."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


# The text


def test_the_prose_of_a_page():
    page = """---
title: no
---

# A title

(a-label)=
Text with {glue:text}`some_ms` ms, `code` and [a link](../pages/x.md).

```{code-cell} ipython3
gone = 1
```

````{grid} 2
```{card} gone
```
````

:::{admonition} gone
:class: gone

A note is kept.
:::

~~~
gone
~~~
% gone
Last: 50 % stays.
"""
    wanted = """# A title

Text with … ms, `code` and a link.

A note is kept.

Last: 50 % stays.
"""
    assert corpus.prose(page) == wanted


def test_the_docstrings_of_a_module():
    source = '"""First."""\n\n\ndef f():\n    """Second.\n\n    More.\n    """\n    return "no"\n'
    assert corpus.docstrings(source) == "First.\n\nSecond.\n\nMore.\n"
    assert corpus.docstrings("x = 1\n") == "\n"
    nested = 'class A:\n    def f(self):\n        """In A."""\n\n\ndef g():\n    """After A."""\n'
    assert corpus.docstrings(nested) == "In A.\n\nAfter A.\n"  # in the order of the file


def test_the_course_has_text_enough():
    text = training.course_text()
    assert len(text) > 100_000
    assert "{code-cell}" not in text
    assert "A small decoder-only transformer in plain NumPy" in text  # a docstring
    assert "Someone sends a language model the same prompt twice." in text  # a page


@given(st.text(max_size=200))
def test_a_text_survives_the_alphabet_but_for_unknown_characters(text):
    alphabet = Alphabet.of(RHYME + "éé€")
    assert (len(alphabet), alphabet.characters[96:98]) == (100, "é€")
    ids = alphabet.encode(text)
    assert len(ids) == len(text)
    assert all(0 <= i < 100 for i in ids)
    known = "".join(c if c in alphabet.characters else ELSE for c in text)
    assert alphabet.decode(ids) == known
    plain = "".join(c for c in text if c.isascii() and (c.isprintable() or c == "\n"))
    assert alphabet.decode(alphabet.encode(plain)) == plain


@given(st.text(max_size=300))
@example("\N{INVERTED EXCLAMATION MARK}")  # one of those that fill places that are left
def test_an_alphabet_of_any_text_has_100_characters(text):
    alphabet = Alphabet.of(text)
    assert len(set(alphabet.characters)) == 100
    assert alphabet.characters.endswith(ELSE)


def test_ids_and_alphabets_that_are_none():
    for i in (-1, 100):
        with pytest.raises(ValueError, match=r"is not in 0\.\.99"):
            Alphabet.of("").decode([1, i])
    for characters in ("", "ab", "aa" + ELSE, ELSE + "a"):
        with pytest.raises(ValueError, match="each character once"):
            Alphabet(characters)


def test_the_last_tenth_is_held_out():
    learned, held = corpus.split("a" * 90 + "b" * 10)
    assert (learned, held) == ("a" * 90, "b" * 10)


# Training


def test_the_rate_warms_up_and_falls():
    plan = Plan(steps=300, warm_up=100, rate=0.01, last_rate=0.1)
    rates = [plan.rate_at(step) for step in range(301)]
    assert rates[0] == pytest.approx(0.0001)
    assert rates[99] == rates[100] == pytest.approx(0.01) == max(rates)
    assert rates[200] == pytest.approx(0.01 * 0.55)
    assert rates[300] == pytest.approx(0.001)
    assert rates[:100] == sorted(rates[:100])
    assert rates[100:] == sorted(rates[100:], reverse=True)
    assert plan.evaluated() == [0, 100, 200, 300]
    assert Plan(steps=5, every=2).evaluated() == [0, 2, 4, 5]


@pytest.mark.parametrize("wrong", [{"steps": 0}, {"batch": 1.5}, {"every": 0}, {"rate": 0.0}])
def test_what_is_no_plan(wrong):
    with pytest.raises((ValueError, TypeError), match=next(iter(wrong))):
        Plan(**wrong)


def test_a_model_learns_and_the_same_seed_gives_the_same_bits():
    plan = Plan(steps=60, batch=8, rate=0.01, warm_up=10, every=20)
    rows, weights = training.train(TINY, RHYME, plan)
    again, same = training.train(TINY, RHYME, plan)
    assert rows["step"].tolist() == [0, 20, 40, 60]
    assert abs(rows.loc[0, "held_out"] - math.log(100)) < 0.3  # it knows nothing yet
    assert rows.loc[3, "held_out"] < 0.6 * rows.loc[0, "held_out"]
    assert rows.equals(again)
    assert all(np.array_equal(weights[name], same[name]) for name in weights)
    started, others = training.train(TINY, RHYME, Plan(**vars(plan) | {"seed": 1}))
    assert started.loc[0, "training"] != rows.loc[0, "training"]  # other weights to begin with
    assert not np.array_equal(weights["head.w"], others["head.w"])


def test_the_losses_are_those_of_the_weights_and_the_best_are_kept(monkeypatch):
    """A text whose held-out end is nothing like the rest: training soon makes that loss worse."""
    text = "ab" * 2000 + "xyz" * 150
    plan = Plan(steps=40, batch=4, rate=0.02, warm_up=1, every=10)
    rows, weights = training.train(TINY, text, plan)
    kept = rows.loc[rows["held_out"].idxmin()]
    assert kept["held_out"] < rows["held_out"].iloc[-1]

    model = charweights.model(TINY, weights)
    alphabet = Alphabet.of(text)
    for name, part in zip(("training", "held_out"), corpus.split(text), strict=True):
        ids = torch.tensor(alphabet.encode(part))
        n = len(corpus.split(text)[1]) // 17
        starts = np.linspace(0, len(ids) - 17, n).astype(int)
        windows = torch.stack([ids[start : start + 17] for start in starts])
        chances = model(windows[:, :-1]).log_softmax(-1)  # [n, 16, vocab_size]
        loss = -chances.gather(2, windows[:, 1:, None]).mean()
        assert loss.item() == pytest.approx(kept[name], rel=1e-5)


def test_the_held_out_text_is_not_trained_on(monkeypatch):
    seen, learn = set(), training._learn
    monkeypatch.setattr(
        training, "_learn", lambda m, o, windows, *r: [seen.update(windows.unique().tolist()),
                                                       learn(m, o, windows, *r)]
    )  # fmt: skip
    text = "a" * 1800 + "b" * 200
    training.train(TINY, text, Plan(steps=80, batch=64, every=40))
    assert seen == set(Alphabet.of(text).encode("a"))


def test_a_step_goes_down_the_gradient_of_its_windows_clipped_at_its_rate():
    model = CharModel(TINY)
    first, second = torch.randint(100, (2, 8, 17), generator=torch.Generator().manual_seed(0))
    plain = torch.optim.SGD(model.parameters(), lr=5.0)
    wanted = torch.autograd.grad(training._loss(model, second), list(model.parameters()))
    norm = math.sqrt(sum(float((g * g).sum()) for g in wanted))
    before = [weight.clone() for weight in model.parameters()]

    def moved():
        return [old - w for old, w in zip(before, model.parameters(), strict=True)]

    training._learn(model, plain, first, 0.0, math.inf)
    assert not any(step.any() for step in moved())  # the rate is the one given
    training._learn(model, plain, second, 0.5, norm / 4)
    for step, gradient in zip(moved(), wanted, strict=True):  # nothing of the first is left
        assert torch.allclose(step, 0.5 * gradient / 4, atol=1e-6)


def test_only_matrices_decay():
    model = CharModel(TINY)
    decaying, others = training._optimizer(model, Plan()).param_groups
    names = {id(weight): name for name, weight in model.named_parameters()}
    assert decaying["weight_decay"] == 0.1
    assert others["weight_decay"] == 0
    assert {names[id(w)] for w in decaying["params"]} == {
        "blocks.0.qkv.weight", "blocks.0.o.weight", "blocks.0.up.weight", "blocks.0.down.weight",
        "head.weight",
    }  # fmt: skip
    assert len(decaying["params"]) + len(others["params"]) == len(names)


def test_what_cannot_be_trained():
    with pytest.raises(ValueError, match="the text has 100 characters; 170 or more are needed"):
        training.train(TINY, "a" * 100, Plan(steps=1))
    training.train(TINY, "a" * 170, Plan(steps=1))


def test_a_loss_that_is_not_finite_ends_the_training(monkeypatch):
    def spoils(model, *rest):
        with torch.no_grad():
            model.head.bias[5] = math.nan

    monkeypatch.setattr(training, "_learn", spoils)
    with pytest.raises(FloatingPointError, match="at step 1 the losses are"):
        training.train(TINY, RHYME, Plan(steps=1))


# The command


def run(out, *options):
    parser = argparse.ArgumentParser()
    train_command.add_arguments(parser)
    return train_command.main(parser.parse_args(["--out", str(out), "--quick", *options]))


@pytest.fixture
def text_file(tmp_path):
    file = tmp_path / "mine.txt"
    file.write_text(RHYME + "é", encoding="utf-8", newline="\n")
    return file


@pytest.fixture
def as_recorded(monkeypatch, tmp_path):
    """A function that makes a directory the recorded model."""
    original, read = evidence.directory, evidence.read

    def make(path):
        monkeypatch.setattr(
            evidence, "directory", lambda name: path if name == training.RECORD else original(name)
        )
        monkeypatch.setattr(
            evidence, "read", lambda name: read(path if name == training.RECORD else name)
        )

    return make


def test_a_training_is_recorded_and_reproduced(tmp_path, text_file, as_recorded, capsys):
    options = ["--steps", "3", "--corpus", str(text_file)]
    assert run(tmp_path / "a", *options) == 0
    assert evidence.audit(tmp_path / "a").status == audit.INTACT
    told = evidence.read(tmp_path / "a").manifest["config"]
    assert told["model"]["d_model"] == 16
    assert told["characters"] == {"training": 1837, "held_out": 204}
    assert told["bytes"][WEIGHTS] == (tmp_path / "a" / WEIGHTS).stat().st_size
    assert told["kept"]["step"] in (0, 3)

    as_recorded(tmp_path / "a")
    config, weights = training.recorded()
    alphabet, text = training.recorded_text()
    assert text == RHYME + "é"
    assert alphabet.characters == told["alphabet"]
    assert told["parameters"] == CharModel(config).n_parameters()
    charweights.model(config, weights).generate(alphabet.encode("the "), 5)

    capsys.readouterr()
    assert run(tmp_path / "b", "--steps", "3") == 0  # the recorded text is the default
    assert "These are the recorded weights, bit for bit." in capsys.readouterr().out
    assert (tmp_path / "b" / WEIGHTS).read_bytes() == (tmp_path / "a" / WEIGHTS).read_bytes()
    assert run(tmp_path / "c", "--steps", "4") == 0
    assert "not compared" in capsys.readouterr().out
    text_file.write_text(RHYME + "x", encoding="utf-8", newline="\n")
    assert run(tmp_path / "d", *options) == 0
    assert "not compared" in capsys.readouterr().out


def test_weights_that_differ_are_told_apart(tmp_path, text_file, as_recorded, capsys, monkeypatch):
    options = ["--steps", "3", "--corpus", str(text_file)]
    assert run(tmp_path / "a", *options) == 0
    as_recorded(tmp_path / "a")
    honest = training.train
    for shift, wanted in ((1e-4, "reproduces the record"), (0.1, "does not reproduce the record")):

        def altered(*given, shift=shift):
            rows, weights = honest(*given)
            weights["head.b"] = weights["head.b"] + np.float32(0.25)
            return rows.assign(held_out=rows["held_out"] + shift), weights

        monkeypatch.setattr(training, "train", altered)
        capsys.readouterr()
        assert run(tmp_path / f"b{shift}", *options) == 0
        said = capsys.readouterr().out
        assert "largest difference to a recorded weight is 0.25" in said
        assert wanted in said


def test_wrong_options_are_told_and_nothing_is_written(tmp_path, text_file, capsys):
    def fails(*options, out=tmp_path / "new"):
        assert run(out, *options) == 2
        assert not (tmp_path / "new").exists()
        return capsys.readouterr().err

    good = ["--corpus", str(text_file)]
    assert "steps must be at least 1" in fails("--steps", "0", *good)
    assert "nowhere.txt" in fails("--corpus", str(tmp_path / "nowhere.txt"))
    assert "exists already" in fails(*good, out=text_file)
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\xff")
    assert f"{binary} is not text in UTF-8" in fails("--corpus", str(binary))
    assert "seed must be at least 0" in fails("--seed=-1", *good)
    assert "seed must be below" in fails(f"--seed={2**63}", *good)
    text_file.write_text("short", encoding="utf-8")
    assert run(tmp_path / "new", *good) == 1
    assert "5 characters" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_without_a_record_the_remedy_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(training, "RECORD", "no such record")
    assert run(tmp_path / "new") == 2
    assert "no such record" in capsys.readouterr().err


def test_the_text_can_be_that_of_the_pages():
    assert train_command.read_text("pages") == training.course_text()


def test_the_command_runs_on_one_thread(tmp_path, text_file):
    course("train", "--quick", "--steps", 2, "--corpus", text_file, "--out", tmp_path / "run")
    manifest = evidence.read(tmp_path / "run").manifest
    pools = manifest["machine"]["thread_pools"]
    assert {pool["threads"] for pool in pools} <= {1, None}
    assert "labsupport/training.py" in manifest["sources"]


# The recorded model


def test_the_recorded_model_is_the_source_s_and_writes_text():
    config, weights = training.recorded()
    alphabet, text = training.recorded_text()
    assert config == CharConfig()
    assert sum(array.size for array in weights.values()) == 637_156
    told = evidence.read(training.RECORD).manifest
    assert told["git"]["clean"]
    assert Alphabet.of(text) == alphabet
    assert told["config"]["characters"]["training"] == len(corpus.split(text)[0])

    model = charweights.model(config, weights)
    held = torch.tensor(alphabet.encode(corpus.split(text)[1]))
    loss = training._mean_loss(model, training._windows(held, config.context + 1))
    assert loss == pytest.approx(told["config"]["kept"]["held_out"], abs=1e-3)
    assert loss < 2  # nats: it knows words; letters by their frequency alone give 3

    generator = torch.Generator().manual_seed(0)

    def draw(logits):
        return torch.multinomial(logits.softmax(0), 1, generator=generator)

    written = alphabet.decode(model.generate(alphabet.encode("\nThe "), 120, choose=draw)).split()
    words = set(text.split())
    assert sum(word in words for word in written) > len(written) / 2, " ".join(written)


# Files attached to a run


def attach(out, **files):
    weights = {name: np.arange(6, dtype="float32").reshape(2, 3) + i
               for i, name in enumerate(("first", "second", "third"))}  # fmt: skip
    files = files or {"w.safetensors": charweights.to_bytes(weights), "note.txt": b"a\nb\n"}
    return sample_run.write(out, attachments=files)


def problems(path):
    return [str(problem) for problem in evidence.audit(path).problems]


def test_attachments_are_written_sealed_and_do_not_disturb_the_rows(tmp_path):
    path = attach(tmp_path / "run")
    assert evidence.audit(path).status == audit.INTACT
    assert evidence.read(path).rows.equals(evidence.read(sample_run.write(tmp_path / "x")).rows)
    assert (path / "note.txt").read_bytes() == b"a\nb\n"
    assert set(evidence.read(path).manifest["sha256"]) == {"raw.csv", "w.safetensors", "note.txt"}
    assert len((path / "seal.json").read_bytes()) < 6000


def test_any_changed_byte_of_an_attachment_is_found_and_placed(tmp_path):
    path = attach(tmp_path / "run")
    for name in ("w.safetensors", "note.txt"):
        data = (path / name).read_bytes()
        for i in range(len(data)):
            (path / name).write_bytes(data[:i] + bytes([data[i] ^ 1]) + data[i + 1 :])
            said = problems(path)
            assert said, f"byte {i} of {name}"
            assert all(problem.startswith(name) for problem in said)
        (path / name).write_bytes(data)
    assert evidence.audit(path).status == audit.INTACT

    data = (path / "w.safetensors").read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    for i, place in ((4, "its header"), (start, "first"), (start + 24, "second"), (-1, "third")):
        i %= len(data)
        (path / "w.safetensors").write_bytes(data[:i] + bytes([data[i] ^ 1]) + data[i + 1 :])
        assert problems(path) == [f"w.safetensors:{place}: its bytes are not what was sealed"]
    (path / "w.safetensors").write_bytes(data.replace(b'"second"', b'"secord"'))
    assert problems(path) == ["w.safetensors:its header: its bytes are not what was sealed"]
    (path / "w.safetensors").write_bytes(data + b"x")
    added = "w.safetensors: bytes that belong to no tensor were added or changed"
    assert problems(path) == [added]
    for damaged in (b"", data[:5], data[:-3], data + b"x", b"\0" * 40):
        (path / "w.safetensors").write_bytes(damaged)
        assert all(problem.startswith("w.safetensors") for problem in problems(path))
        assert problems(path)
    (path / "w.safetensors").write_bytes(data)
    (path / "note.txt").write_bytes(b"a\nc\n")
    assert problems(path) == ["note.txt:2: this line was changed after sealing"]


def test_attachments_too_few_too_many_or_exchanged(tmp_path):
    path = attach(tmp_path / "run")
    (path / "extra.bin").write_bytes(b"x")
    assert problems(path) == [
        "extra.bin: this file does not belong here; the seal has no such file"
    ]
    (path / "extra.bin").unlink()
    (path / "note.txt").unlink()
    assert problems(path) == ["note.txt: this file is missing; the seal names it"]

    def reseal():  # a careful hand may make a new seal, but the manifest still tells
        files = {f.name: f.read_bytes() for f in path.iterdir() if f.name != "seal.json"}
        (path / "seal.json").write_bytes(seal.make(files))

    reseal()
    assert problems(path) == ["note.txt: this file is missing"]
    (path / "note.txt").write_bytes(b"other\n")
    reseal()
    assert problems(path) == [
        "note.txt: its SHA-256 is not the one in manifest.json: it was exchanged"
    ]
    (path / "note.txt").write_bytes(b"a\nb\n")
    (path / "more.txt").write_bytes(b"")
    reseal()
    assert problems(path) == ["more.txt: this file does not belong here"]


@pytest.mark.parametrize("name", ["raw.csv", "seal.json", "a/b.txt", "../up", "", ".hidden"])
def test_names_that_no_attachment_can_have(tmp_path, name):
    with pytest.raises(ValueError, match="cannot be an attachment"):
        attach(tmp_path / "run", **{name: b"x"})
    assert list(tmp_path.iterdir()) == []


def test_a_seal_of_weights_that_are_none_is_no_error(tmp_path):
    for data in (b"", b"\1\0\0\0\0\0\0\0[", b"\x0c" + b"\0" * 7 + b'{"a": {"b":1'):
        path = attach(tmp_path / "run", **{"w.safetensors": data})
        assert evidence.audit(path).status == audit.INTACT
        shutil.rmtree(path)
    assert machine.ROOT == ROOT
