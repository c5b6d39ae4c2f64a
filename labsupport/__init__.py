"""Helpers behind *The Price of Remembering*, in three layers; imports go only downwards.

telling     figures, claims, claims_stall, claims_repeats, claims_causes, __main__
                what a page shows
measuring   timing, evidence, seal, machine, traces, stall_log, courses, hypotheses, scoring,
            serving, warmcold
                what is recorded about a run
measured    decoder, kvcache, guarded
                what is run; no clock, no files
"""
