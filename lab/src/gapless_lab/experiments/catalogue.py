"""What `gapless experiment` can play: each experiment's parts, all of them imported late."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from gapless_lab.experiments.verdict import Verdict

    Job = tuple[str, Callable[[], None]]
    """What is played, and the call that plays it."""

    Figures = dict[str, Callable[[Any], Any]]
    """By file name, what draws it."""


class Experiment(NamedTuple):
    """One experiment: what it plays, how that is judged and drawn."""

    results: Callable[[int, bool], Any]
    """From seed, and whether it is to be quick: where everything measured is kept."""
    jobs: Callable[[Any, Callable[[], float]], list[Job]] | None
    """One after the other, here. None: results have `runs`, for all cores or a cluster."""
    judge: Callable[[Any], list[Verdict]]
    figures: Callable[[], Figures]
    notes: Callable[[Any], list[str]] = lambda results: results.notes()


def sized(results: Callable[..., Any], quick: Any, full: Any) -> Callable[[int, bool], Any]:
    return lambda seed, is_quick: results(seed=seed, size=quick if is_quick else full)


def exactly_once() -> Experiment:
    from gapless_lab.experiments.exactly_once.claims import judge
    from gapless_lab.experiments.exactly_once.experiment import FULL, QUICK, Results, jobs

    def figures() -> Figures:
        from gapless_lab.experiments.exactly_once.figures import crashes, overhead, stalls

        return {"link-stall": stalls, "crashes": crashes, "overhead": overhead}

    return Experiment(
        sized(Results, QUICK, FULL),
        jobs,
        judge,
        figures,
        lambda _results: [],
    )


def propagation() -> Experiment:
    from gapless_lab.experiments.propagation.claims import judge
    from gapless_lab.experiments.propagation.experiment import FULL, QUICK, Results, jobs

    def figures() -> Figures:
        from gapless_lab.experiments.propagation.figures import failure, latency, load, vectors

        return {"load": load, "latency": latency, "vectors": vectors, "failure": failure}

    return Experiment(
        sized(Results, QUICK, FULL),
        jobs,
        judge,
        figures,
    )


def durable() -> Experiment:
    from gapless_lab.experiments.durable.claims import judge
    from gapless_lab.experiments.durable.experiment import FULL, QUICK, Results, jobs

    def figures() -> Figures:
        from gapless_lab.experiments.durable.figures import (
            absences,
            auto_acknowledge,
            host_crash,
            peaks,
        )

        return {
            "peaks": peaks,
            "absences": absences,
            "host-crash": host_crash,
            "auto-acknowledge": auto_acknowledge,
        }

    return Experiment(
        sized(Results, QUICK, FULL),
        jobs,
        judge,
        figures,
    )


def partitions() -> Experiment:
    from gapless_lab.experiments.partitions.claims import judge
    from gapless_lab.experiments.partitions.experiment import FULL, QUICK, Results

    def figures() -> Figures:
        from gapless_lab.experiments.partitions.figures import (
            connectivity,
            delivery,
            neighbourhoods,
            sessions,
        )

        return {
            "connectivity": connectivity,
            "delivery": delivery,
            "neighbourhoods": neighbourhoods,
            "sessions": sessions,
        }

    return Experiment(
        sized(Results, QUICK, FULL),
        None,
        judge,
        figures,
    )


def multicast() -> Experiment:
    from gapless_lab.experiments.multicast.claims import judge
    from gapless_lab.experiments.multicast.experiment import FULL, QUICK, Results

    def figures() -> Figures:
        from gapless_lab.experiments.multicast.figures import delay, hops, repair, stress

        return {"hops": hops, "delay": delay, "stress": stress, "repair": repair}

    return Experiment(
        sized(Results, QUICK, FULL),
        None,
        judge,
        figures,
    )


def real_propagation() -> Experiment:
    from gapless_lab.experiments.propagation.real import FULL, QUICK, Results, jobs
    from gapless_lab.experiments.propagation.real_claims import judge

    return Experiment(
        lambda _seed, quick: Results(QUICK if quick else FULL),
        lambda results, _read_cpu_s: jobs(results),
        judge,
        dict,
    )


def real_durable() -> Experiment:
    from gapless_lab.experiments.durable.real import FULL, QUICK, Results, jobs
    from gapless_lab.experiments.durable.real_claims import judge

    return Experiment(
        lambda _seed, quick: Results(QUICK if quick else FULL),
        lambda results, _read_cpu_s: jobs(results),
        judge,
        dict,
    )


EXPERIMENTS = {
    "exactly-once": exactly_once,
    "propagation": propagation,
    "durable": durable,
    "partitions": partitions,
    "multicast": multicast,
}
REAL = {"propagation": real_propagation, "durable": real_durable}
SEEDED = ("partitions", "multicast")
"""Many runs, each with a seed of its own."""
NAMES = tuple(EXPERIMENTS)
