"""The built book on loopback, as a web host serves it.

Text goes out compressed, files may be cached, an address that does not exist answers with the
book's own 404 page, and the book lies below the path that `html.baseurl` of _config.yml names. So a
link that works here works on the web, and sizes are those that a reader's line carries.
"""

import functools
import gzip
import http.server
import mimetypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit

import yaml

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".ipynb": "application/x-ipynb+json",
    ".svg": "image/svg+xml",
    ".xml": "application/xml",
    ".md": "text/plain; charset=utf-8",
    ".txt": "text/plain; charset=utf-8",
    ".woff2": "font/woff2",
}
TEXTS = {".html", ".css", ".js", ".json", ".ipynb", ".svg", ".xml", ".md", ".txt", ".inv"}


def base_path(root: Path) -> str:
    """The path below which the book is published: "/", or "/name/"."""
    config = yaml.safe_load((root / "_config.yml").read_text(encoding="utf-8"))
    return urlsplit(config["html"]["baseurl"]).path.rstrip("/") + "/"


@functools.lru_cache(maxsize=2000)
def compressed(file: Path, changed_ns: int) -> bytes:
    """The file's content, gzip-compressed. A file that changed is read again."""
    return gzip.compress(file.read_bytes(), compresslevel=6, mtime=0)


class BookHandler(http.server.BaseHTTPRequestHandler):
    """Answers requests for files of `folder`, which are addressed below `path`."""

    protocol_version = "HTTP/1.1"  # connections stay open, as on the web

    def __init__(self, *args, folder: Path, path: str):
        self.folder, self.base = folder, path
        super().__init__(*args)

    def wanted(self) -> Path | None:
        """The file that is asked for, if there is one."""
        path = unquote(urlsplit(self.path).path)
        if not path.startswith(self.base):
            return None
        file = (self.folder / path.removeprefix(self.base)).resolve()
        file = file / "index.html" if path.endswith("/") else file
        return file if file.is_file() and file.is_relative_to(self.folder) else None

    def do_GET(self):
        file, missing = self.wanted(), self.folder / "404.html"
        status = 200 if file else 404
        file = file or (missing if missing.is_file() else None)
        body, kind, packed = b"", "text/plain", False
        if file:
            kind = TYPES.get(file.suffix) or mimetypes.guess_type(file.name)[0]
            accepted = "gzip" in self.headers.get("Accept-Encoding", "")
            packed = file.suffix in TEXTS and accepted
            changed = file.stat().st_mtime_ns
            body = compressed(file, changed) if packed else file.read_bytes()
        self.send_response(status)
        self.send_header("Content-Type", kind or "application/octet-stream")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "max-age=600")
        if packed:
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET

    def log_message(self, *args):
        """Write no log."""


@contextmanager
def serve(folder: Path, path: str = "/") -> Iterator[str]:
    """The address of the files in `folder`, served until the block ends. It ends without "/"."""
    handler = functools.partial(BookHandler, folder=folder.resolve(), path=path)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}{path.rstrip('/')}"
    finally:
        server.shutdown()
        server.server_close()
