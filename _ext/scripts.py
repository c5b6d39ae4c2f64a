"""Which scripts a page loads, and when."""

OURS = ()  # files of _ext/static, loaded on every page after it has been shown
