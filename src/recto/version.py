"""The version of this package, and the name it is installed by."""

__version__ = "0.1.0"
DISTRIBUTION = "recto-ai"
"""The name on the package index; `recto` there is another project. The import name and the command are `recto`."""


def install_command(*extras: str) -> str:
    """Returns the command that installs this package, with extras."""
    return f"pip install '{DISTRIBUTION}[{','.join(extras)}]'" if extras else f"pip install {DISTRIBUTION}"
