"""Commands to continue work in a new window or another process: checkpoint, resume."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import click
from rich.text import Text

from recto.cli._common import session_option
from recto.cli.compact import open_existing_session
from recto.cli.console import out, safe
from recto.config import Settings
from recto.config.factory import make_checkpoint_rules, make_meter, open_session, open_store
from recto.continuity.checkpoints.checkpoint import Checkpoint
from recto.engine.checkpoints import session_folder
from recto.engine.projection import checkpoint_key
from recto.engine.views.codec import to_builtins
from recto.errors import InputError, StoreError, UnknownSession
from recto.transcript.session_keys import TenantStore, operator_key, plain_name, pointer_to, session_in, tenant_of

if TYPE_CHECKING:
    from recto.engine.continuity import ResumeState

EXIT_FOUND = 1
_Command = TypeVar("_Command", bound=Callable[..., Any])
_SET = ("goal", "success_criteria")
"""The fields of `--set`; the others have their own options."""


def _repeatable(name: str, what: str, text: str) -> Callable[[_Command], _Command]:
    return click.option(name, what, metavar="TEXT", multiple=True, help=text)


@click.command("checkpoint")
@session_option()
@click.option("--set", "set_", metavar="NAME=TEXT", multiple=True, help="Set goal or success_criteria.")
@_repeatable("--plan", "plan", "A subtask that is planned.")
@_repeatable("--doing", "doing", "The subtask that is worked on; a few words of it are enough.")
@_repeatable("--done", "done", "A subtask that is done.")
@_repeatable("--issue", "issues", "Something that is broken.")
@_repeatable("--solved", "solved", "An issue that is over; a few words of it are enough.")
@_repeatable("--decision", "decisions", "Something that was decided.")
@_repeatable("--learned", "learnings", "Something that should not have to be found out again.")
@click.option("--service", "services", metavar="HOST:PORT", multiple=True, help="What has to listen.")
@click.option("--expect", metavar="VERSION", type=int, help="Refuse unless this is the newest version.")
@click.option("--json", "as_json", is_flag=True, help="The checkpoint as one JSON object.")
@click.pass_obj
def checkpoint_command(
    settings: Settings,
    /,
    session: str | None,
    set_: tuple[str, ...],
    expect: int | None,
    as_json: bool,
    **lists: tuple[str, ...],
) -> None:
    """Saves the state of a session's work, and shows it.

    What is known is filled in from the task list, facts and notes; options say what is known better. An update that
    expects another version than the newest is refused, and nothing is written.

    \b
    Examples:
      recto checkpoint
      recto checkpoint --json | jq .open_issues
      recto checkpoint --done "rename the helper" --doing "run the tests" --expect 3
      recto checkpoint --set goal="All tests of billing pass" --service localhost:5432
    """
    changes: dict[str, str | list[str]] = {name: list(texts) for name, texts in lists.items() if texts}
    changes |= _set(set_)
    with open_existing_session(settings, session) as opened:
        entry = opened.checkpoint(expect=expect, **changes)
        if as_json:
            click.echo(entry.content.decode())
            return
        handoff = next(opened.read(entry.seq + 1, entry.seq + 1))
        out.print(Text(safe(json.loads(handoff.content)["text"])), soft_wrap=True)
        version = json.loads(entry.content)["version"]
        where = f", {session_folder(settings.continuity.folder, opened.key)}" if settings.continuity.folder else ""
        out.print(Text(safe(f"version {version}, entry {entry.seq}{where}")), soft_wrap=True)


@click.command("resume")
@session_option()
@click.option("--from", "source", metavar="FILE", help="From this checkpoint.json; the transcript need not be here.")
@click.option("--json", "as_json", is_flag=True, help="Checkpoint, drift and text as one JSON object.")
@click.pass_context
def resume_command(context: click.Context, session: str | None, source: str | None, as_json: bool) -> None:
    """Shows the state of a session's work, to continue from: the first page of a new window.

    The newest checkpoint is validated and held against the directory, git, files and services as they are now; what
    has changed is reported as drift, and makes the exit code 1. Nothing is stored.

    \b
    Examples:
      recto resume
      recto resume --session agent:default:main --json | jq .drift
      recto resume --from checkpoints/agent_default_main-9f8b3c2d1e0a/checkpoint.json
    """
    from recto.engine.checkpoints import make_probe  # noqa: PLC0415  # slow to import
    from recto.engine.continuity import resume_state  # noqa: PLC0415

    settings: Settings = context.obj
    checkpoint, pointer = _from_file(settings, session, source) if source else _from_store(settings, session)
    state = resume_state(
        checkpoint,
        make_probe(make_checkpoint_rules(settings)),
        most=settings.continuity.resume_tokens,
        count=make_meter(settings).count,
        pointer=pointer,
    )
    _print_resume(state, as_json)
    if state.drift:
        context.exit(EXIT_FOUND)


def _print_resume(state: ResumeState, as_json: bool) -> None:
    if as_json:
        payload = {
            "checkpoint": state.checkpoint.to_json(),
            "drift": to_builtins(state.drift),
            "text": state.page.text,
            "omitted": state.page.omitted,
        }
        click.echo(json.dumps(payload))
    else:
        out.print(Text(safe(state.page.text)), soft_wrap=True)


def _from_store(settings: Settings, session: str | None) -> tuple[Checkpoint, str]:
    with open_existing_session(settings, session, to_read=True) as opened:
        checkpoint = opened.window.continuity.newest()
        entry = opened.store.find(opened.key, checkpoint_key(checkpoint.version)) if checkpoint else None
        if checkpoint is None or entry is None:
            raise InputError(f"there is no checkpoint of session '{opened.key}' yet; 'recto checkpoint' writes one")
        return checkpoint, pointer_to(opened.key, entry.seq)


def _from_file(settings: Settings, session: str | None, source: str) -> tuple[Checkpoint, str]:
    """Reads a checkpoint file, which must not be older than the transcript's newest checkpoint, if that is here."""
    from recto.engine.continuity import read_checkpoint  # noqa: PLC0415

    key = operator_key(plain_name(session), settings.tenant) if session else ""
    checkpoint = read_checkpoint(source, session=key)
    newest: Checkpoint | None = None
    with suppress(StoreError, UnknownSession), closing(open_store(settings, create=False)) as store:
        view = TenantStore(store, settings.tenant)
        if view.owns(checkpoint.session) and view.head(checkpoint.session).seq:
            session_settings = _settings_for(settings, checkpoint.session)
            with open_session(session_settings, store) as opened:
                newest = opened.window.continuity.newest()
    if newest is not None:
        checkpoint = read_checkpoint(source, session=key, newest=(newest.version, newest.window))
    return checkpoint, source


def _settings_for(settings: Settings, key: str) -> Settings:
    """Returns the settings for a session with a stored key."""
    return replace(settings, session=session_in(key), tenant=tenant_of(key))


def _set(options: tuple[str, ...]) -> dict[str, str | list[str]]:
    changes: dict[str, str | list[str]] = {}
    for option in options:
        name, separator, text = option.partition("=")
        if not separator or name not in _SET:
            raise InputError(f"--set takes {' or '.join(f'{known}=TEXT' for known in _SET)}, not {option!r:.80}")
        if name == "goal":
            changes["goal"] = text
        else:
            texts = changes.setdefault(name, [])
            assert isinstance(texts, list)  # noqa: S101  # only the goal is one text
            texts.append(text)
    return changes
