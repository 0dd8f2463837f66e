from __future__ import annotations

import string

from hypothesis import example, given
from hypothesis import strategies as st

from deerflow_boxlite.identity import BOX_PREFIX, Identity, box_name, sandbox_id_of

texts = st.text(st.characters(), max_size=12)


@given(texts, texts, texts, texts)
@example("a:b", "c", "a", "b:c")
@example("", "ab", "a", "b")
@example("1:a", "", "", "1:a")
def test_case_32_two_identities_have_two_ids(user: str, thread: str, other_user: str, other_thread: str) -> None:
    same = (user, thread) == (other_user, other_thread)
    assert (Identity(user, thread).sandbox_id == Identity(other_user, other_thread).sandbox_id) is same


@given(texts, texts)
def test_an_id_is_32_hex_digits_and_a_box_name_leads_back_to_it(user: str, thread: str) -> None:
    sandbox_id = Identity(user, thread).sandbox_id
    assert len(sandbox_id) == 32
    assert set(sandbox_id) <= set(string.hexdigits.lower())
    assert box_name(sandbox_id) == f"deer-flow-boxlite-{sandbox_id}"
    assert sandbox_id_of(box_name(sandbox_id)) == sandbox_id


def test_an_id_never_changes() -> None:
    # Disks are found by it: another value here means that every user's files are lost.
    assert Identity("default", "thread-1").sandbox_id == "774fbf3ff2e3423db78f6b30fb8cb07b"


def test_a_lone_surrogate_is_no_error() -> None:
    assert Identity("\udcff", "t").sandbox_id != Identity("\udcfe", "t").sandbox_id


def test_anonymous_identities_differ() -> None:
    assert Identity.anonymous().sandbox_id != Identity.anonymous().sandbox_id


def test_names_of_others_are_not_ours() -> None:
    for name in ("", "mybox", BOX_PREFIX, BOX_PREFIX + "x" * 32, BOX_PREFIX + "a" * 31, "x" + BOX_PREFIX + "a" * 32):
        assert sandbox_id_of(name) is None
