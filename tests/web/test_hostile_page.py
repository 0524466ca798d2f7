"""Promise 20 on the page: text from transcripts is shown as the text it is, and never runs, opens or asks anything.

Every text that can come from outside holds markup: what people, models and tools said, names of sessions, of tools and
of keys, reasons, notes, proposals, answers while they come, and refusals. The controls show that the same texts do run
where a page makes markup of them, and that the page's policy alone would stop them there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from starlette.applications import Starlette
from starlette.responses import HTMLResponse, JSONResponse
from starlette.routing import Route
from tests.gateway.upstream import serving
from tests.hostile_texts import ELSEWHERE, MARKUP, RUN, TERMINAL, TURNED, acts, spoil
from tests.web.browsing import Visit
from tests.web.conftest import Visiting
from tests.web.worlds import SETTINGS, Held, World, world

import recto
from recto.gateway.api_keys import Key
from recto.gateway.endpoints.static import POLICY

SPOILT = "agent:default:spoilt"
NAMED = f"agent:default:<img src=x onerror={RUN}>"
SEEN = f"<img src=x onerror={RUN}>"
JOINERS = {"U+200C", "U+200D"}
"""They make letters and pictures of several scripts, and neither turn nor hide anything that a browser shows."""
VIEWS = ("Window", "Chat", "Transcript", "Recall", "Decisions", "Compare", "Budget", "Memory", "Health")
MADE = """() => [...document.querySelectorAll('*')].filter(node =>
  (node.localName === 'script' && !node.src?.endsWith('/web/app.js')) ||
  ['iframe', 'object', 'embed', 'video', 'audio', 'base', 'marquee', 'style', 'animate', 'set', 'use', 'math',
   'template', 'xmp', 'portal', 'frame'].includes(node.localName) ||
  (node.localName === 'img' && !node.src.endsWith('/web/icon.svg')) ||
  (node.localName === 'meta' && node.httpEquiv) ||
  (node.localName === 'link' && !node.href.startsWith(location.origin + '/web/')) ||
  [...node.attributes].some(({name, value}) => name.startsWith('on') || name === 'srcdoc' ||
    (/(href|src|action|data)$/.test(name) && /^\\s*(javascript|data|vbscript):/i.test(value)))
).map(node => node.outerHTML.slice(0, 200))"""
"""Elements that only text could have made."""


@pytest.fixture(scope="module")
def spoilt(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A gateway over a store that is full of hostile text."""
    folder: Path = tmp_path_factory.mktemp("spoilt")
    store = str(folder / "transcript.db")
    larger = {**SETTINGS, "models": {"gpt-4o": {"window": 24_000, "max_input": 24_000, "max_output": 2_000}}}
    with recto.open(store, session=SPOILT, **larger) as session:
        spoil(session)
    with recto.open(store, session=NAMED, **larger) as session:
        session.append({"role": "user", "content": "".join(MARKUP)})
        session.append({"role": "assistant", "content": "".join(TERMINAL)})
    with world(folder, models=larger["models"]) as made:
        yield made


def key_of(spoilt: World) -> str:
    return spoilt.gateway.gateway.keys.add(Key(name=SEEN))[1]


def harmless(page: Page) -> None:
    """Nothing ran, nothing was made of the text, and nothing in it turns or hides letters."""
    expect(page.locator(".waiting")).to_have_count(0)
    assert page.evaluate("window.ran") is None
    assert page.evaluate(MADE) == []
    shown = acts(page.evaluate("document.body.innerText + document.title"))
    assert set(shown) <= JOINERS


@pytest.fixture(scope="module")
def inside(visiting: Visiting, spoilt: World) -> Iterator[Visit]:
    """A visit for all tests that only look."""
    with visiting(spoilt.url) as visit:
        visit.enter(spoilt.gateway.gateway.keys.add(Key(name=SEEN))[1], "chat", SPOILT)
        yield visit


def at(visit: Visit, view: str, **given: object) -> Page:
    """Another place of the same visit."""
    query = "".join(f"&{name}={value}" for name, value in given.items())
    visit.page.goto(f"{visit.url}/#/{view}?session={SPOILT}{query}")
    return visit.page


def test_every_view_shows_hostile_text_as_the_text_it_is(inside: Visit):
    page = at(inside, "chat")
    expect(page.get_by_text(SEEN).first).to_be_attached()
    for title in VIEWS:
        inside.view(title)
        if title == "Recall":
            page.get_by_label("Question").fill(f"question {SEEN} {TERMINAL[8]}")
            page.get_by_label("Question").press("Enter")
            expect(page.get_by_role("list", name="Hits")).to_be_visible()
        if title == "Compare":
            page.get_by_role("button", name="Show what both hold").click()
        page.evaluate("document.querySelectorAll('main details').forEach(one => { one.open = true })")
        harmless(page)
        if title in ("Chat", "Transcript", "Recall", "Memory"):
            expect(page.locator("main").get_by_text("<img src=x onerror=").first).to_be_attached()
        if title == "Transcript":
            inside.shot("hostile-transcript")


