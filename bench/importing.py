"""Measures how fast whole session files are imported, exported and verified.
The files are a made-up session, recorded agent sessions, and the public data sets tau-bench and LongMemEval. An import
includes counting the tokens and storing durably.
"""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import closing
from pathlib import Path

from bench.measure import row, seconds
from recto.config import load
from recto.config.factory import make_importer, open_store
from recto.engine.exporter import export_recto
from recto.engine.verification import verify
from recto.testing import scripted_session

DATA = Path(os.environ.get("RECTO_TEST_DATA", "../shared/data"))


def run(quick: bool) -> list[dict]:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        rows = []
        for name, files in sets(place, quick).items():
            rows += measured(name, files, place / f"{name.replace(' ', '-')}.db")
        return rows


def sets(place: Path, quick: bool) -> dict[str, list[Path]]:
    made = place / "made.json"
    made.write_text(json.dumps(list(scripted_session(exchanges=200 if quick else 2000))))
    found = {"made-up session": [made]}
    if DATA.is_dir() and not quick:
        found["agent sessions"] = sorted(DATA.glob("agent_sessions/*/*.jsonl"))
        found["tau-bench"] = [DATA / "taubench" / "gpt-4o-airline.json"]
        found["LongMemEval"] = [DATA / "longmemeval_oracle" / "longmemeval_oracle.json"]
    return found


def measured(name: str, files: list[Path], path: Path) -> list[dict]:
    size = sum(file.stat().st_size for file in files) / 1e6
    settings = load(environ={}, arguments={"store": str(path), "model": "gpt-4o"})
    with closing(open_store(settings)) as store:
        importer = make_importer(settings, store)

        def take() -> None:
            for file in files:
                importer.import_file(file)

        took = seconds(take)
        sessions = [summary.session for summary in store.sessions()]
        out = path.with_suffix(".jsonl")

        def give() -> None:
            with out.open("wb") as stream:
                stream.writelines(export_recto(store, sessions))

        gave = seconds(give)
        checked = seconds(lambda: verify(store))
        entries = sum(summary.entries for summary in store.sessions())
    return [
        row(f"import {name}", size / took, "MB/s", f"{size:.1f} MB, {entries:,} entries, counted with o200k", 1),
        row(f"export {name}", out.stat().st_size / 1e6 / gave, "MB/s", "as Recto JSONL", 1),
        row(f"verify {name}", entries / checked, "entries/s"),
    ]
