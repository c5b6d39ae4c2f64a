"""The status page: what was executed for these pages, when, on what, and what evidence is intact.

The page is written at every build, also when another page alone changed, and takes no part in the
execution cache: a notebook would show the state of the build that last executed it. MyST-NB's own
`nb-exec-table` gives a lesson that came from the cache the date of the build; here a lesson has the
date, the machine and the commit of its run, from `lesson_runs`.

The tables take the place of the elements of `pages/status.md` whose class begins with "status-".
They enter when the page is written, so that the search index holds nothing that a build may change.
What may differ between two builds from the same evidence has the class "live".
"""

import hashlib
import importlib.metadata
import json
import os
from datetime import UTC, datetime
from pathlib import Path

from bs4 import BeautifulSoup
from jinja2 import Environment
from lesson_runs import cached_run, executed, noted

from labsupport import audit, jsontext
from labsupport.books import MANIFEST
from labsupport.seal import SEAL

PAGE = "pages/status"
LIBRARIES = ["numpy", "scipy", "pandas", "matplotlib", "torch", "numba", "threadpoolctl"]
BUILDERS = ["jupyter-book", "sphinx", "myst-nb", "jupyter-cache"]
NO_GIT = "not known: no git here, or no clone (a downloaded archive, say)"
UNKNOWN = "not recorded"

TABLE = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string("""\
<div class="status-scroll" role="region" aria-label="{{ label }}" tabindex="0">
<table class="status-table">
{% if columns %}
<thead><tr>
{% for column in columns %}
<th scope="col">{{ column }}</th>
{% endfor %}
</tr></thead>
{% endif %}
<tbody>
{% for row in rows %}
<tr>
{% for cell in row %}
{% set tag = "th" if loop.first else "td" %}
<{{ tag }}{% if loop.first %} scope="row"{% endif %}{% if cell.live %} class="live"{% endif %}>
{%- if cell.href %}<a href="{{ cell.href }}">{{ cell.text }}</a>{% else %}{{ cell.text }}{% endif %}
{{- cell.note }}
{% if cell.code %} <code>{{ cell.code }}</code>{% endif %}
{% if cell.more %}<details><summary>{{ cell.summary }}</summary><ul>
{% for item in cell.more %}
<li><code>{{ item }}</code></li>
{% endfor %}
</ul></details>{% endif %}
</{{ tag }}>
{% endfor %}
</tr>
{% endfor %}
</tbody>
</table>
</div>""")


def cell(text, live=False, **more) -> dict:
    """A table's cell. Also: href, a link's target; note, text after it; code; more and
    summary, a folded list."""
    return {"text": text, "live": live, **more}


def day(moment: datetime) -> str:
    """A date and time to the minute."""
    return f"{moment:%Y-%m-%d %H:%M} UTC"


def named(m: dict) -> str:
    """A machine in one line, without its name."""
    cores = f"{m['cores']} cores" if m["cores"] else "cores not known"
    return f"{m['cpu']}, {cores}, {m['os']} {m['os_version']}, Python {m['python']}"


def commit_cell(git: dict | None, repository: str, live: bool, absent: str) -> dict:
    """A commit as a link, and whether the tree had changes of its own."""
    if git is None:
        return cell(absent, live)
    state = "" if git["clean"] else ", with changes that were not committed"
    link = f"{repository}/commit/{git['commit']}"
    return cell(git["commit"][:7], live, href=link, note=state)


def lesson_rows(app, repository: str) -> list:
    """A row for each executed lesson, in the order of the book."""
    rows = []
    for doc in dict.fromkeys(app.config.external_site_map):
        if not executed(app, doc):
            continue
        title = app.env.titles[doc].astext()
        link = cell(title, href=app.builder.get_relative_uri(PAGE, doc))
        run = cached_run(app, doc)
        if run is None:
            rows.append([link, *[cell("no finished run", live=True)] * 4])
            continue
        note = noted(app, doc, run)
        rows.append([
            link,
            cell(f"finished in {run.data['execution_seconds']:.1f}\N{NO-BREAK SPACE}s", live=True),
            cell(day(run.created), live=True),
            commit_cell(note["git"], repository, True, UNKNOWN),
            cell(named(note["machine"]) if note["machine"] else UNKNOWN, live=True),
        ])  # fmt: skip
    return rows


