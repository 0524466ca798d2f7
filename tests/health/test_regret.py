"""What answers needed that did not stand in their prompts, on conversations in which every number is known."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import fields

from hypothesis import given
from hypothesis import strategies as st

from recto.context.facts.entities import find_entities
from recto.context.facts.types import MessageView, ToolCall
from recto.formats.message import Message, Part
from recto.health.regret import Regret, RegretTracker, merge_answer, mostly_quoted

SOURCE = "def settle(order_total):\n    return order_total\n"


def user(text: str) -> Message:
    return Message(role="user", parts=(Part(kind="text", text=text),))


def answer(text: str = "", *calls: tuple[str, dict[str, str]], ids: Iterable[str] = "abcdef") -> Message:
    said = [Part(kind="text", text=text)] if text else []
    made = [
        Part(kind="call", name=tool, text=json.dumps(given), call_id=id)
        for (tool, given), id in zip(calls, ids, strict=False)
    ]
    return Message(role="assistant", parts=(*said, *made))


def result(text: str, id: str = "a") -> Message:
    return Message(role="tool", parts=(Part(kind="result", text=text, call_id=id),))


def told(*messages: Message) -> RegretTracker:
    """A conversation up to here, numbered from 1."""
    needs = RegretTracker()
    for seq, message in enumerate(messages, 1):
        needs.add(seq, message)
    return needs


READ = ("read_file", {"path": "src/billing/orders.py"})
RUN = ("shell", {"command": "make check-all"})


def read_once() -> RegretTracker:
    return told(user("please look"), answer("", READ), result(SOURCE))


def test_what_still_stands_whole_is_nothing_to_regret():
    asked = read_once().judge(answer("order_total is set in src/billing/orders.py", READ))
    assert asked == Regret(entities_used=2, entities_there=2)


def test_a_file_that_is_read_again_after_it_left_was_fetched_again():
    needs = read_once()
    needs.evict((2, 3))
    assert needs.judge(answer("", READ)).fetched_again == 1


def test_a_result_that_was_shortened_is_no_longer_whole():
    needs = read_once()
    needs.evict((3,))
    assert needs.judge(answer("", READ)).fetched_again == 1


def test_a_command_is_the_same_however_its_arguments_are_spaced():
    needs = told(user("go"), answer("", RUN), result("all is well"))
    needs.evict((2, 3))
    spaced = Part(kind="call", name="shell", text='{ "command" :  "make check-all" }', call_id="b")
    assert needs.judge(Message(role="assistant", parts=(spaced,))).fetched_again == 1


def test_another_command_is_not_the_same():
    needs = told(user("go"), answer("", RUN), result("all is well"))
    needs.evict((2, 3))
    assert needs.judge(answer("", ("shell", {"command": "make check-none"}))).fetched_again == 0


def test_another_part_of_the_same_file_is_the_same_file_wherever_its_path_begins():
    needs = read_once()
    needs.evict((2, 3))
    again = ("view", {"file_path": "/home/me/project/src/billing/orders.py", "offset": "40"})
    assert needs.judge(answer("", again)).fetched_again == 1


def test_a_file_that_is_only_edited_is_not_fetched_again():
    needs = read_once()
    needs.evict((2, 3))
    edit = ("edit_file", {"path": "src/billing/orders.py", "old": "x", "new": "y"})
    assert needs.judge(answer("", edit)).fetched_again == 0


def test_a_call_whose_result_stands_from_another_time_is_not_fetched_again():
    needs = told(
        user("go"), answer("", RUN), result("all is well"), answer("", RUN, ids="b"), result("all is well", "b")
    )
    needs.evict((2, 3))
    assert needs.judge(answer("", RUN, ids="c")).fetched_again == 0


def test_the_same_call_twice_in_one_answer_is_one_need():
    needs = told(user("go"), answer("", RUN), result("all is well"))
    needs.evict((2, 3))
    assert needs.judge(answer("", RUN, RUN)).fetched_again == 1


def test_what_was_fetched_again_is_there_until_it_leaves_again():
    needs = read_once()
    needs.evict((2, 3))
    again = answer("", READ, ids="b")
    needs.judge(again)
    needs.add(4, again)
    needs.add(5, result(SOURCE, "b"))
    assert needs.judge(answer("", READ, ids="c")).fetched_again == 0
    needs.evict((4, 5))
    assert needs.judge(answer("", READ, ids="c")).fetched_again == 1


def test_a_call_that_never_had_a_result_has_nothing_to_fetch_again():
    needs = told(user("go"), answer("", RUN))
    needs.evict((2,))
    assert needs.judge(answer("", RUN)).fetched_again == 0


def test_a_recalled_result_meets_the_call_and_a_recalled_neighbour_does_not():
    for recalled, met in (({3}, 1), ({2}, 0), (set(), 0)):
        needs = read_once()
        needs.evict((2, 3))
        asked = needs.judge(answer("", READ), (), recalled)
        assert (asked.fetched_again, asked.fetched_met) == (1, met)


def test_a_name_from_a_message_that_left_is_referred_to():
    needs = told(user("The invoice is INV-20417."), answer("Noted."), user("go on"))
    needs.evict((1, 2))
    asked = needs.judge(answer("I send INV-20417 now, and INV-99999 tomorrow."))
    assert asked == Regret(referred=1, entities_used=1)


def test_a_name_that_stands_in_another_whole_message_is_not():
    needs = told(user("The invoice is INV-20417."), answer("INV-20417, noted."), user("go on"))
    needs.evict((1,))
    assert needs.judge(answer("I send INV-20417 now.")) == Regret(entities_used=1, entities_there=1)


def test_a_name_in_the_arguments_of_a_call_counts_as_one_in_the_text():
    needs = told(user("The invoice is INV-20417."), answer("Noted."), user("go on"))
    needs.evict((1, 2))
    assert needs.judge(answer("INV-20417", ("send", {"invoice": "INV-20417"}))).referred == 1


def test_what_stands_elsewhere_in_the_prompt_meets_the_need():
    for text, met in (("[Summary: the invoice is INV-20417]", 1), ("[Summary: there is an invoice]", 0)):
        needs = told(user("The invoice is INV-20417."), answer("Noted."), user("go on"))
        needs.evict((1, 2))
        asked = needs.judge(answer("I send INV-20417 now."), ["other text", text])
        assert asked == Regret(referred=1, referred_met=met, entities_used=1, entities_there=met)


def test_the_users_newest_message_refers_too_and_only_in_the_turn_that_it_opens():
    needs = told(user("The invoice is INV-20417."), answer("Noted."), user("What about INV-20417?"))
    needs.evict((1, 2))
    first = answer("I look.", RUN)
    assert needs.judge(first, ["[Summary: INV-20417]"]) == Regret(referred=1, referred_met=1)
    needs.add(4, first)
    needs.add(5, result("nothing"))
    assert needs.judge(answer("INV-20417 is paid.")) == Regret(entities_used=1, entities_there=1)


def test_what_the_user_says_for_the_first_time_refers_to_nothing():
    needs = told(user("Hello."), answer("Hello."), user("The invoice is INV-20417."))
    needs.evict((1, 2))
    assert needs.judge(answer("INV-20417, noted.")).referred == 0


def test_a_name_in_question_and_answer_counts_once():
    needs = told(user("The invoice is INV-20417."), answer("Noted."), user("What about INV-20417?"))
    needs.evict((1, 2, 3))
    assert needs.judge(answer("INV-20417 is paid.")).referred == 1


def test_a_file_is_known_by_its_name_alone_and_two_files_of_one_name_are_two():
    needs = told(user("see src/billing/orders.py and docs/orders.py"), answer("ok"), user("go on"))
    needs.evict((1, 2))
    assert needs.judge(answer("I open orders.py.")).referred == 1
    needs.add(4, user("tests/orders.py is new"))
    assert needs.judge(answer("I open billing/orders.py.")).referred == 1
    assert needs.judge(answer("I open orders.py.")).referred == 0
    needs.add(5, user("I mean orders.py"))
    assert needs.judge(answer("I open billing/orders.py.")).referred == 0


def test_small_plain_numbers_are_nothing_to_look_for_and_large_ones_are():
    needs = told(user("port 8472, limit 200, rate 0.75"), answer("ok"), user("go on"))
    needs.evict((1, 2))
    assert needs.judge(answer("8472 and 200 and 0.75")).referred == 2


def test_an_answer_that_was_not_judged_is_known_all_the_same():
    needs = told(user("The invoice is INV-20417."), user("What about INV-20417?"), answer("It is PAY-77315."))
    needs.evict((1, 2, 3))
    assert needs.judge(answer("INV-20417 and PAY-77315")).referred == 2


def test_an_answer_in_several_messages_is_judged_as_one():
    needs = read_once()
    needs.evict((2, 3))
    whole = merge_answer([answer("I look at order_total."), answer("", READ)])
    assert needs.judge(whole) == Regret(fetched_again=1, referred=2, entities_used=2)


def test_the_oldest_of_what_left_is_forgotten_before_memory_runs_out():
    needs = RegretTracker(max_bytes=100_000)
    for seq in range(1, 2_001):
        needs.add(seq, user(f"ticket TICK-{seq:06}"))
        needs.evict((seq,))
    assert needs.judge(answer("TICK-000001 and TICK-002000")).referred == 1
    shelf = needs._names
    assert len(shelf._recent) + len(shelf._old) < 1_000
    assert not shelf._keys_by_seq
    assert not shelf._complete


def test_a_quotation_holds_a_message_where_at_least_half_of_it_is_there():
    text = "first line of it\nsecond line of it\nthird line of it\nfourth line of it"
    half = "[Quoted]\n> first line of it\n> …\n> fourth line of it\n"
    assert mostly_quoted({7: text, 8: "something else", 9: ""}, half) == {7}
    assert mostly_quoted({7: text}, "> first line of it") == frozenset()


NAMES = ("INV-20417", "order_total", "src/orders.py", "docs/orders.py", "orders.py", "8472", "plain")
TEXTS = st.lists(st.sampled_from(NAMES), max_size=3).map(" and ".join)
CALLS = st.lists(
    st.one_of(
        st.sampled_from(NAMES[2:5]).map(lambda path: ("read_file", {"path": path})),
        st.sampled_from("xy").map(lambda word: ("shell", {"command": f"make {word}"})),
    ),
    max_size=2,
)
TURNS = st.lists(
    st.tuples(TEXTS, CALLS, TEXTS, st.sets(st.integers(1, 20)), TEXTS, st.sets(st.integers(1, 20))), max_size=6
)


def names_of(message: Message) -> set[str]:
    text = "\n".join(part.text for part in message.parts if part.kind in ("text", "result"))
    calls = tuple(ToolCall(part.name, part.text) for part in message.calls)
    return set(find_entities([MessageView(seq=0, role=message.role, text=text, calls=calls)]))


def has(names: Iterable[str], asked: str) -> bool:
    """Whether a name is among others: a file in a folder also by its name alone, a name alone in any folder."""
    if not asked.endswith(".py"):
        return asked in names
    ends = asked.rpartition("/")[2]
    return any(name in (asked, ends) or ("/" not in asked and name.endswith("/" + asked)) for name in names)


def plainly(history: list[Message], gone: set[int], new: Message) -> tuple[int, int, int]:
    """Referred to, used and standing whole, told by looking through everything."""
    known = set().union(*map(names_of, history))
    whole = set().union(*(names_of(one) for seq, one in enumerate(history, 1) if seq not in gone))
    used = [name for name in names_of(new) if has(known, name)]
    question = max(seq for seq, one in enumerate(history, 1) if one.role == "user")
    before = [(seq, names_of(one)) for seq, one in enumerate(history, 1) if seq < question]
    asked = {
        name
        for name in (names_of(history[question - 1]) if question == len(history) else ())
        if has(set().union(*(names for _, names in before)), name)
        and not has(set().union(*(names for seq, names in before if seq not in gone)), name)
    }
    lacking = {name for name in used if not has(whole, name)}
    return len(lacking | asked), len(used), len(used) - len(lacking)


@given(TURNS)
def test_the_measures_are_those_of_looking_through_everything(turns):
    needs, history, gone = RegretTracker(), [], set()
    for asks, calls, says, leaving, _, _ in turns:
        for message in (user(asks), answer(says, *calls)):
            if message.role == "assistant":
                gone |= {seq for seq in leaving if seq < len(history)}  # never the question that is in flight
                needs.evict(leaving - {len(history)})
                found = needs.judge(message)
                assert (found.referred, found.entities_used, found.entities_there) == plainly(history, gone, message)
            history.append(message)
            needs.add(len(history), message)
        for part in history[-1].calls:
            history.append(result(f"what {part.name} says", part.call_id))
            needs.add(len(history), history[-1])


@given(TURNS)
def test_nothing_is_negative_and_no_more_is_met_than_was_needed(turns):
    needs, seq = RegretTracker(), 0
    for asks, calls, says, leaving, beside, recalled in turns:
        made = answer(says, *calls)
        for message in (user(asks), made, *(result("said", part.call_id) for part in made.calls)):
            if message is made:
                needs.evict(leaving)
                found = needs.judge(message, [beside], recalled)
                assert all(getattr(found, one.name) >= 0 for one in fields(found))
                assert found.fetched_met <= found.fetched_again <= len(made.calls)
                assert found.referred_met <= found.referred
                assert found.entities_there <= found.entities_used
            seq += 1
            needs.add(seq, message)
