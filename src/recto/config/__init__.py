"""One tree of settings, read in one place.

Each layer overrides the one before: defaults, a YAML file, environment variables, arguments. In the environment a
setting is `RECTO_` and its name in capitals, with two underscores between levels: `RECTO_LIMITS__MESSAGE_BYTES`.
A key nobody knows is refused, and the nearest known key is named.
"""

from recto.config.loader import FILES, load, settings_file
from recto.config.settings import Settings, WindowSettings

__all__ = ["FILES", "Settings", "WindowSettings", "load", "settings_file"]
