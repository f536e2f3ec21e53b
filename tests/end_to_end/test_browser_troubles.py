"""The page of an aggregator when something is wrong: it names the trouble, and shows the rest."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec
import pytest
from playwright.async_api import expect

from advisor.options import Profile
from aggregator.advising.outcomes import DeletionOutcome, Missed
from aggregator.advising.sessions import Sessions
from aggregator.advising.status import AdviceStatus, without_placement
from aggregator.api.operations import AdvicePage
from aggregator.notify.history_file import FILE_NAME
from contract.pages.aggregator_status import HitJob, JobsPage, NodeHit, RankFaultDevice
from contract.pages.faults import FaultsPage
from contract.pages.history import HistoryPage, PublishedFault, PublishedPage
from service.pages.event_stream import Stream
from stores.address import open_store
from tests.aggregator.advising.advised import NOW_MS, filled, ill
from tests.aggregator.api.given_queries import fault_row
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
from tests.parts.deadlines import patience, until
from tests.vigil.advise import cluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.async_api import Locator, Page

    from tests.parts.chromium import Chromium

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(180),
    pytest.mark.asyncio(loop_scope="session"),
]

MANY = 16_000
MANY_FAULTS = 50_000
HOUR_MS = 3_600_000


@pytest.fixture(autouse=True)
def _patience() -> None:
    expect.set_options(timeout=patience(WAIT_MS / 1000) * 1000)


@pytest.fixture
def site() -> PageSite:
    return PageSite(nodes_named("n1", "n2"), [fault_row("n2", "Ascend910-3", "SeparateNPU")])


@pytest.fixture
def daemons() -> Iterator[list[Daemon]]:
    """Yield a list of daemons to stop at the end."""
    made: list[Daemon] = []
    yield made
    for daemon in made:
        daemon.stop()


def notices(page: Page) -> Locator:
    return page.get_by_role("status")


async def test_sixteen_thousand_nodes_are_on_the_map_and_a_change_is_shown(
    chromium: Chromium, tmp_path: Path
) -> None:
    names = [f"node-{number:05}" for number in range(MANY)]
    hit = [fault_row(name, "Ascend910-0", "SeparateNPU") for name in names[::100]]
    site = PageSite(nodes_named(*names), hit)
    async with site.serving(tmp_path), chromium.page() as page:
        await page.goto(site.url)
        await expect(cells(page)).to_have_count(MANY)
        assert (await names_of_groups(page))[0] == "node-000…"
        rows = page.get_by_role("table", name="Nodes that are not healthy: 160").get_by_role("row")
        await expect(rows).to_have_count(1 + 100)
        await page.get_by_role("button", name="Show more: Nodes that are not healthy").click()
        await expect(rows).to_have_count(1 + len(hit))
        site.set_faults("node-00001", "SeparateNPU")
        await expect(page.locator('[data-node="node-00001"]')).to_have_attribute(
            "data-state", "out"
        )


async def names_of_groups(page: Page) -> list[str]:
    return await page.locator("#map h3").all_inner_texts()


async def test_a_change_is_shown_without_a_request(
    chromium: Chromium, site: PageSite, tmp_path: Path
) -> None:
    async with site.serving(tmp_path), chromium.page() as page:
        await page.add_init_script(WITHOUT_WORKER)
        await page.goto(site.url)
        await expect(cells(page)).to_have_count(2)
        await until(lambda: site.stream.clients == 1)
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        for level in ("SeparateNPU", "RestartNPU"):
            site.set_faults("n1", level)
            await expect(
                page.get_by_role("option", name=f"n1, out of use, {level}")
            ).to_be_visible()
        assert asked == []


async def test_without_rows_in_the_stream_a_page_asks_for_them(
    chromium: Chromium, site: PageSite, tmp_path: Path
) -> None:
    async with site.serving(tmp_path), chromium.page() as page:
        await page.goto(site.url)
        await expect(cells(page)).to_have_count(2)
        await until(lambda: site.stream.clients == 1)
        (client,) = site.stream._clients
        client.takes_rows = False
        site.set_faults("n1", "SeparateNPU")
        await expect(page.get_by_role("option", name="n1, out of use")).to_be_visible()


async def test_of_many_changes_at_once_only_the_changed_nodes_are_drawn_and_announced(
    chromium: Chromium, tmp_path: Path
) -> None:
    names = [f"n{number:03}" for number in range(240)]
    site = PageSite(nodes_named(*names))
    async with site.serving(tmp_path), chromium.page() as page:
        await page.clock.install()
        await page.goto(site.url)
        await expect(cells(page)).to_have_count(len(names))
        await until(lambda: site.stream.clients == 1)
        # More than the stream has rows of: the page reads all rows.
        hit = names[::2]
        for name in hit:
            site.set_faults(name, "SeparateNPU")
        await expect(page.locator('.map [data-state="out"]')).to_have_count(len(hit))
        await page.clock.run_for(10_000)
        await expect(page.get_by_text(f"{len(hit)} nodes changed: ")).to_be_attached()


async def test_fifty_thousand_faults_are_shown_in_parts_and_copied_whole(
    chromium: Chromium, site: PageSite, tmp_path: Path
) -> None:
    faults = [
        PublishedFault(f"n{number // 50}", f"Ascend910-{number % 50}", CODE, "SeparateNPU")
        for number in range(MANY_FAULTS)
    ]
    site.answers |= {
        "/api/v1/published": PublishedPage(1000, True, 0, tuple(faults), {}),
        "/api/v1/history": HistoryPage((), 0, False),
    }
    async with site.serving(tmp_path), chromium.page() as page:
        # The clipboard of a browser without a window belongs to no test.
        await page.add_init_script(
            "Object.defineProperty(navigator, 'clipboard',"
            " {value: {writeText: async (text) => { window.copied = text; }}})"
        )
        await page.goto(f"{site.url}/#/timeline?at=2026-01-01T00:00:00Z")
        rows = page.get_by_role("table", name="Published at").get_by_role("row")
        await expect(rows).to_have_count(1 + 100)
        await expect(page.get_by_text(f"Show more ({MANY_FAULTS - 100} left)")).to_be_visible()
        copy = page.get_by_role("button", name="Copy as text: Published at")

        async def is_copied() -> bool:
            """Return whether a click is answered: rows that come meanwhile draw the button anew."""
            await copy.click()
            return await copy.inner_text() == "Copied"

        await until(is_copied)
        assert (await page.evaluate("window.copied")).count("\n") == MANY_FAULTS


async def test_a_broken_document_and_the_same_fault_from_two_stores(
    chromium: Chromium, daemons: list[Daemon], tmp_path: Path
) -> None:
    urls = [f"directory:{tmp_path / name}" for name in ("first", "second")]
    stores = [open_store(url, None) for url in urls]
    for store in stores:
        await store.put(report("n2", faulty(3)))
    await stores[0].put(report("n1", healthy()))
    options = [option for url in urls for option in ("--store", url)]
    daemons.append(Daemon(tmp_path / "aggregator", *options))
    daemons[0].start()
    async with chromium.page() as page:
        await page.goto(f"{daemons[0].url}/#/node/n2")
        faults = page.get_by_role("table", name="Faults").get_by_role("row")
        await expect(faults.filter(has_text=CODE)).to_have_count(1)
        await stores[0].put(report("n1", {"DeviceInfoCfg": "{"}))
        await page.goto(f"{daemons[0].url}/#/node/n1")
        await expect(page.get_by_text("refused since").first).to_be_visible()
        # The last good document counts, and no advice is computed here.
        await page.get_by_role("navigation").get_by_role("link", name="Jobs").click()
        await expect(page.get_by_text("Nothing is computed: set advice.enabled.")).to_be_visible()
    for store in stores:
        await store.close()


async def test_control_characters_neither_split_a_copied_row_nor_turn_it_around(
    chromium: Chromium, tmp_path: Path
) -> None:
    code = "A\tB\nC\u202eD"
    site = PageSite(nodes_named("n1"), [fault_row("n1", "Ascend910-3", "Odd\tLevel", code=code)])
    async with site.serving(tmp_path), chromium.page() as page:
        await page.add_init_script(
            "Object.defineProperty(navigator, 'clipboard', {value: undefined})"
        )
        await page.goto(site.url)
        await page.get_by_role("button", name="Copy as text: Nodes that are not healthy: 1").click()
        field = page.get_by_role("textbox", name="Text to copy; it is selected")
        head, row = (await field.input_value()).split("\n")
        assert len(head.split("\t")) == len(row.split("\t"))
        assert row.split("\t")[2] == "Odd Level"
        assert row.split("\t")[4] == "A B C D"


async def test_the_name_of_a_node_is_one_part_of_the_address_of_its_agent(
    chromium: Chromium, site: PageSite, tmp_path: Path
) -> None:
    name = "@elsewhere/../?<b>"
    site.agent_url = "http://agents.example.com/{node}/"
    site.answers["/api/v1/faults"] = FaultsPage(0, (fault_row(name, "Ascend910-3", "SeparateNPU"),))
    async with site.serving(tmp_path), chromium.page() as page:
        await page.goto(f"{site.url}/#/fault/{quote(name, safe='')}/Ascend910-3/{CODE}")
        link = page.get_by_role("link", name="Open the page of the agent of @elsewhere")
        href = "http://agents.example.com/%40elsewhere%2F..%2F%3F%3Cb%3E/"
        await expect(link).to_have_attribute("href", href)


async def test_a_node_without_or_with_another_super_pod_is_in_one_group(
    chromium: Chromium, tmp_path: Path
) -> None:
    site = PageSite(nodes_named("a1", "a2", "b1", "b2"))
    site.place("a1", super_pod_id=0, rack_id=7)
    site.place("a2", super_pod_id=-2, rack_id=7)
    site.place("b1", super_pod_id=-1, rack_id=-1)
    site.place("b2", super_pod_id=0, rack_id=8)
    async with site.serving(tmp_path), chromium.page() as page:
        await page.goto(site.url)
        group = page.get_by_role("listbox").get_by_role("group")
        await expect(group).to_have_count(3)
        assert sorted(await names_of_groups(page)) == ["Rack 7", "Super pod 0", "b…"]
        # Its documents contradict each other in turn: the newest counts, and no cell stays behind.
        for super_pod_id in (3, 0, 3):
            site.place("b2", super_pod_id=super_pod_id)
            site.changed("b2")
            name = f"Super pod {super_pod_id}"
            cell = page.get_by_role("group", name=name).get_by_role("option", name="b2")
            await expect(cell).to_be_visible()
            await expect(cells(page)).to_have_count(4)


async def test_a_node_comes_and_goes_and_comes_under_one_name(
    chromium: Chromium, site: PageSite, tmp_path: Path
) -> None:
    async with site.serving(tmp_path), chromium.page() as page:
        await page.goto(site.url)
        await expect(cells(page)).to_have_count(2)
        (row,) = (row for row in site.fleet.nodes if row.node == "n1")
        for _ in range(2):
            site.fleet.nodes.remove(row)
            site.changed("n1")
            await expect(cells(page)).to_have_count(1)
            assert await names_in_map(page) == ["n2"]
            site.fleet.nodes.insert(0, row)
            site.changed("n1")
            await expect(cells(page)).to_have_count(2)
        await expect(page.get_by_role("option", name="n1, healthy")).to_have_count(1)


_PORT = "port = { postMessage() {}, close() {} };"


@pytest.mark.parametrize(
    "worker",
    [
        "class { constructor() { throw new DOMException('denied', 'SecurityError'); } }",
        f"class {{ {_PORT} constructor() {{ setTimeout(() => this.onerror(), 100); }} }}",
        f"class {{ {_PORT} }}",
    ],
    ids=["forbidden", "not loaded", "silent"],
)
async def test_a_tab_whose_worker_does_not_work_reads_the_stream_itself(
    chromium: Chromium, site: PageSite, tmp_path: Path, worker: str
) -> None:
    async with site.serving(tmp_path), chromium.page() as page:
        await page.add_init_script(f"window.SharedWorker = {worker}")
        await page.clock.install()
        await page.goto(site.url)
        # A silent worker is replaced twice before the tab does without.
        await page.clock.run_for(30_000)
        await expect(cells(page)).to_have_count(2)
        await until(lambda: site.stream.clients == 1)


async def test_a_client_that_missed_events_reads_all_rows_again(
    chromium: Chromium, site: PageSite, tmp_path: Path
) -> None:
    async with site.serving(tmp_path), chromium.page() as page:
        await page.goto(site.url)
        await expect(cells(page)).to_have_count(2)
        await until(lambda: site.stream.clients == 1)
        (client,) = site.stream._clients
        # The event does not reach the page, as behind a thousand that a slow client did not read.
        site.set_faults("n1", "SeparateNPU")
        client.miss()
        await expect(page.get_by_role("option", name="n1, out of use")).to_be_visible()
        assert site.stream.status().gaps == 1
        await expect(notices(page)).to_have_text("")


async def test_an_aggregator_that_stops_leading_or_is_upgraded_is_named(
    chromium: Chromium, site: PageSite, tmp_path: Path
) -> None:
    async with chromium.page() as page:
        async with site.serving(tmp_path):
            await page.goto(site.url)
            await expect(cells(page)).to_have_count(2)
            leadership = site.fleet.queries.leadership
            leadership.leads, leadership.holder = False, "other"
            site.fleet.queries.leader_page().leader.role = "follower"
            site.changed("n1")
            await expect(notices(page).get_by_text("does not lead: follower")).to_be_visible()
            await expect(notices(page).get_by_text("Leader: other")).to_be_visible()
        address = site.url.removeprefix("http://")
        later = PageSite(nodes_named("n1", "n2", "n3"))
        later.fleet.queries.stream = later.fleet.stream = Stream("later")
        later.version = "2"
        (tmp_path / "later").mkdir()
        async with later.serving(tmp_path / "later", address):
            await expect(cells(page)).to_have_count(3)
            text = "This page is of release 1, the daemon of release 2. Reload the page."
            await expect(notices(page).get_by_text(text)).to_be_visible()
            await expect(notices(page).get_by_text("does not lead")).to_have_count(0)
            # A file that was not opened before is of the other release.
            await page.route("**/details.js", lambda route: route.fulfill(status=404))
            await page.get_by_role("link", name="Jobs").click()
            await expect(notices(page).get_by_text("A file of this page")).to_be_visible()


async def test_an_aggregator_that_starts_is_named_and_the_last_rows_stay(
    chromium: Chromium, site: PageSite, tmp_path: Path
) -> None:
    async with site.serving(tmp_path), chromium.page() as page:
        # The clock of a worker cannot be set from here.
        await page.add_init_script(WITHOUT_WORKER)
        await page.clock.install()
        site.fleet.queries.readiness.is_past_start.return_value = False
        await page.goto(site.url)
        starts = notices(page).get_by_text("The aggregator starts")
        await expect(starts).to_be_visible()
        site.fleet.queries.readiness.is_past_start.return_value = True
        await page.clock.run_for(5_000)
        await expect(cells(page)).to_have_count(2)
        await expect(notices(page)).to_have_text("")
        site.fleet.queries.readiness.is_past_start.return_value = False
        # The page asks where the stream has no rows.
        (client,) = site.stream._clients
        client.takes_rows = False
        site.changed("n1")
        await page.clock.run_for(3_000)
        await expect(starts).to_be_visible()
        await expect(cells(page)).to_have_count(2)


async def test_after_a_night_of_sleep_the_page_is_current_at_once(
    chromium: Chromium, site: PageSite, tmp_path: Path
) -> None:
    async with site.serving(tmp_path), chromium.page() as page:
        # The clock of a worker cannot be set from here.
        await page.add_init_script(WITHOUT_WORKER)
        await page.clock.install()
        await page.goto(site.url)
        await expect(cells(page)).to_have_count(2)
        # What happens at night reaches no page, as the connection is dead without an end.
        site.stream._clients.clear()
        site.set_faults("n1", "SeparateNPU")
        await page.clock.fast_forward(8 * HOUR_MS)
        await expect(page.get_by_role("option", name="n1, out of use")).to_be_visible()
        await expect(notices(page).get_by_text("The last answer is from")).to_have_count(0)


async def test_a_clock_that_is_an_hour_off_is_named_and_ages_are_right(
    chromium: Chromium, site: PageSite, tmp_path: Path
) -> None:
    site.answers["/api/v1/jobs"] = JobsPage(0, "", ())
    began_ms = int(time.time() * 1000) - 600_000
    site.answers["/api/v1/advice"] = AdvicePage(0, True, AdviceStatus(0, began_ms))
    async with site.serving(tmp_path), chromium.page() as page:
        await page.add_init_script(WITHOUT_WORKER)
        await page.clock.install(time=time.time() - 3600)
        await page.goto(f"{site.url}/#/jobs")
        text = "The clock of this browser is off by 60 minutes."
        await expect(notices(page).get_by_text(text)).to_be_visible()
        await expect(page.get_by_text("Computed 10 min ago")).to_be_visible()


async def test_a_history_that_is_cut_empty_or_broken_is_named(
    chromium: Chromium, daemons: list[Daemon], tmp_path: Path
) -> None:
    url = f"directory:{tmp_path / 'store'}"
    store = open_store(url, None)
    await store.put(report("n1", healthy()))
    daemons.append(Daemon(tmp_path / "aggregator", "--store", url))
    daemons[0].start()
    async with chromium.page() as page:
        await page.goto(f"{daemons[0].url}/#/timeline?at=2020-01-01T00:00:00Z")
        await expect(page.get_by_text("The history begins at")).to_be_visible()
        await expect(page.get_by_text("The history has nothing of this.")).to_be_visible()
        await store.put(report("n1", faulty(3, T0 + 1)))
        changes = page.get_by_role("table", name="Changes since").get_by_role("row")
        await expect(changes.filter(has_text=CODE)).to_have_count(1)
        (tmp_path / "aggregator" / FILE_NAME).rename(tmp_path / "away")
        (tmp_path / "aggregator" / FILE_NAME).mkdir()
        await page.goto(f"{daemons[0].url}/#/node/n1?at=2020-01-01T00:00:00Z")
        await expect(page.get_by_text("cannot be read").first).to_be_visible()
    await store.close()


async def test_what_the_scheduler_will_do_and_the_last_deviations_are_shown(
    chromium: Chromium, site: PageSite, tmp_path: Path
) -> None:
    """The reports are those of real sessions; ``tests/aggregator/advising`` has a real cluster."""
    objects, sessions = filled(cluster.two_pods_on_two_of_three_nodes()), Sessions()
    sessions.look(objects.snapshot(NOW_MS))
    assert ill(objects, NOW_MS + 300)
    sessions.look(objects.snapshot(NOW_MS + 300))
    outcome = DeletionOutcome.DID_NOT_COME
    missed = Missed(NOW_MS, outcome, "default/j", "default/p0", "u", "the pod stays")
    advice = AdviceStatus(
        NOW_MS,
        NOW_MS,
        1,
        not_known={"retries": "forbidden"},
        outcomes={outcome: 1},
        missed=(missed,),
        reports=tuple(sessions.reports),
    )
    device = RankFaultDevice("3", "npu", CODE, "SeparateNPU")
    hit = HitJob(
        "u", "default", "j", "UnHealthy", NOW_MS, (NodeHit("n2", "", "UnHealthy", 0, (device,)),)
    )
    site.answers["/api/v1/jobs"] = JobsPage(0, "", (hit,))
    site.answers["/api/v1/advice"] = AdvicePage(0, True, without_placement(advice))
    async with site.serving(tmp_path), chromium.page() as page:
        await page.goto(f"{site.url}/#/jobs")
        jobs = page.get_by_role("table", name="Jobs that are hit").get_by_role("row")
        await expect(
            jobs.filter(has_text="default/j").get_by_role("link", name="n2")
        ).to_be_visible()
        decided = page.get_by_role("table", name=f"What the scheduler will do: {Profile.UPSTREAM}")
        row = decided.get_by_role("row").filter(has_text="deletes pods at once")
        await expect(row).to_have_count(1)
        await expect(row.get_by_role("link", name="n2")).to_be_visible()
        await expect(page.get_by_text("Not known: retries: forbidden")).to_be_visible()
        deviation = page.get_by_role("table", name="The last deviations").get_by_role("row")
        await expect(deviation.filter(has_text="the pod stays")).to_have_count(1)
        await expect(deviation.filter(has_text="foretold, did not come")).to_have_count(1)
        changed = msgspec.structs.replace(advice, missed=(), reports=())
        site.answers["/api/v1/advice"] = AdvicePage(0, True, changed)
        site.stream.send("advice", changed)
        await expect(page.get_by_text("All deletions came as foretold.")).to_be_visible()
