"""Figure 1 of the distillation paper: what becomes of one client's regressor as rounds go by.

D1, 20 clients of 20 rows, 380 public points, ridge 0.002. The paper shows pictures alone: without de-regularisation the
regressor is flattened with each round, with it the regressor stays. Here the record holds which part of the target
function is left in the first client's regressor, and its test error. The part is the least-squares coefficient of the
one on the other over [0, 1], both without their means: 1 where nothing is flattened.
"""

from __future__ import annotations

import numpy as np
from distill.common import D1, draw, function, parser
from distill.maps_common import Floats, Maps
from records import announce, entry, of_size, write
from tables import show, subplots

RIDGE = 0.002
ROUNDS = (1, 10, 50, 200)
FORMS = {"de-regularised": True, "plain": False}


def main() -> None:
    """Run, print, and write JSON and a plot."""
    options = parser(__doc__, repetitions=100).parse_args()
    repetitions, m = of_size(options, quick=(2, 6), middle=(10, 20), paper=(100, 20))
    repetitions = options.repetitions or repetitions
    announce(repetitions * m * 20, repetitions * m * len(FORMS))
    grid = np.linspace(0, 1, 201)[:, None]
    true = function("D1", grid)
    centred = true - true.mean()
    parts: dict[tuple[str, int], list[float]] = {(form, t): [] for form in FORMS for t in ROUNDS}
    errors: dict[tuple[str, int], list[float]] = {(form, t): [] for form in FORMS for t in ROUNDS}
    first: dict[tuple[str, int], Floats] = {}
    for seed in range(repetitions):
        drawn = draw(D1, m, 20, (m - 1) * 20, seed)
        maps = Maps(D1, drawn, RIDGE)
        for form, deregularise in FORMS.items():
            for t, v in zip(range(1, max(ROUNDS) + 1), maps.rounds(deregularise=deregularise), strict=False):
                if t in ROUNDS:
                    curve = maps.predictions(0, v, grid)
                    first.setdefault((form, t), curve)
                    parts[form, t].append(float(centred @ (curve - curve.mean()) / (centred @ centred)))
                    errors[form, t].append(
                        float(np.square(maps.predictions(0, v, drawn.test[0]) - drawn.test[1]).mean())
                    )
    lines = [entry(f"part left after {t} rounds", form, None, parts[form, t]) for t in ROUNDS for form in FORMS]
    lines += [entry(f"error after {t} rounds", form, None, errors[form, t]) for t in ROUNDS for form in FORMS]
    show(lines)
    fig, (axes,) = subplots(2, height=3.6)
    for ax, form in zip(axes, FORMS, strict=True):
        ax.plot(grid, true, color="tab:blue", label="target function")
        for t, shade in zip(ROUNDS, np.linspace(0.75, 0, len(ROUNDS)), strict=True):
            ax.plot(grid, first[form, t], color=str(shade), label=f"after {t} rounds" if t > 1 else "after one round")
        ax.set_title(form)
        ax.set_ylim(-0.05, 0.65)
        ax.legend(fontsize=8)
    write(lines, options, "distill-figure1", fig)


if __name__ == "__main__":
    main()
