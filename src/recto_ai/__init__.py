"""The commands `recto` and `recto-ai`.

Another project on the package index is called `recto` and has the same import name. Where both are installed, one has
overwritten files of the other. This package has a name of its own, so that it can report that.
"""

from __future__ import annotations

import sys

__all__ = ["main"]

_IN_THE_WAY = (
    "recto: another package named 'recto' is installed in this environment and has the same import name.\n"
    "No transcript was touched. Remove both packages, then install this one again:\n"
    "  pip uninstall recto recto-ai && pip install recto-ai\n"
)


def main() -> None:
    """Runs the command line, or reports that another package is in the way."""
    try:
        from recto import RectoError  # noqa: F401, PLC0415  # fails where the package is not ours
        from recto.cli.main import main as run  # noqa: PLC0415
    except ImportError:
        if not _is_overwritten():
            raise
        sys.stderr.write(_IN_THE_WAY)
        sys.exit(2)
    run()


def _is_overwritten() -> bool:
    import recto  # noqa: PLC0415

    return not hasattr(recto, "RectoError")