def machine_rows(m: dict) -> list:
    """The machine that built the pages."""
    pools = [pool for pool in m["thread_pools"] if pool["api"] == "blas"]
    blas = sorted({f"{pool['name']} {pool['version'] or ''}".strip() for pool in pools})
    rows = {
        "Processor": f"{m['cpu']} ({m['architecture']})",
        "Cores": f"{m['cores']} ({m['logical_cores']} logical)",
        "Memory": f"{m['memory_bytes'] / 2**30:.1f} GiB",
        "Operating system": f"{m['os']} {m['os_version']}",
        "Python": f"{m['python']} ({m['implementation']})",
        "BLAS": ", ".join(blas),
    }
    return [[cell(name), cell(text, live=True)] for name, text in rows.items()]


def build_rows(app, repository: str) -> list:
    """The build itself."""
    return [
        [cell("Built"), cell(day(app.course_start), live=True)],
        [cell("Commit"), commit_cell(app.course_git, repository, True, NO_GIT)],
    ]


def library_rows(root: Path) -> list:
    """Pinned and installed versions."""
    lines = (root / "requirements.txt").read_text(encoding="utf-8").splitlines()
    pins = dict(line.split("#")[0].strip().split("==") for line in lines if "==" in line)
    names = [name for name in LIBRARIES + BUILDERS if name in pins]
    installed = {name: importlib.metadata.version(name) for name in names}
    return [[cell(n), cell(pins[n]), cell(installed[n], live=True)] for n in names]


def audited(directory: Path) -> tuple[str, list[str]]:
    """The audit's answer, and the source files that have changed since."""
    answer = audit.audit(directory)
    return answer.status, list(answer.changed_sources)


def evidence_rows(root: Path, repository: str, branch: str, known: dict) -> dict[str, list]:
    """The recorded runs, and the transcriptions of sources, each with the audit's answer.

    `known` has answers that need not be sought again: name -> as from `audited`.
    """
    rows = {"run": [], "transcription": []}
    for directory in sorted(path for path in (root / "evidence").iterdir() if path.is_dir()):
        name = directory.name
        status, changed = known.get(name) or audited(directory)
        manifest, _ = jsontext.parse(MANIFEST, (directory / MANIFEST).read_bytes())
        if status == audit.OTHER_CODE:
            n = len(changed)
            said = f"{n} source file{'s' * (n > 1)} changed since"
            status = cell(audit.OTHER_CODE, more=changed, summary=said)
        else:
            status = cell(status)
        seal = hashlib.sha256((directory / SEAL).read_bytes()).hexdigest()
        first = cell(name, href=f"{repository}/tree/{branch}/evidence/{name}")
        last = [status, cell("", code=seal[:12])]
        if manifest["kind"] == "run":
            versions = f", NumPy {manifest['machine']['numpy']}"
            first = [
                first,
                cell(day(datetime.fromisoformat(manifest["started"]).astimezone(UTC))),
                commit_cell(manifest["git"], repository, False, UNKNOWN),
                cell(named(manifest["machine"]) + versions),
            ]
        else:
            first = [first, cell(manifest["source"].split(":")[0].split(". ")[0])]
        rows[manifest["kind"]].append([*first, *last])
    return rows


def tables(app) -> dict[str, str]:
    """Class of the element to fill -> HTML."""
    root, theme = Path(app.srcdir), app.config.html_theme_options
    repository, branch = theme["repository_url"].rstrip("/"), theme["repository_branch"]
    known = json.loads(os.environ.get("COURSE_AUDITS", "{}"))  # what tools/build.py has just found
    recorded = evidence_rows(root, repository, branch, known)
    told = {
        "lessons": (["Lesson", "Run", "When", "Commit", "Machine"], lesson_rows(app, repository)),
        "build": ([], build_rows(app, repository)),
        "machine": ([], machine_rows(app.course_machine)),
        "libraries": (["Library", "Pinned", "Installed"], library_rows(root)),
        "runs": (["Run", "Recorded", "Commit", "Machine", "Audit", "Seal"], recorded["run"]),
        "transcriptions": (["Name", "Source", "Audit", "Seal"], recorded["transcription"]),
    }
    return {
        f"status-{name}": TABLE.render(label=name.capitalize(), columns=columns, rows=rows)
        for name, (columns, rows) in told.items()
    }


def fill(app, pagename, templatename, context, doctree) -> None:
    """Put the tables into the page."""
    if pagename != PAGE:
        return
    soup = BeautifulSoup(context["body"], "html.parser")
    for name, html in tables(app).items():
        place = soup.select_one(f".{name}")
        place.clear()
        place.append(BeautifulSoup(html, "html.parser"))
    context["body"] = str(soup)


def setup(app):
    """Write the page anew at each build, and fill it."""
    app.setup_extension("lesson_runs")
    app.connect("env-updated", lambda app, env: [PAGE] if PAGE in env.found_docs else [])
    app.connect("html-page-context", fill)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
