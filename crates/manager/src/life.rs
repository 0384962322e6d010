//! The life of a manager: it serves, reads its settings again, drains, hands its socket to a successor, and ends.
//!
//! A manager that drains makes no new connections: it answers that programs should connect directly. One that was
//! replaced accepts nobody, and serves those whom it has accepted. The connections that either has go on until the last
//! one is done, or the limit of the settings is reached. It still says how connections ended, because programs ask that
//! on a new connection.

use std::fs::File;
use std::future::Future;
use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use crate::Error;
use crate::admission::{Admissions, affordable};
use crate::downstream::succession::{Predecessor, Succession, Taken};
use crate::protocol::Stats;
use crate::serve::admit;
use crate::settings::Settings;
use crate::state::State;

/// The pause after a failure to accept, such as a lack of descriptors.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);
/// The time that connections have to close when the manager ends.
const GOODBYE: Duration = Duration::from_secs(2);
/// The interval at which a manager that drains looks whether it is done.
const LOOK: Duration = Duration::from_millis(100);
/// The interval at which it says how many connections are left, and that it cannot accept.
const SAY: Duration = Duration::from_secs(30);
/// The limit of draining after a successor has taken over: nobody waits for this manager then.
const REPLACED: Duration = Duration::from_secs(24 * 3_600);

/// The stage of a manager's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    Serving,
    /// A successor accepts. Who was accepted before is served, however late it asks.
    Replaced,
    /// New connections are refused, and those that are open go on.
    Draining,
    /// All connections end.
    Ended,
}

/// An instruction to a running manager.
#[derive(Debug)]
pub enum Control {
    /// Serve new connections by these settings.
    Reload(Box<Settings>),
    /// Make no new connections, and end when the last one is done.
    Drain,
    /// End all connections now.
    Stop,
}

/// News of a running manager.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// It serves programs.
    Ready,
    /// New connections are served by the new settings.
    Reloaded {
        /// The settings that differ and take effect only at the next start.
        at_next_start: Vec<&'static str>,
    },
    /// The new settings cannot be used, and the old ones stay.
    NotReloaded(Error),
    /// It drains.
    Drains {
        /// The open connections.
        left: usize,
        /// The longest time that it takes.
        limit: Duration,
        /// True if another manager has taken over.
        is_replaced: bool,
    },
    /// It still drains, and has this many connections.
    Left(usize),
    /// The limit of draining is reached, and this many connections break off.
    CutOff(usize),
    /// Programs wait, because none can be accepted. Told once in thirty seconds.
    CannotAccept(io::Error),
}

/// The sockets with which a manager starts.
#[derive(Debug)]
pub struct Sockets {
    /// The socket at which programs ask, which must not block.
    pub listener: std::os::unix::net::UnixListener,
    /// The lock of the socket's path.
    pub lock: Option<File>,
    /// The manager that gave the socket up, or will.
    pub predecessor: Option<Predecessor>,
}

/// Serves programs until `shutdown` completes, then ends every connection. Returns the counters. Calls `ready` when
/// the manager accepts connections.
///
/// # Errors
/// The manager cannot start.
pub async fn run(
    listener: UnixListener,
    settings: Settings,
    ready: impl FnOnce(),
    shutdown: impl Future<Output = ()>,
) -> Result<Stats, Error> {
    let (controls, received) = unbounded_channel();
    let mut ready = Some(ready);
    let tell = |event| {
        if let (Event::Ready, Some(ready)) = (event, ready.take()) {
            ready();
        }
    };
    let listener = listener.into_std().map_err(cannot("listen"))?;
    let sockets = Sockets { listener, lock: None, predecessor: None };
    let stop = async {
        shutdown.await;
        // A manager that has ended needs no instruction.
        let _ = controls.send(Control::Stop);
        std::future::pending().await
    };
    tokio::select! {
        done = serve(sockets, settings, received, tell) => done,
        never = stop => never,
    }
}

/// Serves programs as `controls` say. Returns the counters. Calls `tell` with the news.
///
/// # Errors
/// The manager cannot start, or its predecessor does not hand over.
pub async fn serve(
    sockets: Sockets,
    settings: Settings,
    mut controls: UnboundedReceiver<Control>,
    tell: impl FnMut(Event),
) -> Result<Stats, Error> {
    let (given, mut takers) = unbounded_channel();
    let Sockets { listener, lock, predecessor } = sockets;
    let succession = Succession::new(&listener, lock, given).map_err(cannot("copy the socket"))?;
    let listener = UnixListener::from_std(listener).map_err(cannot("wait on the socket"))?;
    let mut life = Life::new(settings, succession, tell)?;
    if let Some(predecessor) = predecessor {
        // Last: nothing keeps this manager from serving now.
        let followed = life.state.succession.follow(predecessor).await;
        followed.map_err(cannot("take over from the manager that serves"))?;
    }
    let mut listener = Some(listener);
    let mut next_complaint = Instant::now();
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    (life.tell)(Event::Ready);
    while !life.is_over() {
        let drains = life.drains.is_some();
        tokio::select! {
            Some(control) = controls.recv() => life.obey(control),
            Some(_) = life.tasks.join_next() => {}
            Some(taken) = takers.recv() => {
                listener = None;
                life.replaced(taken);
            }
            _ = looks.tick(), if drains => life.look(),
            accepted = accept(listener.as_ref()) => match accepted {
                Ok(stream) => life.admit(stream),
                Err(error) => {
                    if Instant::now() >= next_complaint {
                        next_complaint = Instant::now() + SAY;
                        (life.tell)(Event::CannotAccept(error));
                    }
                    tokio::time::sleep(ACCEPT_AGAIN).await;
                }
            },
        }
    }
    drop(listener);
    Ok(life.end().await)
}