def test_an_entry_a_proposal_and_the_audit_are_shown_whole_and_harmless(inside: Visit):
    page = at(inside, "transcript", seq=1)
    page.get_by_role("button", name="Open entry 1", exact=True).click()
    dialog = page.get_by_role("dialog")
    for part in ("Exact content", "Meta and hashes", "Text"):
        dialog.get_by_role("tab", name=part).click()
        harmless(page)
    shown = " ".join(dialog.inner_text().split())
    assert [piece for piece in MARKUP if " ".join(piece.split()) not in shown] == []
    page.keyboard.press("Escape")
    for tab in ("Remembered", "Notes", "Checkpoints"):
        inside.view("Memory")
        page.get_by_role("tab", name=re.compile(tab)).click()
        harmless(page)
    inside.view("Decisions")
    page.get_by_role("tab", name=re.compile("Audit", re.IGNORECASE)).click()
    expect(page.locator("main")).to_contain_text("<img src=x onerror=")
    harmless(page)


def test_the_tooltips_of_charts_are_drawn_and_not_made(inside: Visit):
    page = at(inside, "budget")
    expect(page.get_by_role("heading", level=1, name="Budget")).to_be_visible()
    expect(page.locator(".waiting")).to_have_count(0)
    for chart in page.locator("main").get_by_role("img").all():
        chart.scroll_into_view_if_needed()
        box = chart.bounding_box()
        assert box
        for share in (0.2, 0.5, 0.8):
            page.mouse.move(box["x"] + box["width"] * share, box["y"] + box["height"] / 2)
            page.mouse.move(box["x"] + box["width"] * share + 2, box["y"] + box["height"] / 2)
    harmless(page)


def test_a_session_with_a_hostile_name_is_shown_by_its_name(inside: Visit):
    page = at(inside, "transcript")
    page.get_by_role("region", name="Sessions").get_by_role("link", name=re.compile("<img src=x")).click()
    expect(page.get_by_role("banner")).to_contain_text(NAMED)
    harmless(page)


def test_an_answer_and_a_refusal_that_hold_markup_are_text_while_they_come(visiting: Visiting, spoilt: World):
    with visiting(spoilt.url) as visit:
        visit.expected = ("400", "404")
        page = visit.enter(key_of(spoilt), "chat", "agent:default:answered")
        held = Held(spoilt, "".join((*MARKUP, *TERMINAL, *TURNED)), "")
        page.get_by_label("Message").fill(f"Say {SEEN} {TURNED[0]}")
        page.get_by_label("Message").press("Enter")
        expect(page.get_by_role("article", name="The answer")).to_contain_text("<img src=x onerror=")
        harmless(page)
        held.go_on.set()
        expect(page.get_by_role("button", name="Send")).to_be_visible()
        harmless(page)
        refusal = {"error": {"message": f"{SEEN} {TURNED[0]}", "type": SEEN, "code": SEEN}}
        spoilt.upstream.fail = lambda asked: JSONResponse(refusal, 400)
        page.get_by_label("Message").fill("Refuse it.")
        page.get_by_label("Message").press("Enter")
        expect(page.get_by_role("alert")).to_contain_text("<img src=x onerror=")
        harmless(page)
        spoilt.upstream.fail = lambda asked: None


def test_an_address_cannot_bring_text_that_runs(visiting: Visiting, spoilt: World):
    with visiting(spoilt.url) as visit:
        visit.expected = ("404", "400")
        key = key_of(spoilt)
        for view, session in (("chat", "javascript:alert(1)"), ("__proto__", SPOILT), ("constructor", "__proto__")):
            page = visit.enter(key, view, session)
            harmless(page)
        page.goto(f"{spoilt.url}/#/transcript?session={SPOILT}&seq=%3Cimg%20src%3Dx%20onerror%3D{RUN}%3E&q=%3Csvg%3E")
        harmless(page)


INNER = "<!doctype html><main id=place></main>"
PUT = """texts => texts.forEach(text => {
  document.getElementById('place').appendChild(document.createElement('div')).innerHTML = text;
})"""
"""Makes markup of each text, as a careless page does."""


def _both(request):
    strict = {"content-security-policy": POLICY} if request.url.path == "/strict" else {}
    return HTMLResponse(INNER, headers=strict)


@pytest.fixture(scope="module")
def careless() -> Iterator[str]:
    """A page that makes markup of text, with and without the policy of ours."""
    with serving(Starlette(routes=[Route("/loose", _both), Route("/strict", _both)])) as url:
        yield url


def test_the_same_text_runs_where_a_page_makes_markup_of_it(visiting: Visiting, careless: str):
    with visiting(careless) as visit:
        page = visit.page
        page.goto(f"{careless}/loose")
        page.evaluate(PUT, [piece for piece in MARKUP if "http-equiv" not in piece])
        page.wait_for_function("window.ran")
        assert len(page.evaluate(MADE)) > 30
        assert visit.dialogs
        assert any(ELSEWHERE in url for url in visit.requests), "and it asks other machines"
        page.wait_for_function("document.querySelector('img[src*=beacon]').complete")
        assert visit.elsewhere.asked, "which the proxy sees too"
        page.goto(f"{careless}/strict")
        visit.forget()


def test_the_policy_alone_stops_text_that_became_markup(visiting: Visiting, careless: str):
    with visiting(careless) as visit:
        visit.expected = ("policy:", "TrustedHTML", "violates")
        page = visit.page
        page.goto(f"{careless}/strict")
        with pytest.raises(Exception, match="TrustedHTML"):
            page.evaluate(PUT, [SEEN])
        assert any(one for one in visit.complaints)
        assert page.evaluate("window.ran") is None
