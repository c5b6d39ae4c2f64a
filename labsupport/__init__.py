"""Helpers behind *The Price of Remembering*, in three layers; imports go only downwards.

telling     figures, claims, claims_stall, __main__    what a page shows
measuring   timing, evidence, machine, traces,         what is recorded about a run
            hypotheses, warmcold
measured    decoder, kvcache, guarded                  what is run; no clock, no files
"""
