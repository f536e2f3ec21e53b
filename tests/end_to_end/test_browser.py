"""The page of a real aggregator in a real browser, found by roles and names."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import expect

from service.pages.settings import PagesTlsSection
from stores.address import open_store
from tests.aggregator.daemon import Daemon
from tests.aggregator.nodes import T0, faulty, healthy, report
from tests.end_to_end.page_site import (
    CODE,
    WAIT_MS,
    WITHOUT_WORKER,
    PageSite,
    cells,
    names_in_map,
    nodes_named,
)
from tests.end_to_end.proxy import STREAM, Proxy
from tests.parts.certificates import make_authority, make_server
from tests.parts.deadlines import patience, until
from tests.parts.verbs import run_vigil
from tests.service.tls.tls_site import user_line, write_users
from tests.tiers import needs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from playwright.async_api import Locator, Page, Route

    from stores.base import Store
    from tests.end_to_end.node import Node
    from tests.parts.chromium import Chromium

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(180),
    pytest.mark.asyncio(loop_scope="session"),
]

MAX_REQUESTS = 8
MAX_SENT_BYTES = 150_000


@pytest.fixture(autouse=True)
def _patience() -> None:
    expect.set_options(timeout=patience(WAIT_MS / 1000) * 1000)


@pytest_asyncio.fixture(loop_scope="session")
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = open_store(f"directory:{tmp_path / 'store'}", None)
    yield opened
    await opened.close()


@pytest.fixture
@needs("daemon")
def make(tmp_path: Path) -> Iterator[list[Daemon]]:
    """Yield two aggregators on one store, which are not started."""
    made = [Daemon(tmp_path / name, "--store", f"directory:{tmp_path / 'store'}") for name in "ab"]
    yield made
    for daemon in made:
        daemon.stop()


@pytest_asyncio.fixture(loop_scope="session")
async def daemon(make: list[Daemon], store: Store) -> Daemon:
    """Return an aggregator of one healthy node and one with a fault.

    Neither has an agent, so it is not known whether a source is blind.
    """
    await store.put(report("n1", healthy()))
    await store.put(report("n2", faulty(3)))
    make[0].start()
    return make[0]


def node_url(node: Node) -> str:
    return (node.state_dir / "listen").read_text().strip()


async def test_the_worst_comes_first_and_a_change_is_shown_without_asking(
    chromium: Chromium, daemon: Daemon, store: Store
) -> None:
    async with chromium.page() as page:
        await page.clock.install()
        await page.goto(daemon.url)
        await expect(page.get_by_role("option", name="n2, out of use, RestartNPU")).to_be_visible()
        assert await names_in_map(page) == ["n2", "n1"]
        rows = page.get_by_role("region", name="Nodes that are not healthy: 2").get_by_role("row")
        await expect(rows).to_have_count(3)
        began = time.monotonic()
        await store.put(report("n1", faulty(4, T0 + 1)))
        await expect(page.get_by_role("option", name="n1, out of use, RestartNPU")).to_be_visible()
        assert time.monotonic() - began < patience(5)
        await store.put(report("n2", healthy(T0 + 2)))
        await expect(page.get_by_role("option", name="n2, not known")).to_be_visible()
        assert await names_in_map(page) == ["n1", "n2"]
        # People who do not see it hear of it, but not of each change at once.
        await page.clock.run_for(10_000)
        await expect(page.get_by_text("nodes changed:")).to_be_attached()
        assert await page.get_by_role("status").inner_text() == ""


async def test_the_keyboard_alone_leads_from_the_map_to_what_to_do(
    chromium: Chromium, daemon: Daemon
) -> None:
    async with chromium.page() as page:
        await page.goto(daemon.url)
        await expect(page.get_by_role("option", name="n2")).to_be_visible()
        listbox = page.get_by_role("listbox", name="Map of all nodes")
        await listbox.focus()
        assert (
            await page.evaluate("document.querySelectorAll('[role=option][tabindex]').length") == 0
        )
        selected = page.locator("[role=option][aria-selected=true]")
        await expect(selected).to_have_attribute("data-node", "n2")
        await page.keyboard.press("ArrowRight")
        await expect(selected).to_have_attribute("data-node", "n1")
        assert await listbox.get_attribute("aria-activedescendant") == await selected.get_attribute(
            "id"
        )
        await page.keyboard.press("ArrowRight")
        await expect(selected).to_have_attribute("data-node", "n1")
        await page.keyboard.press("Home")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", name="n2", exact=True)).to_be_visible()
        await page.get_by_role("region", name="Faults").get_by_role("link", name=CODE).first.focus()
        await page.keyboard.press("Enter")
        await expect(page.get_by_text("Pods that use it are rescheduled")).to_be_visible()
        await expect(page.get_by_text("Reset the chip when no process uses it.")).to_be_visible()
        await expect(page.get_by_text("section NpuVigilChipRestartNPU")).to_be_visible()
        await page.go_back()
        await expect(page.get_by_role("heading", name="n2", exact=True)).to_be_visible()


async def test_questions_of_the_night_are_answered_by_two_clicks(
    chromium: Chromium, daemon: Daemon
) -> None:
    """The questions are those of docs/operate.md; the agent's page answers the third one."""
    async with chromium.page() as page:
        await page.goto(daemon.url)
        # 1: which chips are out? 6: is the watcher itself well?
        row = page.get_by_role("row", name="n2 ✕ out of use RestartNPU 1 RestartNPU")
        await expect(row).to_be_visible()
        assert await page.get_by_role("status").inner_text() == ""
        await page.get_by_role("link", name="n2").click()
        # 2: since when? 10: is this document what the scheduler sees?
        faults = page.get_by_role("region", name="Faults").get_by_role("row")
        await expect(faults.filter(has_text="ago")).to_have_count(1)
        stored = page.get_by_role("row", name="cluster-info-device-0 stored everywhere")
        holder = daemon.ask("/api/v1/leader")[1]["leader"]["holder"]
        await expect(stored.get_by_role("cell").last).to_have_text(holder)
        await faults.get_by_role("link", name=CODE).click()
        # 5: what do I do? 8: will it come back by itself?
        for term, text in (
            ("What to do", "Reset the chip when no process uses it."),
            ("What happens to jobs", "until the fault ends, as after a reset"),
        ):
            answer = page.locator("dl > div").filter(has=page.get_by_text(term, exact=True))
            await expect(answer.get_by_role("definition")).to_contain_text(text)
        await page.get_by_role("navigation").get_by_role("link", name="Jobs").click()
        # 4: whose jobs?
        await expect(page.get_by_text("No job is hit.")).to_be_visible()
        await page.get_by_role("navigation").get_by_role("link", name="Timeline").click()
        # 7: what changed in the last hour?
        changes = page.get_by_role("region", name="Timeline").get_by_role("row")
        await expect(changes.filter(has_text=CODE)).to_have_count(1)


