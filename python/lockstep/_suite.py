"""Suites of cases, as `lockstep check` runs them: `lockstep.check`."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

from ._judge import Fields, data_frame, flags_of, shown_page
from ._program import LockstepError, PathLike, call, operand


class SuiteResults(Fields):
    """What `lockstep check --json` says, each field an attribute (docs/check.md): `results`, `passed`, `failed`, `known`,
    `errors`, `complete`, ... True where every case is in parity or known, and all have run."""

    def __init__(self, data: Mapping[str, Any], page: Optional[str] = None) -> None:
        super().__init__(data)
        self.page = page  # the HTML page

    @property
    def failures(self) -> List[Any]:
        """The results that are neither passed nor known."""
        return [result for result in self["results"] if result.status not in ("passed", "known")]

    def __bool__(self) -> bool:
        return bool(self.data.get("complete")) and self.data.get("failed") == 0

    def to_dataframe(self) -> Any:
        """A row for each result, in the order of the suite; its first defect is `first_defect.checkpoint` and so on."""
        return data_frame(self.data.get("results", []), "results")

    def summary(self) -> str:
        """The counts, and each failure with its reason and its cause, for people."""
        data = self.data
        counts = [f"{data['passed']} passed"]
        counts += [f"{data[name]} {name}" for name in ("known", "failed") if data[name]]
        if data["errors"]:
            counts.append(f"{data['errors']} of them could not be judged")
        lines = [f"{data['name'] or 'suite'}: {len(data['results'])} results: {', '.join(counts)}"]
        if not data["complete"]:
            lines.append(f"Not all cases have run: {data['jobs']} were to.")
        for result in self.failures:
            lines.append(f"{result.status} {result.id}: {result.reason}")
            lines += [f"  Cause: {found['cause']} ({found['proof']}): {found['text']}" for found in result.data["diagnoses"][:1]]
        return "\n".join(lines)

    def assert_parity(self) -> "SuiteResults":
        """AssertionError with the failures and their causes, unless every case is in parity or known."""
        if not self:
            raise AssertionError(self.summary())
        return self

    def __str__(self) -> str:
        return self.summary()

    def __repr__(self) -> str:
        return f"<lockstep.{type(self).__name__}: {self.summary().splitlines()[0]}>"

    def _repr_html_(self) -> str:
        return shown_page(self.page, self.summary())


def check(
    suite: Union[PathLike, Sequence[PathLike], None] = None,
    *,
    model: Optional[PathLike] = None,
    against: Optional[PathLike] = None,
    merge: bool = False,
    **options: Any,
) -> SuiteResults:
    """Runs a suite, a TOML file (docs/check.md), or one `model` `against` an engine, a trace or a command.

    merge=True: `suite` is a list of files instead, the results of all parts. Options are those of `lockstep check`:
    part="2/8", json, junit, out, baseline, goldens, cache, no_cache, min_coverage, prompt, tokens, max_tokens, ... .
    LockstepError where the suite cannot be read; a case that fails is a result.
    """
    try:
        files = [suite] if isinstance(suite, (str, os.PathLike)) else list(suite or ())
    except TypeError:
        raise TypeError(f"check: suite={suite!r}; expected the file of a suite, or a list of files with merge=True") from None
    with tempfile.TemporaryDirectory(prefix="lockstep-") as folder:
        kept: Dict[str, Any] = {"json": Path(folder) / "results.json", "html": Path(folder) / "page.html"}
        kept.update((name, options[name]) for name in kept if options.get(name) is not None)
        given = {"model": model, "against": against, "merge": merge, **options, **kept}
        call(["check", *map(operand, files), *flags_of(given)], good=(0, 1))
        try:
            found = json.loads(Path(kept["json"]).read_text(encoding="utf-8"))
            page = Path(kept["html"]).read_text(encoding="utf-8")
        except (OSError, ValueError) as problem:
            raise LockstepError(f"lockstep check left no results: {problem}") from problem
        return SuiteResults(found, page)
