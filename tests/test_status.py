"""The status page says what ran, when, where and from which code; citations say what is true."""

import getpass
import hashlib
import json
import platform
import re
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import lesson_runs
import pytest
import sample_site
import status
import yaml
from bs4 import BeautifulSoup
from jupyter_cache import get_cache
from lesson_inputs import toc_pages
from repository import ROOT, read

from labsupport import audit, ledger, machine

REPOSITORY = "https://github.com/tiny/tiny"


def soup_of(file):
    return BeautifulSoup(file.read_text(encoding="utf-8"), "html.parser")


def table(soup, name):
    """The rows of a table of the status page, as the texts of their cells, below its heading."""
    rows = soup.select(f".status-{name} tbody tr")
    return [[" ".join(cell.get_text(" ").split()) for cell in row.select("th, td")] for row in rows]


# A site that was built, and built again after an edit of another page


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The status page after a first build and after a second one, and the cache's record."""
    root = tmp_path_factory.mktemp("site")
    sample_site.make(root)
    html = sample_site.build(root)
    first = soup_of(html / "pages" / "status.html")
    [record] = get_cache(root / "_build" / ".jupyter_cache").list_cache_records()

    (root / "index.md").write_text("# Tiny\n\nEdited.\n", encoding="utf-8")
    (root / "requirements.txt").write_text("numpy==0.2  # newer\n", encoding="utf-8")
    sample_site.build(root)
    second = soup_of(html / "pages" / "status.html")
    return SimpleNamespace(first=first, second=second, record=record, html=html)


def test_a_lesson_has_the_time_the_date_and_the_place_of_its_run(built):
    m, git = machine.describe(), machine.commit()
    took = f"finished in {built.record.data['execution_seconds']:.1f} s"
    when = f"{built.record.created:%Y-%m-%d %H:%M} UTC"
    where = f"{m['cpu']}, {m['cores']} cores, {m['os']} {m['os_version']}, Python {m['python']}"
    [row] = table(built.first, "lessons")
    assert row[:3] == ["A lesson", took, when]
    assert row[3].startswith(git["commit"][:7])
    assert row[4] == where
    link = built.first.select(".status-lessons td a")[0]["href"]
    assert link == f"{REPOSITORY}/commit/{git['commit']}"
    assert built.first.select_one(".status-lessons th a")["href"] == "../chapters/one.html"


def test_a_lesson_from_the_cache_keeps_them(built):
    assert table(built.second, "lessons") == table(built.first, "lessons")


def test_the_page_is_new_although_another_page_alone_changed(built):
    assert table(built.first, "libraries")[0][:2] == ["numpy", "0.1"]
    assert table(built.second, "libraries")[0][:2] == ["numpy", "0.2"]


def test_the_site_map_and_the_404_page_know_the_pages_that_were_not_written_again(built):
    mapped = re.findall("<loc>(.*?)</loc>", (built.html / "sitemap.xml").read_text("utf-8"))
    pages = ["index", "chapters/one", "pages/status"]
    assert mapped == [f"https://example.org/tiny/{page}.html" for page in pages]
    lost = soup_of(built.html / "404.html")
    assert lost.html["data-content_root"] == "/tiny/"
    assert lost.select('a[href="/tiny/chapters/one.html"]')
    assert lost.select('form[action="/tiny/search.html"]')
    assert not lost.select('[href^="_"], [src^="_"], [href^="."], [src^="."]')


def test_what_two_builds_may_differ_in_is_marked(built):
    """Evidence, pins and links are the same in every build; the rest is marked."""
    for name in ("lessons", "build", "machine"):
        cells = built.first.select(f".status-{name} td")
        assert cells, name
        assert all(cell.get("class") == ["live"] for cell in cells), name
    installed = [row.select("td")[1] for row in built.first.select(".status-libraries tbody tr")]
    assert all(cell.get("class") == ["live"] for cell in installed)
    index = (built.html / "searchindex.js").read_text(encoding="utf-8")
    assert str(machine.describe()["cpu"]).split()[-1].lower() not in index


def test_the_tables_stand_in_the_page_and_can_be_reached(built):
    regions = built.first.select('[role="region"][tabindex="0"][aria-label]')
    assert len(regions) == len({region["aria-label"] for region in regions}) == 6
    assert "stand here in the built book" not in built.first.get_text()
    for row in built.first.select("article tbody tr"):
        assert row.select_one("th[scope=row]")


