"""No session reaches beyond its agent or its tenant, whatever it is called."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recto.errors import InputError
from recto.transcript.session_keys import parse_pointer, pointer_to, reach_of, session_in, stored_key, tenant_of

PIECES = st.sampled_from(
    [
        "agent:",
        "tenant:",
        "recto:",
        "a",
        "ab",
        "b",
        "A",
        "acme",
        "acme/",
        "/",
        ":",
        "%",
        "_",
        "*",
        "?",
        "..",
        ".",
        " ",
        "é",
        "а",
        "ａ",
        "main",
        "\\",
    ]
)
NAMES = st.lists(PIECES, min_size=1, max_size=7).map("".join).filter(lambda name: name == name.strip())
TENANTS = st.sampled_from(["", "acme", "Acme", "acm", "acme.", "a", "ab", "a-b", "a_b"])


def stored(name, tenant):
    try:
        return stored_key(name, tenant)
    except InputError:
        return None


@given(NAMES, TENANTS, NAMES, TENANTS, st.sampled_from(["session", "agent", "tenant"]))
def test_nothing_ever_reaches_another_tenant(one, its, other, others, scope):
    mine, theirs = stored(one, its), stored(other, others)
    if mine is None or theirs is None:
        return
    reach = reach_of(mine, scope)
    assert reach.contains(mine)
    assert reach.contains(theirs) <= (its == others)
    assert reach.contains(theirs) <= theirs.startswith(reach.prefix)
    assert reach_of(mine, "session").contains(theirs) == (mine == theirs)
    assert reach_of(mine, "tenant").contains(theirs) == (its == others)
    assert reach_of(mine, "session").contains(theirs) <= reach_of(mine, "agent").contains(theirs)
    assert reach_of(mine, "agent").contains(theirs) <= reach_of(mine, "tenant").contains(theirs)
    assert reach_of(mine, "agent").contains(theirs) == reach_of(theirs, "agent").contains(mine)


@given(NAMES, TENANTS)
def test_the_tenant_and_the_session_are_read_back_from_the_key(name, tenant):
    key = stored(name, tenant)
    if key is not None:
        assert tenant_of(key) == tenant
        assert session_in(key) == name


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("agent:a:main", "agent:a:work", True),
        ("agent:a:main", "agent:a:main:sub", True),
        ("agent:a:main", "agent:ab:main", False),
        ("agent:ab:main", "agent:a:main", False),
        ("agent:a:b:main", "agent:a:c", True),
        ("agent:a_:main", "agent:ab:main", False),
        ("agent:%:main", "agent:ab:main", False),
        ("agent:a:main", "Agent:a:main", False),
        ("agent:a:main", "agent:A:main", False),
        ("agent:a:main", "agent:а:main", False),
        ("notes", "notes2", False),
        ("agent:a", "agent:a:main", False),
        ("agent::x", "agent::y", False),
    ],
)
def test_an_agent_reaches_its_own_sessions_alone(one, other, same):
    assert reach_of(one, "agent").contains(other) is same
    assert reach_of(f"tenant:t/{one}", "agent").contains(f"tenant:t/{other}") is same
    assert not reach_of(one, "agent").contains(f"tenant:t/{other}")


@pytest.mark.parametrize("key", ["tenant:acme/agent:a:main", "tenant:", "tenant:x", "tenant:a b/x"])
@pytest.mark.parametrize("tenant", ["", "acme", "other"])
def test_nobody_can_name_another_tenants_session(key, tenant):
    with pytest.raises(InputError, match="tenant"):
        stored_key(key, tenant)


@pytest.mark.parametrize("tenant", ["", "acme"])
@pytest.mark.parametrize("key", ["recto:keys", "recto:", "recto:anything"])
def test_nobody_can_name_what_is_rectos_own(key, tenant):
    with pytest.raises(InputError, match="Recto's own"):
        stored_key(key, tenant)


@pytest.mark.parametrize("own", ["recto:keys", "recto:"])
def test_nothing_reaches_what_is_rectos_own_and_it_reaches_nothing(own):
    for scope in ("session", "agent", "tenant"):
        assert reach_of(own, scope).contains(own)
        for other in ("agent:a:main", "notes", "recto:other", "tenant:acme/x"):
            assert not reach_of(own, scope).contains(other)
            assert not reach_of(other, scope).contains(own)
    assert stored_key("recto", "") == "agent:default:main"


@pytest.mark.parametrize("broken", ["tenant:", "tenant:a b/x", "tenant:acme", f"tenant:{'x' * 65}/y"])
def test_a_broken_tenant_key_reaches_itself_alone_and_nobody_reaches_it(broken):
    for scope in ("session", "agent", "tenant"):
        assert reach_of(broken, scope).contains(broken)
        assert not reach_of(broken, scope).contains("agent:a:main")
        assert not reach_of("agent:a:main", scope).contains(broken)
        assert not reach_of("tenant:acme/x", scope).contains(broken)


@pytest.mark.parametrize("tenant", ["a/b", "a b", "é", "x" * 65, "a\n", "tenant:", "%"])
def test_a_tenant_has_a_plain_name(tenant):
    with pytest.raises(InputError, match="1 to 64"):
        stored_key("main", tenant)


def test_the_alias_means_the_same_session_for_every_tenant():
    assert stored_key("recto", "") == "agent:default:main"
    assert stored_key("recto", "acme") == "tenant:acme/agent:default:main"


@given(NAMES, TENANTS, st.integers(1, 2**32 - 1))
def test_a_pointer_leads_back_to_where_it_came_from(name, tenant, seq):
    key = stored(name, tenant)
    if key is not None:
        assert parse_pointer(pointer_to(key, seq)) == (key, seq)


@pytest.mark.parametrize(
    "text",
    [
        *("", "recto://", "recto://a", "recto://a/0", "recto://a/01", "recto://a/-1", "recto:///5", "recto://a/5 "),
        *("recto://a/4294967296", "recto://a/١", "http://a/5", "recto://a\nb/5", "recto:// a/5", "recto://a/5\n"),
        f"recto://{'a' * 400}/5",
    ],
)
def test_everything_else_is_no_pointer(text):
    with pytest.raises(InputError):
        parse_pointer(text)
