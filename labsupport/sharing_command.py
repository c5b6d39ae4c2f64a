"""`python -m labsupport sharing --out DIR`: trains with shared key/value heads, records the losses.

To import this module is to hold the process at one thread, so that sums are taken in one order.
"""
# ruff: noqa: E402 (the thread pools are set before NumPy and torch, which make them, are loaded)

from dataclasses import replace

from labsupport import machine

machine.use_one_thread()

from labsupport import evidence, recording, sharing, training
from labsupport.charmodel import CharConfig
from labsupport.kvcache import whole_number
from labsupport.training import Plan

STEPS, SEEDS = 600, 8
QUICK = {"context": 16, "d_model": 16, "n_blocks": 1}


def add_arguments(parser):
    """The options of the command."""
    recording.add_out(parser)
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"two or more ({SEEDS})")
    parser.add_argument("--steps", type=int, default=STEPS, help=f"of each training ({STEPS})")
    parser.add_argument("--quick", action="store_true", help="tiny models, to see that it works")


def main(args):
    """Train as the options say, and record the run; the exit code."""
    return recording.run(args, "sharing", meant_by, record, show)


def meant_by(args):
    """The config, text, plan and number of seeds; ValueError or OSError for what is none."""
    config = CharConfig(**QUICK) if args.quick else CharConfig()
    seeds = whole_number("seeds", args.seeds, at_least=2)
    return config, training.recorded_text()[1], replace(Plan(), steps=args.steps), seeds


def record(begun, meant):
    """Train and write the run; returns its rows and configuration.

    Raises what `sharing.measure` and `evidence.write` raise; then nothing is written.
    """
    config, _, plan, seeds = meant
    told = sharing.described(config, plan, seeds)
    n = seeds * len(told["kinds"])
    minutes = sharing.seconds(*meant) / 60
    print(f"{n} trainings of {plan.steps} steps: about {minutes:.1f} minutes.", flush=True)

    rows = sharing.measure(*meant)
    options = [f"--seeds={seeds}", f"--steps={plan.steps}"]
    options += ["--quick"] if config != CharConfig() else []
    evidence.write(
        begun,
        rows,
        command=["python", "-m", "labsupport", "sharing", f"--out={begun.out}", *options],
        config=told,
        factors={
            "seed": told["seeds"],
            "n_kv_heads": [kind["n_kv_heads"] for kind in told["kinds"]],
            "step": plan.evaluated(),
        },
        total=None,
        segments=[],
        agreed=None,
        warmed="nothing: no time is measured",
        excluded="nothing; the weights are not kept",
    )
    return rows, told


def show(recorded):
    """Print what each kind weighs and loses."""
    print("Held-out losses at the end, in nats a character:\n")
    found = sharing.table(*recorded)
    print(found.to_string(float_format="{:.4f}".format, na_rep=""))
