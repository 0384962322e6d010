//! Locks that threads hold inside the gate, and fork(2).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use libc::c_int;
use openssl::ssl::{Ssl, SslContext, SslMethod};
use openssl_sys::SSL;
use rejoin_hop::{Offer, guarded};
use rejoin_openssl::Extra;
use rejoin_testkit::alone::alone;

static VALUES: Extra<SSL, Box<usize>> = Extra::new();

/// A thread's own SSL.
struct Own(Ssl);

impl Own {
    fn new(context: &SslContext) -> Self {
        Self(Ssl::new(context).expect("an SSL"))
    }

    fn put(&self, value: usize) {
        use foreign_types::ForeignTypeRef;
        // SAFETY: the SSL is valid, and nobody else uses it or has its value.
        guarded(|| unsafe { VALUES.put(self.0.as_ptr(), Box::new(value)) }.is_some());
    }
}

/// Forks. Returns the time that this took, and whether the child could do what connections do, within five seconds.
fn forked(own: &Own) -> (Duration, bool) {
    let since = Instant::now();
    // SAFETY: the child takes only locks that fork(2) waits for, and ends.
    let child = unsafe { libc::fork() };
    let took = since.elapsed();
    if child == 0 {
        // SAFETY: the function takes a number. The alarm ends the child.
        unsafe { libc::alarm(5) };
        own.put(1);
        let made = guarded(|| Offer::make(&[])).flatten();
        rejoin_abi::report("");
        // SAFETY: it ends this process, and runs nothing of the parent's.
        unsafe { libc::_exit(c_int::from(made.is_none())) };
    }
    let mut status = 0;
    // SAFETY: it waits for the child.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    (took, status == 0)
}

#[test]
fn children_find_nothing_locked_that_are_forked_among_busy_threads() {
    alone(|| {
        super::rejoin_client_hooks();
        let context = Arc::new(SslContext::builder(SslMethod::tls_client()).expect("one").build());
        let (ends, rounds) = (AtomicBool::new(false), AtomicUsize::new(0));
        let own = Own::new(&context);
        let (mut longest, mut hung) = (Duration::ZERO, 0);
        std::thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    let own = Own::new(&context);
                    while !ends.load(Ordering::Relaxed) {
                        own.put(rounds.fetch_add(1, Ordering::Relaxed));
                        guarded(|| Offer::make(&[]).iter().for_each(|offer| offer.withdraw()));
                    }
                });
            }
            for _ in 0..200 {
                let (took, is_well) = forked(&own);
                hung += usize::from(!is_well);
                longest = longest.max(took);
            }
            ends.store(true, Ordering::Relaxed);
        });
        assert_eq!(hung, 0);
        assert!(longest < Duration::from_millis(900), "{longest:?}");
        assert!(rounds.into_inner() > 200);
    });
}
