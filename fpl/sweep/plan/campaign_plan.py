"""What a campaign needs: which runs are done, failed, blocked or missing, and what those to come will cost.

Imports neither torch nor Ray, unless the cost of a run is not known yet: a plan takes about a second.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from fpl.config.campaign import Campaign
from fpl.config.cells import Cell
from fpl.config.checks import warnings_of, worker_problem
from fpl.config.schema import RunConfig
from fpl.store.read import Results, has_results
from fpl.sweep.execution import Execution
from fpl.sweep.places import Places
from fpl.sweep.plan.capacity import Capacity, makespan
from fpl.sweep.plan.costs import Costs, silent
from fpl.sweep.plan.memory import memory_problem, needed
from fpl.sweep.plan.needs import Needs
from fpl.sweep.plan.speed import CPU_CORE, CostModel, assumed_gpu, measured_on, read_calibration
from fpl.sweep.plan.wanted import Wanted, distinct_runs

# Seconds, measured on two cores: Ray's own start, and what each launcher spends on a run besides training it (inputs,
# network, store; for `train` a fresh group of processes) and once before its first run.
RAY_START = 4.0
RUN_START = {"inline": 0.3, "gang": 0.3, "train": 20.0}
LAUNCHER_START = {"inline": 5.0, "gang": 20.0, "train": 0.0}


@dataclass(frozen=True)
class TableCount:
    """One table of the plan.

    Attributes:
        name: What commands call it.
        printed: Cells with a number in the paper.
        measured: Cells that runs measure, the suite's own controls among them.
        others: Reason -> cells that are not run.
        pending: Reason -> rows that wait for a method.
        recipes: Distinct runs it needs.
    """

    name: str
    printed: int
    measured: int
    others: Mapping[str, int]
    pending: Mapping[str, list[str]]
    recipes: frozenset[str]


@dataclass
class Plan:
    """The runs of a campaign, each in exactly one list.

    Attributes:
        campaign: The cells.
        wanted: All distinct runs.
        done: In the store.
        missing: Ready to be trained.
        failed: Ended with an error, with the reason; ready to be tried again.
        blocked: Cannot start, with the reasons and their remedies.
        obstacles: Each of these reasons and how many runs it blocks; a run may have several.
        to_make: Kind -> names of inputs that are not there and `fpl reproduce` makes before it trains.
        to_download: Networks whose weights are not there and are downloaded when the first run starts.
        capacity: What there is for runs; None where Ray will say so at start.
        execution: How runs are carried out.
        gpu_model: Cost of runs on GPUs.
        cpu_model: Cost of runs on CPU cores.
    """

    campaign: Campaign
    wanted: list[Wanted]
    capacity: Capacity | None
    execution: Execution
    gpu_model: CostModel
    cpu_model: CostModel
    done: list[Wanted] = field(default_factory=list)
    missing: list[Wanted] = field(default_factory=list)
    failed: list[tuple[Wanted, str]] = field(default_factory=list)
    blocked: list[tuple[Wanted, str]] = field(default_factory=list)
    obstacles: Counter[str] = field(default_factory=Counter)
    to_make: dict[str, list[str]] = field(default_factory=dict)
    to_download: list[str] = field(default_factory=list)

    @property
    def ready(self) -> list[Wanted]:
        """Runs that could start: missing and failed ones."""
        return [*self.missing, *(run for run, _ in self.failed)]

    @property
    def to_come(self) -> list[Wanted]:
        """Runs that are not done, blocked ones among them."""
        return [*self.ready, *(run for run, _ in self.blocked)]

    @property
    def warnings(self) -> list[str]:
        """What is allowed in the runs to come but rarely meant, each once with the number of runs."""
        found = Counter(warning for run in self.to_come for warning in warnings_of(run.config))
        return [f"warning: {count} run{'s' * (count > 1)}: {warning}" for warning, count in found.items()]

    def layout(self, run: Wanted) -> Execution:
        """How a run is carried out."""
        return self.execution.of_run(run.gang)

    def model(self, run: Wanted) -> CostModel:
        """The cost model of the device that a run uses."""
        return self.gpu_model if self.layout(run).on_gpu else self.cpu_model

    def count_costs(self) -> None:
        """Count what the runs to come cost, all at once, and keep it; asked for one by one they are kept one by one."""
        self.cpu_model.costs.learn(run.config for run in self.to_come)

    def seconds(self, run: Wanted) -> float:
        """Expected wall time of a run, from its start to its row in the store."""
        layout = self.layout(run)
        return self.model(run).run_seconds(run.config, layout.workers) + RUN_START[layout.launcher]

    def device_hours(self, runs: Iterable[Wanted]) -> tuple[float, float]:
        """GPU-hours and CPU-core-hours of runs; a run on GPUs counts as GPU-hours alone."""
        gpu = cpu = 0.0
        for run in runs:
            layout = self.layout(run)
            hours = self.seconds(run) * layout.devices / 3600
            if layout.on_gpu:
                gpu += hours
            else:
                cpu += hours
        return gpu, cpu

    def wall_seconds(self) -> float | None:
        """Expected wall time of what is ready, in the order of `fpl reproduce`; None without a known capacity."""
        if self.capacity is None or not self.ready:
            return None
        total = 0.0 if self.execution.local else RAY_START
        beside: list[float] = []
        for gang in (True, False):
            runs = [run for run in self.ready if run.gang == gang]
            if not runs:
                continue
            layout = self.layout(runs[0])
            start = 0.0 if layout.local else LAUNCHER_START[layout.launcher]
            seconds = [self.seconds(run) for run in runs]
            if layout.beside and any(not run.gang for run in self.ready):
                # Each of its workers is one more that the cores have to do.
                beside = [start + sum(seconds)] * layout.workers
            else:
                total += start + makespan([*seconds, *beside], self.capacity.slots(layout))
        return total

    def gpu_bytes(self, run: Wanted) -> float:
        """Expected memory of a run on each of its GPUs; 0 for one that uses none."""
        layout = self.layout(run)
        if not layout.on_gpu:
            return 0.0
        return needed(self.gpu_model.costs.of(run.config), run.config, layout.workers).total

    def tight(self) -> list[Wanted]:
        """Runs to start whose memory fits by what is counted, but not by what is to be expected."""
        if self.capacity is None or not self.capacity.gpu_memory:
            return []
        there = self.capacity.gpu_memory
        return [run for run in self.ready if self.gpu_bytes(run) > there * self.layout(run).gpu_share]

    def disk_bytes(self) -> tuple[int, int]:
        """Disk for the runs to come: what stays, and what those running at once need besides (one of each kind)."""
        costs = [self.cpu_model.costs.of(run.config) for run in self.to_come]
        kept = sum(cost.kept_bytes for cost in costs)
        sizes = [cost.running_bytes for cost in costs]
        at_once = 1
        if self.capacity is not None and self.ready:
            at_once = max(self.capacity.slots(self.layout(run)) for run in self.ready)
        return kept, sum(sorted(sizes, reverse=True)[:at_once])

    @cached_property
    def tables(self) -> list[TableCount]:
        """The tables, in the paper's order."""
        return [_count(name, cells) for name, cells in self.campaign.cells.items()]

    @property
    def cells_served(self) -> int:
        """Cells that the distinct runs measure."""
        return sum(bool(cell.configs) for cell in self.campaign.all_cells)


