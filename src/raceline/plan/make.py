"""`plan`: the request's search, its front and picks, or what is missing where nothing fits."""

from __future__ import annotations

import msgspec

from raceline.catalog import dates, prices
from raceline.estimate.constants import Efficiency, load
from raceline.estimate.hardware import Catalogue
from raceline.models.count import parameters
from raceline.plan import picks
from raceline.plan.request import Job, PlanRequest
from raceline.plan.result import Option, Plan
from raceline.plan.serving import PATIENT_S, ServingSearch, plan_serving
from raceline.plan.shortfall import serving_shortfall, training_shortfall
from raceline.plan.training import plan_training
from raceline.plan.wishes import check
from raceline.present.errors import Message, message


def make_plan(request: PlanRequest, catalogue: Catalogue, efficiency: Efficiency | None = None) -> Plan:
    """The plan of a request. Raises InputError where a wish contradicts the facts."""
    efficiency = efficiency or load()
    check(request, catalogue)
    return (_train if request.task == "train" else _serve)(request, catalogue, efficiency)


def _train(request: PlanRequest, catalogue: Catalogue, efficiency: Efficiency) -> Plan:
    found = plan_training(request, catalogue, efficiency)
    job = found.job
    chosen = picks.pick(found.options, request.deadline_s, request.budget_usd)
    shortfall = None if chosen else training_shortfall(request, found, catalogue, efficiency)
    notes = (
        *found.candidates.notes,
        *_price_notes(chosen, request),
        *_loader(chosen, job),
        *_low_use(chosen, found.options),
    )
    return Plan(
        model=request.model.name,
        parameters=parameters(request.model),
        task="train",
        method=job.method,
        amount=_amount(job),
        picks=tuple(chosen),
        front=tuple(picks.front(found.options)),
        options=_cheapest(found.options, request.top),
        assumed=job.assumed,
        notes=notes,
        commands=_commands(request),
        evaluated=found.evaluated,
        pruned=found.pruned,
        shortfall=shortfall,
    )


def _serve(request: PlanRequest, catalogue: Catalogue, efficiency: Efficiency) -> Plan:
    found, late = _without_usual_limits(
        request, plan_serving(request, catalogue, efficiency), catalogue, efficiency
    )
    wish = found.wish
    chosen = picks.pick(found.options, None, request.budget_usd)
    amount: dict[str, object] = {}
    if wish.users:
        amount["users"] = wish.users
    if wish.qps:
        amount["qps"] = wish.qps
    return Plan(
        model=request.model.name,
        parameters=parameters(request.model),
        task="infer",
        method=None,
        amount=amount,
        picks=tuple(chosen),
        front=tuple(picks.front(found.options)),
        options=_cheapest(found.options, request.top),
        assumed=wish.assumed,
        notes=(*late, *found.candidates.notes, *_price_notes(chosen, request)),
        commands=_commands(request),
        evaluated=found.evaluated,
        pruned=0,
        shortfall=None if chosen else serving_shortfall(request, found, catalogue, efficiency),
    )


def _without_usual_limits(
    request: PlanRequest, found: ServingSearch, catalogue: Catalogue, efficiency: Efficiency
) -> tuple[ServingSearch, tuple[Message, ...]]:
    """Hardware that was asked for is planned even where it misses the usual latency, and that is said;
    a latency that was asked for stays a limit."""
    is_asked = request.ttft_s or request.tpot_s or request.p99_s
    if found.options or request.on is None or is_asked:
        return found, ()
    patient = msgspec.structs.replace(request, ttft_s=PATIENT_S, tpot_s=PATIENT_S)
    slow = plan_serving(patient, catalogue, efficiency)
    if not slow.options:
        return found, ()
    wish = found.wish
    late = message("plan.slower_than_usual", ttft_s=wish.ttft_s, tpot_ms=(wish.tpot_s or 0.0) * 1e3)
    assumed = {name: value for name, value in wish.assumed.items() if name not in ("ttft_s", "tpot_s")}
    return msgspec.structs.replace(slow, wish=msgspec.structs.replace(wish, assumed=assumed)), (late,)


def _cheapest(options: tuple[Option, ...], most: int) -> tuple[Option, ...]:
    return tuple(sorted(options, key=lambda o: (picks.cost_of(o), picks.time_of(o)))[:most])


def _amount(job: Job) -> dict[str, object]:
    if job.tokens_per_sample:
        return {"tokens": job.samples * job.tokens_per_sample, "seq_len": job.seq_len}
    return {"samples": job.samples}


def _price_notes(chosen: list[Option], request: PlanRequest) -> list[Message]:
    """One line on the age of the prices that the picks stand on."""
    known = [option.price_as_of for option in chosen if option.price_as_of]
    if not known:
        return [message("plan.no_price")] if chosen else []
    return [prices.age_message(dates.age_of(known, request.today))]


# A token id takes 4 bytes as datasets store them; an ImageNet file 110 kB on average
# (138 GB of 1.28 M training images, https://www.image-net.org/download.php).
TOKEN_BYTES, IMAGE_BYTES = 4.0, 110e3


def _loader(chosen: list[Option], job: Job) -> list[Message]:
    """What reading the data must reach for the fastest pick not to wait."""
    rates = [o.estimate.throughput.samples_per_s_per_device or 0.0 for o in chosen]
    if not rates:
        return []
    size = job.tokens_per_sample * TOKEN_BYTES or IMAGE_BYTES
    fastest = max(rate * o.count for rate, o in zip(rates, chosen, strict=True))
    return [message("plan.loader", needed_mbs=fastest * size / 1e6)]


def _low_use(chosen: list[Option], options: tuple[Option, ...]) -> list[Message]:
    """What a smaller count of the same card does, where a pick uses its own badly."""
    notes = []
    for pick in chosen:
        mfu = pick.estimate.mfu
        if mfu is None or mfu >= picks.LOW_UTILISATION:
            continue
        smaller = [
            o for o in options if o.accelerator == pick.accelerator and o.count < pick.count and o.duration_s
        ]
        best = max(smaller, key=lambda o: o.estimate.mfu or 0.0, default=None)
        if best and best.duration_s and (best.estimate.mfu or 0.0) > mfu:
            notes.append(
                message(
                    "plan.smaller_does", count=best.count, accelerator=best.accelerator_name,
                    mfu_fraction=best.estimate.mfu, time_s=best.duration_s.mid, cost_usd=picks.cost_of(best),
                )
            )  # fmt: skip
    return notes


def _commands(request: PlanRequest) -> tuple[Message, ...]:
    """The commands that come next, with the flags of this one."""
    name = request.model.name
    words = f"{name} {request.words}".strip()
    commands = [message("plan.next_explain", command=f"raceline plan {words} --explain")]
    if request.task == "train" and request.model.objective in ("causal", "seq2seq"):
        commands.append(message("plan.next_serve", command=f"raceline plan {name} --users 50"))
    commands.append(message("plan.next_describe", command=f"raceline describe {name}"))
    return tuple(commands)
