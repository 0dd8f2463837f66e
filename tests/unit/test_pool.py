"""The pool's decisions, one by one. Time is a number here, and the work it hands out is done by hand."""

from __future__ import annotations

from typing import TypeVar

import pytest

from deerflow_boxlite.errors import BoxBootError, CapacityError, ClosedError
from deerflow_boxlite.pool import Pool, Works
from deerflow_boxlite.slots import Boot, Check, Grant, Lease, Limits, Moved, Refuse, State, Stop, Ticket

W = TypeVar("W", Boot, Check, Stop, Grant, Refuse, Moved)


def of(kind: type[W], works: Works) -> list[W]:
    return [work for work in works if isinstance(work, kind)]


def one(kind: type[W], works: Works) -> W:
    (work,) = of(kind, works)
    return work


def make(**limits: float) -> Pool:
    return Pool(Limits(**({"replicas": 2, "idle_timeout": 100.0, "acquire_timeout": 10.0} | limits)))  # type: ignore[arg-type]


def held(pool: Pool, sandbox_id: str, now: float = 0.0) -> None:
    """Acquire a box that does not run, and boot it."""
    _, works = pool.request(sandbox_id, now, hold=True)
    assert one(Grant, pool.booted(one(Boot, works), now))


def warm(pool: Pool, sandbox_id: str, now: float = 0.0) -> None:
    held(pool, sandbox_id, now)
    pool.release(sandbox_id, now)


def begun(pool: Pool, sandbox_id: str, now: float = 0.0) -> Lease:
    """Start an operation on a box that runs."""
    ticket, works = pool.request(sandbox_id, now, hold=False)
    assert one(Grant, works).ticket is ticket
    assert ticket.lease is not None
    return ticket.lease


def granted(works: Works) -> list[Ticket]:
    return [grant.ticket for grant in of(Grant, works)]


def state(pool: Pool, only: int = 1) -> State:
    states = pool.snapshot().states
    assert sum(states.values()) == only
    (found,) = states
    return found


def test_a_boot_reserves_its_place_before_it_starts() -> None:
    pool = make(replicas=1)
    _, first = pool.request("a", 0, hold=True)
    _, second = pool.request("b", 0, hold=True)
    assert of(Boot, first)
    assert not of(Boot, second)


def test_case_28_no_more_than_replicas_run_and_the_rest_wait_in_order() -> None:
    pool = make(replicas=3)
    requests = {name: pool.request(name, 0, hold=True) for name in "abcdefghij"}
    boots = [work for _, works in requests.values() for work in of(Boot, works)]
    assert [boot.sandbox_id for boot in boots] == ["a", "b", "c"]
    for boot in boots:
        pool.booted(boot, 1)
    works = pool.release("b", 2)
    assert one(Stop, works).sandbox_id == "b"
    assert not of(Boot, works), "its place is free only when it has stopped"
    assert one(Boot, pool.stopped(one(Stop, works), 3)).sandbox_id == "d"
    refused = of(Refuse, pool.tick(10))
    assert [refusal.ticket.sandbox_id for refusal in refused] == list("efghij")
    for refusal in refused:
        assert isinstance(refusal.error, CapacityError)
        assert "`replicas`" in str(refusal.error)
        assert "`acquire_timeout`" in str(refusal.error)


def test_case_29_two_acquires_of_one_thread_get_one_box() -> None:
    pool = make()
    first, works = pool.request("a", 0, hold=True)
    second, more = pool.request("a", 0, hold=True)
    assert not more
    assert granted(pool.booted(one(Boot, works), 1)) == [first, second]
    assert pool.snapshot().states == {State.ACTIVE: 1}


def test_case_29_an_acquire_while_the_box_is_being_stopped_boots_it_again() -> None:
    pool = make()
    warm(pool, "a")
    stop = one(Stop, pool.tick(100))
    ticket, works = pool.request("a", 101, hold=True)
    assert not works
    boot = one(Boot, pool.stopped(stop, 102))
    assert granted(pool.booted(boot, 103)) == [ticket]


def test_case_30_a_release_does_not_disturb_what_runs() -> None:
    pool = make(replicas=1)
    held(pool, "a")
    running = begun(pool, "a")
    pool.request("a", 1, hold=True)
    pool.release("a", 2)
    assert state(pool) is State.WARM
    _, works = pool.request("b", 3, hold=True)
    assert not of(Stop, works)
    assert not of(Stop, pool.tick(5))
    assert pool.is_current(running)
    works = pool.end(running, "work", 6)
    assert one(Stop, works).sandbox_id == "a", "now its place can go to the one that waits"


def test_a_box_with_an_operation_in_flight_is_not_idle() -> None:
    pool = make()
    held(pool, "a")
    lease = begun(pool, "a")
    pool.release("a", 0)
    assert pool.next_deadline() is None
    assert not pool.tick(1000)
    pool.end(lease, "work", 1000)
    assert pool.next_deadline() == 1100, "the idle clock starts at the end of the last operation"
    assert one(Stop, pool.tick(1100)).reason == "idle"


