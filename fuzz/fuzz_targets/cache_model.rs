//! The engine against the naive exact model that its own tests use.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rejoin_cache::{Layout, Line};

mod input;

use input::{Input, client_of, context_of};
use rejoin_testkit::cache_model::operation::{New, Operation};
use rejoin_testkit::cache_model::twins::Twins;

fuzz_target!(|input: Input| {
    let memory = |layout: &Layout| vec![Line::ZERO; layout.region_lines()];
    let (settings, hash_key) = (input.cache.settings(), input.cache.hash_key);
    let mut twins = Twins::new(&settings, hash_key, input::CLIENTS, 0, memory);
    let mut now_ms = 0;
    for (step, operation) in input.operations {
        now_ms = step.after(now_ms);
        twins.apply(now_ms, translate(now_ms, operation));
        twins.compare_counters();
    }
    twins.compare_all(now_ms, &[context_of(false), context_of(true)]);
});

fn translate(now_ms: u64, operation: input::Operation) -> Operation {
    let (client, context) = (client_of, context_of);
    match operation {
        input::Operation::Get { client: c, foreign } => {
            Operation::Get { client: client(c), context: context(foreign) }
        }
        input::Operation::Peek { client: c, foreign } => {
            Operation::Peek { client: client(c), context: context(foreign) }
        }
        input::Operation::Take { client: c, foreign } => {
            Operation::Take { client: client(c), context: context(foreign) }
        }
        input::Operation::Insert { client: c, new } => {
            let new = New {
                value_bytes: new.value_bytes.into(),
                expires_ms: now_ms + u64::from(new.lifetime_ms),
                context: context(new.foreign),
                hint_ms: new.hint_ms.map(u64::from),
                sibling: new.sibling,
                seen_ms: new.seen_ago_ms.map(|ago_ms| now_ms.saturating_sub(ago_ms.into())),
                with_history: new.with_history,
            };
            Operation::Insert { client: client(c), new }
        }
        input::Operation::Hint { client: c, interval_ms } => {
            Operation::Hint { client: client(c), interval_ms: interval_ms.into() }
        }
        input::Operation::Retire { client: c } => Operation::Retire { client: client(c) },
        input::Operation::Remove { client: c } => Operation::Remove { client: client(c) },
    }
}
