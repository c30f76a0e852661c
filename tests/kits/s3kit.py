"""A real S3 server for tests (versitygw over a directory), and a proxy in front of it that loses or holds answers."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import os
import re
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from raftlake.runtime.free_ports import free_ports
from raftlake.tier.calls import TierSettings
from waitkit import wait_until

ROOT = Path(__file__).resolve().parent.parent.parent
PATIENCE_SECONDS = 120.0
KEY, SECRET, BUCKET = "tester", "tester-secret", "bucket"
#: The put of a commit.
COMMIT = re.compile(r"/_delta_log/\d{20}\.json")


@contextlib.contextmanager
def s3_server(place: Path) -> Iterator[int]:
    """The port of a server whose one bucket is empty."""
    found = sorted((ROOT / ".cache").glob("versitygw-*/versitygw"))
    if not found:
        pytest.fail("versitygw is missing: run tools/fetch-versitygw")
    (place / BUCKET).mkdir(parents=True)
    (port,) = free_ports("127.0.0.1", 1)
    environment = os.environ | {"ROOT_ACCESS_KEY": KEY, "ROOT_SECRET_KEY": SECRET}
    command = [str(found[-1]), "--port", f"127.0.0.1:{port}", "--region", "us-east-1", "--quiet", "posix", str(place)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            wait_until(lambda: server.poll() is None and answers(port), "versitygw listens", PATIENCE_SECONDS)
            yield port
        finally:
            server.kill()


def answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


def s3_settings(port: int, prefix: str, **options: str) -> TierSettings:
    """Tables below a prefix of the bucket."""
    return TierSettings(
        uri=f"s3://{BUCKET}/{prefix}",
        cluster_id="cluster",
        storage_options={
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "false",
            "AWS_CONDITIONAL_PUT": "etag",
        }
        | options,
    )


class Proxy:
    """Passes requests on, but for what a test asks of the puts of commits."""

    def __init__(self, port: int) -> None:
        self._server_port = port
        #: So many answers to puts of commits are lost after the put.
        self.lose = 0
        #: Hold the next put of a commit back, until it is released.
        self.hold = False
        self.held = threading.Event()
        self.release = threading.Event()
        #: What the store answered to the puts of commits.
        self.statuses: list[int] = []
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: object) -> None:
                """Tests say what went wrong."""

            def handle_any(self) -> None:
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    proxy._pass_on(self)

            do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = handle_any

        self._listener = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._listener.daemon_threads = True
        self.port: int = self._listener.server_address[1]
        self._thread = threading.Thread(target=self._listener.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self.release.set()
        self._listener.shutdown()
        self._listener.server_close()
        self._thread.join()

    def _pass_on(self, request: http.server.BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers.get("Content-Length", 0)))
        is_commit = request.command == "PUT" and COMMIT.search(request.path) is not None
        if is_commit and self.hold:
            self.hold = False
            self.held.set()
            assert self.release.wait(PATIENCE_SECONDS)
        connection = http.client.HTTPConnection("127.0.0.1", self._server_port)
        with contextlib.closing(connection):
            # The signature covers the name of the host.
            connection.putrequest(request.command, request.path, skip_host=True, skip_accept_encoding=True)
            for name, value in request.headers.items():
                connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            content = answer.read()
        if is_commit:
            self.statuses.append(answer.status)
            if self.lose:
                self.lose -= 1
                request.close_connection = True
                return
        request.send_response_only(answer.status, answer.reason)
        for name, value in answer.getheaders():
            if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                request.send_header(name, value)
        length = answer.getheader("Content-Length") if request.command == "HEAD" else str(len(content))
        request.send_header("Content-Length", length or "0")
        request.end_headers()
        request.wfile.write(content)


@contextlib.contextmanager
def proxy_to(port: int) -> Iterator[Proxy]:
    proxy = Proxy(port)
    try:
        yield proxy
    finally:
        proxy.close()