def test_nothing_names_a_person_or_a_place(built):
    text = str(built.first.article)
    for private in (platform.node(), str(ROOT), str(Path.home())):
        assert private not in text
    assert not re.search(rf"\b{re.escape(getpass.getuser())}\b", built.first.article.get_text())


# Runs


@pytest.fixture
def app(tmp_path, monkeypatch):
    """As much of Sphinx as `lesson_runs` needs: a lesson "one" in the book, nothing executed."""
    monkeypatch.setattr(lesson_runs, "executed", lambda app, doc: True)
    nb = SimpleNamespace(
        execution_cache_path=str(tmp_path / ".jupyter_cache"), output_folder=str(tmp_path)
    )
    app = SimpleNamespace(env=SimpleNamespace(docname="one", mystnb_config=nb))
    lesson_runs.begin(app)
    return app


def run_at(app, monkeypatch, moment):
    record = SimpleNamespace(created=moment, data={"execution_seconds": 2.0})
    monkeypatch.setattr(lesson_runs, "cached_run", lambda app, doc: record)
    lesson_runs.note_run(app, None)
    return record


def test_a_run_of_an_earlier_build_is_not_ascribed_to_this_one(app, monkeypatch):
    long_ago = run_at(app, monkeypatch, datetime(2001, 1, 1))
    assert lesson_runs.noted(app, "one", long_ago) == {"machine": None, "git": None}

    now = run_at(app, monkeypatch, datetime.now(UTC).replace(tzinfo=None))
    assert lesson_runs.noted(app, "one", now)["git"] == machine.commit()
    assert lesson_runs.noted(app, "one", long_ago) == {"machine": None, "git": None}


def test_a_row_is_dated_by_the_run_and_not_by_the_build(app, monkeypatch):
    run = SimpleNamespace(created=datetime(2001, 2, 3, 4, 5), data={"execution_seconds": 2.0})
    monkeypatch.setattr(status, "executed", lambda app, doc: True)
    monkeypatch.setattr(status, "cached_run", lambda app, doc: run)
    app.config = SimpleNamespace(external_site_map={"one": None})
    app.builder = SimpleNamespace(get_relative_uri=lambda page, doc: f"../{doc}.html")
    app.env.titles = {"one": SimpleNamespace(astext=lambda: "One")}
    [row] = status.lesson_rows(app, REPOSITORY)
    told = [cell["text"] for cell in row][2:]
    assert told == ["2001-02-03 04:05 UTC", status.UNKNOWN, status.UNKNOWN]


def test_a_note_outlives_the_builds_that_do_not_run_the_lesson(app, monkeypatch):
    run = run_at(app, monkeypatch, datetime.now(UTC).replace(tzinfo=None))
    kept = lesson_runs.noted(app, "one", run)
    lesson_runs.begin(app)
    app.course_git = {"commit": "f" * 40, "clean": True}
    run_at(app, monkeypatch, run.created)
    assert lesson_runs.noted(app, "one", run) == kept


def test_a_lesson_without_a_finished_run_has_no_record(app):
    assert lesson_runs.cached_run(app, "one") is None


def test_changes_that_were_not_committed_are_said():
    git = {"commit": "0123456789" * 4, "clean": False}
    dirty = status.commit_cell(git, REPOSITORY, True, "")
    assert (dirty["text"], dirty["note"]) == ("0123456", ", with changes that were not committed")
    assert status.commit_cell(git | {"clean": True}, REPOSITORY, True, "")["note"] == ""


def test_an_archive_without_git_says_so():
    app = SimpleNamespace(course_start=datetime(2026, 1, 2), course_git=None)
    [_, [name, commit]] = status.build_rows(app, REPOSITORY)
    assert (name["text"], commit["text"]) == ("Commit", status.NO_GIT)
    assert "href" not in commit


def test_a_blas_without_a_version_is_named_without_one():
    m = machine.describe() | {
        "thread_pools": [{"api": "blas", "name": "accelerate", "version": None, "threads": None}]
    }
    assert dict((row[0]["text"], row[1]["text"]) for row in status.machine_rows(m))["BLAS"] == (
        "accelerate"
    )


# Evidence


