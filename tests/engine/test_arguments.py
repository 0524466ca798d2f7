"""Wrong arguments are refused by name, before anything is searched, stored or changed."""

from __future__ import annotations

import asyncio

import pytest

import recto
from recto.errors import InputError, MalformedMessage, SettingsError

USER = {"role": "user", "content": "Where is the blue harbour crane?"}


@pytest.fixture
def session():
    with recto.open("memory:", session="agent:test:main", model="gpt-4o") as opened:
        opened.append(USER)
        yield opened


@pytest.mark.parametrize("messages", [None, 3, "hello", USER, b"{}", object()], ids=lambda wrong: type(wrong).__name__)
@pytest.mark.parametrize(
    "call",
    [
        lambda messages: recto.fit(messages, 1_000),
        lambda messages: recto.evict(messages, 10),
        lambda messages: recto.open("memory:").append_all(messages),
    ],
    ids=["fit", "evict", "append_all"],
)
def test_anything_but_a_list_of_messages_is_refused(call, messages):
    with pytest.raises(InputError, match="'messages' is a list of messages, not"):
        call(messages)


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_tokens": "100"},
        {"max_tokens": 0},
        {"max_tokens": True},
        {"max_tokens": float("nan")},
        {"max_tokens": 100, "threshold": "0.8"},
        {"max_tokens": 100, "threshold": 1.5},
        {"max_tokens": 100, "keep_turns": 1.5},
        {"max_tokens": 100, "keep_turns": -1},
    ],
    ids=repr,
)
def test_fit_names_the_invalid_number(wrong):
    with pytest.raises(SettingsError, match=f"'{list(wrong)[-1]}'"):
        recto.fit([USER], **wrong)


@pytest.mark.parametrize("wrong", [{"free": "10"}, {"free": -1}, {"free": 10, "keep_turns": "1"}], ids=repr)
def test_evict_names_the_invalid_number(wrong):
    with pytest.raises(SettingsError, match=f"'{list(wrong)[-1]}'"):
        recto.evict([USER], **wrong)


SEARCHES = [
    ((None,), {}, "query"),
    ((3,), {}, "query"),
    (("crane",), {"most": 0}, "'most'"),
    (("crane",), {"most": -1}, "'most'"),
    (("crane",), {"most": "3"}, "'most'"),
    (("crane",), {"scope": "everything"}, "session, agent, tenant"),
    (("crane",), {"project": 3}, "project"),
]


@pytest.mark.parametrize(("query", "options", "named"), SEARCHES, ids=repr)
def test_a_search_with_invalid_arguments_is_refused(session, query, options, named):
    with pytest.raises(InputError, match=f"{named}.*Nothing was searched"):
        session.recall(*query, **options)


@pytest.mark.parametrize(("query", "options", "named"), SEARCHES[:4], ids=repr)
def test_an_async_search_is_refused_in_the_same_way(query, options, named):
    async def search() -> None:
        async with await recto.open_async("memory:", model="gpt-4o") as session:
            await session.recall(*query, **options)

    with pytest.raises(InputError, match=f"{named}.*Nothing was searched"):
        asyncio.run(search())


@pytest.mark.parametrize(
    "call",
    [
        lambda session: session.note("misc", None),
        lambda session: session.rename(None),
        lambda session: session.compact(3),
        lambda session: session.compact(below=-1),
        lambda session: session.compact(below="many"),
        lambda session: session.checkpoint(goal=3),
        lambda session: session.checkpoint(plan=3),
        lambda session: session.observe([USER], None),
        lambda session: session.append(USER, meta=3),
        lambda session: session.append_all([USER, USER], meta=[{}]),
        lambda session: session.tail(-1),
        lambda session: session.tail("all"),
        lambda session: session.unpin(),
        lambda session: session.unpin(999),
    ],
)
def test_a_wrong_argument_stores_nothing(session, call):
    with pytest.raises(InputError, match=r"Nothing was (stored|changed)"):
        call(session)
    assert len(session) == 1


@pytest.mark.parametrize("store", [3, ["a.db"]], ids=repr)
def test_opening_something_that_is_not_a_store_is_refused(store):
    with pytest.raises(SettingsError, match="it is a path"):
        recto.open(store)


