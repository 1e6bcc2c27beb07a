//! Cost of the general orchestrator without its deciders, tools and steps, and a thousand plans of five steps at once.
//!
//! `cargo bench --bench decisions -- [--plans N] [--check]`

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use callboard::agents::decide::intake::{IntakeOptions, IntakeStage, RoutingRequest, route};
use callboard::agents::decide::limits::RISK_MAX_DEFAULT;
use callboard::agents::decide::rules::RulesDecider;
use callboard::agents::decide::{
    Clarity, DecideClarity, DecideRoute, DecideSplit, DecideTool, Decider, DeciderReply, Deciders,
    DecisionPoint, MakeSteps, Route, RoutingContext, RunId, Split, StepDefinition, StepMetadata,
    StepPlan, Synthesis, Synthesize, ToolChoice,
};
use callboard::agents::memory::DelegatedRequestLog;
use callboard::agents::peer_registry::{
    AddressSource, AgentConnector, FetchedCard, PeerRegistry, PeerRegistryOptions,
};
use callboard::agents::task::{
    CONCURRENT_CALLS_MAX, CONFIDENCE_MIN_DEFAULT, TASK_TTL_DEFAULT, TaskOrchestrator,
    TaskOrchestratorOptions,
};
use callboard::agents::tools::{ToolDeps, Toolbox};
use callboard::message::capabilities::Converse;
use callboard::message::{Content, DataClass, Principal, RawObject};
use callboard::store::{SqlStore, StoreOptions};
use callboard::{
    Agent, AgentRef, CallContext, ConcurrentHandler, Context, Failure, Handlers, MemoryTaskStore,
    Message, Store, SyncHandler, System, TaskRunner, TaskRunnerOptions,
};
use clap::Parser;
use futures::future::{BoxFuture, join_all};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use url::Url;

#[expect(dead_code, reason = "shared with benches of servers")]
mod kit;

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

const ID: &str = "orchestrator";
/// Plans at once when `--plans` is not given.
const PLANS_DEFAULT: u32 = 1_000;
/// Steps of each.
const STEPS: usize = 5;
/// Decisions that are timed, after as many that aren't.
const DECISIONS: u32 = 2_000;
/// Longest that a decision may take beside its decider.
const OVERHEAD_MAX: Duration = Duration::from_millis(1);
/// Interval for sampling the queues.
const SAMPLED_EVERY: Duration = Duration::from_millis(100);
const TEXT: &str = "What is the capital of France?";

#[derive(Parser)]
struct Arguments {
    #[arg(long, default_value_t = PLANS_DEFAULT, value_parser = clap::value_parser!(u32).range(1..=CONCURRENT_CALLS_MAX as i64))]
    plans: u32,
    /// Fail where a mark is missed.
    #[arg(long)]
    check: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse_from(kit::words());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build();
    let done = runtime
        .map_err(Into::into)
        .and_then(|runtime| runtime.block_on(all(arguments.plans as usize)));
    kit::ended(
        done.map(|is_held| !is_held && arguments.check)
            .map_err(|why| why.to_string()),
    )
}

/// Measures and prints. False where a mark is missed.
async fn all(plans: usize) -> Outcome<bool> {
    let overhead = small().await?;
    let in_memory = Store {
        tasks: Arc::new(MemoryTaskStore::with_capacity(100_000)),
        ..Store::in_memory()
    };
    println!(
        "\n| {plans} plans of {STEPS} steps at once | steps/s | p50, p99 of a plan, ms | most in a mailbox | its slope, messages/s | \
         RSS before, after, MiB |\n|---|---|---|---|---|---|"
    );
    let first = many("memory", in_memory, plans).await?;
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let sql = SqlStore::open(&StoreOptions::sqlite(file(&folder)).cleanup_interval(None)).await?;
    let second = many("SQLite", sql.store(), plans).await?;
    sql.close().await;
    Ok(overhead < OVERHEAD_MAX && first && second)
}

fn file(folder: &TempDir) -> std::path::PathBuf {
    folder.path().join("store.sqlite")
}