fn cannot(what: &'static str) -> impl Fn(io::Error) -> Error {
    move |cause| Error::Process { what, cause }
}

async fn accept(listener: Option<&UnixListener>) -> io::Result<UnixStream> {
    match listener {
        Some(listener) => listener.accept().await.map(|(stream, _)| stream),
        None => std::future::pending().await,
    }
}

/// A manager that serves.
struct Life<T> {
    state: Arc<State>,
    admissions: Arc<Admissions>,
    phase: watch::Sender<Phase>,
    /// One for each connection.
    tasks: JoinSet<()>,
    drains: Option<Drain>,
    /// Alive until the successor has been told that it serves.
    telling: Weak<()>,
    tell: T,
}

/// The progress of draining.
struct Drain {
    until: Instant,
    next_word: Instant,
}

impl<T: FnMut(Event)> Life<T> {
    fn new(settings: Settings, succession: Succession, tell: T) -> Result<Self, Error> {
        let state = Arc::new(State::new(afforded(settings), succession)?);
        let (phase, _) = watch::channel(Phase::Serving);
        let (admissions, tasks) = (Arc::default(), JoinSet::new());
        let (drains, telling) = (None, Weak::new());
        Ok(Self { state, admissions, phase, tasks, drains, telling, tell })
    }

    fn admit(&mut self, stream: UnixStream) {
        let (state, phase) = (Arc::clone(&self.state), self.phase.subscribe());
        let admissions = Arc::clone(&self.admissions);
        self.tasks.spawn(async move { admit(state, &admissions, stream, phase).await });
    }

    fn obey(&mut self, control: Control) {
        match control {
            Control::Reload(settings) => self.reload(*settings),
            Control::Drain => {
                let limit = Duration::from_secs(self.state.settings.drain_s);
                self.drain(limit, false);
            }
            Control::Stop => {
                self.phase.send_replace(Phase::Ended);
            }
        }
    }

    fn reload(&mut self, settings: Settings) {
        let at_next_start = self.state.settings.not_reloaded(&settings);
        let event = match self.state.renewed(afforded(settings)) {
            Ok(state) => {
                self.state = Arc::new(state);
                Event::Reloaded { at_next_start }
            }
            Err(error) => Event::NotReloaded(error),
        };
        (self.tell)(event);
    }

    /// Drains, because another manager has the socket now.
    fn replaced(&mut self, taken: Taken) {
        self.telling = taken.confirm();
        self.drain(REPLACED, true);
    }

    fn drain(&mut self, limit: Duration, is_replaced: bool) {
        let now = Instant::now();
        self.drains = Some(Drain { until: now + limit, next_word: now + SAY });
        self.phase.send_replace(if is_replaced { Phase::Replaced } else { Phase::Draining });
        (self.tell)(Event::Drains { left: self.tasks.len(), limit, is_replaced });
    }

    /// Looks at the time, while draining.
    fn look(&mut self) {
        let (Some(drain), now) = (&mut self.drains, Instant::now()) else { return };
        if now >= drain.until {
            (self.tell)(Event::CutOff(self.tasks.len()));
            self.phase.send_replace(Phase::Ended);
        } else if now >= drain.next_word {
            drain.next_word = now + SAY;
            (self.tell)(Event::Left(self.tasks.len()));
        }
    }

    fn is_over(&self) -> bool {
        let now_ms = self.state.settings.clock.now_ms();
        let is_idle = || {
            self.tasks.is_empty()
                && self.telling.strong_count() == 0
                && !self.state.endings.awaits_questions(now_ms)
                && !self.state.succession.has_draining_predecessor()
        };
        *self.phase.borrow() == Phase::Ended || (self.drains.is_some() && is_idle())
    }

    /// Ends the connections. Returns the counters.
    async fn end(mut self) -> Stats {
        self.phase.send_replace(Phase::Ended);
        let all_gone = async { while self.tasks.join_next().await.is_some() {} };
        // Connections that are open after that are dropped.
        let _ = timeout(GOODBYE, all_gone).await;
        self.state.counts.of(0, self.state.sessions.count())
    }
}

/// Reduces the connections to those for which there are descriptors.
fn afforded(settings: Settings) -> Settings {
    Settings { connections: settings.connections.min(affordable()), ..settings }
}
