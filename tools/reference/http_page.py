"""What the gateway answers: the protocols' routes, and the inspection API as its own description tells it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, get_args, get_type_hints

from recto.engine.threads import CALLS
from recto.engine.views.models import ErrorResponse
from recto.gateway.endpoints.mcp import RULES as MCP_RULES
from recto.gateway.inspection.operations import OPERATIONS, PREFIX
from recto.gateway.inspection.routes import description
from recto.gateway.middleware.auth import PASSED_METHODS, PASSED_PATHS, TABLE, thread_path
from reference.markdown import cell, code, code_cell, page, prose, slug, table
from reference.reading import attribute_texts, members_of

_ABOUT = """Everything that the gateway answers. A key is sent as `Authorization: Bearer rk-…`, or as `x-api-key`; each
route needs the right that is beside it. How the gateway works: [the gateway](../gateway.md). How the inspection
API is used: [the inspection API](../api.md)."""
_DOES: Mapping[str, str] = {
    "GET /": "The page ([screens](../screens.md)); for others than browsers the name and version of the gateway.",
    "GET /web/app.js": "The page's script.",
    "GET /web/style.css": "The page's style sheet.",
    "GET /web/icon.svg": "The page's icon.",
    "GET /healthz": "Whether the process answers.",
    "GET /readyz": "Whether it takes requests: 503 while it stops, and where the store does not answer.",
    "GET /metrics": "[Metrics](events.md#metrics) for Prometheus.",
    "GET /v1/models": "The models of the upstreams, in the shape that OpenAI's and Anthropic's clients read.",
    "POST /v1/embeddings": "OpenAI's Embeddings, passed on or answered by the embedder on this machine.",
    **{f"POST {thread_path(call)}": f"Codex: {call.description}" for call in CALLS},
    **{
        f"{method} {path}": "The rest of a provider's API, [passed on](../gateway.md#pass-through-endpoints)."
        for path in PASSED_PATHS
        for method in PASSED_METHODS
    },
    "POST /v1/chat/completions": "OpenAI's Chat Completions, streaming and not.",
    "POST /v1/messages": "Anthropic's Messages, streaming and not.",
    "POST /v1beta/models/{model}:generateContent": "Gemini's, also as `streamGenerateContent`, and below `/v1`.",
    "POST /v1beta/models/{model}:countTokens": "The tokens that the prompt would have.",
    "GET /v1beta/models": "The models of the upstreams, in the shape that Gemini's clients read.",
    "POST /v1/messages/count_tokens": "The tokens that the prompt would have.",
    "POST /v1/responses": "OpenAI's Responses, streaming and not.",
    "POST /v1/responses/compact": "Makes the history smaller and gives an item that represents it.",
    "POST /v1/responses/input_tokens": "The tokens that the prompt would have.",
    "POST /v1/conversations": "Opens a conversation, with up to 20 items.",
    "GET /v1/conversations/{id}": "Shows it.",
    "GET /v1/conversations/{id}/items": "Its items, by `limit`, `order` and `after`.",
    "POST /mcp": "The Model Context Protocol over streamable HTTP ([MCP](../mcp.md)).",
}
"""What each route of the protocols is for: theirs are described by those who made them."""


def written() -> str:
    """The whole page."""
    told = description(OPERATIONS)
    asked = [(method.upper(), path, one) for path, methods in told["paths"].items() for method, one in methods.items()]
    overview = (
        (f"[`{method} {path}`](#{slug(f'{method} {path}')})", _right(one), cell(one["summary"]))
        for method, path, one in asked
    )
    return page(
        "HTTP reference",
        _ABOUT,
        "## Protocols and operations",
        table(("route", "right", "is"), _protocols()),
        "## Inspection API",
        prose(told["info"]["description"]) + f" `GET {PREFIX}/openapi.json` gives all of it as OpenAPI.",
        table(("operation", "right", "does"), overview),
        *(part for method, path, one in asked for part in _operation(method, path, one)),
        "## Refusals",
        f"The body is {_schema_link('ErrorResponse')}.",
        table(("status", "when"), _refusals(told)),
        "## Answers",
        *_schemas(told["components"]["schemas"]),
    )


def _protocols() -> Iterator[tuple[str, str, str]]:
    for rule in (*TABLE, *MCP_RULES):
        name = f"{rule.method} {rule.path}"
        if name not in _DOES:
            raise SystemExit(f"the route '{name}' is not described: say what it does in {__name__}")
        yield code(name), "none" if rule.need == "open" else code(rule.need), _DOES[name]


def _operation(method: str, path: str, one: Mapping[str, Any]) -> Iterator[str]:
    yield f"### {method} {path}"
    yield f"{prose(one['summary'])} Needs the right {_right(one)}."
    query = ((name["name"], name["schema"], name["required"], name["description"]) for name in one["parameters"])
    yield table(("parameter", "takes", "means"), (_given(*row) for row in query))
    body = one.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    needed = body.get("required", [])
    members = ((name, told, name in needed, told["description"]) for name, told in body.get("properties", {}).items())
    yield table(("member of the body", "takes", "means"), (_given(*row) for row in members))
    answer = one["responses"]["200"]["content"]["application/json"]["schema"]
    yield f"Answers {_type(answer)}."


def _right(one: Mapping[str, Any]) -> str:
    return code(one["description"].split("'")[1])


def _given(name: str, schema: Mapping[str, Any], required: bool, about: str) -> tuple[str, str, str]:
    usual = f" Without it: {code(schema['default'])}." if schema.get("default") is not None else ""
    return code(name), _type(schema) + _bounds(schema), cell(about) + (" Required." if required else usual)


def _bounds(schema: Mapping[str, Any]) -> str:
    match schema:
        case {"minimum": least, "maximum": most}:
            return f", {least:,} to {most:,}"
        case {"minimum": least}:
            return f", from {least:,}"
        case {"maxLength": most, "minLength": least} if most == least:
            return f", {most:,} characters"
        case {"maxLength": most}:
            return f", up to {most:,} characters"
        case {"maxItems": most}:
            return f", up to {most:,}"
        case _:
            return ""


def _type(schema: Mapping[str, Any]) -> str:
    """What a schema takes or gives, in words and links."""
    match schema:
        case {"$ref": reference}:
            return _schema_link(str(reference).rpartition("/")[2])
        case {"anyOf": several}:
            return " or ".join(_type(one) for one in several)
        case {"enum": names}:
            return " or ".join(code(name) for name in names)
        case {"type": "array", "items": items}:
            return f"list of {_type(items)}"
        case {"type": "array", "prefixItems": items}:
            return f"list of {_type(items[0])}"
        case {"type": "object", "additionalProperties": dict() as inner} if inner:
            return f"names and {_type(inner)}"
        case {"type": str() as plain}:
            return plain
        case _:
            return "anything"


def _schema_link(name: str) -> str:
    return f"[`{name}`](#{slug(name)})"


def _refusals(told: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for status, one in told["components"]["responses"].items():
        yield status, cell(one["description"])


def _schemas(schemas: Mapping[str, Any]) -> Iterator[str]:
    classes = {
        kind.__name__: kind for one in (*(each.result for each in OPERATIONS), ErrorResponse) for kind in _within(one)
    }
    for name, schema in schemas.items():
        texts = attribute_texts(classes[name]) if name in classes else {}
        yield f"### {name}"
        yield prose(schema.get("description", ""))
        rows = ((code_cell(one), _type(told), cell(texts.get(one, ""))) for one, told in schema["properties"].items())
        yield table(("member", "is", "means"), rows)


def _within(kind: Any) -> Iterator[type]:  # noqa: ANN401  # any type
    """A class of values, and all that stand in its members."""
    for part in get_args(kind):
        yield from _within(part)
    if isinstance(kind, type) and (members := members_of(kind)):
        yield kind
        hints = get_type_hints(kind)
        for one in members:
            yield from _within(hints[one])