struct Nowhere;

impl AgentConnector for Nowhere {
    fn fetch_card<'a>(
        &'a self,
        _: &'a Url,
        _: AddressSource,
    ) -> BoxFuture<'a, Result<FetchedCard, Failure>> {
        Box::pin(async { Err(Failure::unavailable("nobody is there")) })
    }

    fn open(&self, _: &System, _: &Url, _: AddressSource) -> Result<AgentRef, Failure> {
        Err(Failure::unavailable("nobody is there"))
    }
}

async fn toolbox(system: &System, deciders: &Arc<Deciders>) -> Outcome<(Toolbox, PeerRegistry)> {
    let options = PeerRegistryOptions {
        id: ID.into(),
        name: ID.into(),
        allowed_origins: Vec::new(),
    };
    let known = PeerRegistry::open(
        system,
        system.store().kv.clone(),
        Arc::new(Nowhere),
        options,
    )
    .await?;
    let deps = ToolDeps {
        deciders: deciders.clone(),
        peer_registry: known.clone(),
        system_prompt: String::new(),
        command: None,
    };
    let tools = ["echo", "llm", "summarize", "list_agents"].map(str::to_owned);
    Ok((Toolbox::new(&tools, deps)?, known))
}

async fn orchestrator(system: &System, deciders: Arc<Deciders>) -> Outcome<AgentRef> {
    let (tools, known) = toolbox(system, &deciders).await?;
    let options = TaskOrchestratorOptions {
        id: ID.into(),
        name: ID.into(),
        description: String::new(),
        deciders,
        intake: IntakeOptions::default(),
        confidence_min: CONFIDENCE_MIN_DEFAULT,
        max_risk: RISK_MAX_DEFAULT,
        cost_micro_usd_max: None,
        tools,
        peer_registry: known,
        memory: DelegatedRequestLog::new(system.store().kv.clone(), ID, DataClass::Internal),
        guard: None,
        system_prompt: String::new(),
        class: DataClass::Internal,
        task_ttl: TASK_TTL_DEFAULT,
        shutdown: CancellationToken::new(),
    };
    let agent = system.spawn(TaskOrchestrator::new(options));
    system.directory().register(ID, &agent)?;
    Ok(agent)
}

/// Measures the cost of one decision, one intake and one action, in microseconds.
#[derive(Message)]
#[message(local, reply = [f64; 5], fallible)]
struct Measure;

/// Measures from within a call, as the orchestrator decides.
struct Bench {
    deciders: Arc<Deciders>,
    rules: AgentRef,
    tools: Toolbox,
    orchestrator: AgentRef,
}

impl Agent for Bench {
    fn handlers(on: &mut Handlers<Self>) {
        on.concurrent::<Measure>(1);
    }
}

/// The time of one `work`, in microseconds, on average; `work` is written out, for no bound on async closures says `Send` yet.
macro_rules! timed {
    ($work:expr) => {{
        for _ in 0..DECISIONS {
            $work;
        }
        let since = Instant::now();
        for _ in 0..DECISIONS {
            $work;
        }
        since.elapsed().as_secs_f64() * 1e6 / f64::from(DECISIONS)
    }};
}

impl ConcurrentHandler<Measure> for Bench {
    fn handle(
        &mut self,
        _: Measure,
        cx: Context,
    ) -> impl Future<Output = Result<[f64; 5], Failure>> + Send + 'static {
        let (deciders, rules, tools) = (
            self.deciders.clone(),
            self.rules.clone(),
            self.tools.clone(),
        );
        let orchestrator = self.orchestrator.clone();
        async move {
            let message = DecideClarity {
                history: Vec::new(),
                request: TEXT.to_owned(),
                world: Arc::default(),
            };
            let alone = timed!(cx.ask(&rules, message.clone()).await??);
            let run = RunId::random();
            let whole = timed!(deciders.decide(&cx, &run, message.clone()).await);
            let world = Arc::new(RoutingContext {
                tools: tools.list(),
                agents: Vec::new(),
            });
            let request = RoutingRequest {
                run: run.clone(),
                text: TEXT.to_owned(),
                history: Vec::new(),
            };
            let options = IntakeOptions::default();
            let intake = timed!(
                route(
                    &deciders,
                    &cx,
                    &request,
                    &world,
                    &options,
                    IntakeStage::Clarity
                )
                .await
            );
            let params = RawObject::new().with("text", TEXT);
            let tool = timed!(tools.run("echo", params.clone(), &cx).await?);
            let said = Converse::from_content([Content::text(format!(
                ":tool echo {{\"text\":\"{TEXT}\"}}"
            ))]);
            let action = timed!(cx.ask(&orchestrator, said.clone()).await??);
            Ok([alone, whole, intake, tool, action])
        }
    }
}

