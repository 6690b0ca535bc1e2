"""Charts of a report as inline SVG: text stays text, colours are CSS variables, the same input gives the same bytes."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from xml.sax.saxutils import escape, quoteattr  # nosec B406  # they write XML, and parse none

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
MAX_BARS = 40
"""Clients in one chart; the table has them all."""

# Stand-ins for CSS variables, since matplotlib wants numbers: replaced in the SVG. Distinct and otherwise unused.
_INK: Final = "#010203"
_GRID: Final = "#010204"
_SERIES: Final = {
    "global": "#010205",
    "local": "#010206",
    "personal": "#010207",
    "central": "#010208",
    "training": "#010209",
    "fedavg": "#01020b",
    "own": "#01020c",
}
_OTHER: Final = "#01020a"
_CARD: Final = "#01020d"
_COLOURED_AS: Final = {"recent": "local", "regret": "personal", "at most": "central", "weighted": "personal"}
"""Names of other things, and the model whose colour they have."""
_VARIABLES: Final = {
    _INK: "currentColor",
    _GRID: "var(--grid)",
    _OTHER: "var(--series-other)",
    _CARD: "var(--card)",
    **{colour: f"var(--series-{model})" for model, colour in _SERIES.items()},
}
_MARKERS: Final = {
    "global": "o",
    "local": "s",
    "personal": "^",
    "central": "D",
    "fedavg": "v",
    "own": "P",
    "weighted": "^",
}
_SETTINGS: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "axes.unicode_minus": False,
    "font.family": "sans-serif",
    "font.size": 12.0,
    "text.color": _INK,
    "axes.edgecolor": _GRID,
    "axes.labelcolor": _INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": _GRID,
    "grid.linewidth": 0.8,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "legend.frameon": False,
    "lines.linewidth": 2.0,
}


@dataclass(frozen=True, slots=True)
class Series:
    """A line: rounds (or what else the axis counts) and values."""

    name: str
    rounds: tuple[float, ...]
    values: tuple[float, ...]

    @classmethod
    def stepped(cls, name: str, times: Sequence[float], values: Sequence[float], first: float) -> Series:
        """A step curve by its corners: level up to each time, then at its value; `first` before the first time."""
        corners, levels = [min(0.0, *times)], [first]
        for time, value in zip(times, values, strict=True):
            corners += [time, time]
            levels += [levels[-1], value]
        return cls(name, tuple(corners), tuple(levels))


def line_chart(title: str, y_label: str, lines: Sequence[Series], *, log: bool = False, x_label: str = "round") -> str:
    """Values over rounds; a line that never changes is drawn as a dashed level.

    Args:
        title: For readers who do not see the picture.
        y_label: Of the values.
        lines: At least one, each of at least one round.
        log: Whether the axis of values is logarithmic.
        x_label: What `Series.rounds` counts.
    """
    with _style(title):
        return _svg(_lines(y_label, lines, log, x_label), title)


def bar_chart(title: str, x_label: str, clients: Sequence[str], models: Mapping[str, Sequence[float | None]]) -> str:
    """Bars per client, one per model; a missing value is said in words.

    Args:
        title: For readers who do not see the picture.
        x_label: Of the values.
        clients: Names, from the top down; at most `MAX_BARS`.
        models: Model to one value per client.
    """
    with _style(title):
        return _svg(_bars(x_label, clients, models), title)


def histograms(
    title: str, x_label: str, names: Sequence[str], counts: Sequence[Sequence[int]], edges: Sequence[str], mark: float
) -> str:
    """One small histogram per client below the other, each scaled to its own number of rows.

    Args:
        title: For readers who do not see the picture.
        x_label: Of what is counted.
        names: From the top down; at most `MAX_BARS`.
        counts: Per client, one per bin.
        edges: Upper edge of each bin, as text.
        mark: Where to draw a line, in bins.
    """
    with _style(title):
        return _svg(_histograms(x_label, names, counts, edges, mark), title)


def heat_map(
    title: str, names: Sequence[str], values: npt.NDArray[np.float64], label: str, *, limit: float | None = None
) -> str:
    """A square of values between clients; the darker, the larger. Zeros stay empty.

    Args:
        title: For readers who do not see the picture.
        names: Of rows and columns, at most `MAX_BARS`.
        values: Shape (len(names), len(names)), at least 0.
        label: Of the values.
        limit: Value of the darkest cell; unset: the largest value.
    """
    with _style(title):
        return _svg(_squares(names, values, label, limit), title)


def suits_log(values: Sequence[float]) -> bool:
    """Whether values span so much that only a logarithmic axis shows them."""
    return len(values) > 1 and min(values) > 0 and max(values) / min(values) > 50


@contextmanager
def _style(title: str) -> Iterator[None]:
    """Settings of every chart; they must hold from the first tick to the last byte."""
    import matplotlib  # noqa: PLC0415  # `job show` loads this module, and only reports draw

    with matplotlib.rc_context({**_SETTINGS, "svg.hashsalt": title}):
        yield


def _lines(y_label: str, lines: Sequence[Series], log: bool, x_label: str) -> Figure:
    figure, axes = _canvas(6.4, 3.4)
    for line in lines:
        colour = _colour(line.name)
        level = len(line.rounds) > 1 and len(set(line.values)) == 1
        few = len(line.rounds) <= 40
        axes.plot(
            line.rounds,
            line.values,
            color=colour,
            label=line.name,
            linestyle="--" if level else "-",
            marker=_MARKERS.get(line.name, "o") if few and not level else "",
            markersize=5,
        )
    values = [v for line in lines for v in line.values]
    if log:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0e}")
        axes.yaxis.set_minor_formatter(lambda _value, _position: "")
    elif min(values) >= 0 and max(values) <= 1:
        _keep_in_proportion(axes, min(values), max(values))
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    if x_label == "round":
        _whole_rounds(axes, [r for line in lines for r in line.rounds])
    if len(lines) > 1:
        _legend_above(axes)
    return figure


def _bars(x_label: str, clients: Sequence[str], models: Mapping[str, Sequence[float | None]]) -> Figure:
    num = max(len(models), 1)
    height = 0.8 / num
    figure, axes = _canvas(6.4, 1.1 + len(clients) * max(0.26 * num + 0.12, 0.4))
    values = [v for column in models.values() for v in column if v is not None]
    low, high = min([0.0, *values]), max([0.0, *values])
    if 0.5 < high <= 1.0 and low >= 0:
        high = 1.0
    span = (high - low) or 1.0
    for i, (model, column) in enumerate(models.items()):
        for j, value in enumerate(column):
            y = j - 0.4 + height * (i + 0.5)
            if value is None:
                axes.text(low + 0.01 * span, y, "not defined here", va="center", fontsize=10, alpha=0.75)
                continue
            label = model if j == next(k for k, v in enumerate(column) if v is not None) else None
            axes.barh(y, value, height=height * 0.88, color=_colour(model), label=label)
            inside = f"{value:.3g}"
            axes.text(max(value, 0.0) + 0.01 * span, y, inside, va="center", fontsize=10)
    axes.set_yticks(range(len(clients)), labels=[_short(name) for name in clients])
    axes.set_ylim(len(clients) - 0.45, -0.55)  # from the top down, with room for clients without a bar
    axes.set_xlim(low - (0.02 * span if low < 0 else 0), high + 0.1 * span)
    axes.set_xlabel(x_label)
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)
    if len(models) > 1 and values:
        _legend_above(axes)
    return figure


def _histograms(
    x_label: str, names: Sequence[str], counts: Sequence[Sequence[int]], edges: Sequence[str], mark: float
) -> Figure:
    figure, axes = _canvas(6.4, 1.0 + 0.55 * len(names))
    for j, row in enumerate(counts):
        top = max(sum(row), 1)
        base = j + 0.42
        for i, count in enumerate(row):
            if count:
                height = max(0.84 * count / top, 0.02)
                axes.bar(i, -height, 0.92, bottom=base, color=_SERIES["global"], linewidth=0)
        axes.axhline(base, color=_GRID, linewidth=0.8)
    axes.axvline(mark, color=_INK, linewidth=1.0, linestyle=":")
    axes.set_yticks(range(len(names)), labels=[_short(name) for name in names])
    axes.set_ylim(len(names) - 0.5, -0.6)
    axes.set_xlim(-0.6, len(edges) - 0.4)
    axes.set_xticks(range(len(edges)), labels=edges)
    axes.tick_params(axis="x", labelsize=9)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False)
    axes.set_xlabel(x_label)
    return figure


def _squares(names: Sequence[str], values: npt.NDArray[np.float64], label: str, limit: float | None) -> Figure:
    from matplotlib.patches import Rectangle  # noqa: PLC0415  # `job show` loads this module, and only reports draw

    num = len(names)
    side = min(6.4, 2.2 + 0.42 * num)
    figure, axes = _canvas(side, side)
    top = limit or float(values.max()) or 1.0
    for i in range(num):
        for j in range(num):
            share = min(1.0, float(values[i, j]) / top)
            if share > 0.002:
                # A cell's area of ink, not a colour scale: it reads alike in light and dark pages.
                cell = Rectangle((j - 0.48, i - 0.48), 0.96, 0.96, facecolor=_SERIES["personal"], linewidth=0)
                cell.set_alpha(0.06 + 0.94 * share)
                axes.add_patch(cell)
            if num <= 12 and share > 0.002:
                ink = _CARD if share > 0.6 else _INK
                axes.text(j, i, f"{values[i, j]:.2f}", ha="center", va="center", fontsize=9, color=ink)
    axes.set_xlim(-0.5, num - 0.5)
    axes.set_ylim(num - 0.5, -0.5)
    axes.set_aspect("equal")
    shown = [_short(name) for name in names]
    axes.set_xticks(range(num), labels=shown, rotation=90)
    axes.set_yticks(range(num), labels=shown)
    if num > 20:
        axes.tick_params(labelsize=7)
    axes.tick_params(length=0)
    axes.grid(visible=False)
    axes.set_title(label, fontsize=11)
    return figure


def _colour(name: str) -> str:
    return _SERIES.get(_COLOURED_AS.get(name, name), _OTHER)


def _canvas(width: float, height: float) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure  # noqa: PLC0415  # `job show` loads this module, and only reports draw

    figure = Figure(figsize=(width, height), layout="constrained")
    figure.patch.set_alpha(0.0)
    axes = figure.subplots()
    axes.patch.set_alpha(0.0)
    return figure, axes


def _keep_in_proportion(axes: Axes, low: float, high: float) -> None:
    """Show at least a tenth of the range from 0 to 1, or noise would look like news."""
    margin = max(0.1 - (high - low), 0.1 * (high - low)) / 2
    axes.set_ylim(max(low - margin, -0.01), min(high + margin, 1.01))


def _whole_rounds(axes: Axes, rounds: Sequence[float]) -> None:
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415  # `job show` loads this module, and only reports draw

    axes.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True))
    if min(rounds) == max(rounds):
        axes.set_xlim(min(rounds) - 1, max(rounds) + 1)


def _legend_above(axes: Axes) -> None:
    axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=4, borderaxespad=0.2, handlelength=1.6)


def _short(name: str) -> str:
    return name if len(name) <= 24 else f"{name[:23]}…"


def _svg(figure: Figure, title: str) -> str:
    out = io.StringIO()
    nothing = {"Date": None, "Creator": None, "Format": None, "Type": None}
    figure.savefig(out, format="svg", metadata=nothing)
    text = out.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S)
    for colour, variable in _VARIABLES.items():
        text = text.replace(colour, variable)
    text = re.sub(r"font: ([\d.]+)px [^;\"]*", r"font-size: \1px", text)
    text = _drop_unused_ids(text)
    head = f'<svg role="img" aria-label={quoteattr(title)} class="chart"'
    return re.sub(r"<svg([^>]*)>", lambda m: f"{head}{m[1]}><title>{escape(title)}</title>", text, count=1)


def _drop_unused_ids(text: str) -> str:
    """Several pictures share a page, and matplotlib numbers the parts of each alike."""
    used = set(re.findall(r'(?:url\(#|href="#)([^)"]+)', text))
    return re.sub(r' id="([^"]*)"', lambda m: m[0] if m[1] in used else "", text)
