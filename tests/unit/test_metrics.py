from __future__ import annotations

from typing import Any

import pytest

from deerflow_boxlite.slots import Counters, State
from deerflow_boxlite.stats import Stats, Summary, Timer

prometheus_client = pytest.importorskip("prometheus_client")


class Provider:
    def stats(self) -> Stats:
        return Stats(
            replicas=3,
            slots={State.ACTIVE: 2, State.STOPPED: 5},
            in_flight=1,
            waiting=4,
            counters=Counters(*range(10, 19)),
            boot_seconds=Summary(2, 3.5, 2.0),
            acquire_seconds=Summary(7, 4.5, 2.0),
        )


def test_every_number_of_the_stats_is_exposed() -> None:
    from deerflow_boxlite.metrics import BoxliteCollector

    registry = prometheus_client.CollectorRegistry()
    provider: Any = Provider()
    registry.register(BoxliteCollector(provider))
    lines = [
        line for line in prometheus_client.generate_latest(registry).decode().splitlines() if not line.startswith("#")
    ]
    assert sorted(lines) == sorted(
        [
            'boxlite_boxes{state="booting"} 0.0',
            'boxlite_boxes{state="active"} 2.0',
            'boxlite_boxes{state="warm"} 0.0',
            'boxlite_boxes{state="checking"} 0.0',
            'boxlite_boxes{state="stopping"} 0.0',
            'boxlite_boxes{state="stopped"} 5.0',
            "boxlite_replicas 3.0",
            "boxlite_in_flight 1.0",
            "boxlite_waiting 4.0",
            "boxlite_boots_total 10.0",
            "boxlite_boot_failures_total 11.0",
            "boxlite_warm_hits_total 12.0",
            "boxlite_evictions_total 13.0",
            "boxlite_idle_stops_total 14.0",
            "boxlite_crashes_total 15.0",
            "boxlite_unhealthy_total 16.0",
            "boxlite_waits_total 17.0",
            "boxlite_timeouts_total 18.0",
            "boxlite_boot_seconds_count 2.0",
            "boxlite_boot_seconds_sum 3.5",
            "boxlite_acquire_seconds_count 7.0",
            "boxlite_acquire_seconds_sum 4.5",
        ]
    )


def test_a_timer_sums_up() -> None:
    timer = Timer()
    assert timer.summary().mean == 0
    for seconds in (1.0, 4.0, 1.0):
        timer.add(seconds)
    assert timer.summary() == Summary(3, 6.0, 4.0)
    assert timer.summary().mean == 2