/// Answers the longest time that a decision took beside its decider.
async fn small() -> Outcome<Duration> {
    let system = System::start(1)?;
    let rules = system.spawn(RulesDecider::new());
    let deciders = Arc::new(Deciders::uniform(
        ID,
        DataClass::Internal,
        &Decider::rules(rules.clone()),
    ));
    let (tools, _) = toolbox(&system, &deciders).await?;
    let orchestrator = orchestrator(&system, deciders.clone()).await?;
    let bench = system.spawn(Bench {
        deciders,
        rules,
        tools,
        orchestrator,
    });
    let [alone, whole, intake, tool, action] = bench.ask(Measure).await??;
    println!(
        "| microseconds | with | without | between |\n|---|---|---|---|\n\
         | a decision by rules: kept, timed, checked; the rules alone | {whole:.1} | {alone:.1} | {:.1} |\n\
         | a whole intake (4 decisions) | {intake:.1} | | |\n\
         | a tool by way of the orchestrator; the tool alone | {action:.1} | {tool:.1} | {:.1} |",
        whole - alone,
        action - tool,
    );
    system.shutdown(Duration::from_secs(5)).await;
    Ok(Duration::from_secs_f64((whole - alone).max(0.0) / 1e6))
}

/// Plans every request in the same steps.
struct Planner {
    plan: StepPlan,
}

impl Agent for Planner {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<DecideClarity>()
            .sync::<DecideSplit>()
            .sync::<MakeSteps>()
            .sync::<DecideRoute>();
        on.sync::<DecideTool>().sync::<Synthesize>();
    }
}

macro_rules! decides {
    ($($message:ty => $outcome:ty: $with:expr;)*) => {$(
        impl SyncHandler<$message> for Planner {
            fn handle(&mut self, message: $message, _: &mut Context) -> Result<DeciderReply<$outcome>, Failure> {
                let with: fn(&Self, $message) -> $outcome = $with;
                Ok(DeciderReply::clear(with(self, message), 0.9, "always"))
            }
        }
    )*};
}

decides! {
    DecideClarity => Clarity: |_, _| Clarity::Clear;
    DecideSplit => Split: |_, _| Split::Yes;
    MakeSteps => StepPlan: |planner, _| planner.plan.clone();
    DecideRoute => Route: |_, _| Route::Local;
    DecideTool => ToolChoice: |_, message| ToolChoice {
        tool_name: "echo".to_owned(),
        params: RawObject::new().with("text", message.request),
    };
    Synthesize => Synthesis: |_, _| Synthesis { final_answer: "done".to_owned(), confidence: 0.9, notes: None };
}

/// Three at once, one behind them, one behind that.
fn plan() -> Outcome<StepPlan> {
    let step = |id: usize, needs: &[usize]| StepDefinition {
        id: format!("s{id}"),
        input_message: format!("step {id}"),
        metadata: StepMetadata {
            depends_on: needs.iter().map(|need| format!("s{need}")).collect(),
        },
    };
    let steps = vec![
        step(0, &[]),
        step(1, &[]),
        step(2, &[]),
        step(3, &[0, 1, 2]),
        step(4, &[3]),
    ];
    Ok(StepPlan::try_new(steps)?)
}