def make_plan(
    campaign: Campaign,
    places: Places,
    capacity: Capacity | None = None,
    execution: Execution | None = None,
    say: Callable[[str], None] = silent,
) -> Plan:
    """Sort the distinct runs of a campaign by what can be done about them.

    Args:
        campaign: The cells.
        places: Where the store, the data sets, the split lists and the pretrained weights are.
        capacity: What there is for runs; None leaves the question to Ray, and blocks no run for it.
        execution: How runs are carried out; None: as the scale's `[launch]` says.
        say: Told where kinds of runs are counted that no plan beside this store has had before.

    Raises:
        FplError: A damaged store or calibration.
    """
    execution = execution or Execution.of_scale(campaign.scale.launch, str(campaign.scale.path))
    wanted = distinct_runs(campaign.all_cells, campaign.scale.launch, campaign.pictured)
    plan = Plan(campaign, wanted, capacity, execution, *cost_models(places, capacity, execution, say))
    done, failed = recorded(places)
    needs = Needs(places)
    costs = plan.gpu_model.costs
    if capacity is not None and capacity.gpu_memory and execution.on_gpu:
        costs.learn(run.config for run in wanted if run.recipe not in done)
    for run in wanted:
        if run.recipe in done:
            plan.done.append(run)
            continue
        problems = [*needs.lacking(run.config), *misfits(run.config, plan.layout(run), capacity, costs)]
        if problems:
            plan.blocked.append((run, "; ".join(problems)))
            plan.obstacles.update(problems)
        elif run.recipe in failed:
            plan.failed.append((run, failed[run.recipe]))
        else:
            plan.missing.append(run)
    plan.to_make, plan.to_download = needs.to_make, needs.to_download
    return plan


