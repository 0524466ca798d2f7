"""Promise 20 on the page: text from transcripts is rendered literally, and never runs code or sends requests.

Every text that can come from outside contains markup: messages of users, models and tools, names of sessions, tools
and keys, reasons, notes, proposals, streamed answers and errors. Control tests show that the same texts do run on a
page that renders them as markup, and that the content security policy alone blocks them there.
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
from tests.web.conftest import VisitFactory
from tests.web.worlds import SETTINGS, PausedAnswer, World, world

import recto
from recto.gateway.api_keys import Key
from recto.gateway.endpoints.static import POLICY

HOSTILE_SESSION = "agent:default:spoilt"
HOSTILE_NAME = f"agent:default:<img src=x onerror={RUN}>"
HOSTILE_TEXT = f"<img src=x onerror={RUN}>"
JOINERS = {"U+200C", "U+200D"}
"""Joiners that some scripts and emoji need; they neither reorder nor hide visible text."""
VIEWS = ("Window", "Chat", "Transcript", "Recall", "Decisions", "Compare", "Budget", "Memory", "Health")
INJECTED_ELEMENTS = """() => [...document.querySelectorAll('*')].filter(node =>
  (node.localName === 'script' && !node.src?.endsWith('/web/app.js')) ||
  ['iframe', 'object', 'embed', 'video', 'audio', 'base', 'marquee', 'style', 'animate', 'set', 'use', 'math',
   'template', 'xmp', 'portal', 'frame'].includes(node.localName) ||
  (node.localName === 'img' && !node.src.endsWith('/web/icon.svg')) ||
  (node.localName === 'meta' && node.httpEquiv) ||
  (node.localName === 'link' && !node.href.startsWith(location.origin + '/web/')) ||
  [...node.attributes].some(({name, value}) => name.startsWith('on') || name === 'srcdoc' ||
    (/(href|src|action|data)$/.test(name) && /^\\s*(javascript|data|vbscript):/i.test(value)))
).map(node => node.outerHTML.slice(0, 200))"""
"""Finds elements that only injected text could have created."""


@pytest.fixture(scope="module")
def hostile_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A gateway over a store full of hostile text."""
    folder: Path = tmp_path_factory.mktemp("spoilt")
    store = str(folder / "transcript.db")
    larger = {**SETTINGS, "models": {"gpt-4o": {"window": 24_000, "max_input": 24_000, "max_output": 2_000}}}
    with recto.open(store, session=HOSTILE_SESSION, **larger) as session:
        spoil(session)
    with recto.open(store, session=HOSTILE_NAME, **larger) as session:
        session.append({"role": "user", "content": "".join(MARKUP)})
        session.append({"role": "assistant", "content": "".join(TERMINAL)})
    with world(folder, models=larger["models"]) as made:
        yield made


def key_of(hostile_world: World) -> str:
    return hostile_world.gateway.gateway.keys.add(Key(name=HOSTILE_TEXT))[1]


def assert_harmless(page: Page) -> None:
    """Asserts that nothing ran, the text created no elements, and no character reorders or hides visible text."""
    expect(page.locator(".waiting")).to_have_count(0)
    assert page.evaluate("window.ran") is None
    assert page.evaluate(INJECTED_ELEMENTS) == []
    shown = acts(page.evaluate("document.body.innerText + document.title"))
    assert set(shown) <= JOINERS


@pytest.fixture(scope="module")
def hostile_visit(open_visit: VisitFactory, hostile_world: World) -> Iterator[Visit]:
    """A visit shared by the tests that only read."""
    with open_visit(hostile_world.url) as visit:
        visit.enter(hostile_world.gateway.gateway.keys.add(Key(name=HOSTILE_TEXT))[1], "chat", HOSTILE_SESSION)
        yield visit


def open_view(visit: Visit, view: str, **parameters: object) -> Page:
    """Opens a view of the hostile session in the same visit."""
    query = "".join(f"&{name}={value}" for name, value in parameters.items())
    visit.page.goto(f"{visit.url}/#/{view}?session={HOSTILE_SESSION}{query}")
    return visit.page


def test_every_view_renders_hostile_text_literally(hostile_visit: Visit):
    page = open_view(hostile_visit, "chat")
    expect(page.get_by_text(HOSTILE_TEXT).first).to_be_attached()
    for title in VIEWS:
        hostile_visit.view(title)
        if title == "Recall":
            page.get_by_label("Question").fill(f"question {HOSTILE_TEXT} {TERMINAL[8]}")
            page.get_by_label("Question").press("Enter")
            expect(page.get_by_role("list", name="Hits")).to_be_visible()
        if title == "Compare":
            page.get_by_role("button", name="Show what both hold").click()
        page.evaluate("document.querySelectorAll('main details').forEach(details => { details.open = true })")
        assert_harmless(page)
        if title in ("Chat", "Transcript", "Recall", "Memory"):
            expect(page.locator("main").get_by_text("<img src=x onerror=").first).to_be_attached()
        if title == "Transcript":
            hostile_visit.shot("hostile-transcript")


def test_an_entry_a_proposal_and_the_audit_render_hostile_text_in_full(hostile_visit: Visit):
    page = open_view(hostile_visit, "transcript", seq=1)
    page.get_by_role("button", name="Open entry 1", exact=True).click()
    dialog = page.get_by_role("dialog")
    for part in ("Exact content", "Meta and hashes", "Text"):
        dialog.get_by_role("tab", name=part).click()
        assert_harmless(page)
    shown = " ".join(dialog.inner_text().split())
    assert [piece for piece in MARKUP if " ".join(piece.split()) not in shown] == []
    page.keyboard.press("Escape")
    for tab in ("Remembered", "Notes", "Checkpoints"):
        hostile_visit.view("Memory")
        page.get_by_role("tab", name=re.compile(tab)).click()
        assert_harmless(page)
    hostile_visit.view("Decisions")
    page.get_by_role("tab", name=re.compile("Audit", re.IGNORECASE)).click()
    expect(page.locator("main")).to_contain_text("<img src=x onerror=")
    assert_harmless(page)