/// All plans at once. False where a queue grew.
async fn many(name: &str, store: Store, plans: usize) -> Outcome<bool> {
    let system = System::start(1)?;
    system.set_store(store)?;
    let planner = Decider::model("planner", system.spawn(Planner { plan: plan()? }));
    let deciders = Arc::new(Deciders::new(
        ID,
        DataClass::Internal,
        |point| match point {
            DecisionPoint::Clarity
            | DecisionPoint::Split
            | DecisionPoint::Plan
            | DecisionPoint::Route
            | DecisionPoint::Tool
            | DecisionPoint::Synthesis => vec![planner.clone()],
            _ => Vec::new(),
        },
    ));
    let agent = orchestrator(&system, deciders).await?;
    let runner = TaskRunner::start(
        &system,
        TaskRunnerOptions {
            tasks_max: 256,
            ..TaskRunnerOptions::default()
        },
    );
    let before = kit::resident(std::process::id())?;
    let (over, worst) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU32::new(0)),
    );
    let sampling = tokio::spawn(sample(
        system.clone(),
        agent.clone(),
        over.clone(),
        worst.clone(),
    ));
    let since = Instant::now();
    // Several, because one principal may not use all places of the orchestrator.
    let askers = ["a", "b", "c", "d"].map(|id| Arc::new(Principal::agent(id)));
    let asking = (0..plans).map(|n| {
        let (agent, asker) = (agent.clone(), askers[n % askers.len()].clone());
        tokio::spawn(async move {
            let since = Instant::now();
            let reply = agent
                .ask(Converse::from_content([Content::text(TEXT)]))
                .within_call(Some(Arc::new(CallContext::new(asker))))
                .await?;
            reply
                .map(|_| since.elapsed())
                .map_err(|failure| -> Box<dyn std::error::Error + Send + Sync> { failure.into() })
        })
    });
    let mut latencies = Vec::with_capacity(plans);
    for asked in join_all(asking).await {
        latencies.push(asked??);
    }
    let took = since.elapsed();
    over.store(true, Relaxed);
    let slope = sampling.await?;
    let after = kit::resident(std::process::id())?;
    latencies.sort_unstable();
    let percentile = |of: usize| {
        latencies
            .get(latencies.len() * of / 100)
            .copied()
            .unwrap_or_default()
            .as_secs_f64()
            * 1e3
    };
    println!(
        "| {name} | {:.0} | {:.0}, {:.0} | {} | {slope:.1} | {:.0}, {:.0} |",
        (plans * STEPS) as f64 / took.as_secs_f64(),
        percentile(50),
        percentile(99),
        worst.load(Relaxed),
        before as f64 / 1_048_576.0,
        after as f64 / 1_048_576.0,
    );
    runner.stop().await;
    system.shutdown(Duration::from_secs(10)).await;
    Ok(slope <= 0.0)
}

/// Looks at the orchestrator's mailbox until it is over: by how many messages a second it grew, as a line through all looks.
async fn sample(
    system: System,
    agent: AgentRef,
    over: Arc<AtomicBool>,
    worst: Arc<AtomicU32>,
) -> f64 {
    let (since, mut seen) = (Instant::now(), Vec::new());
    while !over.load(Relaxed) {
        let depth = system
            .snapshot()
            .into_iter()
            .find(|one| one.id == agent.id())
            .map_or(0, |one| one.mailbox_depth);
        worst.fetch_max(depth, Relaxed);
        seen.push((since.elapsed().as_secs_f64(), f64::from(depth)));
        tokio::time::sleep(SAMPLED_EVERY).await;
    }
    let count = seen.len() as f64;
    let (mean_t, mean_d) = (
        seen.iter().map(|(t, _)| t).sum::<f64>() / count,
        seen.iter().map(|(_, d)| d).sum::<f64>() / count,
    );
    let over_t: f64 = seen.iter().map(|(t, _)| (t - mean_t).powi(2)).sum();
    let both: f64 = seen.iter().map(|(t, d)| (t - mean_t) * (d - mean_d)).sum();
    if over_t > 0.0 { both / over_t } else { 0.0 }
}
