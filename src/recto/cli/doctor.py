"""`recto doctor`: checks of settings, models, disk, permissions, clock, store, index and network."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import click
import yaml
from rich.text import Text

from recto.cli._common import is_default_store
from recto.cli.console import out, print_json, progress, safe
from recto.config import Settings, settings_files
from recto.config.factory import (
    MEMORY_STORE,
    SystemClock,
    make_chat_model,
    make_indexer,
    model_card,
    open_replica,
    open_store,
    uses_postgres,
)
from recto.config.loader import parse_settings
from recto.config.modes import make_budget, make_relief_rules
from recto.engine.doctor import (
    Address,
    CheckFinding,
    accessible_to_others,
    check_clock,
    check_disk,
    check_endpoints,
    check_permissions,
    run_check,
    worst_first,
)
from recto.errors import RectoError, SettingsError, StoreError, StoreMissing
from recto.tokens.meter import Tokenizers

if TYPE_CHECKING:
    from recto.transcript.protocols import TranscriptStore


Check: TypeAlias = Callable[[], Iterable[CheckFinding]]

_SUFFIXES = ("", "-wal", "-shm", "-heads", "-lock", "-recall", "-recall-wal", "-recall-shm", "-recall-lock", "-memory")
_LOCK_SECONDS = 2.0
_SECONDS = 5.0
_MIN_INPUT_BUDGET = 2_000
"""Tokens below which a prompt holds hardly more than its question."""
_LOOPBACK = ("127.", "localhost", "::1")
_MAX_SETTINGS_BYTES = 1 << 20


def settings_checks(settings: Settings, config: str | None, *, offline: bool) -> Iterator[tuple[str, Check]]:
    """Yields every check that needs no store, with its subject."""
    yield "settings", lambda: check_settings_files(config)
    yield "settings", lambda: window(settings)
    yield "settings", lambda: named_files(settings)
    yield "settings", lambda: gateway(settings)
    yield "models", lambda: models(settings)
    if settings.store != MEMORY_STORE and not uses_postgres(settings):
        yield "disk", lambda: disk_space(settings)
        yield "rights", lambda: check_permissions(_files(settings))
        yield "rights", lambda: lock(settings)
    if not offline:
        yield "reach", lambda: check_endpoints(addresses(settings))


def store_checks(settings: Settings, store: TranscriptStore, *, offline: bool) -> Iterator[tuple[str, Check]]:
    """Yields every check that reads the store."""
    yield "clock", lambda: check_clock(SystemClock(), store.sessions())
    if settings.replica.url and not offline:
        yield "replica", lambda: replica(settings, store)


def replica(settings: Settings, store: TranscriptStore) -> Iterator[CheckFinding]:
    """Checks how far the replica is behind."""
    opened = open_replica(settings, store)
    if opened is None:
        return
    with closing(opened):
        opened.look()
        behind, allowed = opened.behind, settings.replica.staleness_seconds
        if opened.age() is not None:
            says = f"{opened.location}: at most {behind:.1f} s behind; it may be {allowed:g} s"
            yield CheckFinding(grade="fine", about="replica", says=says)
            return
        late = f"{opened.location}: it has not replayed what the store had written a moment ago"
        cure = "see to the replica; until then the store itself is read"
        yield CheckFinding(grade="problem", about="replica", says=opened.fault or late, cure=cure)


def check_settings_files(config: str | None) -> Iterator[CheckFinding]:
    """Reports which files were read, and checks that their secrets are readable by the owner alone."""
    files = settings_files(config)
    if not files:
        yield CheckFinding(grade="fine", about="settings", says="no settings file: defaults, environment and arguments")
    for file in files:
        yield _settings_file(file)
        for note in parse_settings(file, file.read_bytes()).notes:
            yield CheckFinding(grade="note", about="settings", says=note)


def _settings_file(file: Path) -> CheckFinding:
    secrets = list(_keys_in(yaml.safe_load(file.read_bytes()[:_MAX_SETTINGS_BYTES])))
    mode = file.stat().st_mode
    if secrets and mode & 0o044 and accessible_to_others(file):
        says = f"'{file}' holds {', '.join(secrets)} and can be read by other users of this machine"
        cure = f"chmod 600 '{file}', or give keys in the environment: RECTO_{secrets[0].upper().replace('.', '__')}"
        return CheckFinding(grade="problem", about="settings", says=says, cure=cure)
    return CheckFinding(grade="fine", about="settings", says=f"read from '{file}'")


def _keys_in(tree: object, path: str = "") -> Iterator[str]:
    """Yields the names of settings that hold a secret."""
    for name, value in tree.items() if isinstance(tree, Mapping) else ():
        where = f"{path}{name}"
        if name == "key" and isinstance(value, str) and value:
            yield where
        else:
            yield from _keys_in(value, f"{where}.")


def window(settings: Settings) -> Iterator[CheckFinding]:
    """Checks that the model is known and leaves an input budget."""
    card = model_card(settings, warn=False)  # reported as a finding
    if not settings.model:
        says = f"no model is named, so its window is taken to be {card.window:,} tokens"
        yield CheckFinding(grade="note", about="settings", says=says, cure="set 'model', such as RECTO_MODEL=gpt-4o")
    elif not card.known:
        says = f"model '{settings.model}' is not known; its window is taken to be {card.window:,} tokens"
        cure = f"set 'models: {{{settings.model}: {{window: …, max_output: …, tokenizer: …}}}}'"
        yield CheckFinding(grade="problem", about="settings", says=says, cure=cure)
    budget = make_budget(settings.window, card)
    make_relief_rules(settings, budget, card)
    Tokenizers(settings.tokenizers).meter_for(card)
    if budget.input_budget < _MIN_INPUT_BUDGET:
        says = (
            f"of a window of {card.window:,} tokens, {budget.reserve:,} are kept for the answer: "
            f"{budget.input_budget:,} left"
        )
        cure = "lower 'window.reserve', or use a model with a larger window"
        yield CheckFinding(grade="problem", about="settings", says=says, cure=cure)
    elif card.known:
        name = settings.model or "the model"
        yield CheckFinding(
            grade="fine", about="settings", says=f"{name}: prompts may have {budget.input_budget:,} tokens"
        )
    if settings.window.reserve > card.max_output:
        says = f"window.reserve is {settings.window.reserve:,}, but the model answers with at most {card.max_output:,}"
        cure = f"set 'window.reserve' to at most {card.max_output}"
        yield CheckFinding(grade="problem", about="settings", says=says, cure=cure)
    if not settings.recall.enabled and settings.window.mode == "sliding_window":
        says = "recall is off: what leaves the prompt is kept, but does not come back by itself"
        yield CheckFinding(grade="note", about="settings", says=says, cure="set 'recall.enabled' to true")


def named_files(settings: Settings) -> Iterator[CheckFinding]:
    """Checks that files and folders of the settings exist and are usable."""
    for name in settings.standing.files:
        if not Path(name).expanduser().is_file():
            says = f"standing.files names '{name}', which is not there"
            yield CheckFinding(
                grade="problem", about="settings", says=says, cure="make it, or take it out of 'standing.files'"
            )
    folders = {"memory.folder": settings.memory.folder, "continuity.folder": settings.continuity.folder}
    if settings.health.log not in ("", "stderr"):
        folders["health.log"] = str(Path(settings.health.log).expanduser().parent)
    for setting, name in folders.items():
        if name and not _usable(Path(name).expanduser()):
            says = f"{setting}: nothing can be written in '{name}'"
            yield CheckFinding(
                grade="problem", about="settings", says=says, cure=f"mkdir -p '{name}', or set '{setting}'"
            )


def _usable(folder: Path) -> bool:
    """Returns whether files can be created in a folder; a missing folder is created when it is needed."""
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    return existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)


def gateway(settings: Settings) -> Iterator[CheckFinding]:
    """Checks that the gateway is not reachable by more than intended, and that its keys are set."""
    options = settings.gateway
    if not options.host.startswith(_LOOPBACK) and not options.hosts:
        says = f"the gateway listens on {options.host}, but no name is known that requests may be addressed to"
        cure = "set 'gateway.hosts', or 'gateway.host' to 127.0.0.1"
        yield CheckFinding(grade="problem", about="gateway", says=says, cure=cure)
    for name, upstream in options.upstreams.items():
        where = f"gateway.upstreams.{name}"
        variable = upstream.get("key_env") if isinstance(upstream, Mapping) else None
        if not isinstance(upstream, Mapping) or not isinstance(upstream.get("url"), str):
            says = f"{where} has no address"
            yield CheckFinding(grade="problem", about="gateway", says=says, cure=f"set '{where}.url'")
        elif isinstance(variable, str) and variable and not os.environ.get(variable):
            says = f"{where}: the environment has no '{variable}'"
            yield CheckFinding(grade="problem", about="gateway", says=says, cure=f"export {variable}=…")


def models(settings: Settings) -> Iterator[CheckFinding]:
    """Checks that local models are complete, and that remote ones are configured."""
    from recto.models import weights  # noqa: PLC0415
    from recto.models.chat import SMALL  # noqa: PLC0415
    from recto.models.embedders import ARCTIC, MULTILINGUAL  # noqa: PLC0415

    required = {}
    embedder, writer = settings.recall.embedder, settings.compress.model
    named = embedder.use == "arctic" and not embedder.path
    if named or (embedder.use == "auto" and weights.find(ARCTIC) is not None):
        required[ARCTIC] = "recall.embedder.use"
    if embedder.use == "multilingual":
        required[MULTILINGUAL] = "recall.embedder.use"
    if writer.use == "embedded" and not writer.path:
        required[writer.model or SMALL] = "compress.model.use"
    for name, setting in required.items():
        try:
            weights.checked(name)
        except RectoError as error:
            yield CheckFinding(grade="problem", about="models", says=str(error), cure=f"recto models get {name}")
        else:
            yield CheckFinding(
                grade="fine", about="models", says=f"{setting}: the weights of {name} are here and whole"
            )
    if writer.use == "none":
        says = "no model writes shorter texts; sentences are picked by rule, as the settings say"
        yield CheckFinding(grade="note", about="models", says=says, cure="set 'compress.model.use' to have one")
    else:
        make_chat_model(settings)
        yield CheckFinding(grade="fine", about="models", says=f"compress.model: {writer.use} {writer.model}".rstrip())


def disk_space(settings: Settings) -> Iterator[CheckFinding]:
    """Checks the free space on the disk of the store and its index."""
    path = Path(settings.store).expanduser()
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    yield from check_disk(folder, "transcripts and index")


def lock(settings: Settings) -> Iterator[CheckFinding]:
    """Checks that no other program blocks writing."""
    from recto.stores.sqlite.connection import SideLock  # noqa: PLC0415

    file = Path(os.path.realpath(Path(settings.store).expanduser()) + "-lock")
    if not file.exists():
        return
    side = SideLock(file)
    try:
        with side.held(min(_LOCK_SECONDS, settings.limits.lock_seconds)):
            yield CheckFinding(grade="fine", about="rights", says="the store is not held by another program")
    except TimeoutError:
        says = f"another program has held '{file}' for {_LOCK_SECONDS:g} s; nothing can be written meanwhile"
        yield CheckFinding(grade="problem", about="rights", says=says, cure=f"see who it is: fuser -v '{file}'")
    finally:
        side.close()


def addresses(settings: Settings) -> list[Address]:
    """Returns every address in the settings."""
    from recto.models.chat import anthropic  # noqa: PLC0415

    configured = []
    embedder, writer, webhook = settings.recall.embedder, settings.compress.model, settings.health.webhook
    if embedder.use == "endpoint":
        configured.append(("recall.embedder.url", embedder.url, embedder.seconds))
    if writer.use in ("openai", "anthropic"):
        configured.append(
            ("compress.model.url", writer.url or (anthropic.URL if writer.use == "anthropic" else ""), _SECONDS)
        )
    if webhook.url:
        configured.append(("health.webhook.url", webhook.url, webhook.seconds))
    for name, upstream in settings.gateway.upstreams.items():
        url = upstream.get("url") if isinstance(upstream, Mapping) else None
        if isinstance(url, str):
            configured.append((f"gateway.upstreams.{name}.url", url, settings.gateway.connect_seconds))
    return [Address(setting=setting, url=url, seconds=min(seconds, _SECONDS)) for setting, url, seconds in configured]


def _files(settings: Settings) -> list[Path]:
    path = Path(os.path.realpath(Path(settings.store).expanduser()))
    return [path.parent, *(path.with_name(path.name + ending) for ending in _SUFFIXES)]


_SIGNS = {"fine": ("✓ ", "green"), "note": ("· ", "yellow"), "problem": ("✗ ", "red")}


@click.command("doctor")
@click.option("--repair", is_flag=True, help="Rebuild what can be rebuilt. The transcript is never changed.")
@click.option("--offline", is_flag=True, help="Do not connect to the addresses in the settings.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@click.pass_context
def doctor_command(context: click.Context, repair: bool, offline: bool, as_json: bool) -> None:
    """Checks the installation, store and index, and suggests fixes.

    Settings, models, disk, permissions, clock, store, replica, index, embedder, and whether the addresses in the
    settings answer.

    \b
    Examples:
      recto doctor
      recto doctor --repair
      recto doctor --offline --json
    """
    if isinstance(context.obj, SettingsError):
        cure = "fix it; nothing else can be checked without settings"
        _print_findings([CheckFinding(grade="problem", about="settings", says=str(context.obj), cure=cure)], as_json)
        context.exit(2)
    settings: Settings = context.obj
    config = context.parent.params.get("config") if context.parent else None
    findings = [
        finding
        for about, check in settings_checks(settings, config, offline=offline)
        for finding in run_check(about, check)
    ]
    refused: RectoError | None = None
    try:
        findings += _check_store(settings, repair, offline)
    except StoreError as error:
        if isinstance(error, StoreMissing) and is_default_store(error):
            findings += _check_without_store(settings, error, offline)
        else:
            refused = error  # the other findings are printed first
    _print_findings(worst_first(findings), as_json)
    if refused is not None:
        raise refused
    if any(finding.grade == "problem" and not finding.repaired for finding in findings):
        context.exit(1)


def _print_findings(findings: Sequence[CheckFinding], as_json: bool) -> None:
    for finding in findings:
        if as_json:
            print_json(finding)
        else:
            out.print(_line(finding), soft_wrap=True)


def _check_without_store(settings: Settings, missing: StoreMissing, offline: bool) -> list[CheckFinding]:
    """Checks everything else, where nothing was stored yet."""
    says, cure = f"'{missing.path}': nothing is stored yet", "see it at work: recto demo; run an agent: recto run"
    others = _check_store(replace(settings, store=MEMORY_STORE), False, offline)
    return [
        CheckFinding(grade="note", about="store", says=says, cure=cure),
        *(finding for finding in others if finding.about == "embedder"),
    ]


def _check_store(settings: Settings, repair: bool, offline: bool) -> list[CheckFinding]:
    from recto.engine.doctor import Doctor  # noqa: PLC0415  # needs numpy

    quiet = offline and settings.recall.embedder.use == "endpoint"
    with closing(open_store(settings, create=False)) as store:
        findings = [
            finding
            for about, check in store_checks(settings, store, offline=offline)
            for finding in run_check(about, check)
        ]
        with closing(make_indexer(settings, store)) as indexer:
            total = 2 * sum(summary.entries for summary in store.sessions()) if repair else 0
            with progress("repairing", total) as advance:
                return findings + Doctor(indexer, advance=advance, offline=quiet).examine(repair=repair)


def _line(finding: CheckFinding) -> Text:
    sign, style = _SIGNS[finding.grade]
    cure = " (repaired)" if finding.repaired else f" → {finding.cure}" if finding.cure else ""
    return Text.assemble((sign, style), (finding.about, "bold"), f": {safe(finding.says + cure)}")