async def test_a_change_that_was_not_stored_yet_is_shown_a_little_later(
    chromium: Chromium, daemon: Daemon
) -> None:
    async with chromium.page() as page:

        async def without_events(route: Route) -> None:
            answer = await route.fetch()
            await route.fulfill(response=answer, json=await answer.json() | {"events": []})

        await page.goto(daemon.url)
        await expect(page.get_by_role("option", name="n2")).to_be_visible()
        await page.route("**/api/v1/history?*", without_events, times=1)
        await page.get_by_role("navigation").get_by_role("link", name="Timeline").click()
        changes = page.get_by_role("region", name="Timeline").get_by_role("row")
        await expect(changes.filter(has_text=CODE)).to_have_count(1)


async def test_filters_are_in_the_address_and_a_colleague_sees_the_same(
    chromium: Chromium, daemon: Daemon
) -> None:
    async with chromium.page() as page:
        await page.goto(daemon.url)
        await page.get_by_role("search").get_by_label("Code").fill("80e1")
        await expect(cells(page)).to_have_count(1)
        address = page.url
    async with chromium.page() as page:
        await page.goto(address)
        await expect(cells(page)).to_have_count(1)
        await expect(page.get_by_role("search").get_by_label("Code")).to_have_value("80e1")
        await page.get_by_role("search").get_by_label("Code").fill("nothing")
        await expect(page.get_by_text("No node fits the filters.")).to_be_visible()


