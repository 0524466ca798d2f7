"""The names that a program uses, with their signatures and their docstrings."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

import recto
from recto import errors
from reference.markdown import cell, code, code_cell, fence, page, prose, slug, table
from reference.reading import attribute_texts, members_of

_ABOUT = """The public names of `recto`, and those that the other pages use. How they are used, with examples:
[the library](../library.md). What is promised about them: [versioning](../versioning.md)."""
SECTIONS: Mapping[str, Sequence[str]] = {
    "recto": [
        f"recto.{name}"
        for name in sorted(recto.__all__, key=lambda name: (name[0].isupper(), name))
        if name not in ("__version__", "errors", "RectoError")
    ],
    "Namespaces of a session": [
        "recto.engine.session.SessionMemory",
        "recto.engine.session.SessionCheckpoints",
        "recto.engine.session.SessionHealth",
        "recto.engine.session.SessionUsage",
        "recto.engine.session.SessionTranscript",
        "recto.engine.work.SessionWork",
    ],
    "Loops and sub-agents": [
        "recto.engine.fit.FittedMessages",
        "recto.engine.context_window_manager.Reply",
        "recto.formats.response_objects.RequestedCall",
        "recto.engine.context_window_manager.StatusReport",
        "recto.engine.context_window_manager.TaskCompletion",
        "recto.continuity.checkpoints.checkpoint.TaskStatement",
        "recto.context.compaction.protocols.Dispatcher",
    ],
    "What a session tells": [
        "recto.context.window.budget.PressureReading",
        "recto.context.window.report.Report",
        "recto.recall.types.SearchResult",
        "recto.recall.types.Hit",
        "recto.health.trends.HealthReport",
        "recto.health.metrics.TurnHealth",
        "recto.health.metrics.Alert",
        "recto.continuity.checkpoints.checkpoint.Checkpoint",
        "recto.context.facts.types.Fact",
        "recto.context.window.state.Note",
        "recto.context.compaction.protocols.Delegated",
        "recto.context.compaction.fidelity.JudgedFidelity",
        "recto.context.compaction.fidelity.Question",
    ],
    "Settings": ["recto.config.load"],
    "Memory": [
        "recto.config.factory.open_memory",
        "recto.config.factory.make_consolidator",
        "recto.continuity.memory.manager.Memories",
    ],
    "Audit": ["recto.engine.audit.audit", "recto.transcript.audit.AuditFilter", "recto.transcript.audit.AuditLine"],
    "Models and embedders": [
        "recto.models.chat.ChatChoice",
        "recto.models.chat.chat_model_for",
        "recto.models.embedders.EmbedderChoice",
        "recto.models.embedders.embedder_for",
        "recto.context.compaction.protocols.ModelRequest",
        "recto.context.compaction.protocols.ModelReply",
        "recto.context.compaction.protocols.ChatModel",
        "recto.recall.protocols.Embedder",
        "recto.tokens.meter.TokenCounter",
        "recto.transcript.entries.Clock",
    ],
    "Telemetry": [
        "recto.health.protocols.HealthSink",
        "recto.health.exporters.prometheus.Metrics",
        "recto.health.exporters.prometheus_server.serve_metrics",
    ],
    "For tests": [
        "recto.testing.FakeClock",
        "recto.testing.ScriptedModel",
        "recto.testing.scripted_session",
        "recto.lab.simulation.simulate",
    ],
}
_WIDEST = 100
_ALIKE = "See `Session."
"""How the docstring of a method begins that does what the one of a session does."""
_AGAIN = {"Settings": "Every setting and what it means: [settings](settings.md)."}
"""Classes whose attributes have a page of their own."""


def written() -> str:
    """The whole page."""
    parts: list[str] = []
    for heading, names in SECTIONS.items():
        found = [(name, named(name)) for name in names]
        listed = ((f"[`{name}`](#{slug(name)})", cell(_first(inspect.getdoc(one) or ""))) for name, one in found)
        parts += [f"## {heading}", table(("name", "is"), listed)]
        for name, one in found:
            parts += _section(name, one)
    return page("Python reference", _ABOUT, *parts, *_errors())


def named(path: str) -> Any:  # noqa: ANN401  # whatever has that name
    """What a name such as `recto.context.window.report.Report` stands for."""
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)


def _section(name: str, one: Any) -> Iterator[str]:  # noqa: ANN401
    yield f"### {name}"
    if not inspect.isclass(one):
        yield fence("py", _signature(name.rpartition(".")[2], one))
        yield prose(inspect.getdoc(one) or "")
        return
    yield prose(inspect.getdoc(one) or "")
    if one.__name__ in _AGAIN:
        yield _AGAIN[one.__name__]
        return
    yield table(("attribute", "type", "means"), _attributes(one))
    methods = list(_methods(one))
    alike = [_signature(name, function) for name, function in methods if (function.__doc__ or "").startswith(_ALIKE)]
    if alike:
        yield "These are those of [`recto.Session`](#rectosession), awaited:"
        yield fence("py", "\n".join(alike))
    for method, function in methods:
        if not (function.__doc__ or "").startswith(_ALIKE):
            yield f"#### {one.__name__}.{method}"
            yield fence("py", _signature(method, function))
            yield prose(inspect.getdoc(function) or "")


def _attributes(kind: type) -> Iterator[tuple[str, str, str]]:
    """Fields and properties, with what stands below or in them."""
    texts = attribute_texts(kind)
    types = {
        name: told for one in reversed(kind.__mro__) for name, told in vars(one).get("__annotations__", {}).items()
    }
    for one in members_of(kind):
        if not one.startswith("_"):
            yield code(one), code_cell(_type(types[one])), cell(texts.get(one, ""))
    for name, found in inspect.getmembers(kind, lambda member: isinstance(member, property)):
        if not name.startswith("_") and found.fget is not None:
            yield (
                code(name),
                code_cell(_type(inspect.signature(found.fget).return_annotation)),
                cell(found.__doc__ or ""),
            )


def _methods(kind: type) -> Iterator[tuple[str, Callable[..., object]]]:
    """The methods of a class in the order in which they are written."""
    seen = set()
    for one in kind.__mro__:
        if not one.__module__.startswith("recto"):
            continue
        for name, member in vars(one).items():
            function = member.__func__ if isinstance(member, classmethod | staticmethod) else member
            if inspect.isfunction(function) and not name.startswith("_") and name not in seen and function.__doc__:
                seen.add(name)
                yield name, function


def _signature(name: str, function: Callable[..., object]) -> str:
    """As it is written in the source, on as many lines as it takes."""
    found = inspect.signature(function)
    given = [one for one in found.parameters.values() if one.name not in ("self", "cls")]
    shown = found.replace(parameters=[_shown(one) for one in given])
    text = str(shown.replace(return_annotation=inspect.Signature.empty))
    returns = _type(found.return_annotation)
    before = "async " if inspect.iscoroutinefunction(function) else ""
    whole = f"{before}{name}{text}" + (f" -> {returns}" if returns else "")
    if len(whole) <= _WIDEST:
        return whole
    lines = "".join(f"    {one},\n" for one in _parameters(shown))
    return f"{before}{name}(\n{lines})" + (f" -> {returns}" if returns else "")


def _parameters(signature: inspect.Signature) -> Iterator[str]:
    """Each of them as text, with the marks between them."""
    named_only = False
    for one in signature.parameters.values():
        if one.kind is one.KEYWORD_ONLY and not named_only:
            named_only = True
            yield "*"
        named_only = named_only or one.kind is one.VAR_POSITIONAL
        yield str(one)


def _shown(one: inspect.Parameter) -> inspect.Parameter:
    """A parameter in the words of the source; a default that has none, such as a function, as an ellipsis."""
    annotation = one.annotation if one.annotation is one.empty else _Bare(_type(one.annotation))
    default = _Bare("...") if one.default is not one.empty and repr(one.default).startswith("<") else one.default
    return one.replace(annotation=annotation, default=default)


class _Bare:
    """Words that show as they are, without quotes."""

    def __init__(self, words: str) -> None:
        self._words = words

    def __repr__(self) -> str:
        return self._words


def _type(annotation: Any) -> str:  # noqa: ANN401
    if annotation is inspect.Signature.empty:
        return ""
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _first(text: str) -> str:
    return text.partition("\n\n")[0]


def _errors() -> Iterator[str]:
    """Each error, what it is one of, and when it is raised."""
    yield "## recto.errors"
    yield prose((errors.__doc__ or "").partition("\n\n    ")[0])
    rows = ((code(one.__name__), code(one.__base__.__name__), cell(one.__doc__ or "")) for one in _error_classes())
    yield table(("error", "is one of", "when"), rows)


def _error_classes() -> Iterator[type]:
    for one in vars(errors).values():
        if inspect.isclass(one) and issubclass(one, Exception) and one.__module__ == errors.__name__:
            yield one
