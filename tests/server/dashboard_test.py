"""The dashboard over HTTP: by `lockstep dashboard`, and as a page of the worker.

usage: dashboard_test.py PROGRAM
"""

import http.client
import json
import re
import signal
import subprocess
import sys
import tempfile
import threading
import unittest
from pathlib import Path

import worker

PROGRAM = str(Path(sys.argv.pop(1)).resolve())


def document(number, status="passed", **more):
    result = {"id": "c/0/x", "index": 0, "key": "k", "case": "c", "model": "m", "reference": "reference", "suspect": "x", "status": status, "verdict": "v",
              "parity": status == "passed", "seconds": 1, "engine_seconds": 1, **more}
    return {"format": "lockstep-check", "version": 1, "name": "nightly", "time": f"2026-01-01T{number:02}:00:00Z", "seconds": 1, "suite": "s", "jobs": 1, "complete": True,
            "reports": "../failed", "results": [result]}


class Server:
    """`lockstep dashboard` without --out."""

    def __init__(self, *arguments):
        self.process = subprocess.Popen([PROGRAM, "dashboard", *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        self.host, port = re.search(r"http://(\S+):(\d+)", line).groups()
        self.port = int(port)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()

    request = worker.Worker.request


def data_of(body):
    return json.loads(re.search(rb'id="data">(.*?)</script>', body, re.S)[1])


class Dashboard(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.root = Path(holder.name)
        self.runs = self.root / "my runs"
        self.runs.mkdir()
        (self.root / "failed/c").mkdir(parents=True)
        (self.root / "failed/c/report.html").write_text("<!doctype html>a report")
        (self.root / "secret").mkdir()
        (self.root / "secret/report.html").write_text("secret")
        self.add("1 a%?.json", document(1))
        self.add("2 ü.json", document(2, "failed", report="c/report.html"))

    def add(self, name, text):
        (self.runs / name).write_text(text if isinstance(text, str) else json.dumps(text))

    def try_pages(self, server, page):
        status, headers, body = server.request("GET", page)
        self.assertEqual(status, 200)
        self.assertIn("default-src 'none'", headers["content-security-policy"])
        self.assertEqual(headers["content-type"], "text/html; charset=utf-8")
        data = data_of(body)
        self.assertEqual([run["file"] for run in data["runs"]], ["1 a%?.json", "2 ü.json"])
        link = data["runs"][1]["results"][0][10]
        self.assertTrue(link.startswith(page.rstrip("/") + "/reports/"), link)
        status, headers, body = server.request("GET", link)
        self.assertEqual((status, body), (200, b"<!doctype html>a report"))
        self.assertIn("sandbox allow-scripts", headers["content-security-policy"], "a report may not act as the server")
        # The next request sees what is new, broken or gone.
        self.add("3.json", document(3, "failed", report="../secret/report.html"))
        self.add("4.json", "{")
        (self.root / "failed/c/report.html").unlink()
        data = data_of(server.request("GET", page)[2])
        self.assertEqual([[result[10] for result in run["results"]] for run in data["runs"]], [[None]] * 3)
        self.assertEqual([file["file"] for file in data["unreadable"]], ["4.json"])
        self.assertEqual(server.request("GET", link)[0], 404)
        for path in ("3.json/0", "2%20%C3%BC.json/1", "../../secret/report.html", "%2e%2e/secret/report.html", ""):
            self.assertEqual(server.request("GET", page.rstrip("/") + "/reports/" + path)[0], 404, path)
        status, headers, _ = server.request("POST", page)
        self.assertEqual((status, headers["allow"]), (405, "GET, HEAD"))
        status, headers, body = server.request("HEAD", page)
        self.assertEqual((status, body), (200, b""))
        self.assertEqual(server.request("GET", page, headers={"Host": "evil.example"})[0], 403)

    def test_by_itself(self):
        with Server(self.runs) as server:
            self.assertEqual(server.host, "127.0.0.1")
            self.try_pages(server, "/")
            self.assertEqual(server.request("GET", "/health")[0], 404)
            server.process.send_signal(signal.SIGTERM)
            self.assertEqual(server.process.wait(worker.PATIENCE_S), 0)

    def test_as_a_page_of_the_worker(self):
        with worker.Worker(PROGRAM, "--history", str(self.runs)) as served:
            self.try_pages(served, "/dashboard")
            self.assertEqual(served.request("GET", "/health")[0], 200)
            self.assertIn(b'endpoint="/dashboard",status="405"} 1', served.request("GET", "/metrics")[2])
            self.assertEqual(served.stop()[0], 0)
        with worker.Worker(PROGRAM) as served:
            self.assertEqual(served.request("GET", "/dashboard")[0], 404)

    def test_many_at_a_time(self):
        with Server(self.runs) as server:
            statuses = []
            threads = [threading.Thread(target=lambda: statuses.append(server.request("GET", "/")[0])) for _ in range(60)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(len(statuses), 60)
            self.assertLessEqual(set(statuses), {200, 503})
            self.assertIn(200, statuses)
            # A client that goes away before its answer harms nobody.
            connection = http.client.HTTPConnection(server.host, server.port)
            connection.request("GET", "/")
            connection.close()
            self.assertEqual(server.request("GET", "/")[0], 200)

    def test_wrong_use(self):
        for arguments in ([self.root / "none"], [self.root / "failed/c/report.html"], [], [self.runs, "--out", self.root / "o", "--port", "1"], [self.runs, "--port", "x"]):
            done = subprocess.run([PROGRAM, "dashboard", *map(str, arguments)], capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertNotEqual(done.stderr, "")
        done = subprocess.run([PROGRAM, "serve", "--history", str(self.root / "none")], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 2)
        self.assertIn("expected one that check --history wrote", done.stderr)


if __name__ == "__main__":
    unittest.main()
