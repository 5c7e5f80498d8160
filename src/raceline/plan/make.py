"""`plan`: the request's search, its front and picks, or what is missing where nothing fits."""

from __future__ import annotations

import msgspec

from raceline.catalog import dates, prices
from raceline.estimate.constants import Efficiency, load
from raceline.estimate.hardware import Catalogue
from raceline.estimate.result import Estimate
from raceline.estimate.run import estimate_many
from raceline.estimate.scenario import Hardware, Scenario, Setup, Workload
from raceline.models.count import parameters
from raceline.plan import picks
from raceline.plan.request import Job, PlanRequest
from raceline.plan.result import Option, Plan, Shortfall
from raceline.plan.serving import plan_serving, serving_wish
from raceline.plan.training import plan_training
from raceline.plan.wishes import check
from raceline.present.errors import Message, message

CLOSEST = 3


def make_plan(request: PlanRequest, catalogue: Catalogue, efficiency: Efficiency | None = None) -> Plan:
    """The plan of a request. Raises InputError where a wish contradicts the facts."""
    efficiency = efficiency or load()
    check(request, catalogue)
    return (_train if request.task == "train" else _serve)(request, catalogue, efficiency)


def _train(request: PlanRequest, catalogue: Catalogue, efficiency: Efficiency) -> Plan:
    found = plan_training(request, catalogue, efficiency)
    job = found.job
    chosen = picks.pick(found.options, request.deadline_s, request.budget_usd)
    shortfall = None if chosen else _training_shortfall(request, found.options, catalogue, efficiency, job)
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
        commands=_commands(request, chosen),
        evaluated=found.evaluated,
        pruned=found.pruned,
        shortfall=shortfall,
    )


def _serve(request: PlanRequest, catalogue: Catalogue, efficiency: Efficiency) -> Plan:
    found = plan_serving(request, catalogue, efficiency)
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
        notes=(*found.candidates.notes, *_price_notes(chosen, request)),
        commands=_commands(request, chosen),
        evaluated=found.evaluated,
        pruned=0,
        shortfall=None if chosen else _serving_shortfall(request, catalogue, efficiency),
    )


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


def _commands(request: PlanRequest, chosen: list[Option]) -> tuple[Message, ...]:
    name = request.model.name
    commands = [message("plan.next_explain", command=f"raceline plan {name} --explain")]
    if request.task == "train":
        commands.append(message("plan.next_serve", command=f"raceline plan {name} --task infer --users 50"))
    if not chosen or len(chosen) > 0:
        commands.append(message("plan.next_describe", command=f"raceline describe {name}"))
    return tuple(commands)


def _training_shortfall(
    request: PlanRequest, options: tuple[Option, ...], catalogue: Catalogue, efficiency: Efficiency, job: Job
) -> Shortfall | None:
    """What the job needs at its smallest on the asked hardware, and what comes nearest to the wish."""
    elsewhere = msgspec.structs.replace(request, on=None, on_count=None, deadline_s=None, budget_usd=None)
    closest = list(options) or list(plan_training(elsewhere, catalogue, efficiency).options)
    if job.method in ("full", "lora") and request.on:
        smaller = msgspec.structs.replace(request, method="qlora", deadline_s=None, budget_usd=None)
        closest = [*plan_training(smaller, catalogue, efficiency).options, *closest]
    nearest = sorted(closest, key=lambda o: (picks.cost_of(o), picks.time_of(o)))[:CLOSEST]
    if request.on is None and not nearest:
        return None
    accelerator = request.on or nearest[0].accelerator
    count = request.on_count or 1
    setup = Setup(
        micro_batch=1, global_batch=max(job.global_batch, count), recompute="full", attention="flash",
        fused_loss=True, zero_stage=3 if count > 1 else None, lora_rank=job.lora_rank,
    )  # fmt: skip
    scenario = Scenario(
        model=request.model.name,
        workload=_workload(request, job),
        hardware=Hardware(accelerator=accelerator, count=count),
        setup=setup,
    )
    return _shortfall(scenario, request, catalogue, efficiency, tuple(nearest))


def _workload(request: PlanRequest, job: Job) -> Workload:
    return Workload(
        task="train",
        method=job.method,
        seq_len=job.seq_len or None,
        image_size=request.image_size,
    )


def _serving_shortfall(
    request: PlanRequest, catalogue: Catalogue, efficiency: Efficiency
) -> Shortfall | None:
    wish = serving_wish(request)
    relaxed = msgspec.structs.replace(
        request, on=None, on_count=None, budget_usd=None, ttft_s=1e6, tpot_s=1e6, p99_s=None
    )
    options = plan_serving(relaxed, catalogue, efficiency).options
    nearest = sorted(options, key=picks.cost_of)[:CLOSEST]
    if not nearest and not request.on:
        return None
    scenario = Scenario(
        model=request.model.name,
        workload=Workload(
            task="infer", input_len=wish.input_len or None, output_len=wish.output_len or None, concurrency=1
        ),
        hardware=Hardware(accelerator=request.on or nearest[0].accelerator, count=request.on_count or 1),
        setup=Setup(weight_precision="awq-int4"),
    )
    return _shortfall(scenario, request, catalogue, efficiency, tuple(nearest))


def _shortfall(
    scenario: Scenario,
    request: PlanRequest,
    catalogue: Catalogue,
    efficiency: Efficiency,
    closest: tuple[Option, ...],
) -> Shortfall | None:
    outcome = estimate_many([scenario], catalogue, lambda _reference, _size: request.model, efficiency)[0]
    if not isinstance(outcome, Estimate):
        raise outcome
    accelerator = catalogue.resolve(scenario.hardware.accelerator).accelerator
    return Shortfall(
        accelerator_name=accelerator.name, count=scenario.hardware.count, estimate=outcome, closest=closest
    )
