"""What a worker does not let anyone do to it: names that are not its own, memory without bounds, all places taken."""

import json
import pathlib
import sys
import unittest

from worker import Worker, check_order

PROGRAM = str(pathlib.Path(sys.argv.pop(1)).resolve())
HAIKU = "GPU haiku with word seven: "


def setUpModule():
    global WORKER
    WORKER = Worker(PROGRAM)


def tearDownModule():
    WORKER.kill()


def answer_to(worker, *pieces):
    """(status, code of the error or None) of what is sent, piece by piece."""
    answer = b""
    with worker.connect() as connection:
        try:
            for piece in pieces:
                connection.sendall(piece)
        except (BrokenPipeError, ConnectionResetError):
            pass  # refused before all was sent
        try:
            while piece := connection.recv(65536):
                answer += piece
        except ConnectionResetError:
            pass
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head[9:12]), json.loads(body)["error"]["code"] if b'{"error"' in body else None


def get(path, *headers, version="1.1"):
    return "\r\n".join([f"GET {path} HTTP/{version}", *headers, "Connection: close", "", ""]).encode()


class Requests(unittest.TestCase):
    def tearDown(self):
        self.assertEqual(check_order(WORKER.run("after", HAIKU))[0], "end")

    def test_names_that_are_not_its_own(self):
        for host in ("localhost", f"LocalHost:{WORKER.port}", "127.0.0.1", f"127.0.0.2:{WORKER.port}", "[::1]:1"):
            self.assertEqual(answer_to(WORKER, get("/health", f"Host: {host}")), (200, None), host)
        for host in ("evil.example", f"evil.example:{WORKER.port}", "localhost.evil.example", "0.0.0.0", "192.0.2.1", "", "localhost, evil.example"):
            for path in ("/health", "/", "/metrics", "/nothing"):
                self.assertEqual(answer_to(WORKER, get(path, f"Host: {host}")), (403, "HOST_NOT_ALLOWED"), (host, path))
            # A page of that name: to its browser, the server is of its own origin.
            head = f"POST /shutdown HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\nContent-Length: 2\r\n\r\n{{}}"
            self.assertEqual(answer_to(WORKER, head.encode()), (403, "HOST_NOT_ALLOWED"), host)
        self.assertEqual(WORKER.get("/health")["status"], "ok")

    def test_names_that_were_allowed(self):
        with Worker(PROGRAM, "--allow-host", "box.example", "--allow-host", "192.0.2.7") as worker:
            for host, status in (("box.example:80", 200), ("192.0.2.7", 200), ("localhost", 200), ("a.box.example", 403), ("192.0.2.8", 403)):
                self.assertEqual(answer_to(worker, get("/health", f"Host: {host}"))[0], status, host)
        with Worker(PROGRAM, "--host", "0.0.0.0") as worker:
            worker.host = "127.0.0.1"
            self.assertEqual(answer_to(worker, get("/health", "Host: any.example"))[0], 200)
        with Worker(PROGRAM, "--host", "0.0.0.0", "--allow-host", "box.example") as worker:
            worker.host = "127.0.0.1"
            for host, status in (("box.example", 200), ("192.0.2.7", 200), ("any.example", 403)):
                self.assertEqual(answer_to(worker, get("/health", f"Host: {host}"))[0], status, host)

    def test_requests_that_can_be_read_in_two_ways(self):
        self.assertEqual(answer_to(WORKER, get("/health")), (400, "BAD_REQUEST"))
        self.assertEqual(answer_to(WORKER, get("/health", version="1.0")), (200, None))
        for version in ("1.0", "1.1"):
            for second in ("localhost", "evil.example"):
                self.assertEqual(answer_to(WORKER, get("/health", "Host: localhost", f"Host: {second}", version=version)), (400, "BAD_REQUEST"))
        for coding in ("gzip", "identity", "gzip, chunked", "chunked, chunked", "xchunked", "", "chunked\r\nTransfer-Encoding: chunked",
                       "chunked\r\nContent-Length: 5", "gzip\r\nTransfer-Encoding: chunked"):
            head = f"POST /cancel HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: {coding}\r\n\r\n"
            body = b'10\r\n{"job_id": "abc"}\r\n0\r\n\r\n'
            self.assertEqual(answer_to(WORKER, head.encode() + body), (400, "BAD_REQUEST"), coding)
        head = b"POST /cancel HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"
        self.assertEqual(answer_to(WORKER, head + b"0\r\n\r\n"), (400, "BAD_REQUEST"))


if __name__ == "__main__":
    unittest.main()
