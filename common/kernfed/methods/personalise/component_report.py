"""The report's sections on personal components, densities and centres of k-means."""

from __future__ import annotations

from collections.abc import Callable

from kernfed.methods.finding import reading
from kernfed.methods.personalise.finding import CentresFinding, ComponentsFinding, DensityFinding
from kernfed.report.parts import Overview, Section, TableOf


def components_section(finding: ComponentsFinding) -> Section:
    """Make the section."""
    text = (
        f"{finding.num_components} principal components of the columns, by the share of the test rows' variance that "
        "they leave. Each client keeps its own in components.csv."
    )
    return Section("Personal components", text, table=_table(finding, _share))


def components_overview(finding: ComponentsFinding) -> Overview:
    """What the components of each client leave."""
    table = _table(finding, _share)
    return Overview("components", finding.to_json()["clients"], "variance that components leave", table)


def centres_section(finding: CentresFinding) -> Section:
    """Make the section."""
    text = (
        f"{finding.num_centres} centres of k-means of the columns, by the share of the test rows' variance that is "
        "left around the nearest one. Each client keeps its own in centres.csv."
    )
    return Section("Personal centres", text, table=_table(finding, _share))


def centres_overview(finding: CentresFinding) -> Overview:
    """What the centres of each client leave."""
    table = _table(finding, _share)
    return Overview("centres", finding.to_json()["clients"], "variance around centres", table)


def density_section(finding: DensityFinding) -> Section:
    """Make the section."""
    text = (
        "Densities of the columns, by the squared distance of their embeddings to that of the test rows: their kernel "
        "score, less what any density has. Each client keeps its own in density.csv."
    )
    return Section("Personal densities", text, table=_table(finding, _distance))


def density_overview(finding: DensityFinding) -> Overview:
    """How far the densities of each client are."""
    return Overview("density", finding.to_json()["clients"], "distance of densities", _table(finding, _distance))


def _table(
    finding: ComponentsFinding | CentresFinding | DensityFinding, text: Callable[[float | None], str]
) -> TableOf:
    columns = ["client", "test rows", "personal", "own rows alone", "all rows alike"]
    rows = [[c.client, str(c.num_test_rows), *map(text, (c.personal, c.local, c.pooled))] for c in finding.clients]
    return TableOf(columns, rows)


def _share(part: float | None) -> str:
    return "–" if part is None else f"{100 * part:.3g} %"


def _distance(told: float | None) -> str:
    return "–" if told is None else f"{told:.3g}"


SECTIONS = {
    ComponentsFinding.name: reading(ComponentsFinding, components_section),
    CentresFinding.name: reading(CentresFinding, centres_section),
    DensityFinding.name: reading(DensityFinding, density_section),
}
OVERVIEWS = {
    ComponentsFinding.name: reading(ComponentsFinding, components_overview),
    CentresFinding.name: reading(CentresFinding, centres_overview),
    DensityFinding.name: reading(DensityFinding, density_overview),
}