@pytest.mark.parametrize("tokens", ["100", 0, True], ids=repr)
def test_a_window_size_must_be_a_positive_number(tokens):
    with pytest.raises(SettingsError, match="'max_tokens'"):
        recto.PressureMonitor(tokens)
    with pytest.raises(SettingsError, match="'max_context_tokens'"):
        recto.manager("memory:", max_context_tokens=tokens)


@pytest.mark.parametrize("store", [None, "agent.db"], ids=repr)
def test_verify_explains_what_it_accepts(store):
    with pytest.raises(InputError, match=r"verify takes an open store.*session\.verify"):
        recto.verify(store)


READS = [
    (lambda session: session.get([1]), "the id of an entry is a text, not 'list'"),
    (lambda session: session.get(1), "the id of an entry is a text, not 1"),
    (lambda session: session.verify(5), "a head is what 'session.head' returned, not 5"),
    (lambda session: session.prompt(answer="many"), "'answer' of a prompt"),
    (lambda session: session.prompt(beside="text"), "'beside' of a prompt"),
    (lambda session: session.report(run="last"), "'run' is the number of an entry"),
    (lambda session: session.resume(3), "'source' is the path of a checkpoint"),
    (lambda session: session.health.report("all"), "the number of turns"),
    (lambda session: session.health.fidelity(None), "a judge is a model with the call 'complete', not None"),
    (lambda session: session.transcript.grep(3), "a pattern is a text"),
    (lambda session: session.transcript.grep("crane", limit="all"), "'limit'"),
    (lambda session: session.transcript.outline("first"), "'start' is the number of an entry"),
    (lambda session: session.work.file(3), "the path of a file"),
    (lambda session: session.work.command(None), "a command is a text"),
    (lambda session: session.work.error("E", limit=0), "'limit'"),
    (lambda session: session.work.number("ms", before="x"), "'before' is the number of an entry"),
]


@pytest.mark.parametrize(("call", "reason"), READS, ids=[reason for _, reason in READS])
def test_a_wrong_argument_of_a_read_is_refused_by_name(session, call, reason):
    with pytest.raises(InputError, match=reason):
        call(session)


@pytest.mark.parametrize(("call", "reason"), READS, ids=[reason for _, reason in READS])
def test_an_async_read_is_refused_in_the_same_way(call, reason):
    async def read() -> None:
        async with await recto.open_async("memory:", model="gpt-4o") as session:
            await session.append(USER)
            await call(session)

    with pytest.raises(InputError, match=reason):
        asyncio.run(read())


@pytest.mark.parametrize(("numbers", "named"), [((None,), "'start'"), (("1",), "'start'"), ((1, "9"), "'stop'")])
def test_entries_are_read_by_number(session, numbers, named):
    async def read() -> None:
        async with await recto.open_async("memory:", model="gpt-4o") as other:
            async for _ in other.read(*numbers):
                pass

    with pytest.raises(InputError, match=f"{named} is the number of an entry"):
        session.read(*numbers)
    with pytest.raises(InputError, match=f"{named} is the number of an entry"):
        asyncio.run(read())


def test_a_question_to_a_judge_is_not_a_text(session):
    class Judge:
        name, window = "judge", 0

        def complete(self, request, cancelled=None):
            raise AssertionError("not asked")

    with pytest.raises(InputError, match=r"a question is Question\(text=…\), not 'Which port\?'"):
        session.health.fidelity(Judge(), ["Which port?"])


@pytest.mark.parametrize("listener", [None, 3], ids=repr)
def test_only_a_function_can_listen(session, listener):
    with pytest.raises(InputError, match="a listener is a function"):
        session.health.on_alert(listener)
    with pytest.raises(InputError, match="a listener is a function"):
        session.window.listen(listener)
    with pytest.raises(InputError, match="a sink has the calls"):
        session.health.watch(listener)


@pytest.mark.parametrize("name", ["on_zone_change", "on_velocity_spike"])
def test_a_pressure_monitor_refuses_a_listener_that_is_not_a_function(name):
    with pytest.raises(InputError, match="a listener is a function, not 3"):
        recto.PressureMonitor(1_000, **{name: 3})


