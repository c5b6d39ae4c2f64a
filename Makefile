# `make book` and `make test` are all a newcomer needs; each sets up .venv first.
# Without make (Windows, say) see README.md: every rule below is a line or two of plain Python.
PYTHON ?= python3
PORT ?= 8000
VENV_PYTHON := $(if $(filter Windows_NT,$(OS)),.venv/Scripts/python.exe,.venv/bin/python)

.PHONY: book test lint lab exercises lighthouse serve env clean

book: env           ## execute what changed and build _build/html
	$(VENV_PYTHON) tools/build.py

test: lint book     ## everything: lint, the book, every test
	$(VENV_PYTHON) -m pytest

lint: env
	$(VENV_PYTHON) -m ruff check .
	$(VENV_PYTHON) -m ruff format --check .

lab: env            ## the lessons as notebooks
	$(VENV_PYTHON) -m jupyter lab $(LAB_ARGS)

exercises: env      ## after a change to a master: run it, write the student version
	$(VENV_PYTHON) tools/exercises.py run
	$(VENV_PYTHON) tools/exercises.py student

lighthouse: book    ## scores of the pages, as a table: make lighthouse PAGES="index chapters/memory"
	$(VENV_PYTHON) tools/lighthouse.py $(PAGES)

serve: book         ## read the built book at http://127.0.0.1:$(PORT)
	$(VENV_PYTHON) -m http.server $(PORT) --bind 127.0.0.1 --directory _build/html

env:                ## .venv, made again only when requirements change
	$(PYTHON) tools/setup_env.py

clean:              ## remove what was built; .venv stays
	$(PYTHON) -c "import shutil; shutil.rmtree('_build', ignore_errors=True)"
