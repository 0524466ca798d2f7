"""Puts together whoever is told how turns go, as the settings say: a log, a webhook, OpenTelemetry, Prometheus.

Beside `wiring`, so that a session without any of them loads none of this.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from recto.errors import SettingsError
from recto.models.registry import Registry
from recto.ports import HealthSink
from recto.settings import Settings

if TYPE_CHECKING:
    from recto.telemetry.metrics import Metrics


def sinks_for(settings: Settings) -> list[HealthSink]:
    """Who is told how turns go, as the settings say. Whoever asks for them closes those that can be closed."""
    given = settings.health
    sinks: list[HealthSink] = []
    if given.log:
        from recto.telemetry.logs import Log  # noqa: PLC0415  # each only for who wants it

        sinks.append(Log(given.log, text=given.log_text))
    if given.webhook.url:
        from recto.models.posting import Posting  # noqa: PLC0415
        from recto.telemetry.webhook import CONTENT_TYPE, Webhook  # noqa: PLC0415

        hook = given.webhook
        post = Posting(
            hook.url, setting="health.webhook", key=hook.key, seconds=hook.seconds, content_type=CONTENT_TYPE
        )
        sinks.append(Webhook(post, let_go=post.close))
    if given.telemetry:
        try:
            from recto.telemetry.otel import Telemetry  # noqa: PLC0415
        except ImportError:
            raise SettingsError("health.telemetry", "needs a package: pip install 'recto[telemetry]'") from None
        registry = Registry(overrides=settings.models)
        sinks.append(
            Telemetry(
                provider_of=lambda name: registry.card(name, warn=False).provider,
                known_model=lambda name: registry.card(name, warn=False).known,
            )
        )
    return sinks


def metrics_for(settings: Settings, sinks: Sequence[HealthSink] = ()) -> Metrics:
    """Metrics for Prometheus, in which only known models have names, and what the other sinks lose is counted."""
    from recto.telemetry.metrics import Metrics  # noqa: PLC0415

    registry = Registry(overrides=settings.models)
    metrics = Metrics(known_model=lambda name: registry.card(name, warn=False).known)
    for sink in sinks:
        metrics.watch(sink)
    return metrics