async def test_the_language_is_that_of_the_browser_and_one_click_changes_it(
    chromium: Chromium, daemon: Daemon
) -> None:
    async with chromium.page(locale="zh-CN") as page:
        await page.goto(f"{daemon.url}/#/fault/n2/Ascend910-3/{CODE}")
        await expect(page.get_by_text("没有进程使用该芯片时复位芯片。")).to_be_visible()
        assert await page.evaluate("document.documentElement.lang") == "zh-Hans"
        await page.get_by_role("button", name="English").click()
        await expect(page.get_by_text("Reset the chip when no process uses it.")).to_be_visible()
        await page.reload()
        await expect(page.get_by_text("Reset the chip when no process uses it.")).to_be_visible()
    async with chromium.page(locale="fr-FR") as page:
        # A browser may have no storage at all.
        await page.add_init_script(
            "Object.defineProperty(window, 'localStorage', { get() { throw new Error('none') } })"
        )
        await page.goto(daemon.url)
        await expect(page.get_by_role("heading", name="NPU Vigil: cluster")).to_be_visible()
        await page.get_by_role("button", name="中文").click()
        await expect(page.get_by_role("heading", name="NPU Vigil：集群")).to_be_visible()


async def test_names_with_markup_are_text(chromium: Chromium, daemon: Daemon, store: Store) -> None:
    name = "<img src=x onerror=alert(1)>"
    code = "<script>alert(2)"
    async with chromium.page() as page:
        dialogs: list[str] = []
        page.on("dialog", lambda dialog: dialogs.append(dialog.message))
        await store.put(report("n3", faulty(5, code=code)))
        await page.goto(f"{daemon.url}/#/node/n3")
        await expect(page.get_by_role("link", name=code).first).to_be_visible()
        await page.goto(f"{daemon.url}/#/node/{name}")
        await expect(page.get_by_role("heading", name=name)).to_be_visible()
        await expect(page.get_by_text("There is no such node now.")).to_be_visible()
        assert dialogs == []
        assert await page.locator("img").count() == 0


async def test_a_list_is_copied_and_without_a_clipboard_selected(
    chromium: Chromium, daemon: Daemon
) -> None:
    async with chromium.page() as page:
        await page.add_init_script(
            "Object.defineProperty(navigator, 'clipboard', {value: undefined})"
        )
        await page.goto(daemon.url)
        await page.get_by_role("button", name="Copy as text: Nodes that are not healthy: 2").click()
        field = page.get_by_role("textbox", name="Text to copy; it is selected")
        text = await field.input_value()
        assert text.splitlines()[1].startswith("n2\t✕ out of use\tRestartNPU")
        assert await page.evaluate("getSelection().toString()") == text


async def test_the_timeline_shows_what_was_published_at_a_time(
    chromium: Chromium, daemon: Daemon, store: Store
) -> None:
    (change,) = await until(lambda: daemon.ask("/api/v1/history")[1]["events"])
    at = change["published"]["at_ms"] // 1000 + 1
    await until(lambda: time.time() > at + 1)
    await store.put(report("n2", healthy(T0 + 1)))
    async with chromium.page(timezone_id="UTC") as page:
        await page.goto(f"{daemon.url}/#/timeline")
        changes = page.get_by_role("table", name="Timeline").get_by_role("row")
        await expect(changes.filter(has_text="over")).to_have_count(1)
        await page.goto(
            f"{daemon.url}/#/timeline?at={time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(at))}"
        )
        published = page.get_by_role("region", name="Published at").get_by_role("row")
        await expect(published.filter(has_text=CODE)).to_have_count(1)
        now = page.get_by_role("option", name="n2, not known")
        await page.goto(f"{daemon.url}/#/fleet")
        await expect(now).to_be_visible()
        # The fleet of that time, by a filter and by the address that it makes.
        then = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at))
        await page.get_by_role("textbox", name="At", exact=True).fill(then)
        await expect(page.get_by_text("This is what was published at")).to_be_visible()
        option = page.get_by_role("option", name="n2, out of use, RestartNPU, 1 RestartNPU")
        await expect(option).to_be_visible()
        assert "at=" in page.url
        # Each view of that time leads to the others of that time, and to the present.
        await expect(page.get_by_text("Everything was recorded at this time.")).to_be_visible()
        await option.click()
        await expect(page.get_by_role("heading", name="n2", exact=True)).to_be_visible()
        held = page.get_by_role("table", name="Faults").get_by_role("row")
        await held.get_by_role("link", name=CODE).click()
        level = page.locator("dl > div").filter(has=page.get_by_text("Level", exact=True))
        await expect(level.get_by_role("definition")).to_have_text("RestartNPU")
        await page.get_by_role("navigation").get_by_role("link", name="Jobs").click()
        await expect(page.get_by_text("Which jobs were hit is not recorded.")).to_be_visible()
        published = page.get_by_role("table", name="Published at").get_by_role("row")
        await expect(published.filter(has_text=CODE)).to_have_count(1)
        await page.get_by_role("link", name="Show the present").click()
        await expect(page.get_by_text("No job is hit.")).to_be_visible()
        assert "at=" not in page.url
        for view in ("timeline", "fleet", "node/n2"):
            await page.goto(f"{daemon.url}/#/{view}?at=2020-01-01T00:00:00Z")
            await expect(page.get_by_text("Nothing was recorded at this time.")).to_be_visible()