def test_chart_tooltips_are_drawn_and_create_no_elements(hostile_visit: Visit):
    page = open_view(hostile_visit, "budget")
    expect(page.get_by_role("heading", level=1, name="Budget")).to_be_visible()
    expect(page.locator(".waiting")).to_have_count(0)
    for chart in page.locator("main").get_by_role("img").all():
        chart.scroll_into_view_if_needed()
        box = chart.bounding_box()
        assert box
        for share in (0.2, 0.5, 0.8):
            page.mouse.move(box["x"] + box["width"] * share, box["y"] + box["height"] / 2)
            page.mouse.move(box["x"] + box["width"] * share + 2, box["y"] + box["height"] / 2)
    assert_harmless(page)


def test_a_hostile_session_name_is_rendered_literally(hostile_visit: Visit):
    page = open_view(hostile_visit, "transcript")
    page.get_by_role("region", name="Sessions").get_by_role("link", name=re.compile("<img src=x")).click()
    expect(page.get_by_role("banner")).to_contain_text(HOSTILE_NAME)
    assert_harmless(page)


def test_streamed_answers_and_errors_with_markup_stay_text(open_visit: VisitFactory, hostile_world: World):
    with open_visit(hostile_world.url) as visit:
        visit.expected = ("400", "404")
        page = visit.enter(key_of(hostile_world), "chat", "agent:default:answered")
        paused_answer = PausedAnswer(hostile_world, "".join((*MARKUP, *TERMINAL, *TURNED)), "")
        page.get_by_label("Message").fill(f"Say {HOSTILE_TEXT} {TURNED[0]}")
        page.get_by_label("Message").press("Enter")
        expect(page.get_by_role("article", name="The answer")).to_contain_text("<img src=x onerror=")
        assert_harmless(page)
        paused_answer.go_on.set()
        expect(page.get_by_role("button", name="Send")).to_be_visible()
        assert_harmless(page)
        refusal = {"error": {"message": f"{HOSTILE_TEXT} {TURNED[0]}", "type": HOSTILE_TEXT, "code": HOSTILE_TEXT}}
        hostile_world.upstream.fail = lambda request: JSONResponse(refusal, 400)
        page.get_by_label("Message").fill("Refuse it.")
        page.get_by_label("Message").press("Enter")
        expect(page.get_by_role("alert")).to_contain_text("<img src=x onerror=")
        assert_harmless(page)
        hostile_world.upstream.fail = lambda request: None


def test_a_url_cannot_inject_script(open_visit: VisitFactory, hostile_world: World):
    with open_visit(hostile_world.url) as visit:
        visit.expected = ("404", "400")
        key = key_of(hostile_world)
        for view, session in (
            ("chat", "javascript:alert(1)"),
            ("__proto__", HOSTILE_SESSION),
            ("constructor", "__proto__"),
        ):
            page = visit.enter(key, view, session)
            assert_harmless(page)
        page.goto(
            f"{hostile_world.url}/#/transcript?session={HOSTILE_SESSION}&seq=%3Cimg%20src%3Dx%20onerror%3D{RUN}%3E&q=%3Csvg%3E"
        )
        assert_harmless(page)


CARELESS_PAGE = "<!doctype html><main id=place></main>"
RENDER_AS_MARKUP = """texts => texts.forEach(text => {
  document.getElementById('place').appendChild(document.createElement('div')).innerHTML = text;
})"""
"""Renders each text as markup, as a careless page does."""


def _careless_page(request):
    strict = {"content-security-policy": POLICY} if request.url.path == "/strict" else {}
    return HTMLResponse(CARELESS_PAGE, headers=strict)


@pytest.fixture(scope="module")
def careless_url() -> Iterator[str]:
    """A page that renders text as markup, with and without Recto's content security policy."""
    with serving(Starlette(routes=[Route("/loose", _careless_page), Route("/strict", _careless_page)])) as url:
        yield url


def test_the_same_text_runs_on_a_page_that_renders_it_as_markup(open_visit: VisitFactory, careless_url: str):
    with open_visit(careless_url) as visit:
        page = visit.page
        page.goto(f"{careless_url}/loose")
        page.evaluate(RENDER_AS_MARKUP, [piece for piece in MARKUP if "http-equiv" not in piece])
        page.wait_for_function("window.ran")
        assert len(page.evaluate(INJECTED_ELEMENTS)) > 30
        assert visit.dialogs
        assert any(ELSEWHERE in url for url in visit.requests), "the text sends requests to other machines"
        page.wait_for_function("document.querySelector('img[src*=beacon]').complete")
        assert visit.outbound.requests, "the proxy records them too"
        page.goto(f"{careless_url}/strict")
        visit.clear()


def test_the_content_security_policy_alone_blocks_injected_markup(open_visit: VisitFactory, careless_url: str):
    with open_visit(careless_url) as visit:
        visit.expected = ("policy:", "TrustedHTML", "violates")
        page = visit.page
        page.goto(f"{careless_url}/strict")
        with pytest.raises(Exception, match="TrustedHTML"):
            page.evaluate(RENDER_AS_MARKUP, [HOSTILE_TEXT])
        assert any(complaint for complaint in visit.complaints)
        assert page.evaluate("window.ran") is None
