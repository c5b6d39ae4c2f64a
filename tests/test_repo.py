"""What must hold of the repository itself: its pages, pins, layers and words."""

import ast
import re
import subprocess
import tomllib

import pytest
import yaml
from lesson_inputs import imported_modules, toc_pages
from repository import ROOT, read

PACKAGE = ROOT / "labsupport"
MODULES = sorted(path.stem for path in PACKAGE.glob("*.py") if path.stem != "__init__")
CHAPTERS = [path for path in toc_pages(ROOT).values() if path.parent.name == "chapters"]
LAYERS = ["measured", "measuring", "telling"]  # from the ground up
OTHERS = {"vllm-project/vllm", "Sanster/IOPaint", "vega/vega"}  # repositories that are cited


def tracked_files():
    """Every file under version control, those that are not committed yet included."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True).stdout
    return [path for name in names.split("\0") if name and (path := ROOT / name).is_file()]


def tracked_text():
    for path in tracked_files():
        try:
            yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            assert path.suffix in {".png", ".safetensors", ".woff2"}, (
                f"{path}: neither text, image nor weights"
            )


def pins(name):
    """name -> (version, reason) of a requirements file, with the files that it includes."""
    found = {}
    for line in read(name).splitlines():
        requirement, _, reason = line.partition("#")
        if included := re.match(r"-r (\S+)", requirement):
            target = (ROOT / name).parent / included[1]
            found |= pins(target.resolve().relative_to(ROOT).as_posix())
        elif requirement.strip() and not requirement.startswith("-"):
            package, _, version = requirement.strip().partition("==")
            found[package] = (version, reason.strip())
    return found


# The book


def test_every_page_of_the_toc_has_its_source():
    assert all(path.is_file() for path in toc_pages(ROOT).values())


def test_every_page_of_text_is_in_the_toc():
    listed = set(toc_pages(ROOT).values())
    there = {*(ROOT / "chapters").glob("*.md"), *(ROOT / "pages").glob("*.md")}
    assert there <= listed


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda path: path.stem)
def test_a_chapter_has_the_parts_of_a_page(chapter):
    text = chapter.read_text(encoding="utf-8")
    for part, pattern in {
        "objectives": r"(?i)you will be able to",
        "what to know first": r"(?i)you need|need to know|what you should know",
        "how long it takes": r"(?i)\b(minutes|hour)",
        "a prediction": r"(?i)\bpredict",
        "claims": r"(?i)\bledger\b",
        "exercises": r"(?m)^#+ Exercises",
        "further reading": r"(?m)^#+ Further reading",
    }.items():
        assert re.search(pattern, text), f"{chapter.name} lacks {part}"


def test_numbers_are_glued_and_never_evaluated():
    """The eval role shows nothing when results come from the cache."""
    for chapter in CHAPTERS:
        assert "{eval}" not in chapter.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_links_to_files_of_the_repository_resolve(name):
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", read(name)):
        assert (ROOT / target).exists(), f"{name} links to {target}"


# The address, the version


def test_config_is_the_one_place_of_the_address():
    config = yaml.safe_load(read("_config.yml"))
    url, site = config["repository"]["url"], config["html"]["baseurl"]
    slug = url.removeprefix("https://github.com/")
    citation = yaml.safe_load(read("CITATION.cff"))
    assert (citation["repository-code"], citation["url"]) == (url, site)
    assert url in read("README.md")
    assert site in read("README.md")

    assert site.endswith("/")  # addresses of pages are written behind it

    for name, text in tracked_text():
        if name == "_config.yml" or name.startswith("tests/"):
            continue
        for other in re.findall(r"(?:github\.com|mybinder\.org/v2/gh)/([\w.-]+/[\w.-]*\w)", text):
            assert other.removesuffix(".git") in {slug, *OTHERS}, (
                f"{name} names {other}, _config.yml names {slug}"
            )
    for binder in re.findall(r"mybinder\.org/v2/gh/([\w-]+/[\w-]+)/(\w+)", read("README.md")):
        assert binder == (slug, config["repository"]["branch"])


def test_one_version():
    version = tomllib.loads(read("pyproject.toml"))["project"]["version"]
    assert yaml.safe_load(read("CITATION.cff"))["version"] == version
    assert re.search(r"^## (\S+),", read("CHANGELOG.md"), re.M)[1] == version
    assert f"version {version}." in read("README.md")


# The dependencies


def test_each_dependency_is_pinned_with_its_reason():
    for package, (version, reason) in pins("requirements.txt").items():
        assert re.fullmatch(r"\d+(\.\w+)+", version), f"{package} has no exact pin"
        assert reason, f"{package} gives no reason"


def test_what_labsupport_imports_is_required_and_pinned():
    project = tomllib.loads(read("pyproject.toml"))["project"]
    assert set(project["dependencies"]) <= set(pins("requirements.txt"))


# The code


def layers():
    """module -> layer, from the table in the package's README."""
    parts = re.split(rf"(?m)^\*\*({'|'.join(LAYERS)})\*\*", read("labsupport/README.md"))[1:]
    found = {}
    for layer, text in zip(parts[::2], parts[1::2], strict=True):
        for module in re.findall(r"`(\w+)`", text):
            assert module in MODULES, f"labsupport/README.md names {module}, which is not there"
            assert module not in found, f"{module} stands there twice"
            found[module] = layer
    missing = sorted(set(MODULES) - set(found))
    assert not missing, f"labsupport/README.md lacks {', '.join(missing)}"
    return found