async def test_the_time_in_an_address_is_the_same_in_all_time_zones(
    chromium: Chromium, daemon: Daemon
) -> None:
    async with chromium.page(timezone_id="Asia/Shanghai") as page:
        await page.goto(f"{daemon.url}/#/timeline?at=2026-01-01T00:00:00Z")
        at = page.get_by_role("search").get_by_label("At", exact=True)
        await expect(at).to_have_value("2026-01-01T08:00")
        await at.fill("2026-01-01T09:30:00")
        await page.get_by_role("button", name="Show", exact=True).click()
        await expect(page.get_by_text("Published at 2026-01-01 09:30:00").first).to_be_visible()
        assert page.url.endswith("at=2026-01-01T01%3A30%3A00Z")


async def test_axe_finds_nothing_and_every_list_can_be_copied(
    chromium: Chromium, daemon: Daemon
) -> None:
    views = {
        "#/fleet": "Nodes that are not healthy",
        "#/node/n2": "Not known here",
        f"#/fault/n2/Ascend910-3/{CODE}": "What to do",
        "#/jobs": "What the scheduler will do",
        "#/timeline": "Recorded by",
        "#/node/n2?at=2030-01-01T00:00:00Z": "Show the present",
    }
    async with chromium.page(viewport={"width": 360, "height": 740}) as page:
        for view, text in views.items():
            await page.goto(f"{daemon.url}/{view}")
            await expect(page.get_by_text(text).first).to_be_visible()
            copies = page.get_by_role("button", name="Copy as text: ")
            assert await copies.count() == await page.get_by_role("table").count()
            assert await page.evaluate("document.documentElement.scrollWidth") <= 360
            for scheme in ("light", "dark"):
                await page.emulate_media(color_scheme=scheme)
                # Only colours differ between the two.
                options = {} if scheme == "light" else {"runOnly": ["color-contrast"]}
                results = await Axe().run(page, options=options)
                assert results.violations_count == 0, results.generate_report()


async def test_behind_a_prefix_every_address_is_relative_and_requests_are_few(
    chromium: Chromium, daemon: Daemon
) -> None:
    proxy = Proxy([daemon.url])
    async with proxy.serving(), chromium.page() as page:
        await page.goto(proxy.url)
        await expect(page.get_by_role("option", name="n2")).to_be_visible()
        await expect(page.get_by_role("status")).to_have_text("")
        asked = [path for path in proxy.requests if path != STREAM]
        assert len(asked) <= MAX_REQUESTS, asked
        assert proxy.sent_bytes <= MAX_SENT_BYTES
        await page.goto(f"{proxy.url}#/node/n2")
        await expect(page.get_by_role("heading", name="n2", exact=True)).to_be_visible()
        assert await page.get_by_role("status").inner_text() == ""


async def polls_until(page: Page, shown: Locator) -> None:
    """Let the time of a tab go to its next polls until they bring what is to be shown."""

    async def is_shown_by_another_poll() -> bool:
        await page.clock.fast_forward(16_000)
        return await shown.is_visible()

    await until(is_shown_by_another_poll, step_seconds=0.5)


async def test_answers_of_two_aggregators_end_in_polling_with_the_reason(
    chromium: Chromium, daemon: Daemon, make: list[Daemon], store: Store
) -> None:
    make[1].spawn()
    proxy = Proxy([daemon.url, make[1].url])
    async with proxy.serving(), chromium.page() as page:
        # The clock of a tab can be set, that of a worker cannot.
        await page.add_init_script(WITHOUT_WORKER)
        await page.clock.install()
        await page.goto(proxy.url)
        # Rows and stream may come from one of them by chance. The next rows then do not.
        await store.put(report("n1", faulty(4, T0 + 1)))
        await polls_until(page, page.get_by_role("status").get_by_text("different aggregators"))
        streams = proxy.streams
        await store.put(report("n2", healthy(T0 + 2)))
        await polls_until(page, page.get_by_role("option", name="n2, not known"))
        await expect(page.get_by_role("option", name="n1, out of use")).to_be_visible()
        assert proxy.streams == streams <= 12


