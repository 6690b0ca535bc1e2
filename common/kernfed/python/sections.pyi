"""Written by `make docs`: the classes of a job's tables, as type checkers and editors see them."""

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, Literal

from kernfed.jobs.job_sections import CohortSection, DataSection, FeaturesSection, PrivacySection
from kernfed.section import MethodSection

__all__ = [
    "Cohort",
    "Cox",
    "Data",
    "Describe",
    "Distill",
    "Dkrr",
    "EmKofl",
    "Features",
    "FedAvg",
    "FedNew",
    "FedProx",
    "FedSophia",
    "Glm",
    "KaplanMeier",
    "Local",
    "Newton",
    "OfmklAvg",
    "Ofskl",
    "Online",
    "PerFedAvg",
    "Personalise",
    "Privacy",
    "Probe",
    "Reweight",
    "VmKofl",
]

class Cohort(CohortSection):
    """The clients that take part, and the number that must."""

    def __init__(
        self,
        *,
        clients: Sequence[str] | None = ...,
        dataset: str = ...,
        min_clients: int = ...,
        min_fraction: float = ...,
        min_rows_fraction: float = ...,
        max_share: float = ...,
        preflight: Literal["all", "quorum"] = ...,
        deadline_s: float = ...,
        grace_s: float = ...,
        wait_s: float = ...,
    ) -> None: ...

class Cox(MethodSection):
    """Cox's proportional hazards of all rows, with a baseline of its own at each client: hazard ratios."""

    def __init__(
        self,
        *,
        event: str = ...,
        ties: Literal["efron", "breslow"] = ...,
        errors: Literal["model", "robust"] = ...,
        baseline: bool = ...,
        confidence: float = ...,
        rounds: int = ...,
        tolerance: float = ...,
    ) -> None: ...
    def __getattr__(self, name: str) -> Any: ...

class Data(DataSection):
    """The form of every client's data."""

    def __init__(
        self,
        *,
        task: Literal["regression", "binary", "classification"],
        target: str,
        features: Sequence[str],
        backbone: str | None = ...,
        classes: Sequence[str] | None = ...,
        unseen_classes: Literal["refuse", "allow"] = ...,
        missing: Literal["refuse", "drop-rows", "mean", "indicator", "median"] = ...,
        columns: Mapping[str, Mapping[str, Any]] = ...,
        ranges: Mapping[str, Sequence[float]] = ...,
        standardise: bool = ...,
        scales: Literal["clipped", "moments"] = ...,
        test_fraction: float = ...,
        validation_fraction: float = ...,
        split: Literal["by-record", "by-content", "copies-together", "row-by-row"] = ...,
    ) -> None: ...

class Describe(MethodSection):
    """Statistics of columns: counts, moments, quantiles, histograms, levels, correlations; there is no model."""

    def __init__(
        self,
        *,
        quantiles: Sequence[float] = ...,
        num_bins: int = ...,
        num_levels: int = ...,
        correlations: bool = ...,
    ) -> None: ...
    def __getattr__(self, name: str) -> Any: ...

class Distill(MethodSection):
    """Ensemble distillation: clients learn from each other's predictions on public points; models stay private."""

    def __init__(
        self,
        *,
        public: str,
        kernel: Literal["gaussian", "laplace", "matern32", "matern52", "one-plus-min", "wendland"] = ...,
        lengthscale: float | Sequence[float] | Literal["median", "median-spaced"] | Literal["auto"] = ...,
        intercept: bool | Literal["penalised"] = ...,
        ridge: float | Literal["auto"] = ...,
        rounds: int = ...,
        alpha: float | Literal["auto"] = ...,
        deregularise: bool | Literal["paper"] = ...,
        undone_ridge: float | Literal["auto"] = ...,
        keep: Literal["blend", "better", "distilled"] = ...,
        client_fraction: float = ...,
        participation: Mapping[str, float] = ...,
        remember: Literal["auto", "predictions", "consensus"] = ...,
        memory_exponent: float | Literal["auto"] = ...,
        uploads: Literal["current", "stale"] = ...,
        tolerance: float = ...,
    ) -> None: ...
    def __getattr__(self, name: str) -> Any: ...

