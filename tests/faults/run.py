"""All faults on one seed, several trials at a time, each judged against a clean run."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace

from tests.fakes.openai_server import FakeOpenAI, fake_openai
from tests.faults import (
    absent_engine,
    broker_killed,
    broker_paused,
    busy_engine,
    encrypted_files,
    hanging_engine,
    killed_workers,
    lost_commit,
    postgres_killed,
    redelivered,
    senseless_engine,
    slow_handler,
    storm,
    truncated_topic,
)
from tests.faults.crew import Crew
from tests.faults.ground import Ground
from tests.faults.trial import Clean, Fault, Trial, clean_run, passed, workload
from tests.faults.verdict import Row, broken_off, judged
from tests.faults.wire import Wire, wire
from tests.kafka_fixture import own_broker
from tests.postgres_fixture import own_postgres

FAULTS = tuple(
    module.FAULT
    for module in (
        killed_workers,
        absent_engine,
        broker_killed,
        broker_paused,
        postgres_killed,
        redelivered,
        storm,
        lost_commit,
        slow_handler,
        hanging_engine,
        busy_engine,
        senseless_engine,
        encrypted_files,
        truncated_topic,
    )
)
"""The longest first."""
LANES = 3
SPAN_S = 3.0
"""How long a fault of share 1 strikes, in a run of one minute."""
LEAST_DOCUMENTS, MOST_DOCUMENTS, DOCUMENTS_A_MINUTE = 40, 200, 20


@dataclass
class Run:
    """`minutes` scales how long faults strike, and on how many documents."""

    ground: Ground
    seed: int
    minutes: float
    say: Callable[[str], None] = lambda _: None
    _until: float = 0.0
    _untried: int = 0
    _cleans: dict[bool, Clean] = field(default_factory=dict)
    _cleaning: threading.Lock = field(default_factory=threading.Lock)

    @property
    def documents(self) -> int:
        return max(LEAST_DOCUMENTS, min(MOST_DOCUMENTS, round(DOCUMENTS_A_MINUTE * self.minutes)))

    def all(self, faults: Sequence[Fault] = FAULTS) -> list[Row]:
        """In the order given. What goes wrong in a trial is in its row."""
        self._until, self._untried = time.monotonic() + 60 * self.minutes, len(faults)
        with ThreadPoolExecutor(LANES) as lanes:
            return list(lanes.map(self.tried, faults))

    def tried(self, fault: Fault) -> Row:
        started, doing = time.monotonic(), "the clean run"
        events = workload(self.seed, self.documents)
        try:
            clean = self._clean(fault.served)
            started = time.monotonic()
            with self._ground(fault) as ground, self._crew(ground, fault.served) as (crew, engine, engine_wire):
                mood = random.Random(f"{self.seed}/{fault.name}")
                trial = Trial(crew, ground, clean, mood, self._span_s(fault), events, engine=engine, engine_wire=engine_wire)
                doing = "the strikes"
                struck = fault.strike(trial)
                doing = "what came after them"
                trial.finish()
                row = judged(trial, fault.name, self.seed, self.documents, struck, passed(started))
        except Exception as error:
            said = "\n".join([f"broke off in {doing}: {type(error).__name__}: {error}", *getattr(error, "__notes__", ())])
            row = broken_off(fault.name, self.seed, self.documents, passed(started), said)
        self.say(f"{fault.name}: {'holds' if row.holds else '; '.join(row.problems())} ({row.struck} strikes, {row.seconds:.0f} s)")
        return row

    def _span_s(self, fault: Fault) -> float:
        """Less than it should be where others took long: half of what is left, shared by those that are to come; the other half is for getting over it."""
        turns = -(-self._untried // LANES)
        self._untried -= 1
        return max(SPAN_S, min(self.minutes * SPAN_S * fault.share, (self._until - time.monotonic()) / turns / 2 * fault.share))

    def _clean(self, served: bool) -> Clean:
        with self._cleaning:
            if served not in self._cleans:
                with self._crew(self.ground, served) as (crew, _, _):
                    self._cleans[served] = clean_run(crew, workload(self.seed, self.documents))
            return self._cleans[served]

    @contextmanager
    def _ground(self, fault: Fault) -> Iterator[Ground]:
        with ExitStack() as stack:
            found = self.ground
            if "kafka" in fault.own:
                found = replace(found, broker=stack.enter_context(own_broker()))
            if "postgres" in fault.own:
                found = replace(found, server=stack.enter_context(own_postgres()))
            yield found

    @contextmanager
    def _crew(self, ground: Ground, served: bool) -> Iterator[tuple[Crew, FakeOpenAI | None, Wire | None]]:
        with ExitStack() as stack:
            crew = stack.enter_context(ground.crew())
            stack.enter_context(heard_out(crew))
            if not served:
                yield crew, None, None
                return
            engine = stack.enter_context(fake_openai())
            before = stack.enter_context(wire(engine.url))
            crew.usual["embed_url"] = before.before(engine.url)
            yield crew, engine, before


@contextmanager
def heard_out(crew: Crew) -> Iterator[None]:
    """What its workers wrote last goes with an error."""
    try:
        yield
    except Exception as error:
        error.add_note(crew.last_words())
        raise