def test_case_31_a_hold_that_nobody_uses_is_stopped_after_the_idle_timeout() -> None:
    pool = make()
    held(pool, "a")
    pool.end(begun(pool, "a"), "upload", 5)
    assert pool.next_deadline() == 105
    assert not pool.tick(104)
    works = pool.tick(105)
    assert [move.after for move in of(Moved, works)] == [State.WARM, State.STOPPING]
    pool.stopped(one(Stop, works), 106)
    assert pool.snapshot().states == {State.STOPPED: 1}


def test_case_31_a_hold_that_only_received_uploads_makes_room() -> None:
    pool = make(replicas=3)
    for number, name in enumerate("abc"):
        held(pool, name, number)
        pool.end(begun(pool, name), "upload", number)
    _, works = pool.request("d", 5, hold=True)
    stop = one(Stop, works)
    assert (stop.sandbox_id, stop.reason) == ("a", "evicted")
    assert one(Boot, pool.stopped(stop, 5)).sandbox_id == "d"


@pytest.mark.parametrize("kind", [None, "work"])
def test_a_hold_that_was_not_used_yet_or_worked_in_keeps_its_box(kind: str | None) -> None:
    pool = make(replicas=1)
    held(pool, "a")
    if kind == "work":
        pool.end(begun(pool, "a"), "upload", 1)
        pool.end(begun(pool, "a"), "work", 1)
        pool.end(begun(pool, "a"), "upload", 1)
    _, works = pool.request("b", 2, hold=True)
    assert not works


def test_an_agent_that_follows_an_upload_keeps_the_box() -> None:
    pool = make(replicas=1)
    held(pool, "a")
    pool.end(begun(pool, "a"), "upload", 1)
    pool.request("a", 2, hold=True)
    _, works = pool.request("b", 3, hold=True)
    assert not works


def test_the_least_recently_used_warm_box_goes_first() -> None:
    pool = make(replicas=3)
    for now, name in enumerate("abc"):
        warm(pool, name, now)
    pool.end(begun(pool, "a", 10), "work", 11)
    _, works = pool.request("d", 12, hold=True)
    assert one(Stop, works).sandbox_id == "b"
    _, works = pool.request("e", 12, hold=True)
    assert one(Stop, works).sandbox_id == "c"


def test_one_box_is_stopped_for_one_that_waits_and_not_more() -> None:
    pool = make(replicas=2)
    warm(pool, "a")
    warm(pool, "b")
    _, first = pool.request("c", 1, hold=True)
    _, second = pool.request("c", 1, hold=True)
    assert len(of(Stop, first + second)) == 1


def test_whoever_wants_a_running_box_does_not_wait_for_those_who_want_a_place() -> None:
    pool = make(replicas=1)
    held(pool, "a")
    pool.request("b", 1, hold=True)
    assert begun(pool, "a", 2)


def test_a_box_that_was_booted_for_an_operation_serves_it_before_it_makes_room() -> None:
    pool = make(replicas=1)
    ticket, works = pool.request("a", 0, hold=False)
    pool.request("b", 0, hold=True)
    works = pool.booted(one(Boot, works), 1)
    assert granted(works) == [ticket]
    assert not of(Stop, works)


def test_a_reclaim_is_checked_first() -> None:
    pool = make()
    warm(pool, "a")
    ticket, works = pool.request("a", 1, hold=True)
    assert not of(Grant, works)
    works = pool.checked(one(Check, works), True, 2)
    assert granted(works) == [ticket]
    assert pool.snapshot().counters.warm_hits == 1


def test_a_box_that_fails_its_check_is_booted_again_and_not_deleted() -> None:
    pool = make()
    warm(pool, "a")
    ticket, works = pool.request("a", 1, hold=True)
    stop = one(Stop, pool.checked(one(Check, works), False, 2))
    assert stop.reason == "unhealthy"
    boot = one(Boot, pool.stopped(stop, 3))
    assert granted(pool.booted(boot, 4)) == [ticket]
    assert pool.snapshot().counters.warm_hits == 0


@pytest.mark.parametrize(("reclaimed", "is_checked"), [(4.9, False), (5.0, True)])
def test_a_check_is_skipped_soon_after_a_release(reclaimed: float, is_checked: bool) -> None:
    pool = make(skip_check=5.0)
    warm(pool, "a", 0)
    _, works = pool.request("a", reclaimed, hold=True)
    assert bool(of(Check, works)) is is_checked


def test_a_check_does_not_restart_the_idle_clock() -> None:
    pool = make()
    warm(pool, "a")
    ticket, works = pool.request("a", 50, hold=True)
    pool.cancel(ticket, 51)
    pool.checked(one(Check, works), True, 52)
    assert pool.next_deadline() == 100
    _, works = pool.request("a", 60, hold=True)
    assert of(Check, works), "nobody has held it since, so the next reclaim is checked too"


def test_a_box_in_use_is_not_checked() -> None:
    pool = make()
    warm(pool, "a")
    begun(pool, "a")
    ticket, works = pool.request("a", 1, hold=True)
    assert granted(works) == [ticket]


