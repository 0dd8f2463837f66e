"""A provider's numbers for Prometheus: ``REGISTRY.register(BoxliteCollector(provider))`` (extra ``[metrics]``).

Names follow Prometheus's rules for metric names: base units, `_total` for counters.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector

from .slots import State

if TYPE_CHECKING:
    from .provider import BoxliteProvider
    from .stats import Stats, Summary

_COUNTERS = {
    "boots": "Boxes booted.",
    "boot_failures": "Boots that failed.",
    "warm_hits": "Acquires served by a box that ran already.",
    "evictions": "Boxes stopped to make room for others.",
    "idle_stops": "Boxes stopped because nobody used them.",
    "crashes": "Boxes that died under an operation.",
    "unhealthy": "Boxes that failed the health check at a reclaim.",
    "waits": "Requests that found no place free at once.",
    "timeouts": "Requests that found no place in time.",
}


class BoxliteCollector(Collector):
    """Reads `provider.stats()` at every scrape: memory only, no box is asked."""

    def __init__(self, provider: BoxliteProvider) -> None:
        self._provider = provider

    def collect(self) -> Iterable[Metric]:
        """The metrics of this moment."""
        stats = self._provider.stats()
        yield from _gauges(stats)
        for field in fields(stats.counters):
            name = f"boxlite_{field.name}"
            yield CounterMetricFamily(name, _COUNTERS[field.name], value=getattr(stats.counters, field.name))
        yield _summary("boxlite_boot_seconds", "Duration of boots that went well.", stats.boot_seconds)
        yield _summary("boxlite_acquire_seconds", "Duration of acquires that went well.", stats.acquire_seconds)


def _gauges(stats: Stats) -> Iterable[Metric]:
    boxes = GaugeMetricFamily("boxlite_boxes", "Boxes that this process has seen, by state.", labels=["state"])
    for state in State:
        boxes.add_metric([state.value], stats.slots.get(state, 0))
    yield boxes
    yield GaugeMetricFamily("boxlite_replicas", "How many boxes may run at once.", value=stats.replicas)
    yield GaugeMetricFamily("boxlite_in_flight", "Operations that run at this moment.", value=stats.in_flight)
    yield GaugeMetricFamily("boxlite_waiting", "Requests that wait for a box.", value=stats.waiting)


def _summary(name: str, text: str, summary: Summary) -> Metric:
    return SummaryMetricFamily(name, text, count_value=summary.count, sum_value=summary.total)
