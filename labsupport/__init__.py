"""Helpers behind *The Price of Remembering*, in three layers; imports go only downwards.

telling     figures, ledger, claims, claims_stall, claims_repeats, claims_causes,
            claims_measured, stall_evidence, audit_command, profile_command, __main__
                what a page or a command shows
measuring   timing, machine, traces, traceforms, stall_log, courses, hypotheses, scoring,
            serving, warmcold, profile, evidence, audit, books, columns, seal, places, jsontext
                what is recorded about a run
measured    decoder, kvcache, prefix, guarded, latewrite
                what is run; no clock, no files
"""