class Dkrr(MethodSection):
    """One-shot average of local ridge solutions."""

    def __init__(
        self,
        *,
        aggregate: Literal["mean", "median", "trimmed"] = ...,
        trim: float = ...,
        max_norm: float | None = ...,
        ridge: float | Literal["by-rows", "auto"] | Sequence[float] = ...,
    ) -> None: ...
    def __getattr__(self, name: str) -> Any: ...

class EmKofl(MethodSection):
    """eM-KOFL: the coordinator draws one kernel per round, by one mix for all clients; only that kernel travels."""

    def __init__(
        self,
        *,
        aggregate: Literal["mean", "median", "trimmed"] = ...,
        trim: float = ...,
        max_norm: float | None = ...,
        rounds: int = ...,
        batch_rows: int = ...,
        row_norm: float | Literal["auto"] = ...,
        target_range: Sequence[float] | Literal["auto"] = ...,
        wait_s: float = ...,
        outlier_spans: float = ...,
        metrics_every: int = ...,
        loss: Literal["auto", "squared", "logistic"] = ...,
        regularisation: float = ...,
        hindsight: bool = ...,
        num_kernels: int = ...,
        lengthscales: Sequence[float] | None = ...,
        num_frequencies: int = ...,
        learning_rate: float | Literal["auto"] = ...,
        weight_learning_rate: float | Literal["auto"] = ...,
    ) -> None: ...
    def __getattr__(self, name: str) -> Any: ...

class Features(FeaturesSection):
    """The feature map that all clients share."""

    def __init__(
        self,
        *,
        kernel: Literal["gaussian", "laplace", "matern32", "matern52", "linear", "polynomial2"] = ...,
        form: Literal["cosine", "sine-cosine", "half-cosine", "nystroem"] = ...,
        num_frequencies: int = ...,
        lengthscale: float | Sequence[float] | Literal["median", "median-spaced"] | Literal["columns", "auto"] = ...,
        candidates: Sequence[float] = ...,
        seed: int | None = ...,
        law: str | None = ...,
        origin: Literal["mean", "zero"] = ...,
        intercept: bool = ...,
    ) -> None: ...

class FedAvg(MethodSection):
    """Federated averaging of local gradient steps, on the ridge objective or on a head."""

    def __init__(
        self,
        *,
        aggregate: Literal["mean", "median", "trimmed"] = ...,
        trim: float = ...,
        max_norm: float | None = ...,
        ridge: float | Literal["by-rows", "auto"] | Sequence[float] = ...,
        rounds: int = ...,
        learning_rate: float | Literal["auto"] = ...,
        local_steps: int = ...,
        batch_size: int | None = ...,
        client_fraction: float = ...,
        begin: Literal["zero", "dkrr"] = ...,
        loss: Literal["ridge", "cross-entropy", "squared"] = ...,
        momentum: float = ...,
        local_epochs: int = ...,
        penalise_bias: bool = ...,
    ) -> None: ...
    def __getattr__(self, name: str) -> Any: ...

class FedNew(MethodSection):
    """FedNew on a head: one step of an inner ADMM on the Newton direction in each round."""

    def __init__(
        self,
        *,
        ridge: float | Literal["by-rows"] = ...,
        rounds: int = ...,
        loss: Literal["cross-entropy", "squared"] = ...,
        client_fraction: float = ...,
        damping: float = ...,
        penalty: float = ...,
        step_size: float = ...,
        solver_tolerance: float = ...,
        solver_iterations: int = ...,
        penalise_bias: bool = ...,
    ) -> None: ...
    def __getattr__(self, name: str) -> Any: ...

