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
    broker_killed,
    broker_paused,
    encrypted_files,
    hanging_engine,
    invalid_responses,
    killed_workers,
    lost_commit,
    postgres_killed,
    rate_limited_engine,
    rebalance_storm,
    redelivery,
    slow_handler,
    truncated_topic,
    unavailable_engine,
)
from tests.faults.environment import FaultEnvironment
from tests.faults.relay import TcpRelay, run_relay
from tests.faults.result import FaultResult, evaluate_trial, make_aborted_result
from tests.faults.trial import (
    Baseline,
    Fault,
    FaultTrial,
    make_workload,
    run_baseline,
    seconds_since,
)
from tests.faults.worker_fleet import WorkerFleet
from tests.support.kafka_fixture import run_broker
from tests.support.postgres_fixture import run_postgres

FAULTS = tuple(
    module.FAULT
    for module in (
        killed_workers,
        unavailable_engine,
        broker_killed,
        broker_paused,
        postgres_killed,
        redelivery,
        rebalance_storm,
        lost_commit,
        slow_handler,
        hanging_engine,
        rate_limited_engine,
        invalid_responses,
        encrypted_files,
        truncated_topic,
    )
)
"""The longest first."""
CONCURRENCY = 3
BASE_DURATION_S = 3.0
"""How long a fault of share 1 strikes, in a run of one minute."""
MIN_DOCUMENTS, MAX_DOCUMENTS, DOCUMENTS_PER_MINUTE = 40, 200, 20


@dataclass
class FaultSuite:
    """`minutes` scales how long faults strike, and on how many documents."""

    environment: FaultEnvironment
    seed: int
    minutes: float
    report: Callable[[str], None] = lambda _: None
    _deadline: float = 0.0
    _n_pending: int = 0
    _baselines: dict[bool, Baseline] = field(default_factory=dict)
    _baseline_lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def documents(self) -> int:
        return max(MIN_DOCUMENTS, min(MAX_DOCUMENTS, round(DOCUMENTS_PER_MINUTE * self.minutes)))

    def run_all(self, faults: Sequence[Fault] = FAULTS) -> list[FaultResult]:
        """In the order given. What goes wrong in a trial is in its row."""
        self._deadline, self._n_pending = time.monotonic() + 60 * self.minutes, len(faults)
        with ThreadPoolExecutor(CONCURRENCY) as lanes:
            return list(lanes.map(self.run_fault, faults))

    def run_fault(self, fault: Fault) -> FaultResult:
        started, phase = time.monotonic(), "the clean run"
        events = make_workload(self.seed, self.documents)
        try:
            baseline = self._get_baseline(fault.needs_model_server)
            started = time.monotonic()
            with (
                self._open_environment(fault) as environment,
                self._start_fleet(environment, fault.needs_model_server) as (
                    fleet,
                    model_server,
                    model_relay,
                ),
            ):
                rng = random.Random(f"{self.seed}/{fault.name}")
                trial = FaultTrial(
                    fleet,
                    environment,
                    baseline,
                    rng,
                    self._duration_s(fault),
                    events,
                    model_server=model_server,
                    model_relay=model_relay,
                )
                phase = "the strikes"
                n_injected = fault.inject(trial)
                phase = "what came after them"
                trial.finish()
                row = evaluate_trial(
                    trial, fault.name, self.seed, self.documents, n_injected, seconds_since(started)
                )
        except Exception as error:
            failure = "\n".join(
                [
                    f"broke off in {phase}: {type(error).__name__}: {error}",
                    *getattr(error, "__notes__", ()),
                ]
            )
            row = make_aborted_result(
                fault.name, self.seed, self.documents, seconds_since(started), failure
            )
        self.report(
            f"{fault.name}: {'holds' if row.passed else '; '.join(row.list_problems())} ({row.n_injected} strikes, {row.elapsed_s:.0f} s)"
        )
        return row

    def _duration_s(self, fault: Fault) -> float:
        """Less than it should be where others took long: half of what is left, shared by those that
        are to come; the other half is for getting over it.
        """
        turns = -(-self._n_pending // CONCURRENCY)
        self._n_pending -= 1
        return max(
            BASE_DURATION_S,
            min(
                self.minutes * BASE_DURATION_S * fault.duration_share,
                (self._deadline - time.monotonic()) / turns / 2 * fault.duration_share,
            ),
        )

    def _get_baseline(self, with_model_server: bool) -> Baseline:
        with self._baseline_lock:
            if with_model_server not in self._baselines:
                with self._start_fleet(self.environment, with_model_server) as (fleet, _, _):
                    self._baselines[with_model_server] = run_baseline(
                        fleet, make_workload(self.seed, self.documents)
                    )
            return self._baselines[with_model_server]

    @contextmanager
    def _open_environment(self, fault: Fault) -> Iterator[FaultEnvironment]:
        with ExitStack() as stack:
            environment = self.environment
            if "kafka" in fault.dedicated_services:
                environment = replace(environment, broker=stack.enter_context(run_broker()))
            if "postgres" in fault.dedicated_services:
                environment = replace(environment, server=stack.enter_context(run_postgres()))
            yield environment

    @contextmanager
    def _start_fleet(
        self, environment: FaultEnvironment, with_model_server: bool
    ) -> Iterator[tuple[WorkerFleet, FakeOpenAI | None, TcpRelay | None]]:
        with ExitStack() as stack:
            fleet = stack.enter_context(environment.start_fleet())
            stack.enter_context(attach_worker_logs(fleet))
            if not with_model_server:
                yield fleet, None, None
                return
            model_server = stack.enter_context(fake_openai())
            relay = stack.enter_context(run_relay(model_server.url))
            fleet.default_orders["embed_url"] = relay.relay_url(model_server.url)
            yield fleet, model_server, relay


@contextmanager
def attach_worker_logs(fleet: WorkerFleet) -> Iterator[None]:
    """What its workers wrote last goes with an error."""
    try:
        yield
    except Exception as error:
        error.add_note(fleet.read_log_tails())
        raise
