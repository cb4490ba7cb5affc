"""Any sequence of commits, crashes and restarts leaves a volume equal to a dumb model of it."""

from __future__ import annotations

import tempfile
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from gapless.core.effects import Append, Chop, Delete, Put
from gapless.core.errors import StorageRefusedError
from tests.storage.labs import DiskLab, Lab, MemoryLab

if TYPE_CHECKING:
    from gapless.core.effects import Write

STREAMS = ["a", "b", "ключ"]
KEYS = ["x", "y"]


class Model:
    """Dictionaries, and every rule spelled out."""

    def __init__(self) -> None:
        self.records: dict[str, dict[int, bytes]] = {}
        self.chops: dict[str, int] = {}
        self.ends: dict[str, int] = {}
        self.tables: dict[tuple[str, str], bytes] = {}

    def write(self, write: Write) -> bool:
        """False if the rules forbid it."""
        match write:
            case Append(stream, indices, records):
                for index, record in zip(indices, records, strict=True):
                    if index < self.ends.get(stream, 0):
                        return False
                    self.records.setdefault(stream, {})[index] = record
                    self.ends[stream] = index + 1
            case Chop(stream, index):
                self.chops[stream] = max(self.chops.get(stream, 0), index)
                self.ends[stream] = max(self.ends.get(stream, 0), self.chops[stream])
                kept = self.records.get(stream, {})
                self.records[stream] = {i: r for i, r in kept.items() if i >= self.chops[stream]}
            case Put(table, key, value):
                self.tables[table, key] = value
            case Delete(table, key):
                self.tables.pop((table, key), None)
        return True


@st.composite
def appends(draw: st.DrawFn) -> Append:
    """Steps from the last index, mostly forwards, with records from nothing to half a segment."""
    steps = draw(st.lists(st.integers(1, 9), max_size=8))
    sizes = [draw(st.sampled_from([0, 1, 100, 1000, 7000])) for _ in steps]
    return Append(
        draw(st.sampled_from(STREAMS)),
        tuple(steps),
        tuple(bytes([step]) * size for step, size in zip(steps, sizes, strict=True)),
    )


writes = st.one_of(
    appends(),
    st.builds(Chop, st.sampled_from(STREAMS), st.integers(-3, 12)),
    st.builds(Put, st.just("t"), st.sampled_from(KEYS), st.binary(max_size=300)),
    st.builds(Delete, st.just("t"), st.sampled_from(KEYS)),
)


class VolumeMachine(RuleBasedStateMachine):
    """Does the same to a volume and to the model, and compares all there is after each step."""

    def make_lab(self) -> Lab:
        return MemoryLab()

    def __init__(self) -> None:
        super().__init__()
        self.lab = self.make_lab()
        self.volume = self.lab.open()
        self.model = Model()

    def relative(self, write: Write, model: Model) -> Write:
        """Drawn numbers are steps from where the stream ends, so that most are allowed."""
        match write:
            case Append(stream, steps, records):
                start = model.ends.get(stream, 0) - 1
                indices = tuple(start + sum(steps[: n + 1]) - (n == 0) for n in range(len(steps)))
                return Append(stream, tuple(max(0, i) for i in indices), records)
            case Chop(stream, back):
                return Chop(stream, max(0, model.ends.get(stream, 0) - back))
            case _:
                return write

    @rule(drawn=st.lists(writes, min_size=1, max_size=5))
    def commit(self, drawn: list[Write]) -> None:
        trial = deepcopy(self.model)
        group = []
        allowed = True
        for write in drawn:
            group.append(self.relative(write, trial))
            allowed = allowed and strictly_increases(group[-1]) and trial.write(group[-1])
        if allowed:
            self.volume.commit(group)
            self.model = trial
        else:
            with pytest.raises(StorageRefusedError):
                self.volume.commit(group)

    @rule()
    def crash(self) -> None:
        self.volume = self.lab.crash()
        assert not self.volume.recovery.clean
        assert self.volume.recovery.cut_bytes == 0

    @rule()
    def restart(self) -> None:
        self.volume = self.lab.restart()
        assert self.volume.recovery.clean

    @invariant()
    def is_as_the_model(self) -> None:
        for stream in STREAMS:
            start, end = self.model.chops.get(stream, 0), self.model.ends.get(stream, 0)
            assert self.volume.bounds(stream) == (start, end)
            kept = self.model.records.get(stream, {})
            found = self.volume.scan(stream, 0, end + 1, bytes_max=1 << 30)
            assert dict(zip(*found, strict=True)) == kept
            assert found.indices == sorted(kept)
            for index in found.indices[-3:]:
                assert self.volume.read(stream, index) == kept[index]
                near = self.volume.read_near(stream, index)
                assert near.items() <= kept.items()
                assert index in near
        tables = {("t", key): value for key, value in self.volume.items("t").items()}
        assert tables == self.model.tables

    def teardown(self) -> None:
        self.lab.close()


class DiskMachine(VolumeMachine):
    """The same over files."""

    def make_lab(self) -> Lab:
        self.folder = tempfile.TemporaryDirectory()
        return DiskLab(Path(self.folder.name))

    def teardown(self) -> None:
        super().teardown()
        self.folder.cleanup()


def strictly_increases(write: Write) -> bool:
    return not isinstance(write, Append) or all(
        low < high for low, high in zip(write.indices, write.indices[1:], strict=False)
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("machine", "examples"), [(VolumeMachine, 60), (DiskMachine, 30)], ids=["memory", "disk"]
)
def test_a_volume_is_always_as_the_model_says(machine: type[VolumeMachine], examples: int) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
