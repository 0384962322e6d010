//! Machines of three sites that lose the ring's home and reach it again in any order, while keys become due and are revoked,
//! the home is restored or emptied, copies are lost, and machines forget: no key that all had is lost before its turn is over,
//! no turn has two keys, and no revoked key comes back.

use std::collections::{HashMap, HashSet};
use std::net::Ipv4Addr;

use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rejoin_tickets::{KeyId, KeyRing};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::site_rings::{HOME, Held, Machine, NOW_S, TURN_S, World};

const STEPS: usize = 40;
/// The sites of the machines.
const SITES: [usize; 4] = [HOME, 1, 1, 2];

/// A way to the home, which ends all connections while it is cut.
pub(crate) struct Way {
    pub(crate) port: u16,
    is_cut: watch::Sender<bool>,
}

impl Way {
    pub(crate) async fn to(target: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let (is_cut, cut) = watch::channel(false);
        tokio::spawn(async move {
            while let Ok((mut from, _)) = listener.accept().await {
                let mut cut = cut.clone();
                tokio::spawn(async move {
                    let pass = async {
                        let mut to = TcpStream::connect((Ipv4Addr::LOCALHOST, target)).await?;
                        tokio::io::copy_bidirectional(&mut from, &mut to).await
                    };
                    tokio::select! {
                        _ = pass => {}
                        _ = cut.wait_for(|is_cut| *is_cut) => {}
                    }
                });
            }
        });
        Self { port, is_cut }
    }

    pub(crate) fn set_cut(&self, is_cut: bool) {
        self.is_cut.send_replace(is_cut);
    }

    fn is_cut(&self) -> bool {
        *self.is_cut.borrow()
    }
}

struct Scene {
    world: World,
    random: ChaCha8Rng,
    ways: Vec<Way>,
    machines: Vec<Machine>,
    now_s: u64,
    /// A ring that was in the home before.
    earlier: Option<Held>,
    /// The keys that all machines had, and when their turn began.
    known: HashMap<KeyId, u64>,
    revoked: HashSet<KeyId>,
}

impl Scene {
    async fn new(seed: u64) -> Self {
        let world = World::new();
        let (mut ways, mut machines) = (Vec::new(), Vec::new());
        for site in SITES {
            let way = Way::to(world.valkeys[HOME].port).await;
            machines.push(world.machine_by(site, way.port, world.keys()).await);
            ways.push(way);
        }
        Self {
            world,
            random: ChaCha8Rng::seed_from_u64(seed),
            ways,
            machines,
            now_s: NOW_S,
            earlier: None,
            known: HashMap::new(),
            revoked: HashSet::new(),
        }
    }

    async fn step(&mut self) {
        self.now_s += self.random.random_range(0..TURN_S / 3);
        let at = self.random.random_range(0..SITES.len());
        let are_whole = self.ways.iter().all(|way| !way.is_cut());
        match self.random.random_range(0..12) {
            0..4 => self.ways[at].set_cut(true),
            4..7 => self.ways[at].set_cut(false),
            7 => self.revoke().await,
            8 => self.restore().await,
            9 => drop(self.world.valkeys[HOME].say("FLUSHALL")),
            10 => drop(self.world.valkeys[1 + at % 2].say("FLUSHALL")),
            // A machine that forgets while others are cut off may have been the only one to know.
            _ if are_whole => {
                let keys = self.world.keys();
                self.machines[at] =
                    self.world.machine_by(SITES[at], self.ways[at].port, keys).await;
            }
            _ => self.ways.iter().for_each(|way| way.set_cut(false)),
        }
        self.follow().await;
    }

    async fn follow(&mut self) {
        let mut order: Vec<_> = (0..SITES.len()).collect();
        order.shuffle(&mut self.random);
        for at in order {
            self.machines[at].0.follow(self.now_s).await;
            self.check(at);
        }
    }

    fn check(&self, at: usize) {
        let Some(ring) = self.machines[at].0.ring() else { return };
        let keys: Vec<_> = ring.list(self.now_s).collect();
        for turns in keys.windows(2) {
            let apart_s = turns[1].encrypts_from_s - turns[0].encrypts_from_s;
            assert!(apart_s >= TURN_S, "two keys within {apart_s} s");
        }
        if !self.ways[at].is_cut() {
            let ids = keys.iter().map(|key| key.id).collect::<HashSet<_>>();
            assert!(ids.is_disjoint(&self.revoked), "a revoked key is back");
        }
    }

    async fn revoke(&mut self) {
        let keys: Vec<_> = self.known.keys().copied().collect();
        // One that is encrypting would leave no key for a while.
        let Some(id) = keys.into_iter().min_by_key(|id| self.known[id]) else { return };
        if self.known.len() > 2 && self.settle().await.is_some_and(|ring| has(&ring, &id)) {
            self.world.revoke(&id).await;
            self.known.remove(&id);
            self.revoked.insert(id);
            self.settle().await;
        }
    }

    /// Puts an older ring into the home, and notes the one that was there.
    async fn restore(&mut self) {
        let Some(now) = self.settle().await.map(|_| self.world.held(HOME)) else { return };
        let now = now.await;
        if let Some(earlier) = self.earlier.replace(now) {
            self.world.put(HOME, &earlier).await;
        }
    }

    /// Lets all reach the home, and waits until they have the same ring. Returns it, and notes its keys.
    async fn settle(&mut self) -> Option<KeyRing> {
        self.ways.iter().for_each(|way| way.set_cut(false));
        let began = std::time::Instant::now();
        loop {
            self.follow().await;
            let rings: Vec<_> = self.machines.iter().map(|machine| machine.0.keys()).collect();
            let versions: Vec<_> = rings.iter().map(|keys| keys.version()).collect();
            let is_same = rings.iter().all(|keys| keys.ring().is_some())
                && versions.iter().all(|version| *version == versions[0]);
            if is_same {
                break;
            }
            assert!(began.elapsed() < rejoin_testkit::process::DEADLINE, "{versions:?}");
        }
        let ring = self.machines[0].0.ring().cloned()?;
        for machine in &self.machines[1..] {
            assert!(machine.0.ring().is_some_and(|other| other.list(0).eq(ring.list(0))));
        }
        for (id, begins_s) in &self.known {
            assert!(has(&ring, id) || self.now_s > begins_s + TURN_S, "a key is lost");
        }
        self.known = ring.list(self.now_s).map(|key| (key.id, key.encrypts_from_s)).collect();
        Some(ring)
    }
}

fn has(ring: &KeyRing, id: &KeyId) -> bool {
    ring.list(0).any(|key| key.id == *id)
}

#[tokio::test]
async fn no_key_is_lost_or_made_twice_however_sites_are_cut_off() {
    let mut scene = Scene::new(7).await;
    let mut settled = 0;
    for step in 0..STEPS {
        scene.step().await;
        if step % 8 == 7 {
            settled += usize::from(scene.settle().await.is_some());
        }
    }
    assert!(settled == STEPS / 8 && !scene.known.is_empty());
}
