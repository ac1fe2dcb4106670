"""For pytest: the fixture `lockstep_record` records a torch module, `lockstep_parity` asserts parity.

    def test_my_port(lockstep_record, lockstep_parity):
        trace = lockstep_record(model, lambda: model(ids), gguf="model.gguf")
        lockstep_parity("reference.trace", trace)

`pytest --lockstep-report=FOLDER` keeps the HTML page of each comparison there.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Callable, Optional

import pytest


def pytest_addoption(parser: Any) -> None:
    parser.getgroup("lockstep").addoption(
        "--lockstep-report", metavar="FOLDER", help="write the HTML page of each comparison into this folder"
    )


@pytest.fixture
def lockstep_record(tmp_path: Path) -> "Callable[..., Any]":
    """Records what `call` makes a module compute; gives the trace. Options are those of lockstep.record."""
    import lockstep

    count = 0

    def record(model: Any, call: "Callable[[], Any]", **options: Any) -> "lockstep.Trace":
        nonlocal count
        count += 1
        with lockstep.record(model, tmp_path / f"recorded{count}.trace", **options) as recording:
            call()
        return lockstep.open_trace(recording.folder)

    return record


@pytest.fixture
def lockstep_parity(request: Any) -> "Callable[..., Any]":
    """As lockstep.assert_parity; the failure shows verdict and cause alone."""
    import lockstep

    count = 0

    def parity(reference: Any, suspect: Any, model: Optional[Any] = None, **options: Any) -> "lockstep.Comparison":
        nonlocal count
        __tracebackhide__ = True
        count += 1
        found = lockstep.compare(reference, suspect, model, **options)
        folder = request.config.getoption("--lockstep-report")
        if folder and found.page is not None:
            Path(folder).mkdir(parents=True, exist_ok=True)
            name = re.sub(r"[^\w.-]+", "_", request.node.nodeid)
            name = name.encode("utf-8", "replace")[-200:].decode("utf-8", "ignore")  # a file's name has 255 bytes at most
            Path(folder, f"{name}{f'.{count}' * (count > 1)}.html").write_text(found.page, encoding="utf-8")
        if not found:
            pytest.fail(found.summary(), pytrace=False)
        return found

    return parity