def test_every_module_has_one_layer():
    assert set(layers().values()) == set(LAYERS)


@pytest.mark.parametrize("module", MODULES)
def test_imports_go_only_downwards(module):
    layer = layers()
    allowed = LAYERS[: LAYERS.index(layer[module]) + 1]
    code = read(f"labsupport/{module}.py")
    for other in imported_modules(code, PACKAGE) - {"__init__"}:
        assert layer[other] in allowed, f"{module} ({layer[module]}) imports {other}"


def test_what_is_measured_has_no_clock_and_no_files():
    forbidden = {"time", "timeit", "datetime", "os", "pathlib", "io", "shutil", "tempfile", "open"}
    for module in (module for module, layer in layers().items() if layer == "measured"):
        names = set()
        for node in ast.walk(ast.parse(read(f"labsupport/{module}.py"))):
            if isinstance(node, ast.Import):
                names |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                names.add((node.module or "").split(".")[0])
            elif isinstance(node, ast.Name):
                names.add(node.id)
        assert not names & forbidden, f"{module} uses {names & forbidden}"


@pytest.mark.parametrize("folder", ["labsupport", "tools", "_ext"])
def test_no_module_is_long(folder):
    for path in (ROOT / folder).glob("*.py"):
        length = len(path.read_text(encoding="utf-8").splitlines())
        assert length <= 250, f"{path.name} has {length} lines"


def test_nothing_is_left_undone_or_names_a_machine():
    words = ["TO" + "DO", "FIX" + "ME", "pytest." + "skip", "mark." + "skip", "mark." + "xfail"]
    words += ["mark." + "skipif", "pytest." + "xfail"]
    roots = ["work", "farm", "root", "tmp/scratch", r"home/\w+", r"Users/\w+"]
    hosts = ["pypi", "pythonhosted", "npmjs", r"deb\.debian", r"anaconda"]
    forbidden = re.compile(
        "|".join(
            [rf"\b{re.escape(word)}\b" for word in words]
            + [rf"(?<![\w.~]){'/'}{root}/" for root in roots]
            + [rf"\b{host}\.(?:org|com)" for host in hosts]
        )
    )
    for name, text in tracked_text():
        if found := forbidden.search(text):
            line = text[: found.start()].count("\n") + 1
            pytest.fail(f"{name}:{line} has {found[0]!r}")
