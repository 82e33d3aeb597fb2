"""The statistics of rliable 1.2.0 on fixed scores, and how to renew them, where rliable can be imported:

    python tests/report/golden.py

It needs `pip install rliable 'pandas<3' 'arch<8'`, which do not fit beside ours: the file was written once.
"""

import json
from pathlib import Path

import numpy as np

PATH = Path(__file__).parent / "golden.json"
THRESHOLDS = [0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0]


def scores() -> dict[str, np.ndarray]:
    """Rates in steps of 0.05 (so that many are equal), and returns that leave the scale on both sides."""
    rng = np.random.default_rng(7)
    return {
        "rates": np.round(rng.beta(2, 1.5, (5, 8)) * 20) / 20,
        "others": np.round(rng.beta(1.5, 2, (4, 8)) * 20) / 20,
        "returns": rng.normal(0.6, 0.5, (3, 6)),
        "one task": rng.uniform(size=(6, 1)),
    }


if __name__ == "__main__":
    import arch.bootstrap
    from rliable import library, metrics

    def aggregates(values):
        return {
            "iqm": float(metrics.aggregate_iqm(values)),
            "median": float(metrics.aggregate_median(values)),
            "mean": float(metrics.aggregate_mean(values)),
            "optimality_gap": float(metrics.aggregate_optimality_gap(values)),
            "optimality_gap 0.95": float(metrics.aggregate_optimality_gap(values, 0.95)),
        }

    inputs = scores()
    golden = {"inputs": {name: values.tolist() for name, values in inputs.items()}}
    golden["aggregates"] = {name: aggregates(values) for name, values in inputs.items()}
    golden["probability_of_improvement"] = float(
        metrics.probability_of_improvement(inputs["rates"], inputs["others"])
    )
    taus = np.array(THRESHOLDS)
    profiles, _ = library.create_performance_profile(dict(inputs), taus, reps=10)
    golden["profiles"] = {name: values.tolist() for name, values in profiles.items()}
    bootstrap = library.StratifiedBootstrap(inputs["rates"], random_state=np.random.RandomState(3))
    drawn = []
    for _ in range(5):
        runs, tasks = bootstrap.update_indices()
        drawn.append(
            {
                "indices": np.asarray(runs).tolist(),
                **aggregates(np.asarray(inputs["rates"][runs, tasks])),
            }
        )
    golden["resamples"] = drawn
    intervals, reps = {}, 5000
    for name in ("rates", "returns"):
        _, ends = library.get_interval_estimates(
            {name: inputs[name]},
            lambda values: np.array(
                [metrics.aggregate_iqm(values), metrics.aggregate_optimality_gap(values)]
            ),
            reps=reps,
            random_state=np.random.RandomState(1),
        )
        intervals[name] = dict(zip(("iqm", "optimality_gap"), np.asarray(ends[name]).T.tolist()))
    pair = (inputs["rates"], inputs["others"])
    _, ends = library.get_interval_estimates(
        {"pair": pair}, metrics.probability_of_improvement, reps=1000, random_state=np.random.RandomState(1)
    )
    intervals["pair"] = {"probability_of_improvement": np.asarray(ends["pair"]).ravel().tolist()}
    golden["intervals"] = intervals
    golden["versions"] = {"arch": arch.__version__, "numpy": np.__version__, "rliable": "1.2.0"}
    PATH.write_text(json.dumps(golden, indent=1) + "\n")
