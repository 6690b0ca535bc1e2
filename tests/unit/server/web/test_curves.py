"""`kernfed_server.web.curves`."""

from __future__ import annotations

import itertools
import re
import xml.etree.ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from kernfed.report.charts import Series
from kernfed_server.web.curves import LARGE, SMALL, Size, curves, legend

VALUES = st.lists(st.floats(-1e12, 1e12, allow_subnormal=False), min_size=1, max_size=12)


@given(VALUES, st.sampled_from([LARGE, SMALL]))
def test_every_point_lies_in_the_picture(values: list[float], size: Size) -> None:
    """Whatever the values are, lines and words of the axes stay inside, and no number is endless."""
    line = Series("global", tuple(float(i) for i in range(len(values))), tuple(values))
    drawn = ET.fromstring(curves("AUC", [line], size))
    places = [
        tuple(map(float, p.split(","))) for e in drawn.iter() if e.tag == "polyline" for p in e.attrib["points"].split()
    ]
    assert len(places) == len(values)
    places += [(float(e.attrib["x"]), float(e.attrib["y"])) for e in drawn.iter() if e.tag == "text"]
    assert all(0 <= x <= size.width and 0 <= y <= size.height for x, y in places)


@given(st.lists(st.floats(1e-12, 1e12), min_size=2, max_size=12))
def test_a_logarithmic_axis_shows_the_larger_above(values: list[float]) -> None:
    """A value that is larger is never drawn lower."""
    line = Series("training", tuple(float(i) for i in range(len(values))), tuple(values))
    drawn = ET.fromstring(curves("objective", [line], log=True))
    heights = [
        float(p.split(",")[1]) for p in next(e for e in drawn.iter() if e.tag == "polyline").attrib["points"].split()
    ]
    order = sorted(range(len(values)), key=values.__getitem__)
    assert all(heights[i] >= heights[j] for i, j in itertools.pairwise(order))


def test_names_are_escaped_and_styles_are_classes() -> None:
    """A title or a model's name is never read as a tag, and nothing needs a style inside the page."""
    name = '"><script>alert(1)</script>'
    told = curves(name, [Series(name, (1.0,), (0.5,))]) + legend([name])
    assert "<script" not in told
    assert "style=" not in told
    assert set(re.findall(r'class="(?:line|mark) (\w+)"', told)) == {"other"}