class FedProx(MethodSection):
    """FedProx: a proximal term holds clients near the global weights; in closed form, or by local steps on a head."""

    def __init__(
        self,
        *,
        aggregate: Literal["mean", "median", "trimmed"] = ...,
        trim: float = ...,
        max_norm: float | None = ...,
        ridge: float | Literal["by-rows", "auto"] | Sequence[float] = ...,
        rounds: int = ...,
        proximal: float = ...,
        client_fraction: float = ...,
        begin: Literal["zero", "dkrr"] = ...,
        loss: Literal["ridge", "cross-entropy", "squared"] = ...,
        learning_rate: float = ...,
        momentum: float = ...,
        local_epochs: int = ...,
        batch_size: int = ...,
        penalise_bias: bool = ...,
    ) -> None: ...
    def __getattr__(self, name: str) -> Any: ...

class FedSophia(MethodSection):
    """FedSophia on a head: clipped local steps, preconditioned by estimates of the Hessian's diagonal."""

    def __init__(
        self,
        *,
        aggregate: Literal["mean", "median", "trimmed"] = ...,
        trim: float = ...,
        max_norm: float | None = ...,
        ridge: float | Literal["by-rows"] = ...,
        rounds: int = ...,
        loss: Literal["cross-entropy", "squared"] = ...,
        client_fraction: float = ...,
        learning_rate: float = ...,
        momentum: float = ...,
        curvature_momentum: float = ...,
        clip: float = ...,
        curvature_every: int = ...,
        local_epochs: int = ...,
        batch_size: int = ...,
        penalise_bias: bool = ...,
    ) -> None: ...
    def __getattr__(self, name: str) -> Any: ...

class Glm(MethodSection):
    """A generalised linear model of all rows, as if they lay in one place: coefficients with standard errors."""

    def __init__(
        self,
        *,
        family: Literal["gaussian", "binomial", "poisson", "gamma"] | Literal["auto"] = ...,
        intercept: bool = ...,
        offset: str = ...,
        weights: str = ...,
        errors: Literal["model", "robust"] = ...,
        confidence: float = ...,
        rounds: int = ...,
        tolerance: float = ...,
    ) -> None: ...
    def __getattr__(self, name: str) -> Any: ...

class KaplanMeier(MethodSection):
    """Curves of survival (Kaplan-Meier) of all rows, by group too, with log-rank tests; there is no model."""

    def __init__(
        self,
        *,
        event: str = ...,
        by: str = ...,
        grid: Sequence[float] = ...,
        confidence: float = ...,
        horizon: float | None = ...,
    ) -> None: ...
    def __getattr__(self, name: str) -> Any: ...

class Local(MethodSection):
    """Every client alone: nothing but counts and metrics leaves."""

    def __init__(
        self,
        *,
        ridge: float | Literal["by-rows"] = ...,
    ) -> None: ...
    def __getattr__(self, name: str) -> Any: ...

class Newton(MethodSection):
    """FedNewton on (random) features, or on a head over frozen features."""

    def __init__(
        self,
        *,
        ridge: float | Literal["by-rows", "auto", "auto-if-many"] | Sequence[float] = ...,
        rounds: int = ...,
        step: Literal["auto", "paper"] = ...,
        tolerance: float | None = ...,
        loss: Literal["ridge", "cross-entropy", "squared"] = ...,
        differences: bool = ...,
        solver: Literal["auto", "exact", "cg", "lbfgs", "lanczos", "eigen", "diagonal", "fisher"] = ...,
        damping: float | Literal["auto"] = ...,
        step_size: float = ...,
        gradient: Literal["global", "own"] = ...,
        line_search: bool = ...,
        client_fraction: float = ...,
        history: int = ...,
        solver_tolerance: float = ...,
        solver_iterations: int = ...,
        rank: int = ...,
        max_solver_bytes: int = ...,
        warm_start: bool = ...,
        validation_fraction: float | Literal["auto"] = ...,
        raise_ridge: bool | Literal["up"] = ...,
        penalise_bias: bool = ...,
    ) -> None: ...
    def __getattr__(self, name: str) -> Any: ...

