"""Helpers behind *The Price of Remembering*; README.md beside this file has their table."""
