"""The forms that the messages of a timing trace may take, and what they say."""

import re
from datetime import datetime

# tag -> the forms its message may take, each with an example; named groups become fields.
FORMS = {
    "TIMER_START": {
        "2024-01-15T03:47:22.331Z": r"(?P<started_at>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?Z)"
    },
    "INPUT_RECV": {"payload_size=512 bytes": r"payload_size=(?P<payload_bytes>\d{1,12}) bytes"},
    "TOKENIZE": {"12 tokens generated": r"(?P<n_tokens>\d{1,12}) tokens generated"},
    "CACHE_QUERY": {
        "state=warm, entries=12": r"state=(?P<state>\w+), entries=(?P<entries>\d{1,12})",
    },
    "STALL": {"waiting for previous allocation": r".+"},
    "FORWARD": {"layer_0 entry...": r"layer_(?P<layer>\d{1,12}) (?P<mark>entry|stalled)\.*"},
    "OUTPUT": {
        "token_0 emitted: 0.892s": (
            r"token_(?P<token>\d{1,12}) emitted: (?P<at_s>\d{1,12}(?:\.\d{1,9})?)s"
        ),
        "hash=9c2a5f1b": r"hash=(?P<hash>[0-9a-f]+)",
    },
    "TIMER_STOP": {"elapsed=847ms": r"elapsed=(?P<elapsed_ms>\d{1,12}(?:\.\d{1,9})?)ms"},
}
INTEGERS = {"payload_bytes", "n_tokens", "entries", "layer", "token"}


def fields_of(tag: str, message: str) -> dict | None:
    """What a message says, or None where it has none of its tag's forms; times in ms.

    Raises ValueError for a moment that does not exist.
    """
    forms = FORMS.get(tag, {"anything": ".*"}).values()
    matches = [re.fullmatch(form, message, re.ASCII) for form in forms]
    found = next((m.groupdict() for m in matches if m), None)
    if found is None:
        return None
    fields = {}
    for name, text in found.items():
        if name in INTEGERS:
            fields[name] = int(text)
        elif name == "at_s":
            fields["at_ms"] = round(float(text) * 1000, 6)  # seconds as printed, to milliseconds
        elif name == "elapsed_ms":
            fields[name] = float(text)
        elif name == "started_at":
            fields[name] = datetime.fromisoformat(text)
        else:
            fields[name] = text
    return fields