def cost_models(
    places: Places, capacity: Capacity | None, execution: Execution, say: Callable[[str], None] = silent
) -> tuple[CostModel, CostModel]:
    """Cost models of GPUs and of CPU cores, with the store's calibration where it is of the device at hand."""
    costs = Costs(places.out, say)
    gpus = cpus = read_calibration(places.out)
    # Nobody knows what processors a cluster has.
    if capacity is not None and not capacity.nodes:
        gpus = measured_on(capacity.gpu_name, gpus)
        cpus = [entry for entry in cpus if entry.device == capacity.cpu_name]
    # Of a cluster that is not asked yet, the devices are unknown: its calibration was made there or it is of no use.
    gpus = [entry for entry in gpus if entry.on_gpu]
    cpus = [entry for entry in cpus if not entry.on_gpu and entry.threads == execution.threads]
    gpu = assumed_gpu(capacity.gpu_name if capacity is not None else "")
    return CostModel(gpu, tuple(gpus), costs), CostModel(CPU_CORE, tuple(cpus), costs, execution.threads)


def recorded(places: Places) -> tuple[set[str], dict[str, str]]:
    """Recipes that are done, and those that failed with their reason."""
    if not has_results(places.out):
        return set(), {}
    results = Results(places.out)
    failures = results.failures
    reasons = zip(failures["recipe"], failures["reason"], failures["log"], strict=True)
    failed = {recipe: f"{reason} (log: {log})" if log else reason for recipe, reason, log in reasons}
    return set(results.runs["recipe"]), failed


def misfits(config: RunConfig, layout: Execution, capacity: Capacity | None, costs: Costs) -> list[str]:
    """Why a run fits neither its workers nor the machine, with the remedy behind an arrow; empty if it does."""
    found = []
    if problem := worker_problem(config, layout.workers):
        found.append(f"{problem} -> --workers")
    if capacity is None:
        return found
    if shortage := capacity.shortage(layout):
        found.append(shortage)
    if capacity.gpu_memory and layout.on_gpu and not problem:
        there = capacity.gpu_memory * layout.gpu_share
        if lack := memory_problem(costs.of(config), config, layout.workers, there):
            found.append(lack)
    return found


def _count(name: str, cells: list[Cell]) -> TableCount:
    pending: dict[str, list[str]] = {}
    for cell in cells:
        if cell.row.pending and cell.why_not == cell.row.pending:
            rows = pending.setdefault(cell.row.pending, [])
            if cell.row.key not in rows:
                rows.append(cell.row.key)
    return TableCount(
        name,
        printed=sum(cell.printed is not None and not cell.experiment.ours for cell in cells),
        measured=sum(bool(cell.configs) for cell in cells),
        others=Counter(cell.why_not for cell in cells if cell.why_not),
        pending=pending,
        recipes=frozenset(recipe for cell in cells for recipe in cell.recipes),
    )
