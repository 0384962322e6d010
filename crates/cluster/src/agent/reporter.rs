//! Reports this machine to all who have the cluster's key, by the Valkey of its site.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rejoin_store::Store;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use super::{Agent, Told, mailbox, unix_ms};
use crate::health::Health;
use crate::link::is_refusal;
use crate::wrapping_key::fill_at_random;
use crate::{ClusterName, ClusterSecret, Error, Link, Machines, Report, Settings};

/// The thing that Valkey does not do, for [`Error::Refused`].
const TAKES_NO_REPORT: &str = "takes no report of this machine";

/// The reports of one agent.
pub(super) struct Reporter {
    cluster: ClusterName,
    store: Arc<Store>,
    health: Arc<Health>,
    /// Where the reports go, and the last one.
    place: Mutex<(Arc<Machines>, Report)>,
    is_name_shared: AtomicBool,
    trouble: Mutex<Trouble>,
}

/// Reasons why a machine is not shown, or not alone.
#[derive(Default)]
struct Trouble {
    shared: Told,
    refused: Told,
    /// The last, until somebody takes it.
    last: Option<Error>,
}

impl Reporter {
    /// The interval of reports, unless there is news.
    const EVERY: Duration = Duration::from_secs(10);
    const LOOK_EVERY: Duration = Duration::from_secs(1);

    pub(super) fn new(
        settings: &Settings,
        secret: &ClusterSecret,
        store: &Arc<Store>,
        health: &Arc<Health>,
    ) -> Result<Self, Error> {
        let mut agent = [0; 8];
        fill_at_random(&mut agent)?;
        let now_ms = unix_ms();
        let report = Report::new(settings.machine(), settings.site.clone(), secret.key_name());
        let report = Report { agent: u64::from_ne_bytes(agent), since_ms: now_ms, ..report };
        let machines = Arc::new(Machines::new(&settings.name, secret));
        Ok(Self {
            cluster: settings.name.clone(),
            store: Arc::clone(store),
            health: Arc::clone(health),
            place: Mutex::new((machines, report)),
            is_name_shared: AtomicBool::new(false),
            trouble: Mutex::default(),
        })
    }

    /// Reports with the keys of this secret from now on.
    pub(super) fn set_secret(&self, secret: &ClusterSecret) {
        let machines = Arc::new(Machines::new(&self.cluster, secret));
        let mut place = lock(&self.place);
        place.0 = machines;
        place.1.key = secret.key_name();
    }

    /// Returns a reason why this machine is not shown, or not alone. Each is returned once.
    pub(super) fn take_trouble(&self) -> Option<Error> {
        lock(&self.trouble).last.take()
    }

    /// Reports every ten seconds, and within a second when there is news. Never ends. What Valkey does not take is
    /// reported again at the next turn.
    pub(super) async fn run(&self, mut link: Link) {
        let mut look = interval(Self::LOOK_EVERY);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut last, mut reported_ms) = (None, None);
        loop {
            look.tick().await;
            let (machines, report) = self.report();
            let is_fresh = |(at, of): &(Instant, Report)| {
                at.elapsed() < Self::EVERY && !report.is_news_after(of)
            };
            if last.as_ref().is_some_and(is_fresh) {
                continue;
            }
            let put = timeout(Agent::ANSWERS_WITHIN, machines.put(&mut link, &report)).await;
            match put {
                Ok(Ok(before)) => {
                    // An earlier report is that of an agent before: the first one replaces it, and a Valkey that lost
                    // writes may have it again.
                    let is_later = |of: &Report| reported_ms.is_some_and(|own| of.at_ms > own);
                    let is_shared =
                        before.is_some_and(|of| of.agent != report.agent && is_later(&of));
                    self.note_shared(is_shared, &report);
                    reported_ms = Some(report.at_ms);
                    // It is told again if Valkey refuses a later one.
                    lock(&self.trouble).refused = Told::default();
                }
                Ok(Err(error)) => self.note_error(error),
                // It is noticed by whoever follows the ring.
                Err(_) => {}
            }
            last = Some((Instant::now(), report));
        }
    }

    fn report(&self) -> (Arc<Machines>, Report) {
        let (machines, mut report) = lock(&self.place).clone();
        report.at_ms = unix_ms();
        report.ring_version = self.store.ring_version();
        report.is_name_shared = self.is_name_shared.load(Relaxed);
        report.count(&self.health.read(), &mailbox(&self.store).facts());
        (machines, report)
    }

    fn note_shared(&self, is_shared: bool, report: &Report) {
        self.is_name_shared.store(is_shared, Relaxed);
        if is_shared {
            let machine = report.machine.clone();
            self.note_trouble(|trouble| &mut trouble.shared, Error::SharedName { machine });
        }
    }

    fn note_error(&self, error: Error) {
        match error {
            Error::Valkey(cause) if is_refusal(&cause) => {
                let error = Error::Refused { what: TAKES_NO_REPORT, cause };
                self.note_trouble(|trouble| &mut trouble.refused, error);
            }
            // It is noticed by whoever follows the ring, or looks for the primary or the user's rights.
            Error::Valkey(_) => {}
            error => self.note_trouble(|trouble| &mut trouble.refused, error),
        }
    }

    fn note_trouble(&self, of: impl FnOnce(&mut Trouble) -> &mut Told, error: Error) {
        let mut trouble = lock(&self.trouble);
        if of(&mut trouble).is_news_of(&error, Instant::now().into_std()) {
            trouble.last = Some(error);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
