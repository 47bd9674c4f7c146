"""The page in a real browser: opened from disk, nothing leaves it, switches switch, tables sort, values are right."""

import os
import shutil

import pytest

from conftest import random_graph
from graphcal.reports import report
from sample_results import sample_results, unpacked_map

pytestmark = pytest.mark.browser

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]


@pytest.fixture(scope="module")
def browser():
    """Debian's chromium. Without one the tests are skipped, unless GRAPHCAL_BROWSER=required."""
    required = os.environ.get("GRAPHCAL_BROWSER") == "required"
    path = shutil.which("chromium")
    if path is None:
        message = "no chromium on this machine (Debian: apt install chromium)"
        pytest.fail(message) if required else pytest.skip(message)
    playwright = (
        pytest.importorskip("playwright.sync_api") if not required else __import__("playwright.sync_api").sync_api
    )
    with playwright.sync_playwright() as p:
        chromium = p.chromium.launch(executable_path=path, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return report(sample_results()).write(tmp_path_factory.mktemp("report") / "report.html")


class Opened:
    """A page with a record of its requests and its faults."""

    def __init__(self, browser, file, **options):
        self.context = browser.new_context(viewport={"width": 1200, "height": 900}, offline=True, **options)
        self.page, self.requests, self.faults = self.context.new_page(), [], []
        self.page.on("request", lambda r: self.requests.append(r.url))
        self.page.on("pageerror", lambda e: self.faults.append(str(e)))
        self.page.on("console", lambda m: self.faults.append(m.text) if m.type == "error" else None)
        self.page.goto(file.as_uri())


@pytest.fixture
def opened(browser, file):
    tab = Opened(browser, file)
    yield tab
    assert tab.faults == []
    tab.context.close()


def test_nothing_leaves_the_page(opened, file):
    opened.page.locator("#method").select_option("sharp")
    opened.page.wait_for_timeout(50)
    assert opened.requests == [file.as_uri()]


def first_target():
    """The smallest error target of the chosen method that decides something, as it is shown."""
    curve = sample_results()["methods"]["scar"]["decision"]["curve"]
    target = next(target for target, count in zip(curve["targets"], curve["decided"]) if count)
    return f"{100 * target:g}\u00a0%"


def test_the_verdict_is_the_first_thing_to_read(opened):
    assert opened.page.title() == "sample · gcn · graphcal report"
    assert "under-confident by" in opened.page.locator("#verdict").inner_text()
    box = opened.page.locator("#verdict").bounding_box()
    assert box["y"] < 300
    first = opened.page.locator("main section").first
    assert first.get_attribute("id") == "diagrams"
    assert opened.page.locator("#target-text").inner_text() == first_target()


@pytest.mark.parametrize("method", ["ts", "scar", "sharp"])
@pytest.mark.parametrize("binning", ["10 equal-width", "20 equal-mass"])
def test_method_and_bins_switch(opened, method, binning):
    page, bins = opened.page, sample_results()["methods"][method]["binnings"][binning]
    page.locator("#method").select_option(method)
    page.locator("#binning").select_option(binning)
    caption = page.locator("#after figcaption").inner_text()
    assert f"ECE {100 * bins['ece']:.1f} %" in caption
    assert f"floor {100 * bins['ece_floor']:.1f} %" in caption
    drawn = [n for n in bins["count"] if n]
    assert page.locator("#after .plot circle").count() == len(drawn)
    assert page.locator(f"#methods tr[data-method={method}].chosen").count() == 1
    assert f"{100 * bins['ece']:.1f}" in page.locator("#spoken").inner_text()


def test_the_left_diagram_can_be_another_method(opened):
    opened.page.locator("#base").select_option("sharp")
    assert opened.page.locator("#before figcaption").inner_text().startswith("sharp")


def test_points_are_drawn_where_the_numbers_say(opened):
    page, bins = opened.page, sample_results()["methods"]["none"]["binnings"]["20 equal-width"]
    full = [b for b, n in enumerate(bins["count"]) if n]
    dots = page.locator("#before .plot circle")
    for dot, b in zip(dots.all(), full):
        x = (float(dot.get_attribute("cx")) - 44) / (420 - 44 - 12)
        y = (400 - 44 - float(dot.get_attribute("cy"))) / (400 - 12 - 44)
        assert (x, y) == pytest.approx((bins["confidence"][b], bins["accuracy"][b]), abs=1e-4)


def test_the_slider_starts_at_the_smallest_target_that_decides_something(opened):
    page, curve = opened.page, sample_results()["methods"]["scar"]["decision"]["curve"]
    first = next(k for k, count in enumerate(curve["decided"]) if count)
    assert page.locator("#target").input_value() == str(first)
    assert page.locator("#decided").inner_text() == f"{curve['decided'][first]:,}"
    assert page.locator("#decided").bounding_box()["height"] > 30


@pytest.mark.parametrize("method", ["scar", "none"])
def test_the_slider_says_how_many_nodes_are_decided(opened, method):
    page, curve = opened.page, sample_results()["methods"][method]["decision"]["curve"]
    page.locator("#decider").select_option(method)
    slider = page.locator("#target")
    for k in (0, 5, 20, 30):
        slider.fill(str(k))
        assert page.locator("#decided").inner_text() == f"{curve['decided'][k]:,}"
        detail = page.locator("#decided-detail").inner_text().replace("\u00a0", " ")
        assert f"at most {100 * curve['targets'][k]:g} % errors" in detail
        if curve["decided"][k]:
            assert f"{curve['total'] - curve['decided'][k]:,} would need a person" in detail
            assert page.locator("#risk .cut").count() == 1
        width = float(page.locator("#decided-share").get_attribute("width"))
        assert width == pytest.approx(300 * curve["decided"][k] / curve["total"])
    slider.focus()
    page.keyboard.press("ArrowLeft")
    assert page.locator("#decided").inner_text() == f"{curve['decided'][29]:,}"


def test_the_colour_of_success_is_kept_for_nodes_that_are_decided(opened):
    page = opened.page
    curve = sample_results()["methods"]["none"]["decision"]["curve"]
    page.locator("#decider").select_option("none")
    shades = {}
    for k in (0, len(curve["decided"]) - 1):
        page.locator("#target").fill(str(k))
        shade = "([s, p]) => getComputedStyle(document.querySelector(s))[p]"
        pairs = ([".decided", "color"], [".card", "borderTopColor"])
        shades[curve["decided"][k] > 0] = [page.evaluate(shade, pair) for pair in pairs]
    green = "rgb(0, 105, 74)"  # --good of page.css, as it is in the light
    assert shades[True] == [green, green]
    assert green not in shades[False]


def test_both_histograms_have_one_scale(opened):
    methods = sample_results()["methods"]
    opened.page.locator("#method").select_option("sharp")
    tallest = max(
        max(map(sum, zip(h["right"], h["wrong"]))) for h in (methods[k]["histogram"] for k in ("none", "sharp"))
    )
    for side in ("before", "after"):
        assert opened.page.locator(f"#{side} .hist text").nth(1).text_content() == f"{100 * tallest:.0f}"


def test_a_click_on_the_map_shows_the_node_and_its_neighbours(opened):
    page, nodes = opened.page, unpacked_map(sample_results()["map"])
    page.wait_for_selector("#map-detail[data-ready]")
    clicked = int(nodes["degree"].argmax())
    canvas = page.locator("#map-after")
    size = canvas.bounding_box()["width"]
    x = 24 + nodes["x1"][clicked] / 65535 * (size - 48)
    y = size - 24 - nodes["y1"][clicked] / 65535 * (size - 48)
    canvas.click(position={"x": float(x), "y": float(y)})
    detail = page.locator("#map-detail").inner_text()
    shown = nodes["node"].tolist().index(int(page.locator("#map-node").input_value()))
    assert abs(nodes["x1"][shown] - nodes["x1"][clicked]) < 200  # the clicked one, or one on the same pixel
    assert detail.startswith(f"Node {nodes['node'][shown]}, a ")
    assert f"Predicted class {nodes['pred1'][shown]}, {int(nodes['conf1'][shown] / 10 + 0.5)} % sure" in detail
    near = [nodes[f"neighbour{k}"][shown] for k in range(4)]
    for other in (n for n in near if n != 65535):
        assert f"{nodes['node'][other]} (class" in detail
    page.locator("#map-node").fill("3")
    page.keyboard.press("Enter")
    assert page.locator("#map-detail").inner_text().startswith("Node 3, ")
    page.locator("#map-node").fill("99999")
    page.keyboard.press("Enter")
    assert "is not among" in page.locator("#map-detail").inner_text()


def test_the_map_is_drawn_before_and_after(opened):
    opened.page.wait_for_selector("#map-detail[data-ready]")
    inked = """id => { const c = document.getElementById(id), d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data;
        let n = 0; for (let i = 3; i < d.length; i += 4) n += d[i] > 0; return n / (d.length / 4); }"""
    before, after = (opened.page.evaluate(inked, name) for name in ("map-before", "map-after"))
    assert 0.002 < before < 0.5
    assert 0.002 < after < 0.5
    assert before != after


def column(page, number):
    cells = page.locator(f"#methods tbody tr td:nth-child({number})").all()
    return [float(c.get_attribute("data-value")) for c in cells]


def test_the_table_sorts_by_mouse_and_by_keyboard(opened):
    page = opened.page
    head = page.locator("#methods thead th", has_text="ECE").first
    head.locator("button").click()
    assert column(page, 4) == sorted(column(page, 4))
    assert head.get_attribute("aria-sort") == "ascending"
    head.locator("button").focus()
    page.keyboard.press("Enter")
    assert column(page, 4) == sorted(column(page, 4), reverse=True)
    assert head.get_attribute("aria-sort") == "descending"
    page.locator("#methods thead button", has_text="Method").click()
    names = page.locator("#methods tbody th").all_inner_texts()
    assert names == sorted(names, key=str.lower)
    assert head.get_attribute("aria-sort") == "none"


def test_every_control_is_reached_with_the_keyboard(opened):
    page, reached = opened.page, []
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.append(
            page.evaluate("document.activeElement.id || document.activeElement.textContent.trim().slice(0, 12)")
        )
    for wanted in ("decider", "target", "base", "method", "binning", "Method", "Accuracy %", "ECE %"):
        assert any(r.startswith(wanted) for r in reached), (wanted, reached)


def test_a_screen_reader_finds_names_for_everything(opened):
    page = opened.page
    for svg in page.locator("svg[role=img]").all():
        assert svg.get_attribute("aria-label")
    assert page.locator("svg:not([role=img])").count() == 0
    assert page.locator("html").get_attribute("lang") == "en"
    for section in page.locator("main > section").all():
        assert section.get_attribute("aria-labelledby") or section.get_attribute("aria-label")
    assert page.locator("select").count() == page.locator("label select").count() == 5
    levels = [int(t[1]) for t in page.evaluate("[...document.querySelectorAll('h1,h2,h3')].map(h => h.tagName)")]
    assert levels[0] == 1
    assert levels.count(1) == 1


def test_slices_and_changed_nodes_follow_the_method(opened):
    page, scar = opened.page, sample_results()["methods"]["scar"]
    page.locator("#method").select_option("scar")
    assert page.locator("#slices figure").count() == 4
    page.locator("details", has=page.locator("#changed")).locator("summary").first.click()
    assert page.locator("#changed tbody tr").count() <= 5
    first = page.locator("#changed tbody tr").first.inner_text()
    assert first.startswith(str(scar["changed"][0]["node"]))
    page.locator("#method").select_option("none")
    assert "changes no confidence" in page.locator("#changed tbody").inner_text()


def test_numbers_are_there_as_text_too(opened):
    page = opened.page
    page.locator("summary").first.click()
    bins = sample_results()["methods"]["ts"]["binnings"]["20 equal-width"]
    page.locator("#method").select_option("ts")
    assert page.locator("#numbers tr").count() == 1 + sum(n > 0 for n in bins["count"])


def contrast(page, selector):
    """WCAG contrast of an element's text against the page."""
    code = """s => { const rgb = v => v.match(/[\\d.]+/g).slice(0, 3).map(Number);
        const lum = c => { const [r, g, b] = rgb(c).map(v => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
            return .2126 * r + .7152 * g + .0722 * b; };
        let back = document.querySelector(s), bg;
        do { bg = getComputedStyle(back).backgroundColor; back = back.parentElement; } while (back && /, 0\\)$/.test(bg));
        const [a, b] = [lum(getComputedStyle(document.querySelector(s)).color), lum(bg)].sort((x, y) => y - x);
        return (a + .05) / (b + .05); }"""
    return page.evaluate(code, selector)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark_are_readable(browser, file, tmp_path, scheme):
    tab = Opened(browser, file, color_scheme=scheme)
    for selector in (
        "#verdict",
        ".lead",
        ".decided",
        "figcaption small",
        "td.number",
    ):
        assert contrast(tab.page, selector) >= 4.5, selector
    assert len(tab.page.screenshot(path=tmp_path / f"{scheme}.png", full_page=True)) > 50_000
    background = tab.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (int(background.split("(")[1].split(",")[0]) < 60) == (scheme == "dark")
    assert tab.faults == []
    tab.context.close()


def test_it_prints_light_without_controls_on_few_pages(browser, file, tmp_path):
    tab = Opened(browser, file, color_scheme="dark")
    pdf = tab.page.pdf(path=tmp_path / "report.pdf", format="A4")
    assert 1 <= pdf.count(b"/Type /Page\n") + pdf.count(b"/Type /Page ") + pdf.count(b"/Type /Page/") <= 6
    tab.page.emulate_media(media="print")
    assert not any(controls.is_visible() for controls in tab.page.locator(".controls").all())
    assert not tab.page.locator("#target").is_visible()
    assert tab.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    tab.page.screenshot(path=tmp_path / "print.png", full_page=True)
    tab.context.close()


@pytest.mark.parametrize("width", [718, 794])  # A4 at 96 dots per inch, with and without margins
def test_nothing_is_cut_off_on_paper(browser, file, width):
    context = browser.new_context(viewport={"width": width, "height": 1000}, offline=True)
    page = context.new_page()
    page.goto(file.as_uri())
    page.emulate_media(media="print")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    context.close()


def test_nothing_is_cut_off_on_a_phone_or_a_desk(browser, file):
    for width in (390, 1200):
        context = browser.new_context(viewport={"width": width, "height": 800}, offline=True)
        page = context.new_page()
        page.goto(file.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        for table in ("#methods", "#changed") if width == 1200 else ("#changed",):
            fits = "s => (t => t.scrollWidth <= t.clientWidth + 1)(document.querySelector(s).parentElement)"
            assert page.evaluate(fits, table), (table, width)
        context.close()


@pytest.mark.slow
def test_the_page_of_a_real_run_works(browser, tmp_path):
    lab = pytest.importorskip("graphcal.lab")
    training = lab.Training(epochs=40, hidden_channels=16)
    done = lab.run(random_graph(nodes=400), seeds=range(2), training=training)
    page = done.save(tmp_path)
    assert page.stat().st_size < 1_000_000
    tab = Opened(browser, page)
    for name in done.record["methods"]:
        tab.page.locator("#method").select_option(name)
        ece = done.record["methods"][name]["ece"]["mean"]
        assert f"ECE {100 * ece:.1f} %" in tab.page.locator("#after figcaption").inner_text()
    assert tab.requests == [page.as_uri()]
    assert tab.faults == []
    tab.context.close()
