"""The documentation site: its reference matches the code, its menu lists every page, and it works from a file.

Tests of the built site are skipped if it is missing or older than the pages: `make docs`.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import click
import pytest
from playwright.sync_api import Browser, expect
from tests.web.browsing import CHROMIUM, PHONE, chromium, visit

from recto import errors
from recto.cli.main import recto

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
SITE = ROOT / "build" / "site"
LINKED = re.compile(r"^ *- \[[^\]]+\]\(([^)#:]+\.md)\)", re.MULTILINE)
PYTHON = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
IMPORTED = re.compile(r"^ *from (recto[\w.]*) import (.+)$", re.MULTILINE)
FETCHED = re.compile(r"url\(\s*[\"']?([^\"')]+)|@import\s+[\"']([^\"']+)")
ELSEWHERE = re.compile(r"(?:https?:)?//(?!www\.w3\.org/)")


def pages() -> list[str]:
    return sorted(page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md"))


def test_the_reference_matches_the_code():
    command = [sys.executable, "tools/make_reference.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_every_page_is_in_the_menu_once():
    listed = LINKED.findall((DOCS / "index.md").read_text(encoding="utf-8"))
    assert sorted([*listed, "index.md"]) == pages()


@pytest.mark.parametrize("page", pages())
def test_every_name_that_an_example_imports_is_in_the_reference(page):
    reference = (DOCS / "reference" / "python.md").read_text(encoding="utf-8")
    for example in PYTHON.findall((DOCS / page).read_text(encoding="utf-8")):
        for module, names in IMPORTED.findall(example):
            if module.startswith(("recto.adapters", "recto.gateway.inspection")):
                continue  # their own pages
            for name in names.split(","):
                whole = f"{module}.{name.strip()}"
                assert f"### {whole}\n" in reference, f"{whole}: name it in tools/reference/python_page.py"


def test_the_tree_of_errors_lists_every_error_below_its_base_class():
    drawn = re.findall(r"^    ([│ ├└─]*)(\w+)", (errors.__doc__ or "").partition("needs.\n")[2], re.MULTILINE)
    above: list[str] = []
    tree = set()
    for lines, name in drawn:
        del above[len(lines) // 4 :]
        tree.add((name, above[-1] if above else "Exception"))
        above.append(name)
    raised = [error for error in vars(errors).values() if isinstance(error, type) and issubclass(error, Exception)]
    assert tree == {(error.__name__, error.__base__.__name__) for error in raised}


def commands() -> Iterator[tuple[str, click.Command]]:
    def below(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
        context = click.Context(group)
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            yield f"{path} {name}", command
            if isinstance(command, click.Group):
                yield from below(command, f"{path} {name}")

    yield from below(recto, "recto")


def test_the_command_line_page_names_only_existing_options():
    page = (DOCS / "cli.md").read_text(encoding="utf-8")
    known = dict(commands())
    for heading, section in re.findall(r"^#{2,3} `([^`]+)`\n(.*?)(?=^#{2,3} |\Z)", page, re.MULTILINE | re.DOTALL):
        options = {name for parameter in known[heading].params for name in (*parameter.opts, *parameter.secondary_opts)}
        for line in re.findall(r"^- (`-[^:]+):", section, re.MULTILINE):
            named = set(re.findall(r"(?<![\w-])(--?[a-z][\w-]*)", line))
            assert named <= options, f"{heading}: {named - options}"


def called_in(line: str) -> list[list[str]]:
    """Returns the words of each `recto` command in a line of a shell."""
    shell = shlex.shlex(line, posix=True, punctuation_chars="|>&;")
    shell.whitespace_split = True
    parts: list[list[str]] = [[]]
    for word in shell:
        parts.append([]) if set(word) <= set("|>&;") else parts[-1].append(word)
    return [words for words in parts if words[:1] == ["recto"]]


@pytest.mark.parametrize(
    ("name", "command"), list(commands()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_every_example_in_the_help_names_an_existing_command_and_options(name, command):
    known = dict(commands())
    lines = (command.help or "").split("Examples:", 1)[1].splitlines()
    for words in [words for line in lines for words in called_in(line.strip().split("  ")[0])]:
        own = words[: words.index("--")] if "--" in words else words  # behind it are the options of another program
        used = {word.split("=")[0] for word in own if re.fullmatch(r"--[a-z][\w-]*(=.*)?", word)}
        plain = [word for word in words if not word.startswith("-")]
        named = [" ".join(["recto", *plain[at:stop]]) for at in range(1, len(plain)) for stop in (at + 2, at + 1)]
        path = next((path for path in named if path in known), "")
        assert path, words
        options = {
            opt for option in (*known[path].params, *recto.params) for opt in (*option.opts, *option.secondary_opts)
        }
        assert used <= options | {"--help"}, words


@pytest.fixture(scope="module")
def site() -> Path:
    """Returns the folder of the site, built from the current pages."""
    first = SITE / "index.html"
    if not first.exists():
        pytest.skip("the site is not built: make docs")
    newest = max(file.stat().st_mtime for file in DOCS.rglob("*") if file.is_file())
    if newest > first.stat().st_mtime:
        pytest.skip("pages have changed since the site was built: make docs")
    return SITE


class FetchedAddresses(HTMLParser):
    """Collects the addresses that a browser fetches by itself for a page, without links."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("src", "srcset", "poster", "data") or (name == "href" and tag in ("link", "use", "image")):
                self.addresses.append(value or "")
            if name == "style" and "url(" in (value or ""):
                self.addresses.append(value or "")


def test_no_page_fetches_anything_from_another_host(site):
    built = sorted(site.rglob("*.html"))
    assert {page.relative_to(site).with_suffix(".md").as_posix() for page in built} == {*pages(), "search.md"}
    for page in built:
        for address in FetchedAddresses(page).addresses:
            assert not ELSEWHERE.match(address), f"{page.name}: {address}"
            file = page.parent / address.split("?")[0].split("#")[0]
            assert not address or address.startswith("#") or file.exists(), f"{page.name}: {address}"
    for sheet in site.rglob("*.css"):
        for address in FETCHED.findall(sheet.read_text(encoding="utf-8")):
            assert not ELSEWHERE.match("".join(address)), f"{sheet.name}: {address}"


@pytest.fixture(scope="module")
def browser(site) -> Iterator[Browser]:
    if not CHROMIUM:
        pytest.skip("there is no Chromium here: make chromium")
    with chromium() as opened:
        yield opened


def test_the_search_works_from_a_file(site, browser):
    with visit(browser, site.as_uri()) as made:
        page = made.page
        page.goto(f"{site.as_uri()}/reference/http.html")
        page.get_by_role("textbox", name="Search").fill("erasure")
        page.get_by_role("textbox", name="Search").press("Enter")
        page.locator("#search-results").get_by_role("link", name="Transcript file").first.click()
        expect(page.get_by_role("heading", level=1, name="Transcript file")).to_be_visible()
        expect(page.get_by_text("Recto never removes an entry")).to_be_visible()


def test_the_site_is_readable_without_scripts_in_dark_mode_on_a_phone(site, browser):
    options = {"java_script_enabled": False, "viewport": PHONE, "color_scheme": "dark"}
    context = browser.new_context(**options)
    page = context.new_page()
    page.goto(f"{site.as_uri()}/index.html")
    page.locator("label.nav-overlay-icon").click()
    page.get_by_role("link", name="Context window and eviction", exact=True).first.click()
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    shade = page.locator("body").evaluate("body => getComputedStyle(body).backgroundColor")
    assert max(map(int, re.findall(r"\d+", shade)[:3])) < 64, shade
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    context.close()
