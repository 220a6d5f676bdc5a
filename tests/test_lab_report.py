"""The page of `python -m gpuopt report`: whole, without scripts, with what was measured.

Order: a page made with a known clock, what it holds, what it loads, what it refuses.
"""

import itertools
import time
from html.parser import HTMLParser
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

import gpuopt
from gpuopt import __main__ as cli
from gpuopt.benchmarks import peers, pictures
from gpuopt.benchmarks.workloads import reduce, scan
from gpuopt.lab import ceilings, published, report

GIVEN = ceilings.Ceilings(read_gbs=10.0, copy_gbs=5.0, how="given")
VOID = {"meta", "link", "br", "circle", "path", "rect"}


class Clock:
    """2 ms for every call."""

    method = "fixed"

    def round(self, calls, cold):
        return [2.0 for call in calls]

    def wait(self):
        pass


class Page(HTMLParser):
    """Elements, with the text of each table and whether all that opens is closed."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.open, self.words = [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


@pytest.fixture(scope="module")
def text():
    with pytest.MonkeyPatch.context() as patch:
        for room in (reduce, scan):
            patch.setattr(room, "DEMO", ("sum 2^13", "float32"))
        patch.setattr(report, "clock_of", lambda backend: Clock())
        patch.setattr(ceilings, "cpu_ceilings", lambda repeats: GIVEN)
        if gpuopt.backends()["cuda"] is None:
            patch.setattr(report._core, "default_backend", lambda: "cpu")
        # more than enough: equal times are stable after 0.1 s
        return report.page(["reduce", "scan"], progress=False, max_time=1000.0)


# ---- what it holds ----


def test_everything_that_opens_is_closed(text):
    page = Page(text)
    assert page.open == []
    assert text.isascii()


def test_pictures_are_whole(text):
    pictures = [part.partition("</svg>")[0] + "</svg>" for part in text.split("<svg")[1:]]
    assert len(pictures) == 4  # two ladders, two rooflines
    for picture in pictures:
        root = ElementTree.fromstring("<svg" + picture)
        assert float(root.get("width")) > 0
        for text_ in root.iter("{http://www.w3.org/2000/svg}text"):
            assert 0 <= float(text_.get("y")) <= float(root.get("height"))


def test_the_parts_are_there(text):
    words = "\n".join(Page(text).words)
    for part in ("Ladders", "Measured on this machine", "Committed results of a GPU",
                 "Counts of the simulator", "Environment", "Roofline"):  # fmt: skip
        assert part in words
    for row in gpuopt.variants("reduce"):
        if row["backend"] == "sim" and not row["shape"]:
            assert row["idea"] in words
    assert gpuopt.__version__ in words


def test_numbers_are_those_of_the_results(text):
    runs = [found for found in published.load() if found["backend"] == "cuda"]
    rows = [(w, r) for w, r in published.choices(runs) if r["op"] in ("reduce", "scan")]
    listed = report.peers_table(["reduce", "scan"], runs)
    assert [row["ms"] for row in listed] == [row["ms"] for _, row in rows]
    words = Page(text).words
    for where, row in rows:
        assert where["commit"] in words
        assert f"{row['ms']:.4g}" in words


def test_what_is_unsettled_is_no_number(monkeypatch):
    monkeypatch.setattr(reduce, "DEMO", ("sum 2^13", "float32"))
    monkeypatch.setattr(ceilings, "cpu_ceilings", lambda repeats: GIVEN)
    monkeypatch.setattr(report._core, "default_backend", lambda: "cpu")

    class Unsteady(Clock):
        now = 1.0

        def round(self, calls, cold):
            self.now = 3.0 - self.now  # 2 ms, then 1 ms
            return [self.now for call in calls]

    monkeypatch.setattr(report, "clock_of", lambda backend: Unsteady())
    here = report.measured(["reduce"], 0.01, False)
    part = report.here_part(here)
    assert part.count(">unsettled<") == len(here)
    assert "<svg" not in part


def test_labels_of_the_roofline_keep_apart():
    rows = [
        {"op": f"op{k}", "workload": "w", "dtype": "d", "ms": 1.0, "flops": 1e9, "bytes": 1e8}
        for k in range(9)
    ]
    root = ElementTree.fromstring(report.roofline("a device", GIVEN.to_dict(), rows))
    names = [t for t in root.iter("{http://www.w3.org/2000/svg}text") if "op" in t.text[:2]]
    heights = sorted(float(t.get("y")) for t in names if t.text.endswith(" w d"))
    assert len(heights) == 9
    assert min(b - a for a, b in itertools.pairwise(heights)) >= 15
    assert report.roofline("a device", GIVEN.to_dict(), []) == ""


# ---- how long it takes ----


class Hours:
    """A clock whose every round takes a second of a time that this test moves on."""

    method = "fixed"
    now = 0.0

    def round(self, calls, cold):
        self.now += 1.0
        return [1.0 + self.now % 2 for call in calls]  # never known to 1 %

    def wait(self):
        pass


@pytest.fixture
def hours(monkeypatch):
    clock = Hours()
    monkeypatch.setattr(time, "monotonic", lambda: clock.now)
    monkeypatch.setattr(report, "clock_of", lambda backend: clock)
    monkeypatch.setattr(report._core, "default_backend", lambda: "cpu")
    for room in (reduce, scan):
        monkeypatch.setattr(room, "DEMO", ("sum 2^13", "float32"))

    def slow(repeats):
        clock.now += 10.0
        return GIVEN

    monkeypatch.setattr(ceilings, "cpu_ceilings", slow)
    return clock


def test_ladders_share_the_time_that_is_left(hours):
    here = report.measured(["reduce", "scan"], 50.0, False)
    rounds = {row["op"]: row["n"] for row in here if row["variant"] == "auto"}
    assert 10 + rounds["reduce"] + rounds["scan"] == hours.now
    assert rounds["reduce"] >= report.SHARE * 40 / 2
    assert rounds["scan"] >= report.SHARE * 40 / 2
    assert hours.now <= 50.0
    assert here.about["skipped"] == []


def test_ladders_whose_turn_comes_too_late_are_named(hours, monkeypatch):
    numpy = peers.peer("numpy")
    call = numpy.call

    def slow(*args):
        hours.now += 100.0
        return call(*args)

    monkeypatch.setattr(numpy, "call", slow)
    here = report.measured(["reduce", "scan"], 50.0, False)
    assert {row["op"] for row in here} == {"reduce"}
    assert {row["n"] for row in here} == {1}
    assert here.about["skipped"] == ["scan"]
    assert "The time was over before: scan." in report.here_part(here)


def test_a_peer_whose_turn_comes_too_late_is_not_tried(hours, monkeypatch):
    def slow(repeats):
        hours.now += 100.0
        return GIVEN

    monkeypatch.setattr(ceilings, "cpu_ceilings", slow)
    here = report.measured(["reduce"], 50.0, False)  # the first ladder is never late
    assert any("numpy: not tried: the time was over" in error for error in here.errors)
    assert hours.now == 101.0


def test_peers_that_are_compiled_are_left_out(hours, monkeypatch):
    monkeypatch.setattr(peers.peer("numpy"), "COMPILED", True, raising=False)
    here = report.measured(["reduce"], 50.0, False)
    assert "numpy" in here.about["left_out"]
    assert all("numpy" not in row["peers"] for row in here)
    assert "because it is compiled first: numpy" in report.here_part(here)
    assert peers.compiled("cub") and not peers.compiled("torch")


# ---- what it loads ----


def test_the_page_loads_nothing_and_runs_nothing(text):
    page = Page(text)
    assert not {"script", "iframe", "img", "object", "embed"} & set(page.tags)
    for tag, name, value in page.attributes:
        assert not name.startswith("on"), (tag, name)
        if name in ("href", "src"):
            assert value == "data:,", (tag, value)
    assert "@import" not in text
    assert "url(" not in text


def test_without_the_simulator_the_page_says_so(monkeypatch):
    off = SimpleNamespace(backends=lambda: {"sim": "the simulator cannot be loaded: <why>"})
    monkeypatch.setattr(report, "_core", off)
    part = report.counts_part(["reduce"], False)
    assert "The simulator is off: the simulator cannot be loaded: &lt;why&gt;." in part


# ---- what it refuses ----


def test_the_command_writes_one_file(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(report, "page", lambda **options: f"<p>{options}</p>")
    file = tmp_path / "out.html"
    assert cli.main(["report", str(file), "reduce", "--max-time", "0.5"]) == 0
    assert file.read_text() == "<p>{'ops': ['reduce'], 'max_time': 0.5}</p>"
    assert capsys.readouterr().out == f"{file}: 0 KiB\n"
    assert cli.main(["report", str(file), "--json"]) == 0
    assert str(file) in capsys.readouterr().out


def test_the_command_refuses(tmp_path, capsys):
    missing = tmp_path / "none" / "out.html"
    assert cli.main(["report", str(missing)]) == 2
    assert f"no folder {missing.parent} for the report" in capsys.readouterr().err
    assert cli.main(["report", str(tmp_path / "out.html"), "nope"]) == 2
    assert "no workloads for 'nope'" in capsys.readouterr().err
    assert cli.main(["report", str(tmp_path)]) == 2
    assert "is a folder" in capsys.readouterr().err


def test_a_ladder_draws_rungs_alone():
    """A shape kernel is not a step above the last rung."""
    rows = [
        {"variant": name, "ms": ms, "peers": {}, "floor_ms": 0.5}
        for name, ms in (("v0", 2.0), ("v1", 1.0), ("segments", 3.0))
    ]
    found = published.Ladder({"device": "GPU"}, "B4", "float32", rows)
    drawn = pictures.ladder_of("causal_conv1d", found, "title", "words")
    assert ">v1<" in drawn and "segments" not in drawn