class OfmklAvg(MethodSection):
    """Fed-OMD on several kernels, whose predictions are averaged."""

    def __init__(
        self,
        *,
        rounds: int = ...,
        batch_rows: int = ...,
        row_norm: float | Literal["auto"] = ...,
        target_range: Sequence[float] | Literal["auto"] = ...,
        wait_s: float = ...,
        outlier_spans: float = ...,
        metrics_every: int = ...,
        loss: Literal["auto", "squared", "logistic"] = ...,
        regularisation: float = ...,
        hindsight: bool = ...,
        num_kernels: int = ...,
        lengthscales: Sequence[float] | None = ...,
        num_frequencies: int = ...,
        learning_rate: float | Literal["auto"] = ...,
    ) -> None: ...
    def __getattr__(self, name: str) -> Any: ...

class Ofskl(MethodSection):
    """Online federated learning with a single kernel (Fed-OMD)."""

    def __init__(
        self,
        *,
        rounds: int = ...,
        batch_rows: int = ...,
        row_norm: float | Literal["auto"] = ...,
        target_range: Sequence[float] | Literal["auto"] = ...,
        wait_s: float = ...,
        outlier_spans: float = ...,
        metrics_every: int = ...,
        loss: Literal["auto", "squared", "logistic"] = ...,
        regularisation: float = ...,
        hindsight: bool = ...,
        lengthscale: float = ...,
        num_frequencies: int = ...,
        learning_rate: float | Literal["auto"] = ...,
    ) -> None: ...
    def __getattr__(self, name: str) -> Any: ...

class Online(MethodSection):
    """Common kernels and a personal mix of them: ridges on pooled statistics, or gradients on a budget (POF-MKL)."""

    def __init__(
        self,
        *,
        rounds: int = ...,
        batch_rows: int = ...,
        row_norm: float | Literal["auto"] = ...,
        target_range: Sequence[float] | Literal["auto"] = ...,
        wait_s: float = ...,
        outlier_spans: float = ...,
        metrics_every: int = ...,
        loss: Literal["auto", "squared", "logistic"] = ...,
        regularisation: float = ...,
        hindsight: bool = ...,
        num_kernels: int = ...,
        lengthscales: Sequence[float] | None = ...,
        share: Literal["auto", "statistics", "gradients"] = ...,
        rates: Literal["adaptive", "paper"] = ...,
        learning_rate: float | Literal["auto"] = ...,
        weight_learning_rate: float | Literal["auto"] = ...,
        experts: Literal["own", "evidence", "gated", "kernels"] = ...,
        budget: int | Literal["auto"] = ...,
        budget_unit: Literal["parameters", "bytes"] = ...,
        kernels_per_round: int | Literal["auto"] = ...,
        num_frequencies: int | Literal["auto"] = ...,
        max_frequencies: int = ...,
        exploration: float = ...,
    ) -> None: ...
    def __getattr__(self, name: str) -> Any: ...

class PerFedAvg(MethodSection):
    """Personalised federated averaging: a small network that each client adapts to its last row."""

    def __init__(
        self,
        *,
        aggregate: Literal["mean", "median", "trimmed"] = ...,
        trim: float = ...,
        max_norm: float | None = ...,
        rounds: int = ...,
        batch_rows: int = ...,
        row_norm: float | Literal["auto"] = ...,
        target_range: Sequence[float] | Literal["auto"] = ...,
        wait_s: float = ...,
        outlier_spans: float = ...,
        metrics_every: int = ...,
        hidden: int = ...,
        adaptation_rate: float = ...,
        learning_rate: float = ...,
    ) -> None: ...
    def __getattr__(self, name: str) -> Any: ...