def streams_of(daemon: Daemon) -> int:
    """Return how many clients the aggregator counts on its stream."""
    return int(daemon.ask("/api/v1/services")[1]["services"]["stream"]["clients"])


async def test_tabs_share_one_stream_and_a_worker_that_dies_is_replaced(
    chromium: Chromium, daemon: Daemon, store: Store
) -> None:
    async with chromium.page() as page:
        # Only time goes faster there: pings follow each other at once.
        await page.clock.install()
        tabs = [page, await page.context.new_page(), await page.context.new_page()]
        for tab in tabs:
            await tab.goto(daemon.url)
            await expect(tab.get_by_role("option", name="n2, out of use")).to_be_visible()
        await until(lambda: streams_of(daemon) == 1)
        await store.put(report("n1", faulty(4, T0 + 1)))
        for tab in tabs:
            await expect(tab.get_by_role("option", name="n1, out of use")).to_be_visible()
        assert streams_of(daemon) == 1
        await tabs.pop().close()
        assert page.context.browser is not None
        session = await page.context.browser.new_browser_cdp_session()
        targets = (await session.send("Target.getTargets"))["targetInfos"]
        (worker,) = [target for target in targets if target["type"] == "shared_worker"]
        await session.send("Target.closeTarget", {"targetId": worker["targetId"]})
        await until(lambda: streams_of(daemon) == 0)
        await store.put(report("n1", healthy(T0 + 2)))
        await page.clock.run_for(12_000)
        for tab in tabs:
            await expect(tab.get_by_role("option", name="n1, not known")).to_be_visible()
        assert streams_of(daemon) == 1


async def test_without_a_worker_each_tab_has_a_stream_of_its_own(
    chromium: Chromium, daemon: Daemon, store: Store
) -> None:
    async with chromium.page() as page:
        await page.context.add_init_script(WITHOUT_WORKER)
        tabs = [page, await page.context.new_page(), await page.context.new_page()]
        for tab in tabs:
            await tab.goto(daemon.url)
        await until(lambda: streams_of(daemon) == 3)
        await store.put(report("n1", faulty(4, T0 + 1)))
        for tab in tabs:
            await expect(tab.get_by_role("option", name="n1, out of use")).to_be_visible()


async def test_a_stream_that_ends_three_times_is_given_up_for_polling(
    chromium: Chromium, daemon: Daemon, store: Store
) -> None:
    proxy = Proxy([daemon.url], ends_streams=True)
    async with proxy.serving(), chromium.page() as page:
        # The clock of a tab can be set, that of a worker cannot.
        await page.add_init_script(WITHOUT_WORKER)
        await page.clock.install()
        await page.goto(proxy.url)
        for count in (1, 2, 3):
            await until(lambda count=count: proxy.streams == count)  # type: ignore[misc]
            await page.clock.fast_forward(1_500)
        notice = page.get_by_role("status").get_by_text("too many pages are open")
        await expect(notice).to_be_visible()
        await store.put(report("n1", faulty(4, T0 + 1)))
        await polls_until(page, page.get_by_role("option", name="n1, out of use"))
        assert proxy.streams == 3
        # After five minutes it tries the stream again.
        await page.clock.fast_forward(310_000)
        await page.clock.fast_forward(16_000)
        await until(lambda: proxy.streams == 4)


async def test_an_aggregator_that_is_away_and_comes_back_is_no_reason_to_reload(
    chromium: Chromium, make: list[Daemon], store: Store, tmp_path: Path
) -> None:
    await store.put(report("n2", faulty(3)))
    make[0].start()
    port = make[0].url.rpartition(":")[2]
    make[0].stop()
    stays = Daemon(
        tmp_path / "c", "--store", f"directory:{tmp_path / 'store'}", listen=f"127.0.0.1:{port}"
    )
    make.append(stays)
    stays.start()
    async with chromium.page() as page:
        await page.goto(stays.url)
        await expect(page.get_by_role("option", name="n2, out of use")).to_be_visible()
        stays.kill()
        await expect(page.get_by_role("status").get_by_text("does not answer")).to_be_visible()
        await expect(page.get_by_role("option", name="n2, out of use")).to_be_visible()
        await store.put(report("n2", healthy(T0 + 1)))
        stays.start()
        await expect(page.get_by_role("option", name="n2, not known")).to_be_visible()
        await expect(page.get_by_role("status")).to_have_text("")


