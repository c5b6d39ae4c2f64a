"""The printed course's first pages: its title, and its contents with page numbers."""

import html
import re
import subprocess
from pathlib import Path
from string import Template

import yaml

PAGE = Template("""<!doctype html>
<html lang="en"><meta charset="utf-8"><title>$title</title>
<style>
  html { font: 10pt/1.45 sans-serif; color: #000; }
  h1 { margin: 60mm 0 4mm; font-size: 30pt; font-weight: 500; line-height: 1.2; }
  .what { margin: 0 0 25mm; font-size: 13pt; line-height: 1.4; }
  dl { display: grid; grid-template-columns: 30mm 1fr; gap: 2mm 0; margin: 0; }
  dt { color: #333; }
  dd { margin: 0; overflow-wrap: anywhere; }
  h2 { break-before: page; margin: 0 0 6mm; font-size: 18pt; font-weight: 500; }
  h3 { margin: 5mm 0 1mm; break-after: avoid; font-size: 10pt; color: #333; }
  ol { margin: 0; padding: 0; list-style: none; }
  a { color: inherit; text-decoration: none; }
  dd a { color: #085d6c; text-decoration: underline; }
  li a { display: flex; gap: 4mm; align-items: baseline; }
  li a::after { content: attr(data-page); margin-left: auto; font-variant-numeric: tabular-nums; }
  .of-page { margin-top: 1.5mm; font-weight: 600; break-after: avoid; }
  .of-section { padding-left: 6mm; font-size: 9pt; line-height: 1.35; color: #222; }
</style>
<h1>$title</h1>
<p class="what">$abstract</p>
<dl>$facts</dl>
<h2>Contents</h2>
$contents
</html>
""")


def git(root: Path, *words: str) -> str:
    """What a git command prints; empty where there is no git or no repository."""
    try:
        done = subprocess.run(["git", *words], cwd=root, capture_output=True, encoding="utf-8")
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def commit(root: Path) -> str:
    """The commit that the pages were built from and its date, or nothing."""
    named = git(root, "log", "-1", "--format=%h of %cs")
    changed = named and git(root, "status", "--porcelain", "--untracked-files=no")
    return f"{named}, with changes that are not committed" if changed else named


def facts(root: Path) -> dict[str, str]:
    """What the title page says, in order: label -> text."""
    config = yaml.safe_load((root / "_config.yml").read_text(encoding="utf-8"))
    citation = yaml.safe_load((root / "CITATION.cff").read_text(encoding="utf-8"))
    return {
        "Title": config["title"],
        "Abstract": citation["abstract"],
        "Authors": config["author"],
        "Version": citation["version"],
        "Read it at": config["html"]["baseurl"],
        "Source": config["repository"]["url"],
        "Built from": commit(root),
        "Licence": config["html"]["extra_footer"],
    }


def captions(root: Path) -> dict[str, str]:
    """First page of each part of _toc.yml -> the part's caption."""
    toc = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))
    return {part["chapters"][0]["file"]: part["caption"] for part in toc.get("parts", ())}


def described(value: str) -> str:
    """Text as HTML; an address becomes a link."""
    text = html.escape(value)
    return re.sub(r"https://\S+", r'<a href="\g<0>">\g<0></a>', text)


def front_matter(about: dict[str, str], parts: dict[str, str], entries: list[tuple]) -> str:
    """The first pages as HTML: the facts `about` the course, and its contents below the captions.

    An entry of the contents is (document, level of its heading, its text, its address, its page);
    those of the first two levels are shown.
    """
    lines = ["<ol>"]
    for doc, level, text, address, page in entries:
        if level == 1 and doc in parts:
            lines.append(f"</ol><h3>{html.escape(parts[doc])}</h3><ol>")
        if level <= 2:
            kind = "of-page" if level == 1 else "of-section"
            link = f'<a href="{html.escape(address)}" data-page="{page}">{html.escape(text)}</a>'
            lines.append(f'<li class="{kind}">{link}</li>')
    shown = [(label, text) for label, text in about.items() if text][2:]
    return PAGE.substitute(
        title=html.escape(about["Title"]),
        abstract=html.escape(about["Abstract"]),
        facts="".join(f"<dt>{label}</dt><dd>{described(text)}</dd>" for label, text in shown),
        contents="\n".join([*lines, "</ol>"]),
    )