def test_each_recorded_run_stands_there_with_its_manifest_and_its_seal():
    rows = status.evidence_rows(ROOT, REPOSITORY, "trunk", {})
    there = {path.name for path in (ROOT / "evidence").iterdir()}
    assert {row[0]["text"] for kind in rows.values() for row in kind} == there
    for first, recorded, commit, where, answer, seal in rows["run"]:
        directory = ROOT / "evidence" / first["text"]
        manifest = json.loads((directory / "manifest.json").read_text(encoding="utf-8"))
        assert first["href"] == f"{REPOSITORY}/tree/trunk/evidence/{directory.name}"
        assert recorded["text"][:10] == manifest["started"][:10]
        assert manifest["git"]["commit"].startswith(commit["text"])
        assert manifest["machine"]["cpu"] in where["text"]
        assert answer["text"] == audit.audit(directory).status
        digest = hashlib.sha256((directory / "seal.json").read_bytes()).hexdigest()
        assert digest.startswith(seal["code"])


def test_a_run_made_by_other_code_lists_it_and_a_damaged_one_fails(tmp_path, monkeypatch):
    sample_site.make(tmp_path)
    intact = {"labsupport/gone.py": "0" * 64}
    monkeypatch.setattr(audit, "_changed_sources", lambda recorded: list(intact))
    [row] = status.evidence_rows(tmp_path, REPOSITORY, "trunk", {})["run"]
    answer = row[4]
    assert (answer["text"], answer["more"]) == (audit.OTHER_CODE, ["labsupport/gone.py"])
    assert answer["summary"] == "1 source file changed since"
    assert "<li><code>labsupport/gone.py</code></li>" in status.TABLE.render(rows=[row])

    raw = tmp_path / "evidence" / "warm-slower" / "raw.csv"
    raw.write_bytes(raw.read_bytes() + b"\n")
    [row] = status.evidence_rows(tmp_path, REPOSITORY, "trunk", {})["run"]
    assert row[4]["text"] == audit.FAILED


def test_an_answer_that_the_build_has_is_not_sought_again(tmp_path, monkeypatch):
    sample_site.make(tmp_path)
    monkeypatch.setattr(status, "audited", lambda directory: pytest.fail("audited once more"))
    known = {path.name: ["as told", []] for path in (tmp_path / "evidence").iterdir()}
    [row] = status.evidence_rows(tmp_path, REPOSITORY, "trunk", known)["run"]
    assert row[4]["text"] == "as told"


# What the page's own words promise


def test_each_chapter_holds_the_libraries_at_one_thread():
    for doc, path in toc_pages(ROOT).items():
        if doc.startswith("chapters/"):
            assert "machine.use_one_thread()" in path.read_text(encoding="utf-8"), doc


# How to cite


@pytest.fixture(scope="module")
def citation():
    return yaml.safe_load(read("CITATION.cff"))


def block(language, n=0):
    """The text of the page's n-th block of that language."""
    return re.findall(rf"```{language}\n(.*?)\n```", read("pages/cite.md"), re.S)[n]


def test_the_text_is_made_from_the_citation_file(citation):
    authors = ", ".join(author["name"] for author in citation["authors"])
    year, title = citation["date-released"].year, citation["title"]
    assert block("text") == (
        f"{authors}. ({year}). {title} (Version {citation['version']}) [Computer software]. "
        f"{citation['url']}"
    )


def test_the_bibtex_is_made_from_the_citation_file(citation):
    fields = dict(re.findall(r"(\w+)\s*= \{(.*)\},", block("bibtex")))
    assert fields == {
        "author": " and ".join(f"{{{author['name']}}}" for author in citation["authors"]),
        "title": citation["title"],
        "year": str(citation["date-released"].year),
        "version": citation["version"],
        "url": citation["url"],
    }


def test_the_claim_that_is_cited_is_in_the_ledger(citation):
    cited = block("text", 1)
    name = re.search(r"claim ([\w-]+)", cited)[1]
    assert name in {claim.id for chapter in ledger.CHAPTERS for claim in ledger.of_chapter(chapter)}
    assert cited.endswith(f"{citation['url']}ledger.html#claim-{name}")
    assert f"version {citation['version']}" in cited


def test_the_run_that_is_cited_has_that_date_commit_and_seal():
    cited = block("text", 2)
    directory = ROOT / re.search(r"evidence/[\w-]+", cited)[0]
    manifest = json.loads((directory / "manifest.json").read_text(encoding="utf-8"))
    for said in (
        f"recorded {manifest['started'][:10]} ",
        f"commit {manifest['git']['commit']}",
        f"seal.json {hashlib.sha256((directory / 'seal.json').read_bytes()).hexdigest()}",
    ):
        assert said in cited
