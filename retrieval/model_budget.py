"""Count the model calls of a question, and stop those that a cap of its profile does not allow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from schemas.budgets import NO_PRICES, BudgetProfile, CapName, ModelUsage, PriceTable, StoppedCall
from schemas.errors import BudgetExceeded
from schemas.ports.engines import ChatUsage
from schemas.ports.metering import PlannedCall

CALL_CAPS: Mapping[str, CapName] = {
    "judge": "judge_calls",
    "embed": "search_calls",
    "rerank": "search_calls",
}
"""Cap on the number of calls by task; `calls` for every other one."""
COST_DIGITS = 12
"""Digits of costs: sums of binary fractions would otherwise exceed a cap that they equal."""

_UsageKey = tuple[str, str, bool]


@dataclass(slots=True)
class ModelBudget:
    """The CallMeter of one question.

    The bounds of calls in flight are reserved: concurrent calls cannot exceed a cap together.
    """

    profile: BudgetProfile = field(default_factory=BudgetProfile)
    prices: PriceTable = NO_PRICES
    stopped: list[StoppedCall] = field(default_factory=list)
    _usage: dict[_UsageKey, ModelUsage] = field(default_factory=dict)
    # With the reservations of calls in flight.
    _calls: Counter[CapName] = field(default_factory=Counter)
    _tokens: int = 0
    _cost: float = 0.0

    def reserve(self, call: PlannedCall) -> None:
        cap = CALL_CAPS.get(call.task, "calls")
        limit, tokens, cost = getattr(self.profile, cap), _count_tokens(call), self._bound(call)
        if self._calls[cap] >= limit:
            self._stop(call, cap, limit, f"allows {limit} calls, all of which are used")
        if (limit := self.profile.tokens) is not None and self._tokens + tokens > limit:
            used = f"{self._tokens:,} are used, and this call may take {tokens:,} more"
            self._stop(call, "tokens", limit, f"allows {limit:,} tokens: {used}")
        if (limit := self.profile.cost) is not None:
            money = f"{limit:g} {self.prices.currency}"
            if cost is None:
                self._stop(call, "cost", limit, f"allows {money}, and {call.model} has no price")
            elif round(self._cost + cost, COST_DIGITS) > limit:
                used = f"{self._cost:.6g} is used, and this call may cost {cost:.6g} more"
                self._stop(call, "cost", limit, f"allows {money}: {used}")
        self._calls[cap] += 1
        self._tokens += tokens
        self._cost += cost or 0.0

    def charge(self, call: PlannedCall, usage: ChatUsage | None) -> None:
        self._drop_bounds(call)
        reported = usage or ChatUsage()
        # A count that is not reported is taken at its bound.
        used = ChatUsage(
            reported.input_tokens or call.max_input_tokens,
            reported.output_tokens or call.max_output_tokens,
        )
        cost = self._price(call.model, used)
        self._tokens += used.input_tokens + used.output_tokens
        self._cost += cost or 0.0
        entry = self._get_usage(call.task, call.model)
        self._set_usage(
            entry,
            calls=entry.calls + 1,
            input_tokens=entry.input_tokens + used.input_tokens,
            output_tokens=entry.output_tokens + used.output_tokens,
            estimated=entry.estimated or used != usage,
            cost=None if cost is None else round((entry.cost or 0.0) + cost, COST_DIGITS),
        )

    def release(self, call: PlannedCall) -> None:
        self._drop_bounds(call)
        self._calls[CALL_CAPS.get(call.task, "calls")] -= 1
        entry = self._get_usage(call.task, call.model)
        self._set_usage(entry, failed=entry.failed + 1)

    def count_local(self, task: str, model: str) -> None:
        entry = self._get_usage(task, model, is_local=True)
        self._set_usage(entry, calls=entry.calls + 1)

    def count_calls_left(self, task: str) -> int:
        cap = CALL_CAPS.get(task, "calls")
        return int(getattr(self.profile, cap)) - self._calls[cap]

    def list_usage(self) -> list[ModelUsage]:
        return list(self._usage.values())

    def list_unpriced(self) -> list[str]:
        """Return the models that were called and have no price."""
        return sorted({item.model for item in self._usage.values() if item.cost is None})

    def compute_cost(self) -> float | None:
        """Return the cost of all calls, or None if a model that was called has no price."""
        costs = [item.cost for item in self._usage.values()]
        known = [cost for cost in costs if cost is not None]
        return round(sum(known), COST_DIGITS) if len(known) == len(costs) else None

    def _drop_bounds(self, call: PlannedCall) -> None:
        self._tokens -= _count_tokens(call)
        self._cost -= self._bound(call) or 0.0

    def _stop(self, call: PlannedCall, cap: CapName, limit: float, reason: str) -> None:
        text = f"budget.{cap} of the profile {reason}"
        self.stopped.append(
            StoppedCall(cap=cap, limit=limit, task=call.task, model=call.model, reason=text)
        )
        raise BudgetExceeded(f"{text}.")

    def _bound(self, call: PlannedCall) -> float | None:
        return self._price(call.model, ChatUsage(call.max_input_tokens, call.max_output_tokens))

    def _price(self, model: str, usage: ChatUsage) -> float | None:
        price = self.prices.models.get(model)
        return price.compute_cost(usage.input_tokens, usage.output_tokens) if price else None

    def _get_usage(self, task: str, model: str, *, is_local: bool = False) -> ModelUsage:
        empty = ModelUsage(task=task, model=model, local=is_local, calls=0, cost=0.0)
        return self._usage.get((task, model, is_local), empty)

    def _set_usage(self, entry: ModelUsage, **changes: object) -> None:
        key = (entry.task, entry.model, entry.local)
        self._usage[key] = entry.model_copy(update=changes)


def _count_tokens(call: PlannedCall) -> int:
    return call.max_input_tokens + call.max_output_tokens
