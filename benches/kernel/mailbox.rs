//! The workloads under criterion: wall clock time, for people and plots. Regressions are judged by
//! `mailbox_table`.

#[macro_use]
#[expect(
    dead_code,
    reason = "CPU time is for the table, the slow agents for the stress bench"
)]
mod contest;

use std::time::Duration;

use contest::Contestant;
use contest::works::{self, Work};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

/// Maximum number of operations in one iteration: criterion would ask for more agents than fit in
/// memory.
const OPERATIONS_MAX: u64 = 100_000;
/// Measuring time for each contestant and workload, in seconds.
const MEASUREMENT_S: u64 = 2;
/// Minimum that criterion allows; medians come from `mailbox_table`.
const SAMPLES: usize = 10;

fn mailbox(criterion: &mut Criterion) {
    for work in Work::ALL {
        for bench in contestants!(bench) {
            bench(criterion, work);
        }
    }
}

fn bench<C: Contestant>(criterion: &mut Criterion, work: Work) {
    let mut group = criterion.benchmark_group(work.name());
    group
        .throughput(Throughput::Elements(1))
        .sample_size(SAMPLES);
    group
        .measurement_time(Duration::from_secs(MEASUREMENT_S))
        .warm_up_time(Duration::from_millis(200));
    group.bench_function(C::NAME, |bencher| {
        bencher.iter_custom(|operations| {
            let mut left = operations;
            let mut wall = Duration::ZERO;
            while left > 0 {
                let sample = works::run::<C>(work, left.min(OPERATIONS_MAX));
                left = left.saturating_sub(sample.operations);
                wall += sample.wall;
            }
            wall
        });
    });
    group.finish();
}

criterion_group!(benches, mailbox);
criterion_main!(benches);
