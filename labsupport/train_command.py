"""`python -m labsupport train --out DIR`: trains the character model and records its weights.

To import this module is to hold the process at one thread, so that sums are taken in one order.
"""
# ruff: noqa: E402 (the thread pools are set before NumPy and torch, which make them, are loaded)

from dataclasses import asdict, replace
from pathlib import Path

from labsupport import machine

machine.use_one_thread()

import numpy as np

from labsupport import charweights, corpus, evidence, recording, training
from labsupport.charmodel import CharConfig
from labsupport.training import RECORD, TEXT, WEIGHTS, Plan

QUICK = {"context": 16, "d_model": 16, "n_blocks": 1, "n_heads": 2}
SAME_LOSS = 0.02  # nats; other machines round otherwise, and the difference grows with the steps


def add_arguments(parser):
    """The options of the command."""
    plan = Plan()
    recording.add_out(parser)
    parser.add_argument(
        "--corpus",
        default="recorded",
        help="'recorded': the text of the recorded weights (default); 'pages': the course as it is "
        "now; or a text file",
    )
    parser.add_argument("--steps", type=int, default=plan.steps, help=f"({plan.steps})")
    parser.add_argument("--seed", type=int, default=plan.seed, help=f"({plan.seed})")
    parser.add_argument("--quick", action="store_true", help="a tiny model, to see that it works")


def main(args):
    """Train as the options say, and record the run; the exit code."""
    config = CharConfig(**QUICK) if args.quick else CharConfig()
    command = ["python", "-m", "labsupport", "train", f"--out={args.out}", f"--steps={args.steps}"]
    command += [f"--seed={args.seed}", f"--corpus={args.corpus}", *["--quick"] * args.quick]

    def plan_and_text(args):
        return replace(Plan(), steps=args.steps, seed=args.seed), read_text(args.corpus)

    def trained(begun, meant):
        plan, text = meant
        return config, text, plan, *record(begun, config, text, plan, command)

    return recording.run(args, "train", plan_and_text, trained, show)


def show(trained):
    """Print the losses, and whether the recorded weights are reproduced."""
    *_, rows, _ = trained
    print("Mean losses in nats a character:\n")
    print(rows.to_string(index=False, float_format="{:.3f}".format))
    print("\n" + compared(*trained))


def read_text(source):
    """The text that --corpus means; OSError or ValueError when there is none."""
    if source == "recorded":
        return training.recorded_text()[1]
    if source == "pages":
        return training.course_text()
    try:
        return Path(source).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{source} is not text in UTF-8: {error}. Save it so") from None


def record(begun, config, text, plan, command):
    """Train and write the run; returns the rows and the weights.

    Raises what `training.train` and `evidence.write` raise; then nothing is written.
    """
    rows, weights = training.train(config, text, plan)
    kept = rows.loc[rows["held_out"].idxmin()]
    attachments = {WEIGHTS: charweights.to_bytes(weights), TEXT: text.encode("utf-8")}
    evidence.write(
        begun,
        rows,
        command=command,
        config={
            "model": asdict(config),
            "plan": asdict(plan),
            "seed": plan.seed,
            "threads": 1,
            "dtype": "float32",
            "parameters": sum(array.size for array in weights.values()),
            "characters": dict(
                zip(("training", "held_out"), map(len, corpus.split(text)), strict=True)
            ),
            "alphabet": corpus.Alphabet.of(text, config.vocab_size).characters,
            "kept": {"step": int(kept["step"]), **{x: kept[x] for x in ("training", "held_out")}},
            "bytes": {name: len(data) for name, data in attachments.items()},
        },
        factors={"step": plan.evaluated()},
        total=None,
        segments=[],
        agreed=None,
        warmed="nothing: no time is measured",
        excluded="nothing; the kept weights are those of the lowest held-out loss",
        attachments=attachments,
    )
    return rows, weights


def compared(config, text, plan, rows, weights):
    """In words: do these weights reproduce the recorded ones?"""
    try:
        run = evidence.read(RECORD)
    except FileNotFoundError:
        return "No weights are recorded to compare these with."
    told = run.manifest["config"]
    if (asdict(config), asdict(plan)) != (told["model"], told["plan"]) or (
        text != training.recorded_text()[1]
    ):
        return "The recorded weights had another text, model or plan, so they are not compared."
    _, recorded = training.recorded()
    largest = max(float(np.abs(weights[name] - recorded[name]).max()) for name in weights)
    if largest == 0:
        return "These are the recorded weights, bit for bit."
    apart = (rows.set_index("step") - run.rows.set_index("step")).abs().max().max()
    same = "reproduces" if apart <= SAME_LOSS else "does not reproduce"
    return (
        f"The largest difference to a recorded weight is {largest:.2g}, to a recorded loss "
        f"{apart:.2g} nats: this {same} the record (to {SAME_LOSS} nats)."
    )
