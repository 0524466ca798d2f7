"""The webhook: alerts reach a real server, and one that hangs, refuses or leads elsewhere holds nothing up."""

from __future__ import annotations

import threading

import pytest
from tests.health.sample_turns import SESSION, alert, compaction, turn
from tests.models.serving import SLOW, cut, free_address, raw, serving, status

from recto.config import load
from recto.config.factory import make_sinks
from recto.errors import SettingsError
from recto.health.exporters.webhook import QUEUE_SIZE, Webhook, cloud_event

KEY = "key-that-nobody-may-see"


@pytest.fixture
def server(monkeypatch):
    with serving(monkeypatch) as running:
        yield running


def hook_to(url: str, seconds: float = 30.0) -> Webhook:
    given = {"webhook": {"url": url, "key": KEY, "seconds": seconds}}
    (hook,) = make_sinks(load(environ={}, arguments={"health": given}))
    assert isinstance(hook, Webhook)
    return hook


@pytest.mark.parametrize("code", [200, 202, 204])
def test_an_alert_is_sent_as_a_cloud_event(server, code):
    server.answers = [raw(b"", code)]
    hook = hook_to(f"{server.url}/hook/?team=a")
    hook.turn(SESSION, turn())
    hook.event(compaction())
    hook.alert(alert())
    hook.alert(alert(ended=True))
    hook.close()
    assert (hook.delivered, hook.dropped) == (2, 0)
    began, ended = server.asked
    assert began == {
        "specversion": "1.0",
        "id": cloud_event(alert())["id"],
        "source": "recto",
        "type": "recto.alert.began",
        "subject": SESSION,
        "time": "2026-09-21T14:13:20.123456Z",
        "datacontenttype": "application/json",
        "data": {
            "name": "utilization",
            "grade": "critical",
            "turn": 3,
            "value": 0.97,
            "threshold": 0.9,
            "says": "the last 3 prompts filled at least 97% of their room",
            "action": "let more leave at once",
            "ended": False,
        },
    }
    assert ended["type"] == "recto.alert.ended"
    assert ended["id"] != began["id"]
    assert server.paths == ["/v1/hook/?team=a"] * 2
    assert server.headers[0]["Content-Type"] == "application/cloudevents+json"
    assert server.headers[0]["Authorization"] == f"Bearer {KEY}"


def test_a_server_that_fails_at_first_is_asked_again(server):
    server.answers = [cut, status(503), status(200)]
    hook = hook_to(server.url)
    hook.alert(alert())
    hook.close(30)
    assert (hook.delivered, len(server.asked)) == (1, 3)
    assert len({body["id"] for body in server.asked}) == 1


@pytest.mark.parametrize("slow", SLOW)
def test_a_server_that_hangs_costs_its_time_and_no_more(server, slow):
    server.answers = [slow]
    hook = hook_to(server.url, seconds=0.05)
    hook.alert(alert())
    hook.close()
    assert (hook.delivered, hook.dropped) == (0, 1)


def test_an_alert_is_taken_while_the_server_hangs(server):
    """Whoever raises it does not wait: the queue takes what it holds, and the rest is lost and counted."""
    began = threading.Event()

    def hang(handler, body):
        began.set()
        handler.server.over.wait()
        handler.close_connection = True

    server.answers = [hang]
    hook = hook_to(server.url)
    hook.alert(alert())
    assert began.wait(30)
    for _ in range(QUEUE_SIZE + 5):
        hook.alert(alert())
    assert (hook.dropped, hook.last_error) == (5, "too many were waiting")
    hook.close(0)
    assert hook.delivered == 0
    assert hook.dropped == QUEUE_SIZE + 6
    hook.alert(alert())
    assert hook.dropped == QUEUE_SIZE + 7


def test_a_redirect_is_not_followed_and_the_key_does_not_go_there(server, monkeypatch):
    with serving(monkeypatch) as elsewhere:
        elsewhere.answers = [status(200)]
        server.answers = [status(307, Location=f"{elsewhere.url}/stolen")]
        hook = hook_to(server.url)
        hook.alert(alert())
        hook.close()
        assert elsewhere.asked == []
    assert hook.dropped == 1
    assert "redirect" in hook.last_error


def test_the_key_is_in_no_complaint(server):
    server.answers = [raw(f'{{"error": "bad key {KEY}"}}'.encode(), 400)]
    hook = hook_to(server.url)
    hook.alert(alert())
    hook.close()
    assert hook.dropped == 1
    assert KEY not in hook.last_error + repr(hook)


def test_where_nobody_listens_the_alert_is_lost_and_counted():
    hook = hook_to(free_address())
    hook.alert(alert())
    hook.close(30)
    assert hook.dropped == 1
    assert "connection failed" in hook.last_error


def test_a_way_of_sending_that_breaks_breaks_nothing_else():
    def broken(body, cancelled):
        raise RuntimeError(KEY)

    hook = Webhook(broken)
    hook.alert(alert(value=float("nan")))
    hook.alert(alert())
    hook.close()
    assert (hook.dropped, hook.last_error) == (2, "sending broke (RuntimeError)")


def test_closing_one_that_was_never_used_starts_no_thread():
    hook = Webhook(lambda body, cancelled: "")
    before = threading.active_count()
    hook.close()
    assert threading.active_count() == before


def test_an_address_with_a_password_in_it_is_refused():
    with pytest.raises(SettingsError, match=r"health\.webhook\.key"):
        hook_to("https://user:pass@example.com/")
