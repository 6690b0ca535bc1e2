"""The report's section on a generalised linear model, and the overview of it at a terminal."""

from __future__ import annotations

from kernfed.methods.finding import reading
from kernfed.methods.glm.finding import GlmFinding
from kernfed.report.coefficients import about_errors, cells_of
from kernfed.report.parts import Overview, Section, TableOf
from kernfed.wording import number


def glm_section(finding: GlmFinding) -> Section:
    """Make the section."""
    return Section(f"What {finding.target} depends on", words(finding), table=_table(finding))


def glm_overview(finding: GlmFinding) -> Overview:
    """Make the overview."""
    return Overview(finding.name, finding.to_json(), f"coefficients; {words(finding)}", _table(finding), result=True)


def words(finding: GlmFinding) -> str:
    """How well it fits, in sentences."""
    errors = about_errors(finding.errors, finding.groups, "gradients")
    null = "" if finding.null_deviance is None else f" of {number(finding.null_deviance)} with the intercept alone"
    return (
        f"Family {finding.family}, link {finding.link}, {finding.rows:,} rows, {finding.freedom:,} degrees of freedom: "
        f"deviance {number(finding.deviance)}{null}, dispersion {number(finding.dispersion)}, AIC "
        f"{number(finding.aic)}. {errors}"
    )


def _table(finding: GlmFinding) -> TableOf:
    level = f"{100 * finding.confidence:g} %"
    columns = ["", "coefficient", "error", "t" if finding.student else "z", "p", f"{level} from", "to"]
    rows = [[*cells_of(found), number(found.low), number(found.high)] for found in finding.coefficients]
    return TableOf(columns, rows)


SECTIONS = {GlmFinding.name: reading(GlmFinding, glm_section)}
OVERVIEWS = {GlmFinding.name: reading(GlmFinding, glm_overview)}
