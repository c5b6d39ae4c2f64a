"""Helpers behind *The Price of Remembering*, in three layers; imports go only downwards.

telling     figures, figures_costs, ledger, claims, claims_stall, claims_repeats, claims_causes,
            claims_measured, stall_evidence, claims_decomposition, claims_reuse,
            claims_safeguards, decomposition_evidence, reuse_trials, cost_source,
            audit_command, profile_command, breakeven_command, bench_command,
            instrument_command, claims_derivation, claims_clock, derivation_evidence,
            derivation_source, figures_derivation, sweep_command, train_command,
            engine_command, claims_growth, claims_sameness, claims_width, __main__
                what a page or a command shows
measuring   timing, pairs, machine, traces, traceforms, stall_log, courses, hypotheses, scoring,
            serving, warmcold, profile, opcounts, costmodel, pieces, calibrate, breakeven,
            hitrate, streams, noise, questions, rivals, rival_pytest, instrument,
            fits, rates, roofline, sweep, training, agreement, ladder, enginebench, enginerivals,
            enginepaths, loops, libcalls, stepwork, whole,
            recording, evidence, audit, books, columns, seal, places, jsontext
                what is recorded about a run
measured    decoder, kvcache, prefix, guarded, latewrite, charmodel, charcache, charweights,
            corpus, arithmetic, enginebase, engine, compiled, folding
                what is run; no clock, no files
"""
