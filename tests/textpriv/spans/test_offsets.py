"""Offsets lead from each span of the raw text to its surface in the private one, in a file of the owner's."""

from __future__ import annotations

import json
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from textpriv.errors import SpanError
from textpriv.mechanisms import TEM
from textpriv.privatizer import Privatizer
from textpriv.spans.detectors import RegexDetector
from textpriv.spans.laws.mask import Mask
from textpriv.spans.offsets import moved_spans, write_owners_file
from textpriv.spans.policy import SpanPolicy


@pytest.fixture(scope="module")
def privatizer(three_points):
    policy = SpanPolicy({"CODE": Mask("CODE"), "NAME": Mask("N")})
    detector = RegexDetector({"CODE": "[A-Z]{2,}", "NAME": "Ann|\u0130d"})
    return Privatizer(TEM(three_points, 0.8), spans=policy, detector=detector)


pieces = st.lists(st.sampled_from(["w0", "XYZ", "Ann", ", ", " ", "(", "\u0130d", "\n\n", "é"]))


@given(st.lists(pieces.map("".join), min_size=1, max_size=3))
def test_each_row_leads_from_the_span_to_its_surface(privatizer, texts):
    raw = privatizer.read_batch(texts)
    private = privatizer.release(raw)
    rows = list(moved_spans(raw, private))
    assert [texts[row["document"]][row["start"] : row["end"]] for row in rows] == raw.spans.texts
    surfaces = {"CODE": "[CODE]", "NAME": "[N]"}
    for row in rows:
        text = private[row["document"]].text
        assert text[row["private_start"] : row["private_end"]] == surfaces[row["kind"]]


def test_the_file_is_the_owners_alone_and_other_batches_are_refused(privatizer, tmp_path):
    raw = privatizer.read_batch(["w0 Ann"])
    private = privatizer.release(raw)
    write_owners_file(tmp_path / "offsets", moved_spans(raw, private))
    assert stat.S_IMODE((tmp_path / "offsets").stat().st_mode) == 0o600
    (row,) = map(json.loads, (tmp_path / "offsets").read_text().splitlines())
    assert (row["kind"], row["start"], row["end"]) == ("NAME", 3, 6)
    with pytest.raises(SpanError, match="of another"):
        list(moved_spans(raw, [*private, *private]))
