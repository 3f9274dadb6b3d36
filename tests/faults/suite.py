"""Run all faults on one seed, and compare each trial with a clean run."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise

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
from tests.support.workload import KafkaEvent

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
    _deadline: float | None = None
    _n_pending: int = 0
    _baselines: dict[bool, Baseline] = field(default_factory=dict)
    _baseline_lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def n_documents(self) -> int:
        return max(MIN_DOCUMENTS, min(MAX_DOCUMENTS, round(DOCUMENTS_PER_MINUTE * self.minutes)))

    def run_all(self, faults: Sequence[Fault] = FAULTS) -> list[FaultResult]:
        """Run each fault on its own fleet, several at a time."""
        return self._run_trials([[fault] for fault in faults])

    def run_in_sequence(self, faults: Sequence[Fault] = FAULTS) -> list[FaultResult]:
        """Run the faults one after the other on two fleets, with and without a model server.

        This starts fewer services, topics and workers than `run_all`. Faults of one fleet share
        their verdict.
        """
        groups = [
            [fault for fault in faults if fault.needs_model_server is needs_model_server]
            for needs_model_server in (False, True)
        ]
        return self._run_trials([group for group in groups if group])

    def run_on_one_fleet(self, faults: Sequence[Fault]) -> list[FaultResult]:
        """Run the faults one after the other on one fleet, with a model server if one needs it."""
        return self._run_trials([faults])

    def _run_trials(self, groups: Sequence[Sequence[Fault]]) -> list[FaultResult]:
        self._n_pending = sum(map(len, groups))
        with ThreadPoolExecutor(CONCURRENCY) as lanes:
            return [row for rows in lanes.map(self._run_trial, groups) for row in rows]

    def _run_trial(self, faults: Sequence[Fault]) -> list[FaultResult]:
        """Run faults on one fleet; errors are recorded in the rows."""
        started, phase = time.monotonic(), "the clean run"
        needs_model_server = any(fault.needs_model_server for fault in faults)
        events = make_workload(self.seed, self.n_documents)
        try:
            baseline = self._get_baseline(needs_model_server)
            started = time.monotonic()
            with (
                self._open_environment(faults) as environment,
                self._start_fleet(environment, needs_model_server) as (
                    fleet,
                    model_server,
                    model_relay,
                ),
            ):
                trial = FaultTrial(
                    fleet, environment, baseline, model_server=model_server, model_relay=model_relay
                )
                injected_counts = []
                for fault, fault_events in zip(faults, split_events(events, faults), strict=True):
                    phase = f"fault {fault.name!r}"
                    rng = random.Random(f"{self.seed}/{fault.name}")
                    trial.begin(fault_events, rng, self._duration_s(fault))
                    injected_counts.append(fault.inject(trial))
                    phase = f"the recovery from fault {fault.name!r}"
                    trial.finish()
                    fleet.stop_running()
                phase = "the evaluation"
                result = evaluate_trial(trial, self.seed, self.n_documents, seconds_since(started))
        except Exception as error:
            notes = getattr(error, "__notes__", ())
            failure = "\n".join([f"aborted in {phase}: {type(error).__name__}: {error}", *notes])
            result = make_aborted_result(
                self.seed, self.n_documents, seconds_since(started), failure
            )
            injected_counts = [0] * len(faults)
        rows = [
            replace(result, fault=fault.name, n_injected=n_injected)
            for fault, n_injected in zip(faults, injected_counts, strict=True)
        ]
        for row in rows:
            verdict = "holds" if row.passed else "; ".join(row.list_problems())
            self.report(f"{row.fault}: {verdict} ({row.n_injected} strikes, {row.elapsed_s:.0f} s)")
        return rows

    def _duration_s(self, fault: Fault) -> float:
        """Return the duration of a fault, which shrinks if others took long: half of the remaining
        time is shared by the faults to come, the other half is for their recovery.
        """
        if self._deadline is None:  # the clean runs do not count
            self._deadline = time.monotonic() + 60 * self.minutes
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
                        fleet, make_workload(self.seed, self.n_documents)
                    )
            return self._baselines[with_model_server]

    @contextmanager
    def _open_environment(self, faults: Sequence[Fault]) -> Iterator[FaultEnvironment]:
        dedicated_services = frozenset().union(*(fault.dedicated_services for fault in faults))
        with ExitStack() as stack:
            environment = self.environment
            if "kafka" in dedicated_services:
                environment = replace(environment, broker=stack.enter_context(run_broker()))
            if "postgres" in dedicated_services:
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
    """Add the last log lines of the workers to an error."""
    try:
        yield
    except Exception as error:
        error.add_note(fleet.read_log_tails())
        raise


def split_events(
    events: Sequence[KafkaEvent], faults: Sequence[Fault]
) -> Iterator[Sequence[KafkaEvent]]:
    """Split a workload by the duration shares of the faults."""
    total = sum(fault.duration_share for fault in faults)
    ends = [
        round(len(events) * share / total)
        for share in accumulate(fault.duration_share for fault in faults)
    ]
    for start, end in pairwise([0, *ends]):
        yield events[start:end]