@pytest.mark.parametrize("function", [3, None, [USER]], ids=repr)
def test_only_a_function_can_be_decorated(function):
    with pytest.raises(InputError, match=r"recto\.bounded\(…\) decorates a function that takes messages, not"):
        recto.bounded("memory:", model="gpt-4o")(function)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [((3,), "the name of a session"), ((None, [1]), "'heads' is a dict"), ((None, {"a": 5}), "a head is what")],
    ids=repr,
)
def test_verify_names_the_wrong_argument(session, arguments, reason):
    with pytest.raises(InputError, match=reason):
        recto.verify(session.store, *arguments)


@pytest.mark.parametrize("wrong", [3, "text", [USER]], ids=repr)
@pytest.mark.parametrize(
    ("call", "name"),
    [
        (recto.open, "writer"),
        (recto.open, "dispatcher"),
        (recto.manager, "token_counter"),
        (recto.manager, "writer"),
        (recto.follow, "pin"),
        (recto.follow, "summarizer"),
        (recto.follow, "token_counter"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_part_that_cannot_do_its_work_is_refused_when_it_is_passed(call, name, wrong, tmp_path):
    with pytest.raises(SettingsError, match=f"{name}.*it is a (function|model)"):
        call(tmp_path / "a.db", model="gpt-4o", **{name: wrong})
    assert not list(tmp_path.iterdir()), "a store was made"


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda session: session.resume(changes=3), "'changes' are texts by name, not 3"),
        (lambda session: session.resume(changes={"doin": "x"}), "did you mean 'doing'"),
        (lambda session: session.observe(None, {"prompt_tokens": 3}), "the prompt is a list of messages, not None"),
        (
            lambda session: session.window.judge_recall(1, "helpful", question="x"),
            "'question' is the number of an entry",
        ),
        (lambda session: session.prompt(wire=["a"]), "is not a wire format"),
        (lambda session: recto.open("memory:", config=3), "'config' is the path of a settings file, not 3"),
        (lambda session: recto.PressureMonitor(1000).turn(reported="5"), "'reported' is a whole number of at least 0"),
    ],
)
def test_an_argument_of_a_wrong_type_is_named(session, call, says):
    before = len(session)
    with pytest.raises(InputError, match=says):
        call(session)
    assert len(session) == before


def test_a_window_is_resumed_with_changes_as_a_checkpoint_takes_them(session):
    session.checkpoint(doing="the crane")
    session.resume(changes={"doing": "the harbour"})
    assert "the harbour" in str(session.checkpoints.newest())


def test_two_calls_with_one_id_are_refused_before_they_are_stored(session):
    call = {"id": "a", "type": "function", "function": {"name": "run", "arguments": "{}"}}
    with pytest.raises(MalformedMessage, match="two of its calls have one id"):
        session.append({"role": "assistant", "content": None, "tool_calls": [call, call]})
    assert len(session) == 1


def test_an_unknown_policy_is_refused_by_the_name_of_its_argument_with_all_that_there_are():
    messages = [{"role": "user", "content": "Hello."}]
    with pytest.raises(SettingsError, match=r"setting 'policy': 'prun' is none of prune, fifo, .*mean 'prune'"):
        recto.evict(messages, free=1, policy="prun")
    with pytest.raises(SettingsError, match="setting 'policy': 'oldest' is none of prune, fifo"):
        recto.open("memory:", model="gpt-4o", window={"policy": "oldest"})


@pytest.mark.parametrize("wrong", ["read", {"type": "function"}, [print], [1]])
def test_tools_that_are_no_list_of_schemas_are_refused_by_name(wrong):
    messages = [{"role": "user", "content": "Hello."}]
    with recto.open("memory:", model="gpt-4o") as session:
        session.append(messages[0])
        for call in (
            lambda: session.prompt(wrong),
            lambda: session.count(messages, tools=wrong),
            lambda: recto.count(messages, model="gpt-4o", tools=wrong),
            lambda: recto.fit(messages, max_tokens=1_000, model="gpt-4o", tools=wrong),
            lambda: recto.evict(messages, free=1, model="gpt-4o", tools=wrong),
        ):
            with pytest.raises(InputError, match="'tools' is a list of tool schemas"):
                call()
