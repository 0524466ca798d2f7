"""The gate between tenants: keys of a tenant are formed in one place, and a view never reaches beyond its tenant."""

from __future__ import annotations

import ast
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recto.config import load
from recto.config.factory import make_indexer, make_recall, open_session
from recto.errors import InputError
from recto.recall.types import Query
from recto.stores.memory import MemoryStore
from recto.transcript.entries import EMPTY_HEAD, Draft
from recto.transcript.session_keys import TenantStore, pointer_to, store_behind, stored_key

SOURCE = Path(__file__).parent.parent.parent / "src" / "recto"
GATE = {"transcript/session_keys.py"}
TENANTS = ("", "acme", "acm", "Acme", "acme.", "a")
NAMES = ("agent:default:main", "agent:a:main", "agent:a:memory", "chat", "acme/chat", "a/agent:a:main")
OWN = ("recto:keys", "recto:lineage/acme/0f", "recto:lineage//0f", "recto:erasures")
SECRET = "swordfish"


def texts_of(file: Path) -> list[str]:
    """Every text in the code of a file that is not a docstring, those inside of f-strings included."""
    tree = ast.parse(file.read_text())
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in prose)
    return [node.value for node in nodes if isinstance(node.value, str)]


def names_in(file: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.alias):
            found.add(node.name.rpartition(".")[2])
    return found


def files_outside_the_gate() -> list[Path]:
    return [file for file in sorted(SOURCE.rglob("*.py")) if str(file.relative_to(SOURCE)) not in GATE]


def test_keys_of_a_tenant_are_formed_in_the_gate_alone():
    forming = {"stored_key", "TENANT", "PAST_TENANTS"}
    for file in files_outside_the_gate():
        assert not forming & names_in(file), f"{file} forms stored keys; use a TenantStore"
        made = [text for text in texts_of(file) if text.startswith(("tenant:", "recto:lineage"))]
        assert not made, f"{file} writes {made}; use a TenantStore"


def test_what_forms_keys_for_every_tenant_is_used_by_operators_alone():
    allowed = {
        "store_behind": {"config/factory.py"},
        "tenant_prefix": {"engine/erasure.py"},
        "record_key": {"engine/erasure.py"},
        "operator_key": {
            *(f"cli/{name}.py" for name in ("audit", "checkpoint", "compact", "health", "sessions", "store")),
            "lab/commands/_sessions.py",
        },
        "operator_sees": {"cli/recall.py"},
        "tenant_key": {"cli/grep.py", "cli/memory.py", "cli/recall.py"},
        "TenantStore": {
            *("config/factory.py", "gateway/session_pool.py", "mcp/stdio.py", "adapters/coding_agents.py"),
            "adapters/coding_agents.py",
            *("cli/checkpoint.py", "cli/keys.py", "cli/memory.py"),
        },
    }
    for file in files_outside_the_gate():
        called = {
            node.func.id
            for node in ast.walk(ast.parse(file.read_text()))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }
        for name, users in allowed.items():
            assert name not in called or str(file.relative_to(SOURCE)) in users, f"{file} calls {name}"


def draft(id: str) -> Draft:
    content = f'{{"role": "user", "content": "the password is {SECRET}"}}'.encode()
    return Draft(id=id, ts=1, role="user", content=content, key=f"key-{id}")


@pytest.fixture(scope="module")
def store() -> MemoryStore:
    """Every tenant has sessions of the same names, and Recto has records of its own."""
    made = MemoryStore()
    for tenant in TENANTS:
        for name in NAMES:
            made.append(stored_key(name, tenant), [draft("one"), draft("two")])
    for key in OWN:
        made.append(key, [draft("one")])
    return made


ANY_KEY = st.one_of(
    st.builds(stored_key, st.sampled_from(NAMES), st.sampled_from(TENANTS)),
    st.sampled_from(OWN),
    st.lists(st.sampled_from(["tenant:", "recto:", "acme", "a", "/", ":", "agent:", "chat", "%", "é"])).map("".join),
)