def test_a_crash_frees_the_place_only_when_it_is_cleared_away() -> None:
    pool = make(replicas=1)
    held(pool, "a")
    lease = begun(pool, "a")
    stop = one(Stop, pool.crashed(lease))
    assert not pool.crashed(lease), "the second report of one crash changes nothing"
    ticket, works = pool.request("a", 1, hold=False)
    assert not works
    boot = one(Boot, pool.stopped(stop, 2))
    assert granted(pool.booted(boot, 3)) == [ticket]
    assert state(pool) is State.ACTIVE, "its holder still holds it"


def test_what_belongs_to_an_earlier_life_does_not_touch_a_later_one() -> None:
    pool = make()
    held(pool, "a")
    old = begun(pool, "a")
    crash = one(Stop, pool.crashed(begun(pool, "a")))
    pool.request("a", 1, hold=False)
    pool.booted(one(Boot, pool.stopped(crash, 1)), 1)
    assert not pool.crashed(old)
    assert not pool.end(old, "work", 2)
    assert pool.snapshot().in_flight == 1


def test_a_failed_boot_tells_everyone_who_waits_for_it_and_frees_the_place() -> None:
    pool = make(replicas=1)
    first, works = pool.request("a", 0, hold=True)
    second, _ = pool.request("a", 0, hold=False)
    pool.request("b", 0, hold=True)
    error = BoxBootError("no")
    works = pool.boot_failed(one(Boot, works), error, 1)
    assert [(refusal.ticket, refusal.error) for refusal in of(Refuse, works)] == [(first, error), (second, error)]
    assert one(Boot, works).sandbox_id == "b"


def test_a_boot_that_nobody_waits_for_any_more_ends_warm() -> None:
    pool = make()
    ticket, works = pool.request("a", 0, hold=True)
    assert not pool.cancel(ticket, 1)
    assert not of(Grant, pool.booted(one(Boot, works), 2))
    assert state(pool) is State.WARM
    assert pool.next_deadline() == 102


def test_a_ticket_cancelled_after_it_was_served_gives_everything_back() -> None:
    pool = make()
    ticket, works = pool.request("a", 0, hold=True)
    pool.booted(one(Boot, works), 1)
    operation, _ = pool.request("a", 2, hold=False)
    pool.cancel(operation, 3)
    pool.cancel(ticket, 3)
    assert pool.snapshot().in_flight == 0
    assert state(pool) is State.WARM


def test_a_cancelled_acquire_leaves_the_hold_of_others() -> None:
    pool = make()
    held(pool, "a")
    ticket, works = pool.request("a", 1, hold=True)
    assert granted(works) == [ticket]
    pool.cancel(ticket, 2)
    assert state(pool) is State.ACTIVE


def test_a_boot_is_no_wait_for_a_place_and_has_no_deadline_here() -> None:
    pool = make(acquire_timeout=10.0, idle_timeout=0.0)
    _, works = pool.request("a", 0, hold=True)
    assert pool.next_deadline() is None
    assert not pool.tick(11)
    assert of(Grant, pool.booted(one(Boot, works), 12))


def test_with_no_idle_timeout_and_nobody_waiting_nothing_is_ever_due() -> None:
    pool = make(idle_timeout=0.0)
    warm(pool, "a")
    held(pool, "b")
    assert pool.next_deadline() is None
    assert not pool.tick(1e9)


def test_reset_lets_go_of_everything_and_stops_nothing() -> None:
    pool = make()
    held(pool, "a")
    running = begun(pool, "a")
    works = pool.reset(1)
    assert not of(Stop, works)
    assert state(pool) is State.WARM
    assert pool.is_current(running)


def test_close_stops_all_and_refuses_all() -> None:
    pool = make(replicas=2)
    held(pool, "a")
    begun(pool, "a")
    _, booting = pool.request("b", 0, hold=True)
    waiting, _ = pool.request("c", 0, hold=True)
    works = pool.close(1)
    assert one(Stop, works).sandbox_id == "a"
    assert {refusal.ticket.sandbox_id for refusal in of(Refuse, works)} == {"b", "c"}
    assert waiting in [refusal.ticket for refusal in of(Refuse, works)]
    assert one(Stop, pool.booted(one(Boot, booting), 2)).sandbox_id == "b"
    _, works = pool.request("a", 3, hold=True)
    assert isinstance(one(Refuse, works).error, ClosedError)


def test_fewer_replicas_hold_as_soon_as_boxes_are_let_go_of() -> None:
    pool = make(replicas=3)
    for name in "abc":
        held(pool, name)
    pool.configure(Limits(replicas=1, idle_timeout=0, acquire_timeout=10), 1)
    pool.request("d", 2, hold=True)
    stops = [one(Stop, pool.release(name, 3)) for name in "abc"]
    assert not of(Boot, pool.stopped(stops[0], 4) + pool.stopped(stops[1], 4))
    assert one(Boot, pool.stopped(stops[2], 4)).sandbox_id == "d"


def test_a_stopped_box_is_still_known() -> None:
    pool = make()
    warm(pool, "a")
    pool.stopped(one(Stop, pool.tick(100)), 100)
    assert "a" in pool
    assert "b" not in pool
    assert not pool.runs("a")
