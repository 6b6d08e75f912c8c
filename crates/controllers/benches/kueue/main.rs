//! Kueue's scheduler benchmark in virtual time: `cargo bench -p controllers --bench kueue -- [PROGRAM] [PERCENT]`, where PROGRAM
//! is `floor` or `muster` (by default one after the other) and PERCENT is the share of the 15,000 Workloads.
//!
//! The API server in memory answers each write after the time that it costs a real one ([`server`]); thinking takes no time. So
//! the result depends on the writes and on what waits for what, and not on the machine. It prints a table, and asserts nothing:
//! time, waits, writes, and the time that the loop of the controller has thought. The queues, Workloads and their end are those of
//! `test/performance/scheduler` of Kueue ([`runner`]).

mod floor;
mod runner;
mod server;

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use controllers::{Config, Controller, Kueue, KueueOptions};
use runner::{Outcome, Runner};
use server::Server;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--test") {
        return; // `cargo test --benches` only checks that it builds.
    }
    let percent = arguments.iter().find_map(|argument| argument.parse().ok()).unwrap_or(100);
    let has_name = |name: &str| arguments.iter().any(|argument| argument == name);
    let is_one = has_name("floor") || has_name("muster");
    println!("| program | time | wait of small / medium / large | evictions | writes by Workload | loop |");
    println!("| --- | --- | --- | --- | --- | --- |");
    for name in ["floor", "muster"].into_iter().filter(|name| !is_one || has_name(name)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.expect("a runtime").block_on(measure(name, percent));
    }
}

async fn measure(name: &str, percent: usize) {
    let server = Server::start().await;
    let client = server.client(name);
    let thought = Arc::<AtomicU64>::default();
    let (spent, clock) = (thought.clone(), server.clock.clone());
    let program = name.to_owned();
    let running = tokio::spawn(async move {
        if program == "floor" {
            return floor::run(client).await;
        }
        let config = Config {
            groups: Vec::new(),
            kueue: Kueue::Scheduler,
            kueue_options: KueueOptions::default(),
            clock,
            ..Config::default()
        };
        let mut run = pin!(Controller::new(client, config).run(std::future::pending()));
        let ended = poll_fn(|context| {
            let began = Instant::now();
            let ended = run.as_mut().poll(context);
            let us = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
            spent.fetch_add(us, Ordering::Relaxed);
            ended
        });
        ended.await.expect("the controller runs");
    });
    let Outcome { time, count, waits, evictions } = Runner::run(&server, percent).await;
    running.abort();
    let per = |writes: u32| f64::from(writes) / f64::from(count);
    let writes = server.writes();
    let writes =
        writes.iter().map(|((client, kind), writes)| format!("{client}: {kind} {:.2}", per(*writes)));
    let waits = waits.map(|wait| format!("{:.1}", wait.as_secs_f64())).join(" / ");
    let thought = Duration::from_micros(thought.load(Ordering::Relaxed));
    println!(
        "| {name} | {:.1} s | {waits} s | {evictions} | {} | {:.2} s |",
        time.as_secs_f64(),
        writes.collect::<Vec<_>>().join(", "),
        thought.as_secs_f64()
    );
}