@given(st.sampled_from(TENANTS), ANY_KEY)
def test_a_view_never_reads_or_writes_what_is_not_its_tenants(store, tenant, key):
    view = TenantStore(store, tenant)
    own = {stored_key(name, tenant) for name in NAMES}
    if view.owns(key):
        assert key in own or store.head(key) == EMPTY_HEAD
        return
    assert key not in own
    before = {one.session: one.entries for one in store.sessions()}
    for ask in (
        lambda: view.append(key, [draft("new")]),
        lambda: view.turn(key),
        lambda: view.head(key),
        lambda: view.read(key),
        lambda: view.pick(key, [1]),
        lambda: view.tail(key, 1),
        lambda: view.get(key, "one"),
        lambda: view.find(key, "key-one"),
        lambda: view.title_entries([key]),
        lambda: view.erase(key),
        lambda: view.scrub([key]),
        lambda: view.name(key),
        view.accept_heads,
    ):
        with pytest.raises(InputError):
            ask()
    assert {one.session: one.entries for one in store.sessions()} == before


@given(st.sampled_from(TENANTS), ANY_KEY)
def test_whatever_name_a_caller_gives_the_key_is_the_tenants_own(tenant, name):
    view = TenantStore(MemoryStore(), tenant)
    with suppress(InputError):
        key = view.key(name)
        assert not name.startswith(("tenant:", "recto:"))
        assert view.owns(key)
        assert view.name(key) == name
        assert not any(TenantStore(MemoryStore(), other).owns(key) for other in TENANTS if other != tenant)


@given(st.sampled_from(TENANTS), ANY_KEY, st.none() | st.integers(1, 40))
def test_a_view_lists_its_tenants_sessions_alone(store, tenant, after, limit):
    view = TenantStore(store, tenant)
    own = sorted(stored_key(name, tenant) for name in NAMES)
    assert [one.session for one in view.sessions(after, limit)] == [key for key in own if key > after][:limit]
    assert set(view.kept_heads()) <= set(own)


def test_records_of_a_tenant_are_kept_apart_and_are_not_sessions():
    store = MemoryStore()
    views = [TenantStore(store, tenant) for tenant in TENANTS]
    for view in views:
        assert view.find_record("lineage", "0f", "key-one") is None
        view.append_record("lineage", "0f", [draft("one")])
        assert view.sessions() == []
    assert sorted(one.session for one in store.sessions()) == sorted(f"recto:lineage/{name}/0f" for name in TENANTS)


def test_a_view_is_bound_once():
    store = MemoryStore()
    view = TenantStore(store, "acme")
    assert store_behind(TenantStore(view, "acme")) is store
    for tenant in ("", "a"):
        with pytest.raises(InputError, match="another tenant"):
            TenantStore(view, tenant)
    for tenant in ("a/b", "a:b", "é", " ", "x" * 65):
        with pytest.raises(InputError, match="tenant"):
            TenantStore(store, tenant)


@pytest.mark.parametrize("tenant", TENANTS)
def test_recall_through_a_view_reads_its_tenants_text_alone(store, tenant):
    base = load(environ={}, arguments={"recall": {"embedder": {"use": "none"}, "background": False}, "tenant": tenant})
    indexer = make_indexer(base, store)
    for one in store.sessions():
        indexer.catch_up(one.session)
    view = TenantStore(store, tenant)
    session = open_session(base, store, indexer)
    assert session.key == view.key(base.session)
    recall = make_recall(base, store, session.key, indexer)
    found = recall.search(Query(text=f"the password {SECRET}", now=10), limit=50, scope="tenant")
    assert found.hits
    assert all(view.owns(hit.session) for hit in found.hits)
    for other in TENANTS:
        if other != tenant:
            foreign = stored_key("chat", other)
            with pytest.raises(InputError, match="nothing at"):
                recall.read(pointer_to(foreign, 1))
            with pytest.raises(InputError, match="not one of this tenant's"):
                recall.searcher.store.read(foreign)
    indexer.close()
