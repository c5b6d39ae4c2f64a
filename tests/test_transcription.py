"""Transcribed evidence is sealed and audited like a run, and git leaves every byte of it alone."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import sample_run

from labsupport import audit, evidence, seal

ROOT = Path(__file__).resolve().parents[1]
LOG = b"[START] 12:00\r\n[STEP] one\r\n[STEP] two\r\n[STOP]\r\n"  # as its machine printed it


@pytest.fixture
def transcription(tmp_path):
    """A sealed transcription: a log, its table, a manifest."""
    directory = tmp_path / "evidence" / "log"
    directory.mkdir(parents=True)
    (directory / "log.txt").write_bytes(LOG)
    (directory / "steps.csv").write_bytes(b"line,tag,at\n2,STEP,one\n3,STEP,two\n")
    files = {"log.txt": "the log", "steps.csv": "its steps"}
    manifest = {"schema": 1, "kind": "transcription", "source": "a log", "files": files}
    (directory / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    evidence.seal_files(directory)
    return directory


def test_a_transcription_is_sealed_and_audited(transcription):
    assert evidence.audit(transcription) == audit.Audit(audit.INTACT, [], [])
    with pytest.raises(FileExistsError, match="delete it first"):
        evidence.seal_files(transcription)
    for name, old, new, place in [
        ("log.txt", b"one", b"0ne", (2, None)),
        ("steps.csv", b"two", b"tvo", (3, "at")),
        ("manifest.json", b"its steps", b"the steps", (None, 'files["steps.csv"]')),
    ]:
        file, content = transcription / name, (transcription / name).read_bytes()
        file.write_bytes(content.replace(old, new, 1))
        (problem,) = evidence.audit(transcription).problems
        assert (problem.file, problem.row, problem.column) == (name, *place)
        file.write_bytes(content)


@pytest.mark.parametrize("sources", [["a"], "a", None, 3])
def test_sources_of_another_kind_are_answered(transcription, sources):
    reseal(transcription, sources=sources)
    (problem,) = evidence.audit(transcription).problems
    assert (problem.file, problem.column) == ("manifest.json", "sources")


@pytest.mark.parametrize("name", ["x" * 5000, "a\0b", "\ud800", "", ".", "/", "../" * 40])
def test_sources_no_file_can_have_are_gone(transcription, name):
    reseal(transcription, sources={name: "0"})
    assert evidence.audit(transcription) == audit.Audit(audit.OTHER_CODE, [], [name])


def reseal(directory: Path, **changes) -> None:
    """Change the manifest and make a seal that vouches for it."""
    manifest = json.loads((directory / "manifest.json").read_bytes()) | changes
    (directory / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    files = sample_run.contents(directory)
    del files[seal.SEAL]
    (directory / seal.SEAL).write_bytes(seal.make(files))


def test_a_run_is_not_sealed_anew(tmp_path):
    run = sample_run.write(tmp_path / "run")
    (run / seal.SEAL).unlink()
    with pytest.raises(ValueError, match="transcription"):
        evidence.seal_files(run)
    assert not (run / seal.SEAL).exists()


@pytest.mark.parametrize("change", ["extra", "lost", "kind", "json"])
def test_a_directory_unlike_its_manifest_is_not_sealed(transcription, change):
    (transcription / "seal.json").unlink()
    manifest = transcription / "manifest.json"
    if change == "extra":
        (transcription / "more.txt").write_bytes(b"x")
    elif change == "lost":
        (transcription / "log.txt").unlink()
    elif change == "kind":
        manifest.write_bytes(manifest.read_bytes().replace(b'"transcription"', b'"run"'))
    else:
        manifest.write_bytes(manifest.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"more\.txt|log\.txt|transcription"):
        evidence.seal_files(transcription)
    assert not (transcription / seal.SEAL).exists()


def test_git_converts_no_evidence(transcription):
    """Through commit and checkout with line end conversion on, as on Windows."""
    top = transcription.parents[1]
    shutil.copy(ROOT / ".gitattributes", top)
    sample_run.write(top / "evidence" / "run")

    def git(*arguments):
        settings = ["-c", "core.autocrlf=true", "-c", "core.safecrlf=false"]
        settings += ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        subprocess.run(["git", *settings, *arguments], cwd=top, check=True, capture_output=True)

    git("init")
    git("add", ".")
    git("commit", "-m", "evidence")
    shutil.rmtree(top / "evidence")
    git("checkout", "--", "evidence")
    assert (transcription / "log.txt").read_bytes() == LOG
    assert evidence.audit(transcription).status == audit.INTACT
    assert evidence.audit(top / "evidence" / "run").status == audit.INTACT