@pytest.fixture
def ill_node(folder_node: Node, make: list[Daemon]) -> Node:
    """Return a node with a fault and a chip that an operator isolated; an aggregator knows it."""
    folder_node.options += ["--listen", "127.0.0.1:0"]
    folder_node.start()
    folder_node.up()
    folder_node.ready()
    folder_node.emulator.occur(3, CODE)
    make[0].environment["VIGIL_PAGES_AGENT_URL"] = f"{node_url(folder_node)}/#/node/{{node}}"
    make[0].start()
    reason = ("--reason", "HBM is replaced", "--yes", *folder_node.place.options)
    assert run_vigil("isolate", folder_node.name, "5", *reason)[0] == 0
    return folder_node


async def of_another_release(route: Route) -> None:
    """Answer as an agent that was upgraded while its page is open."""
    answer = await route.fetch()
    await route.fulfill(response=answer, json=await answer.json() | {"version": "9"})


async def test_an_agent_answers_what_only_it_knows_two_clicks_away(
    chromium: Chromium, ill_node: Node, make: list[Daemon]
) -> None:
    """Questions 3 and 9 of docs/operate.md: why, and who isolated this chip."""
    async with chromium.page() as page:
        elsewhere: list[str] = []
        page.on("request", lambda request: elsewhere.append(request.url))
        await page.goto(make[0].url)
        await page.get_by_role("row").get_by_role("link", name=ill_node.name).click()
        isolated = page.get_by_role("table", name="Faults").get_by_role("row")
        await expect(isolated.filter(has_text="HBM is replaced")).to_contain_text("isolated it at")
        async with page.context.expect_page() as opened:
            await page.get_by_role("link", name="Open the page of the agent").click()
        # Nothing was asked there before the reader went there.
        assert [url for url in elsewhere if not url.startswith(make[0].url)] == []
        agent = await opened.value
        await expect(agent.get_by_role("heading", name="NPU Vigil: node")).to_be_visible()
        await expect(agent.get_by_text("levels.json, SeparateNPU").first).to_be_visible()
        await expect(agent.get_by_role("table", name="Chips").get_by_role("row")).to_have_count(9)
        results = await Axe().run(agent)
        assert results.violations_count == 0, results.generate_report()
        await agent.route("**/api/v1/status", of_another_release)
        await agent.reload()
        await expect(agent.get_by_text("the daemon of release 9. Reload")).to_be_visible()
        await agent.get_by_role("link", name=CODE).click()
        timeline = agent.get_by_role("region", name="Timeline").get_by_role("row")
        await expect(timeline.filter(has_text=CODE).first).to_be_visible()


async def test_the_login_of_the_browser_opens_the_page_and_its_stream(
    chromium: Chromium, tmp_path: Path
) -> None:
    make_authority(tmp_path)
    make_server(tmp_path)
    (tmp_path / "server.key").chmod(0o600)
    users = write_users(tmp_path / "users", user_line("ops", "secret"))
    login = PagesTlsSection(
        certificate_file=tmp_path / "server.crt",
        key_file=tmp_path / "server.key",
        users_file=users,
    )
    site = PageSite(nodes_named("n1", "n2"))
    # Playwright answers the dialogue; the authority is one that the browser does not have.
    options = {
        "ignore_https_errors": True,
        "http_credentials": {"username": "ops", "password": "secret"},
    }
    async with site.serving(tmp_path, login=login):
        async with chromium.page(ignore_https_errors=True) as page:
            # A browser without a window has no dialogue, and shows the refusal.
            refusal = await page.goto(site.url)
            assert refusal is not None
            assert refusal.status == 401
            await expect(cells(page)).to_have_count(0)
        async with chromium.page(**options) as page:
            await page.goto(site.url)
            await expect(cells(page)).to_have_count(2)

            async def streams() -> bool:
                return site.stream.clients == 1

            await until(streams)
            site.set_faults("n2", "RestartNPU")
            # The page itself reads its rows once a minute, which is too late.
            worst = page.get_by_role("option", name="n2, out of use, RestartNPU")
            await expect(worst).to_be_visible()
