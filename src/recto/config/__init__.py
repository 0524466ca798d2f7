"""Settings: one tree, read in one place.

Each layer overrides the one before: defaults, a YAML file, environment variables, arguments. The environment variable
of a setting is `RECTO_` plus its name in capitals, with two underscores between levels: `RECTO_LIMITS__MESSAGE_BYTES`.
Unknown keys are refused, and the error names the nearest known key.
"""

from recto.config.loader import FILES, load, settings_files
from recto.config.settings import Settings, WindowSettings

__all__ = ["FILES", "Settings", "WindowSettings", "load", "settings_files"]