class Personalise(MethodSection):
    """A model per client, trained on a mix of all clients' risks that is learned from the data."""

    def __init__(
        self,
        *,
        ridge: float | Literal["by-rows"] = ...,
        weights: Literal["crossfit", "paper", "exact"] = ...,
        trainer: Literal["exact", "newton", "fedavg"] = ...,
        rounds: int = ...,
        view: Literal["xy", "x"] = ...,
        embedding_kernel: Literal["gaussian", "laplace", "matern32", "matern52", "linear", "polynomial2"] = ...,
        embed_unlabelled: bool = ...,
        embedding_points: int = ...,
        num_frequencies: int = ...,
        lengthscales: Sequence[float] = ...,
        scale_columns: bool = ...,
        c_q: float | Literal["auto", "theorem"] = ...,
        c_p: float | Literal["auto", "theorem"] = ...,
        steps: int = ...,
        step_factor: float = ...,
        components: int = ...,
        density: bool = ...,
        centres: int = ...,
        targets: Sequence[str] = ...,
        grid: Literal["auto", "full", "lite", "wide"] = ...,
        directions: int | Literal["auto", "all"] = ...,
        folds: int = ...,
        deviate: bool | Literal["auto"] = ...,
        judge: Literal["kinds", "networks", "ridge"] = ...,
        kept_apart: int = ...,
        keep_shared: bool = ...,
        from_job: str = ...,
        noise: Mapping[str, Any] | None = ...,
        min_weight: float = ...,
        tolerance: float = ...,
        network: Mapping[str, Any] = ...,
        learning_rate: float = ...,
        local_steps: int = ...,
        batch_size: int = ...,
        weight_decay: float = ...,
        optimiser: Literal["adam", "average"] = ...,
        network_scale: Literal["all", "mixture"] = ...,
        step_size: float = ...,
    ) -> None: ...
    def __getattr__(self, name: str) -> Any: ...

class Privacy(PrivacySection):
    """What nobody sees of a single client."""

    def __init__(
        self,
        *,
        sums: Literal["clear", "secure"] = ...,
    ) -> None: ...

class Probe(MethodSection):
    """A test of the lines: numbers go to every client and back; no data are touched."""

    def __init__(
        self,
        *,
        rounds: int = ...,
        payload_bytes: int = ...,
    ) -> None: ...
    def __getattr__(self, name: str) -> Any: ...

class Reweight(MethodSection):
    """One model that is right for the clients' test distributions: rows are weighed by density ratios."""

    def __init__(
        self,
        *,
        scope: Literal["all", "own", "target"] = ...,
        target: str | None = ...,
        on_refusal: Literal["stop", "leave-out", "own"] = ...,
        num_points: int = ...,
        trainer: Literal["newton", "adam", "fedavg"] = ...,
        client_weights: Literal["rows", "effective", "equal"] = ...,
        ridge: float | Literal["by-rows", "auto"] | Sequence[float] = ...,
        tolerance: float = ...,
        rounds: int = ...,
        client_fraction: float = ...,
        learning_rate: float = ...,
        local_steps: int = ...,
        proximal: float = ...,
        optimiser: Literal["average", "adam", "yogi"] = ...,
        step_size: float = ...,
        batch_size: int = ...,
        weight_decay: float = ...,
        average_last: int = ...,
        compare: bool = ...,
        compare_spectra: bool = ...,
        deliver: Literal["better", "better-on-test", "weighted"] = ...,
        network: Mapping[str, Any] = ...,
        ratios: Mapping[str, Any] = ...,
    ) -> None: ...
    def __getattr__(self, name: str) -> Any: ...

class VmKofl(MethodSection):
    """vM-KOFL: one mix of the kernels for all clients; all kernels travel in each round."""

    def __init__(
        self,
        *,
        rounds: int = ...,
        batch_rows: int = ...,
        row_norm: float | Literal["auto"] = ...,
        target_range: Sequence[float] | Literal["auto"] = ...,
        wait_s: float = ...,
        outlier_spans: float = ...,
        metrics_every: int = ...,
        loss: Literal["auto", "squared", "logistic"] = ...,
        regularisation: float = ...,
        hindsight: bool = ...,
        num_kernels: int = ...,
        lengthscales: Sequence[float] | None = ...,
        num_frequencies: int = ...,
        learning_rate: float | Literal["auto"] = ...,
        weight_learning_rate: float | Literal["auto"] = ...,
    ) -> None: ...
    def __getattr__(self, name: str) -> Any: ...
